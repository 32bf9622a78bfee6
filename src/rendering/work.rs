//! What a record asks for: the [request](super::request) that it makes by HTTP, or the work that it gives a handler.
//!
//! A handler gets the record whole, its value also as JSON if it names a schema, and what the keys of its steps are made
//! of. **The fingerprint** of its work is of the record's value, every byte of it; of the JSON if there is one, so that
//! the work is the same whatever schema it is sent by.
//!
//! **Failure.** A record that nothing can be asked for gives words without anything of its content; the topology's
//! `on_rejected` says what becomes of it.

use std::sync::Arc;

use crate::dedup::{self, Decoder, Format};
use crate::effect::call::{Content, Fingerprint, Form};
use crate::effect::provider::{Payload, Work};
use crate::record::Record;
use crate::topology::Topology;
use crate::topology::sink::Terms;

use super::only_row;
use super::request::Requester;

/// Renders what a topology's records ask for, one record after the other.
#[derive(Debug)]
pub enum WorkRenderer {
    /// By HTTP.
    Http(Box<Requester>),
    /// Of a handler.
    Handler(Box<WorkMaker>),
}

impl WorkRenderer {
    /// For this topology's records; `None` if the topology calls neither a provider nor a handler.
    pub fn new(topology: &Topology) -> Option<Self> {
        match topology.handler() {
            Some(_) => {
                let (formats, limits) = ([Format::Bytes, topology.rules.value_format], &topology.rules.limits);
                let decoder = Decoder::of(formats, limits.json_depth_max, &topology.schemas);
                Some(Self::Handler(Box::new(WorkMaker::new(&topology.name, decoder))))
            }
            None => Some(Self::Http(Box::new(Requester::new(topology)?))),
        }
    }

    /// Whether it reads keys, and whether it reads values.
    pub fn reads(&self) -> (bool, bool) {
        match self {
            Self::Http(requester) => requester.reads(),
            Self::Handler(_) => (false, true),
        }
    }

    /// What `record` asks for. `rows` is what was read of it, its ranges in `arena`.
    ///
    /// # Errors
    /// Why no request or work can be made of the record, in words without anything of the record's content.
    pub fn render(&mut self, record: &Record<'_>, rows: &[dedup::Row], arena: &[u8]) -> Result<Payload, String> {
        match self {
            Self::Http(requester) => {
                requester.render(record, rows, arena).map(|request| Payload::Http(Arc::new(request)))
            }
            Self::Handler(maker) => maker.work(record, rows, arena).map(|work| Payload::Handler(Arc::new(work))),
        }
    }
}

/// Makes the work that one record after the other gives a handler.
#[derive(Debug)]
pub struct WorkMaker {
    /// The topology's name.
    topology: Arc<str>,
    /// Writes values as JSON.
    decoder: Decoder,
}

impl WorkMaker {
    /// For the records of the topology with this name, whose values this writes as JSON.
    pub fn new(topology: &str, decoder: Decoder) -> Self {
        Self { topology: topology.into(), decoder }
    }

    fn work(&mut self, record: &Record<'_>, rows: &[dedup::Row], arena: &[u8]) -> Result<Work, String> {
        let row = only_row(rows)?;
        if !Terms::is_called_by(row.kind) {
            return Err(format!("a {} is no work", row.kind));
        }
        let decoded = self.decoder.value(record).map_err(|rejection| rejection.message)?;
        let decoded = decoded.filter(|decoded| decoded.language.is_some()).map(|decoded| decoded.bytes);
        let form = Form::of(["handler", "value"]);
        let content = Content { method: "", target: "", headers: &[], body: decoded.or(record.value) };
        let headers = record.headers.iter().map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec)));
        Ok(Work {
            topology: Arc::clone(&self.topology),
            topic: record.topic.into(),
            partition: record.partition,
            offset: record.offset,
            timestamp: record.timestamp,
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            decoded: decoded.map(<[u8]>::to_vec),
            headers: headers.collect(),
            identity: arena[row.key.clone()].to_vec(),
            epoch: row.scope.clone().map(|scope| arena[scope].to_vec()),
            version: row.version.clone().map(|version| arena[version].to_vec()),
            fingerprint: Fingerprint::of(form, content),
        })
    }
}
