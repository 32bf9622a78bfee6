//! Schemas for commands that have nothing else to do: a look-up waits until the schema is there.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::schemas::{Id, LookUp, Schemas, Sources, Written};

/// How long a command waits for a schema.
const WAIT: Duration = Duration::from_secs(10);

/// Sources that wait for schemas. Once a schema has not arrived in time, they no longer wait for any: the command
/// should end with [`Waiting::failure`], instead of waiting as long again for each record.
#[derive(Debug)]
pub struct Waiting {
    sources: Sources,
    wait: Duration,
    failure: OnceLock<String>,
}

impl Waiting {
    /// Waits for schemas of these sources.
    pub fn new(sources: Sources) -> Arc<Self> {
        Self::at_most(sources, WAIT)
    }

    /// The same, with another limit.
    pub fn at_most(sources: Sources, wait: Duration) -> Arc<Self> {
        Arc::new(Self { sources, wait, failure: OnceLock::new() })
    }

    /// These waiting sources as [`Sources`], without any if there are none to wait for.
    pub fn sources(self: &Arc<Self>) -> Sources {
        let mut list: Vec<Arc<dyn Schemas>> = Vec::new();
        if !self.sources.list.is_empty() {
            list.push(Arc::<Self>::clone(self));
        }
        Sources { list, id_bytes: self.sources.id_bytes }
    }

    /// Why the first missing schema has not arrived; `None` if all have.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    fn fail(&self, id: &Id) {
        self.failure.get_or_init(|| {
            let why = self.sources.trouble().unwrap_or_else(|| "there was no answer".to_owned());
            format!("{id} was not fetched within {:?}: {why}", self.wait)
        });
    }
}

impl Schemas for Waiting {
    fn look_up(&self, id: &Id) -> LookUp {
        let found = match self.failure() {
            None => self.sources.wait_for(id, self.wait),
            Some(_) => self.sources.look_up(id),
        };
        if matches!(found, LookUp::Pending) {
            self.fail(id);
        }
        found
    }

    fn of_subject(&self, subject: &str) -> Option<Arc<Written>> {
        self.sources.of_subject(subject)
    }

    fn trouble(&self) -> Option<String> {
        self.sources.trouble()
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a look-up waits for a schema; after one schema has not arrived in time, no look-up waits any more.

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::schemas::Language;

    /// Has schema 1 if a look-up waits for it, and never any other schema.
    #[derive(Debug, Default)]
    struct Slow {
        waits: AtomicUsize,
    }

    impl Schemas for Slow {
        fn look_up(&self, _: &Id) -> LookUp {
            LookUp::Pending
        }

        fn wait_for(&self, id: &Id, _: Duration) -> LookUp {
            self.waits.fetch_add(1, Ordering::SeqCst);
            match id {
                Id::Number(1) => LookUp::Known(Arc::new(Written::alone(Language::Avro, "\"string\""))),
                _ => LookUp::Pending,
            }
        }

        fn trouble(&self) -> Option<String> {
            Some("the registry is down".to_owned())
        }
    }

    #[test]
    fn look_ups_wait_until_a_schema_does_not_arrive_in_time() {
        let slow = Arc::new(Slow::default());
        let list = vec![Arc::clone(&slow) as Arc<dyn Schemas>];
        let waiting = Waiting::at_most(Sources { list, ..Sources::default() }, Duration::from_millis(20));
        let sources = waiting.sources();
        assert!(matches!(sources.look_up(&Id::Number(1)), LookUp::Known(_)));
        assert_eq!(waiting.failure(), None);
        for number in [2, 3, 4] {
            assert!(sources.is_pending(&Id::Number(number)));
        }
        assert_eq!(waiting.failure(), Some("schema 2 was not fetched within 20ms: the registry is down"));
        assert_eq!(slow.waits.load(Ordering::SeqCst), 2);
    }
}
