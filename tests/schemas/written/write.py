"""Writes records.jsonl: payments as Confluent's serializers write them, and the schemas as they register them.

Needs a schema registry whose subjects payments-* are new, and

    python3 -m pip install 'confluent-kafka[avro,protobuf,json]' grpcio-tools

    ./write.py http://localhost:8080/apis/ccompat/v7
"""

import base64
import datetime
import decimal
import importlib
import json
import pathlib
import subprocess
import sys
import tempfile

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

HERE = pathlib.Path(__file__).parent
# Schema, id and version of each. The verdicts: forwarded, forwarded, duplicate, forwarded, duplicate, stale, forwarded.
PAYMENTS = [(1, "p1", 1), (1, "p2", 1), (1, "p1", 1), (2, "p1", 2), (2, "p2", 1), (1, "p1", 1), (2, "p3", 1)]
PAID_AT = datetime.datetime(2026, 3, 1, 12, 30, 15, 250000, tzinfo=datetime.timezone.utc)


def plain(schema, id, version):
    fields = {"id": id, "version": version, "amount": version + 0.25}
    return fields if schema == 1 else fields | {"channel": "WEB"}


def avro(schema, id, version):
    fields = {
        "id": id,
        "version" if schema == 1 else "revision": version,
        "amount": decimal.Decimal(version) + decimal.Decimal("0.25"),
        "paid_at": PAID_AT,
        "due": datetime.date(2026, 4, version) if version > 1 else None,
    }
    items = [{"sku": "s-1", "labels": {"size": "xl", "colour": "green"}}, {"sku": "s-2", "labels": {}}]
    return fields if schema == 1 else fields | {"channel": "SHOP", "items": items}


def protobuf(module, schema, id, version):
    payment = module.Payment(id=id, version=version, amount=version + 0.25)
    if schema == 2:
        payment.channel = "WEB"
        payment.items.add(sku="s-1").labels["size"] = "xl"
        payment.items.add(sku="s-2")
    return payment


def modules():
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        for schema in (1, 2):
            # Each module gets a descriptor pool of its own, since both define the same names.
            yield schema, compiled(folder, f"payment_{schema}")


def compiled(folder, name):
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{HERE}", f"--python_out={folder}", f"{name}.proto"]
    subprocess.run(command, check=True)
    path = pathlib.Path(folder, f"{name}_pb2.py")
    path.write_text(path.read_text().replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()"))
    return importlib.import_module(f"{name}_pb2")


def main(url):
    registry = SchemaRegistryClient({"url": url})
    lines = []

    def serialize(format, serializers, value_of):
        topic = f"payments-{format}"
        for schema, id, version in PAYMENTS:
            value = serializers[schema](value_of(schema, id, version), SerializationContext(topic, MessageField.VALUE))
            number = int.from_bytes(value[1:5], "big")
            lines.append({"format": format, "schema": schema, "id": id, "version": version,
                          "value": base64.b64encode(value).decode(), "number": number})

    text = lambda name: (HERE / name).read_text()
    serialize("avro", {n: AvroSerializer(registry, text(f"payment-{n}.avsc")) for n in (1, 2)}, avro)
    serialize("json_schema", {n: JSONSerializer(text(f"payment-{n}.json"), registry) for n in (1, 2)}, plain)
    messages = dict(modules())
    by_message = {n: ProtobufSerializer(module.Payment, registry, {"use.deprecated.format": False})
                  for n, module in messages.items()}
    serialize("protobuf", by_message, lambda schema, id, version: protobuf(messages[schema], schema, id, version))

    # As they were registered.
    known = {}
    for line in lines:
        key = (line["format"], line["schema"])
        if key not in known:
            schema = registry.get_schema(line["number"])
            known[key] = {"format": line["format"], "schema": line["schema"], "type": schema.schema_type,
                          "text": schema.schema_str}
    with open(HERE / "records.jsonl", "w") as out:
        for line in list(known.values()) + lines:
            line.pop("number", None)
            out.write(json.dumps(line) + "\n")


main(sys.argv[1])
