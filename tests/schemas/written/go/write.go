// Writes records.jsonl: what Confluent's serializer in Go makes of the payments of ../write.py, and of payments that are
// declared in another message, among its maps. ../README.md says how to run it.
package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde"
	"github.com/confluentinc/confluent-kafka-go/v2/schemaregistry/serde/protobuf"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

type payment struct {
	schema  int
	id      string
	version int64
}

var payments = []payment{
	{1, "p1", 1}, {1, "p2", 1}, {1, "p1", 1}, {2, "p1", 2}, {2, "p2", 1}, {1, "p1", 1}, {2, "p3", 1},
}

type line struct {
	Format  string `json:"format"`
	Schema  int    `json:"schema"`
	Type    string `json:"type,omitempty"`
	Text    string `json:"text,omitempty"`
	ID      string `json:"id,omitempty"`
	Version int64  `json:"version,omitempty"`
	Value   []byte `json:"value,omitempty"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// compiled returns the message of a name in one of the two schemas.
func compiled(folder, file, name string) protoreflect.MessageDescriptor {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
	}
	files, err := compiler.Compile(context.Background(), file)
	check(err)
	found, err := files.AsResolver().FindDescriptorByName(protoreflect.FullName(name))
	check(err)
	return found.(protoreflect.MessageDescriptor)
}

func message(of protoreflect.MessageDescriptor, payment payment) protoreflect.Message {
	message := dynamicpb.NewMessage(of)
	fields := of.Fields()
	message.Set(fields.ByName("id"), protoreflect.ValueOf(payment.id))
	message.Set(fields.ByName("version"), protoreflect.ValueOf(payment.version))
	if amount := fields.ByName("amount"); amount != nil {
		message.Set(amount, protoreflect.ValueOf(float64(payment.version)+0.25))
	}
	if amounts := fields.ByName("amounts"); amounts != nil {
		of := message.Mutable(amounts).Map()
		of.Set(protoreflect.ValueOf("EUR").MapKey(), protoreflect.ValueOf(float64(payment.version)+0.25))
	}
	if channel := fields.ByName("channel"); channel != nil {
		message.Set(channel, protoreflect.ValueOf("WEB"))
		list := message.Mutable(fields.ByName("items")).List()
		item := list.AppendMutable().Message()
		item.Set(item.Descriptor().Fields().ByName("sku"), protoreflect.ValueOf("s-1"))
		labels := item.Mutable(item.Descriptor().Fields().ByName("labels")).Map()
		labels.Set(protoreflect.ValueOf("size").MapKey(), protoreflect.ValueOf("xl"))
	}
	return message
}

func main() {
	client, err := schemaregistry.NewClient(schemaregistry.NewConfig(os.Args[1]))
	check(err)
	var schemas, records []line
	for _, kind := range []struct{ format, file, name string }{
		{"protobuf", "../payment_%d.proto", "shop.Payment"},
		{"nested", "nested_%d.proto", "shop.Order.Payment"},
	} {
		serializers := map[int]*protobuf.Serializer{}
		messages := map[int]protoreflect.MessageDescriptor{}
		known := map[int]bool{}
		for _, schema := range []int{1, 2} {
			// One for each: it knows schemas by the names of their files.
			serializers[schema], err = protobuf.NewSerializer(client, serde.ValueSerde, protobuf.NewSerializerConfig())
			check(err)
			path := fmt.Sprintf(kind.file, schema)
			messages[schema] = compiled(filepath.Dir(path), filepath.Base(path), kind.name)
		}
		for _, payment := range payments {
			of := message(messages[payment.schema], payment)
			value, err := serializers[payment.schema].Serialize("go-"+kind.format, of.Interface())
			check(err)
			if !known[payment.schema] {
				known[payment.schema] = true
				info, err := client.GetBySubjectAndID("", int(binary.BigEndian.Uint32(value[1:])))
				check(err)
				schema := line{Format: kind.format, Schema: payment.schema, Type: info.SchemaType, Text: info.Schema}
				schemas = append(schemas, schema)
			}
			records = append(records, line{
				Format: kind.format, Schema: payment.schema, ID: payment.id, Version: payment.version, Value: value,
			})
			fmt.Fprintln(os.Stderr, kind.format, payment, base64.StdEncoding.EncodeToString(value))
		}
	}
	file, err := os.Create("records.jsonl")
	check(err)
	for _, line := range append(schemas, records...) {
		check(json.NewEncoder(file).Encode(line))
	}
	check(file.Close())
}
