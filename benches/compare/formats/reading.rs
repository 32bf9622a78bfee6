//! Reading alone: CPU time of one thread, which reads the same change events in every way, one way after the other.
//!
//! ratchet reads as in a run, by the rules of a topology and with schemas from a folder. It counts only if it reads the
//! same identities and versions from every format.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apache_avro::reader::datum::GenericDatumReader;
use prost_reflect::DynamicMessage;
use ratchet::dedup::{Reader, Reading};
use ratchet::record::{Headers, Record};
use ratchet::schemas::{Files, Sources};
use ratchet::topology;
use ratchet::yaml::Process;
use serde::{Deserialize, Serialize};

use super::envelope::{self, Envelope, Writer};
use super::protobuf::{self, Schema};
use super::{Form, topology_in, write_schemas};
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::generate::{Generated, Generator};
use crate::part::Bench;
use crate::spec::Work;
use crate::stats::Spread;

/// The number of different records, which are read again and again.
const RECORDS: usize = 1000;
const MEASURE: Duration = Duration::from_secs(1);
const MEASURE_QUICK: Duration = Duration::from_millis(100);
/// What records in Protobuf name their schemas by.
const PROTOBUF_KEY_ID: u32 = 3;
const PROTOBUF_VALUE_ID: u32 = 4;

/// By which rules ratchet reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rules {
    /// Identity and version.
    Two,
    /// The preset for the connector.
    Preset,
}

/// How records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Json,
    Avro,
    Protobuf,
    PresetJson,
    PresetAvro,
    PresetProtobuf,
    ApacheAvro,
    FastAvroTree,
    FastAvroStruct,
    ProstReflect,
}

impl Way {
    /// In the order of the page.
    pub const ALL: [Way; 10] = [
        Way::Json,
        Way::Avro,
        Way::Protobuf,
        Way::PresetJson,
        Way::PresetAvro,
        Way::PresetProtobuf,
        Way::ApacheAvro,
        Way::FastAvroTree,
        Way::FastAvroStruct,
        Way::ProstReflect,
    ];

    /// Its name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Way::Json => "ratchet, identity and version, JSON",
            Way::Avro => "ratchet, identity and version, Avro",
            Way::Protobuf => "ratchet, identity and version, Protobuf",
            Way::PresetJson => "ratchet, `debezium-postgres@3`, JSON",
            Way::PresetAvro => "ratchet, `debezium-postgres@3`, Avro",
            Way::PresetProtobuf => "ratchet, `debezium-postgres@3`, Protobuf",
            Way::ApacheAvro => "apache-avro, all of it, into a tree",
            Way::FastAvroTree => "serde_avro_fast, all of it, into serde_json's tree",
            Way::FastAvroStruct => "serde_avro_fast, all of it, into a struct that borrows its texts",
            Way::ProstReflect => "prost-reflect, all of it, into a `DynamicMessage`",
        }
    }

    fn form(self) -> Form {
        match self {
            Way::Json | Way::PresetJson => Form::Json,
            Way::Protobuf | Way::PresetProtobuf | Way::ProstReflect => Form::Protobuf,
            _ => Form::Avro,
        }
    }

    /// The rules if it is ratchet's.
    fn rules(self) -> Option<Rules> {
        match self {
            Way::Json | Way::Avro | Way::Protobuf => Some(Rules::Two),
            Way::PresetJson | Way::PresetAvro | Way::PresetProtobuf => Some(Rules::Preset),
            _ => None,
        }
    }
}

/// Nanoseconds of CPU a record, round by round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Data {
    rounds: Vec<BTreeMap<Way, f64>>,
    /// The mean size of a value in each format.
    bytes: BTreeMap<Form, f64>,
}

impl Data {
    /// Over the rounds.
    pub fn spread(&self, way: Way) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.get(&way).copied()))
    }

    /// The ratio of two ways, round by round.
    pub fn ratio(&self, of: Way, to: Way) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| Some(round.get(&of)? / round.get(&to)?)))
    }

    /// The mean size of the values that are read in this way.
    pub fn bytes(&self, way: Way) -> f64 {
        self.bytes.get(&way.form()).copied().unwrap_or_default()
    }
}

