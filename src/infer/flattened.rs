//! Flattened change events of Debezium that carry no position, or come from a connector that is not known.

use super::blocks::{Meaning, by_fields, by_fingerprint, wrapped};
use super::choose::choose;
use super::compared::{Compared, Contents, Order};
use super::draft::in_yaml;
use super::fields::{Field, Table};
use super::keys;
use super::needed::Needed;
use super::rows::{StandIn, stand_in};
use super::sample::Sample;
use super::shape::Shape;
use crate::dedup::Source;

/// The time at which the source changed the row, the finest first. `__ts_ms` does not count: it is the time at which the
/// connector worked on the change, so it differs when a change is sent again.
const SOURCE_TIMES: [&str; 3] = ["__source_ts_ns", "__source_ts_us", "__source_ts_ms"];

/// The fields that say which kind of change an event is.
const KINDS: &str = "kinds: {of: {first_of: [value.__op, value.__deleted]}, delete: [d, \"true\", true], read: [r]}";

/// The advice that cures the lack of a position.
const ADVICE: &str = "these events carry no position of the source: add it to the connector's `add.fields` (PostgreSQL: \
                      `op,table,schema,db,name,lsn,sequence`; MySQL: `op,table,db,name,server_id,file,pos,row`; SQL \
                      Server: `op,table,schema,db,name,commit_lsn,change_lsn,event_serial_no`), and take its preset";

/// By the source's time if they have it, otherwise by the field that fits best.
pub fn propose(meaning: &mut Meaning, sample: &Sample, table: &Table, shape: (&Shape, usize), needed: Needed) {
    let (shape, count) = shape;
    meaning.body.shape(shape, count, sample);
    meaning.body.unsure.push(ADVICE.to_owned());
    let common = |name: &&&str| {
        let is_it = |field: &&Field| field.path.source == Source::Value && field.name == **name;
        table.fields.iter().find(is_it).is_some_and(|field| field.present * 10 >= table.rows * 8)
    };
    let Some(time) = SOURCE_TIMES.iter().find(common) else {
        match choose(table) {
            Some(chosen) => {
                by_fields(meaning, sample, table, &chosen);
                if chosen.version.is_some() {
                    meaning.body.line(KINDS);
                    meaning.follows_deletes = true;
                }
            }
            None => by_fingerprint(&mut meaning.body, sample, table, "No field was found that orders these events"),
        }
        return;
    };
    identity(meaning, sample, shape, needed);
    meaning.body.comment(&format!(
        "{time} is when the source changed the row. The connector's own time (`__ts_ms`) is no version: a change that is \
         sent again has another."
    ));
    meaning.body.line(&format!("version: {{of: {}, as: integer}}", in_yaml(&format!("value.{time}"))));
    meaning.body.line(KINDS);
    meaning.body.line("on_missing: forward");
    meaning.follows_deletes = true;
    let contents = Contents::Known(
        "{first_of: [{flattened: value}, value]}",
        "What a change says is its kind and its row, without what the connector adds to that (`__...`).",
    );
    meaning.compared = Some(Compared { order: Order::Time(in_yaml(&format!("value.{time}"))), contents });
    meaning.body.unsure.push(format!(
        "two changes of a row with one {time} are passed on as they come, whichever is the newer one, and a change that was \
         committed later with an earlier time counts as stale"
    ));
}

/// The rows' keys, or their substitute.
fn identity(meaning: &mut Meaning, sample: &Sample, shape: &Shape, needed: Needed) {
    if meaning.raw_keys {
        keys::propose_bytes(&mut meaning.body, sample);
        return;
    }
    meaning.key_format = wrapped(sample.wrapped.0);
    match stand_in(shape, sample).filter(|_| needed.rows_identify) {
        Some(StandIn { identity, why }) => {
            meaning.body.comment(why);
            meaning.body.line(&format!("identity: {identity}"));
            meaning.body.unsure.push("the columns that identify a row are guessed".to_owned());
        }
        None => {
            meaning.body.comment("The record's key is the row's primary key, and Connect partitions by it.");
            meaning.body.line("identity: {content: key}");
            meaning.body.line("partitioned_by_identity: true");
        }
    }
}
