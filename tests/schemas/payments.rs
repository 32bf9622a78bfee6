//! The fixtures: payments as Confluent's serializers in Python and Go have written them, with their schemas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::cluster::{Fresh, Stored};
use crate::job::Job;
use crate::schema_registry::Server;

const RECORDS: &str = include_str!("written/records.jsonl");
const BY_GO: &str = include_str!("written/go/records.jsonl");

/// The indexes of the payments that are forwarded.
pub const FORWARDED: [usize; 4] = [0, 1, 3, 6];

/// The payments of one format. Each has one of two schemas.
pub struct Payments {
    format: String,
    /// The type and the text of both schemas.
    schemas: [(String, String); 2],
    /// The index of each record's schema (0 or 1), and the record's bytes.
    records: Vec<(usize, Vec<u8>)>,
}

impl Payments {
    /// The payments in the format `avro`, `protobuf` or `json_schema`.
    pub fn of(format: &str) -> Payments {
        Payments::among(RECORDS, format)
    }

    /// Those of `protobuf` as Confluent's serializer in Go has written them, or of `nested`, which is Protobuf too:
    /// there payments are declared in another message.
    pub fn by_go(format: &str) -> Payments {
        Payments::among(BY_GO, format)
    }

    fn among(records: &str, format: &str) -> Payments {
        let lines = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<Value> = lines.filter(|line| line["format"] == format).collect();
        let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
        let (schemas, records): (Vec<&Value>, Vec<&Value>) = lines.iter().partition(|line| line["value"].is_null());
        let number = |line: &Value| line["schema"].as_u64().unwrap() as usize - 1;
        Payments {
            format: format.to_owned(),
            schemas: [0, 1].map(|at| (text(schemas[at], "type"), text(schemas[at], "text"))),
            records: records.iter().map(|line| (number(line), STANDARD.decode(text(line, "value")).unwrap())).collect(),
        }
    }

    /// Registers both schemas for a topic. Returns their ids.
    pub fn register(&self, registry: &Server, topic: &str) -> [u32; 2] {
        self.schemas.each_ref().map(|(kind, text)| registry.register(&format!("{topic}-value"), kind, text))
    }

    /// The payments as values of records, with these ids of their schemas.
    pub fn values(&self, numbers: [u32; 2]) -> Vec<Vec<u8>> {
        let numbered = |(schema, bytes): &(usize, Vec<u8>)| {
            let mut bytes = bytes.clone();
            bytes[1..5].copy_from_slice(&numbers[*schema].to_be_bytes());
            bytes
        };
        self.records.iter().map(numbered).collect()
    }

    /// A job with one partition that forwards newer versions of the payments, and reads this registry.
    pub fn job(&self, theme: &str, registry: &str) -> Job {
        job(theme, &self.format, 1, registry)
    }
}

/// A job whose values have this format.
pub fn job(theme: &str, format: &str, partitions: i32, registry: &str) -> Job {
    let mut job = Job::new(theme, partitions);
    job.instead = Some(format!(
        "identity: [value.id]\nversion: {{of: value.version, as: integer}}\n\
         input: {{topics: [{}], value_format: {format}}}\n",
        job.input
    ));
    job.worker.push(format!("schema_registry: {{url: \"{registry}\"}}"));
    job
}

/// Records with these values.
pub fn records(partition: i32, values: &[Vec<u8>]) -> Vec<Fresh> {
    let record = |(at, value): (usize, &Vec<u8>)| Fresh::new(partition, &format!("key-{at}"), value.clone());
    values.iter().enumerate().map(record).collect()
}

/// The values of records.
pub fn values_of(records: Vec<Stored>) -> Vec<Vec<u8>> {
    records.into_iter().map(|record| record.value.unwrap()).collect()
}

/// The values of the payments that are forwarded.
pub fn forwarded(values: &[Vec<u8>]) -> Vec<Vec<u8>> {
    FORWARDED.map(|at| values[at].clone()).to_vec()
}
