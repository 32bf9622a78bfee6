// Judges histories of the proxy: whether each can be put into an order, one operation after the other, that keeps what
// idempotency promises. Porcupine looks for the order; what is promised stands in model.go.
//
// Reads files with one history a line. Ends with the first history that has no such order: prints its seed, and writes what
// porcupine shows of it beside the file.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/anishathalye/porcupine"
)

// A line may have this many bytes.
const lineMax = 64 << 20

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: judge FILE...")
		os.Exit(2)
	}
	count, operations := 0, 0
	for _, path := range os.Args[1:] {
		file, err := os.Open(path)
		if err != nil {
			fail("%v", err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, lineMax)
		for lines.Scan() {
			var history History
			if err := json.Unmarshal(lines.Bytes(), &history); err != nil {
				fail("%s: history %d: %v", path, count+1, err)
			}
			if picture := path + ".html"; !judge(&history, picture) {
				fail("%s, seed %d, store %s: no order of its operations keeps the promise; see %s",
					path, history.Seed, history.Store, picture)
			}
			count, operations = count+1, operations+len(history.Operations)
		}
		if err := lines.Err(); err != nil {
			fail("%s: %v", path, err)
		}
	}
	if count == 0 {
		fail("there are no histories")
	}
	fmt.Printf("histories: %d of %d operations are linearizable\n", count, operations)
}

// judge looks for an order; if there is none, it writes the picture, unless that has no name.
func judge(history *History, picture string) bool {
	model := modelOf(history.OnInDoubt)
	result, info := porcupine.CheckOperationsVerbose(model, operationsOf(history), 0)
	if result == porcupine.Ok {
		return true
	}
	if picture != "" {
		if err := porcupine.VisualizePath(model, info, picture); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return false
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "histories: "+format+"\n", args...)
	os.Exit(1)
}
