// A broker that offers and refuses what it is told: franz-go's kfake, an implementation of Kafka's protocol that shares no
// code with Apache Kafka or with any client of ratchet's.
//
// It has the topics "in" and "out" with one partition each, and this many records in "in". Then it begins anew with the
// same data, and offers only so much of each request; what it does not offer it does not answer either. Commands on
// standard input are answered by a line each:
//
//	committed GROUP   the group's committed offset of "in", -1 for none
//	more              writes the first record to "in" once more, then as many new ones as it began with; "done"
//	records           ends the broker; the values of all committed records in "out", in order
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

func main() {
	folder := flag.String("data", "", "an empty folder")
	count := flag.Int("records", 0, "how many records the input has")
	ahead := flag.Duration("ahead", 0, "how far the record in the middle is ahead of the present")
	brokers := flag.Int("brokers", 2, "how many brokers there are")
	most := flag.String("most", "", "KEY=VERSION,...: the highest version of a request, -1 for none")
	refuse := flag.String("refuse", "", "KEY=CODE,...: each such request fails with this error of Kafka's")
	flag.Parse()

	options := []kfake.Opt{
		kfake.NumBrokers(*brokers),
		kfake.DataDir(*folder),
		kfake.GroupMinSessionTimeout(time.Second),
	}
	seed(options, *count, *ahead)

	versions := kversion.Stable()
	for key, version := range pairs(*most) {
		versions.SetMaxKeyVersion(int16(key), int16(version))
	}
	cluster := must(kfake.NewCluster(append(options, kfake.MaxVersions(versions))...))
	for key, code := range pairs(*refuse) {
		for _, top := range []bool{true, false} {
			failure := kerr.TypedErrorForCode(int16(code))
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Key(key)}, TopLevel: top, Err: failure, Count: -1})
		}
	}
	fmt.Println(strings.Join(cluster.ListenAddrs(), ","))

	next, now := *count, func(int) time.Time { return time.Now() }
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "committed":
			fmt.Println(committed(cluster, words[1]))
		case "more":
			write(cluster, 0, 1, now)
			write(cluster, next, *count, now)
			next += *count
			fmt.Println("done")
		case "records":
			cluster.Close()
			fmt.Println(strings.Join(forwarded(options), " "))
			return
		}
	}
}

// seed fills the topics, with nothing hidden.
func seed(options []kfake.Opt, count int, ahead time.Duration) {
	cluster := must(kfake.NewCluster(append(options, kfake.SeedTopics(1, "in", "out"))...))
	defer cluster.Close()
	write(cluster, 0, count, func(number int) time.Time {
		if number == count/2 {
			return time.Now().Add(ahead)
		}
		return time.Now()
	})
}

// write appends so many records to the input, beginning with this number.
func write(cluster *kfake.Cluster, first, count int, at func(number int) time.Time) {
	// The broker may not give ids to producers.
	client := must(kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("in"), kgo.DisableIdempotentWrite(),
	))
	defer client.Close()
	for number := first; number < first+count; number++ {
		value := []byte(fmt.Sprintf(`{"id":"%d"}`, number))
		record := &kgo.Record{Value: value, Key: []byte(strconv.Itoa(number)), Timestamp: at(number)}
		check(client.ProduceSync(context.Background(), record).FirstErr())
	}
}

// forwarded reads the output, with nothing hidden.
func forwarded(options []kfake.Opt) []string {
	cluster := must(kfake.NewCluster(options...))
	defer cluster.Close()
	end := cluster.PartitionInfo("out", 0).LastStableOffset
	client := must(kgo.NewClient(
		kgo.SeedBrokers(cluster.ListenAddrs()...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"out": {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(),
	))
	defer client.Close()
	var values []string
	for next := int64(0); next < end; {
		fetches := client.PollFetches(context.Background())
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				values = append(values, string(record.Value))
			}
			next = record.Offset + 1
		})
	}
	return values
}

func committed(cluster *kfake.Cluster, group string) int64 {
	if info := cluster.GroupInfo(group); info != nil {
		if commit, ok := info.Commits["in"][0]; ok {
			return commit.Offset
		}
	}
	return -1
}

// pairs reads KEY=NUMBER,...
func pairs(text string) map[int]int {
	all := map[int]int{}
	for _, pair := range strings.Split(text, ",") {
		if key, value, found := strings.Cut(pair, "="); found {
			all[must(strconv.Atoi(key))] = must(strconv.Atoi(value))
		}
	}
	return all
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake:", err)
		os.Exit(1)
	}
}
