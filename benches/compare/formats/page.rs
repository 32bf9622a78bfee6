//! The part's sections of the page, and its goals.

use super::Data;
use super::reading::Way;
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::figures::{thousands, two, with_range};
use crate::part::{Goal, Section, Table};
use crate::results::{Results, crate_version};
use crate::throughput;

/// What reading Avro may take of JSON's CPU time.
const OF_JSON_MAX: f64 = 1.0;
/// How much more a full decode has to take.
const DECODE_MIN: f64 = 5.0;
/// The least throughput, as a multiple of Kafka Streams'.
const STREAMS_MIN: f64 = 4.0;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let reading = Section {
        title: "Avro and Protobuf: reading a record".to_owned(),
        text: reading_text(),
        tables: vec![reading(&data)],
        ..Section::default()
    };
    let job = Section {
        title: "Avro: the whole job".to_owned(),
        text: vec![job_text()],
        tables: [Some(throughput::figures(&data.job)), throughput::ratios(&data.job)].into_iter().flatten().collect(),
        ..Section::default()
    };
    Ok(vec![reading, job])
}

fn reading_text() -> Vec<String> {
    let [apache, fast, prost] = ["apache-avro", "serde_avro_fast", "prost-reflect"].map(crate_version);
    vec![
        "CPU time to read one record, without Kafka: the change events of part envelopes, the same ones in each \
         format, with Confluent's prefix where there is a schema. ratchet reads as in a run, with schemas from files: \
         once by a topology that names `value.after.order_id` and `value.source.lsn`, once by the preset, which reads \
         more and compares contents. The figures count only if identities and versions are the same from every \
         format."
            .to_owned(),
        format!(
            "Beside it, decoders of the whole value: the schema is parsed before, the prefix is cut off, and nothing \
             is looked up in the result. apache-avro {apache}; serde_avro_fast {fast}, the fastest crate for Avro \
             that was found: into a tree, for schemas that are not known when a program is compiled, and into a \
             struct for this one schema; prost-reflect {prost}. One thread; the way that is first changes from round \
             to round."
        ),
    ]
}

fn job_text() -> String {
    let avro = crate::results::peer_version("avro");
    format!(
        "The change events of part envelopes in Avro, by `value.after.order_id` and `value.source.lsn`. ratchet finds \
         schemas by their ids, in a folder. kafka-streams decodes with Apache Avro's GenericDatumReader for Java \
         ({avro}) in the fastest of the [ways that were \
         tried](../benches/peers/README.md#how-kafka-streams-was-tuned): with its fast reader, and a reader's schema \
         of these two fields; the writer's schema is given, so that it asks no registry."
    )
}

fn reading(data: &Data) -> Table {
    let head = ["read by, what, from", "bytes of the value", "CPU, ns a record", "by ratchet's from JSON"];
    let row = |way: Way| {
        let (spread, ratio) = (data.reading.spread(way)?, data.reading.ratio(way, Way::Json)?);
        let bytes = thousands(data.reading.bytes(way));
        Some(vec![way.name().to_owned(), bytes, with_range(spread, thousands), with_range(ratio, two)])
    };
    Table { head: head.map(str::to_owned).to_vec(), rows: Way::ALL.into_iter().filter_map(row).collect() }
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    goals.extend(data.reading.ratio(Way::Avro, Way::Json).map(|ratio| Goal {
        what: "CPU to read identity and version, Avro".to_owned(),
        wanted: format!("at most {OF_JSON_MAX:.1} of JSON"),
        figure: with_range(ratio, two),
        met: ratio.median <= OF_JSON_MAX,
    }));
    let decodes = [
        (Way::ApacheAvro, "apache-avro"),
        (Way::FastAvroTree, "serde_avro_fast, into a tree"),
        (Way::FastAvroStruct, "serde_avro_fast, into a struct of its own"),
    ];
    for (way, name) in decodes {
        goals.extend(data.reading.ratio(way, Way::Avro).map(|ratio| Goal {
            what: "CPU to read identity and version, Avro".to_owned(),
            wanted: format!("at least {DECODE_MIN:.0} times less than a full decode by {name}"),
            figure: format!("{} times less", with_range(ratio, two)),
            met: ratio.median >= DECODE_MIN,
        }));
    }
    goals.extend(data.job.ratio(Contender::Ratchet, Contender::KafkaStreams, |sample| sample.rate).map(|ratio| Goal {
        what: "throughput, envelopes in Avro".to_owned(),
        wanted: format!("at least {STREAMS_MIN:.0} times kafka-streams"),
        figure: with_range(ratio, two),
        met: ratio.median >= STREAMS_MIN,
    }));
    Ok(goals)
}
