//! Formats with schemas: change events of Debezium in Avro and in Protobuf, beside the same in JSON.
//!
//! [`reading`] measures reading alone, without Kafka, [`throughput`] the whole job in Avro; [`envelope`] and
//! [`protobuf`] make the records, and [`page`] shows the figures.

pub mod envelope;
mod page;
mod protobuf;
mod reading;

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::{Context as _, Outcome};
use crate::part::{Bench, Part};
use crate::results::Findings;
use crate::spec::Work;
use crate::throughput;

/// The part.
pub const PART: Part = Part {
    name: "formats",
    about: "Debezium's change events in Avro and Protobuf: reading them, and the whole job in Avro",
    has_built: true,
    run,
    sections: page::sections,
    goals: page::goals,
};

const RECORDS: u64 = 1_000_000;
const RECORDS_QUICK: u64 = 250_000;
/// Who takes part in the whole job.
const WHO: [Contender; 4] =
    [Contender::FloorChangelog, Contender::Ratchet, Contender::RatchetLibrdkafka, Contender::KafkaStreams];

/// A format of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Form {
    Json,
    Avro,
    Protobuf,
}

impl Form {
    const ALL: [Form; 3] = [Form::Json, Form::Avro, Form::Protobuf];
}

impl fmt::Display for Form {
    /// As in a topology.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Json => "json",
            Form::Avro => "avro",
            Form::Protobuf => "protobuf",
        })
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    reading: reading::Data,
    job: throughput::Data,
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let records = bench.scaled(if bench.quick { RECORDS_QUICK } else { RECORDS });
    let reading = reading::run(bench)?;
    let contenders: Vec<Contender> = WHO.into_iter().filter(|contender| bench.has(*contender)).collect();
    let (job, failures) = throughput::rounds(bench, Work::Avro, records, &contenders)?;
    let mut findings = Findings::new(&Data { reading, job })?
        .setting("records", records)
        .setting("rounds", bench.rounds)
        .setting("reading", format!("measured for {} s", reading::measured_for(bench).as_secs_f64()));
    findings.failures = failures;
    Ok(findings)
}

/// The topology of the whole job, in Avro: identity and version.
pub fn topology(name: &str, input: &str, output: &str) -> String {
    topology_in(Form::Avro, name, input, output)
}

fn topology_in(form: Form, name: &str, input: &str, output: &str) -> String {
    format!(
        "name: {name}\ninput: {{topics: [{input}], value_format: {form}}}\nidentity: value.after.order_id\n\
         version: {{of: value.source.lsn, as: integer}}\npartitioned_by_identity: true\noutput: {{topic: {output}}}\n"
    )
}

/// Writes the Avro schemas that records name into a folder, as files that ratchet finds them by.
pub fn write_schemas(dir: &Path) -> Outcome<()> {
    fs::create_dir_all(dir).context(dir.display())?;
    for (id, text) in [(envelope::KEY_ID, envelope::KEY_SCHEMA), (envelope::VALUE_ID, envelope::VALUE_SCHEMA)] {
        let file = dir.join(format!("{id}.avsc"));
        fs::write(&file, text).context(file.display())?;
    }
    Ok(())
}