/// How long each way is measured in a round.
pub fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { MEASURE_QUICK } else { MEASURE.mul_f64(bench.scale.clamp(0.1, 1.0)) }
}

/// Measures all ways in each round.
pub fn run(bench: &Bench) -> Outcome<Data> {
    let mut ways = Ways::new(&bench.folder)?;
    ways.check()?;
    let mut data = Data::default();
    for (form, pairs) in &ways.records {
        let bytes: usize = pairs.iter().map(|pair| pair.value.len()).sum();
        data.bytes.insert(*form, bytes as f64 / pairs.len() as f64);
    }
    let mut order = Way::ALL;
    for number in 1..=bench.rounds {
        let mut round = BTreeMap::new();
        for way in order {
            round.insert(way, ways.measure(way, measured_for(bench))?);
        }
        let said: Vec<String> = round.iter().map(|(way, ns)| format!("{}: {ns:.0} ns", way.name())).collect();
        bench.progress.say(format!("reading, round {number}: {}", said.join("; ")));
        data.rounds.push(round);
        order.rotate_left(1);
    }
    Ok(data)
}

/// A record.
struct Pair {
    key: Vec<u8>,
    value: Vec<u8>,
}

/// All that the ways need.
struct Ways {
    records: BTreeMap<Form, Vec<Pair>>,
    readers: BTreeMap<Way, Reader>,
    apache: apache_avro::Schema,
    fast: serde_avro_fast::Schema,
    protobuf: Schema,
}

impl Ways {
    /// All of them; `folder` has the schemas for as long as this takes.
    fn new(folder: &Path) -> Outcome<Ways> {
        let (key, value) = (envelope::KEY_SCHEMA, envelope::VALUE_SCHEMA);
        let protobuf = [Schema::of(key, PROTOBUF_KEY_ID)?, Schema::of(value, PROTOBUF_VALUE_ID)?];
        let records = records(&protobuf)?;
        let dir = folder.join("schemas");
        write_schemas(&dir)?;
        for (id, schema) in [PROTOBUF_KEY_ID, PROTOBUF_VALUE_ID].into_iter().zip(&protobuf) {
            fs::write(dir.join(format!("{id}.proto")), &schema.text)?;
        }
        let files = Files::open(&dir).context(dir.display())?;
        let sources = Sources { list: vec![Arc::new(files)], ..Sources::default() };
        let mut readers = BTreeMap::new();
        for way in Way::ALL {
            let text = match way.rules() {
                Some(Rules::Two) => topology_in(way.form(), "reading", "in", "out"),
                Some(Rules::Preset) => preset(way.form()),
                None => continue,
            };
            let file = dir.with_file_name("reading.yaml");
            fs::write(&file, text).context(file.display())?;
            let loaded = topology::load(&file, &Process).map_err(|errors| Failure(format!("{errors:?}")))?;
            readers.insert(way, Reader::with_schemas(loaded.topology.rules, &sources));
        }
        fs::remove_dir_all(&dir).context(dir.display())?;
        let [_, protobuf] = protobuf;
        let apache = apache_avro::Schema::parse_str(value).context("apache-avro")?;
        let fast = value.parse().context("serde_avro_fast")?;
        Ok(Ways { records, readers, apache, fast, protobuf })
    }

    /// Fails unless the same rules read the same from every format.
    fn check(&mut self) -> Outcome<()> {
        let mut first: BTreeMap<Rules, Vec<Vec<u8>>> = BTreeMap::new();
        for (way, reader) in &mut self.readers {
            let (Some(rules), Some(pairs)) = (way.rules(), self.records.get(&way.form())) else { continue };
            let mut read = Vec::new();
            for pair in pairs {
                let mut arena = Vec::new();
                read_one(reader, pair, &mut arena)?;
                read.push(arena);
            }
            if *first.entry(rules).or_insert_with(|| read.clone()) != read {
                fail!("{}: other identities or versions", way.name());
            }
        }
        Ok(())
    }

