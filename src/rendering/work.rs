//! What a record asks for: the [request](super::request) that it makes by HTTP, or the work that it gives a handler.
//!
//! A handler gets the record whole, and what the keys of its steps are made of. **The fingerprint** of its work is of the
//! record's value, every byte of it.
//!
//! **Failure.** A record that nothing can be asked for gives words without anything of its content; the topology's
//! `on_rejected` says what becomes of it.

use std::sync::Arc;

use crate::dedup;
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
    /// Of a handler: the topology's name.
    Handler(Arc<str>),
}

impl WorkRenderer {
    /// For this topology's records; `None` if the topology calls neither a provider nor a handler.
    pub fn new(topology: &Topology) -> Option<Self> {
        match topology.handler() {
            Some(_) => Some(Self::Handler(topology.name.as_str().into())),
            None => Some(Self::Http(Box::new(Requester::new(topology)?))),
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
            Self::Handler(topology) => work(topology, record, rows, arena).map(|work| Payload::Handler(Arc::new(work))),
        }
    }
}

fn work(topology: &Arc<str>, record: &Record<'_>, rows: &[dedup::Row], arena: &[u8]) -> Result<Work, String> {
    let row = only_row(rows)?;
    if !Terms::is_called_by(row.kind) {
        return Err(format!("a {} is no work", row.kind));
    }
    let form = Form::of(["handler", "value"]);
    let content = Content { method: "", target: "", headers: &[], body: record.value };
    Ok(Work {
        topology: Arc::clone(topology),
        topic: record.topic.into(),
        partition: record.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        headers: record.headers.iter().map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec))).collect(),
        identity: arena[row.key.clone()].to_vec(),
        epoch: row.scope.clone().map(|scope| arena[scope].to_vec()),
        version: row.version.clone().map(|version| arena[version].to_vec()),
        fingerprint: Fingerprint::of(form, content),
    })
}
