"""One application of Quix Streams, and the jobs."""

import logging
import os
import time

import orjson
from quixstreams import Application
from quixstreams.state.rocksdb import RocksDBOptions


def run(part, number, met_a_record):
    """Returns after SIGTERM. `met_a_record` is called once."""
    logging.getLogger("quixstreams").addHandler(EventPrinter(number))
    app = application(int(os.environ.get("BENCH_COMMIT_MS", "100")) / 1000, number)
    raw = {
        "key_serializer": "bytes",
        "value_serializer": "bytes",
        "key_deserializer": "bytes",
        "value_deserializer": "bytes",
    }
    rows = app.dataframe(app.topic(os.environ["BENCH_INPUT"], **raw))
    rows = rows.filter(First(JOBS[part], met_a_record), stateful=True)
    rows.to_topic(app.topic(os.environ["BENCH_OUTPUT"], **raw))
    app.run()


def application(commit_s, number):
    # Random by default: an open transaction of a killed instance would then hold up its successor for a minute. A
    # state folder belongs to one instance, so this is as unique.
    folder = os.path.abspath(os.environ["BENCH_STATE_DIR"])
    transactional_id = f"{os.environ['BENCH_GROUP']}-{folder}-{number}"
    return Application(
        broker_address=os.environ["BENCH_BROKERS"],
        consumer_group=os.environ["BENCH_GROUP"],
        state_dir=os.environ["BENCH_STATE_DIR"],
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=commit_s,
        # Nothing is committed while it waits for a record.
        consumer_poll_timeout=commit_s / 10,
        consumer_extra_config={"session.timeout.ms": 10_000, "fetch.queue.backoff.ms": 10, "queued.min.messages": 200_000},
        producer_extra_config={
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        },
        rocksdb_options=RocksDBOptions(open_max_retries=100, open_retry_backoff=0.1),
        loglevel=None,
    )


class EventPrinter(logging.Handler):
    """Writes the library's events to standard output, each with its time in milliseconds since 1970."""

    def __init__(self, number):
        super().__init__(logging.INFO)
        self.number = number
        logging.getLogger("quixstreams").setLevel(logging.INFO)

    def emit(self, record):
        print(f"{time.time_ns() // 1_000_000} worker {self.number}: {record.getMessage()}", flush=True)


class First:
    """A job that reports its first record."""

    def __init__(self, job, met):
        self.job, self.met = job, met

    def __call__(self, value, state):
        if self.met is not None:
            self.met()
            self.met = None
        return self.job(value, state)


def is_first(value, state):
    """The first record of each `event_id`. State is kept by record key, and an id always has the same key."""
    identity = orjson.loads(value)["event_id"]
    if state.get_bytes(identity) is not None:
        return False
    state.set_bytes(identity, b"1")
    return True


def is_newer(value, state):
    """The key's records whose `version` is higher than all before. The key is the value's `account`."""
    version = orjson.loads(value)["version"]
    known = state.get(0)
    if known is not None and known >= version:
        return False
    state.set(0, version)
    return True


def is_change(value, state):
    """The key's changes whose `source.lsn` is higher than all before; a null follows its delete.

    Kept is the position, and in the lowest bit whether a null is owed.
    """
    known = state.get(0)
    if value is None:
        if known is None or not known & 1:
            return False
        state.set(0, known & ~1)
        return True
    envelope = orjson.loads(value)
    lsn = envelope["source"].get("lsn")
    if lsn is None:
        return True
    if known is not None and known >> 1 >= lsn:
        return False
    state.set(0, lsn << 1 | (envelope["op"] == "d"))
    return True


JOBS = {"ids": is_first, "large": is_first, "versions": is_newer, "envelopes": is_change}