    /// Nanoseconds of this thread's CPU time for a record.
    fn measure(&mut self, way: Way, length: Duration) -> Outcome<f64> {
        self.pass(way)?;
        let (began, mut passes) = (thread_time(), 0_u32);
        loop {
            self.pass(way)?;
            passes += 1;
            let took = thread_time().saturating_sub(began);
            if took >= length {
                return Ok(took.as_nanos() as f64 / (f64::from(passes) * RECORDS as f64));
            }
        }
    }

    /// Reads all records once.
    fn pass(&mut self, way: Way) -> Outcome<()> {
        let pairs = self.records.get(&way.form()).context("records")?;
        let avro = || pairs.iter().map(|pair| &pair.value[envelope::PREFIX_BYTES..]);
        match way {
            Way::ApacheAvro => {
                let reader = GenericDatumReader::builder(&self.apache).build().context("apache-avro")?;
                for mut bytes in avro() {
                    black_box(reader.read_value(&mut bytes).context("apache-avro")?);
                }
            }
            Way::FastAvroTree => {
                for bytes in avro() {
                    let tree = serde_avro_fast::from_datum_slice::<serde_json::Value>(bytes, &self.fast);
                    black_box(tree.context("serde_avro_fast")?);
                }
            }
            Way::FastAvroStruct => {
                for bytes in avro() {
                    let envelope = serde_avro_fast::from_datum_slice::<Envelope<&str>>(bytes, &self.fast);
                    black_box(envelope.context("serde_avro_fast")?);
                }
            }
            Way::ProstReflect => {
                for pair in pairs {
                    let bytes = &pair.value[protobuf::PREFIX_BYTES..];
                    let message = DynamicMessage::decode(self.protobuf.message.clone(), bytes);
                    black_box(message.context("prost-reflect")?);
                }
            }
            _ => {
                let reader = self.readers.get_mut(&way).context("a reader")?;
                let mut arena = Vec::new();
                for pair in pairs {
                    arena.clear();
                    read_one(reader, black_box(pair), &mut arena)?;
                    black_box(&arena);
                }
            }
        }
        Ok(())
    }
}

/// The same records in each format.
fn records([key, value]: &[Schema; 2]) -> Outcome<BTreeMap<Form, Vec<Pair>>> {
    let (mut generator, writer) = (Generator::new(Work::Envelopes), Writer::new()?);
    let mut records: BTreeMap<Form, Vec<Pair>> = BTreeMap::new();
    for _ in 0..RECORDS {
        let mut made = Generated::default();
        generator.next(&mut made);
        let json = Pair { key: made.key, value: made.value };
        let mut avro = Pair { key: json.key.clone(), value: json.value.clone() };
        writer.rewrite(&mut avro.key, &mut avro.value)?;
        let protobuf = Pair { key: key.written(&json.key)?, value: value.written(&json.value)? };
        for (form, pair) in Form::ALL.into_iter().zip([json, avro, protobuf]) {
            records.entry(form).or_default().push(pair);
        }
    }
    Ok(records)
}

fn preset(form: Form) -> String {
    let formats =
        if form == Form::Json { String::new() } else { format!(", key_format: {form}, value_format: {form}") };
    format!("name: reading\npreset: debezium-postgres@3\ninput: {{topics: [in]{formats}}}\noutput: {{topic: out}}\n")
}

fn read_one(reader: &mut Reader, pair: &Pair, arena: &mut Vec<u8>) -> Outcome<()> {
    let (key, value) = (Some(pair.key.as_slice()), Some(pair.value.as_slice()));
    let headers = Headers::default();
    let record = Record { topic: "in", partition: 0, offset: 0, timestamp: None, key, value, headers };
    match reader.read(&record, arena) {
        Reading::Row(row) if row.version.is_some() => Ok(()),
        other => fail!("neither an identity nor a version: {other:?}"),
    }
}

/// The CPU time of this thread so far.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    //! Goal: the records are the same in each format, and every way reads them.

    use super::*;

    #[test]
    fn every_way_reads_the_same_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut ways = Ways::new(folder.path()).unwrap();
        ways.check().unwrap();
        for way in Way::ALL {
            assert_eq!(ways.records[&way.form()].len(), RECORDS);
            ways.pass(way).unwrap();
        }
    }
}
