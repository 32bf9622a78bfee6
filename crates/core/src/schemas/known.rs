//! Looking up a schema by its id, without ever waiting.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::framing::IdBytes;
use super::id::Id;
use super::written::Written;

/// What a source knows of a schema now.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// The schema. An id always stands for the same schema.
    Known(Arc<Written>),
    /// The schema is being fetched, and the fetch is retried until it succeeds: look it up again later.
    Pending,
    /// No such schema exists, with a sentence that names the id and says why. It may appear later.
    Absent(String),
}

/// Where schemas come from.
pub trait Schemas: Send + Sync + Debug {
    /// Looks up the schema with this id. Never blocks: the first look-up begins to fetch an unknown schema, and returns
    /// [`LookUp::Pending`] until it has arrived.
    fn look_up(&self, id: &Id) -> LookUp;

    /// The schema for records of this subject (`payments-value`, `payments-key`) that carry no id. Never blocks.
    fn of_subject(&self, subject: &str) -> Option<Arc<Written>> {
        let _ = subject;
        None
    }

    /// As [`Schemas::look_up`], but waits up to `wait` for a pending schema: for commands that have nothing else to do.
    fn wait_for(&self, id: &Id, wait: Duration) -> LookUp {
        let _ = wait;
        self.look_up(id)
    }

    /// Why schemas stay pending; `None` if nothing is wrong. Never contains a secret.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Any number of sources: the first one that has a schema counts. All values are equal, because a topology does not
/// depend on where its schemas come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The sources, in the order in which they are asked.
    pub list: Vec<Arc<dyn Schemas>>,
    /// The length of the numbers by which records name schemas.
    pub id_bytes: IdBytes,
}

impl PartialEq for Sources {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sources {}

impl Sources {
    /// Whether the schema is being fetched.
    pub fn is_pending(&self, id: &Id) -> bool {
        matches!(self.look_up(id), LookUp::Pending)
    }

    /// The first result that is not [`LookUp::Absent`]; otherwise all reasons, each once.
    fn ask(&self, id: &Id, ask: impl Fn(&dyn Schemas) -> LookUp) -> LookUp {
        let mut reasons: Vec<String> = Vec::new();
        for source in &self.list {
            match ask(source.as_ref()) {
                LookUp::Absent(why) if reasons.contains(&why) => {}
                LookUp::Absent(why) => reasons.push(why),
                found => return found,
            }
        }
        match reasons.is_empty() {
            true => {
                LookUp::Absent(format!("{id} is not known: neither a schema registry nor a folder of schemas is set"))
            }
            false => LookUp::Absent(reasons.join("; ")),
        }
    }
}

impl Schemas for Sources {
    fn look_up(&self, id: &Id) -> LookUp {
        self.ask(id, |source| source.look_up(id))
    }

    fn of_subject(&self, subject: &str) -> Option<Arc<Written>> {
        self.list.iter().find_map(|source| source.of_subject(subject))
    }

    fn wait_for(&self, id: &Id, wait: Duration) -> LookUp {
        self.ask(id, |source| source.wait_for(id, wait))
    }

    fn trouble(&self) -> Option<String> {
        self.list.iter().find_map(|source| source.trouble())
    }
}

#[cfg(test)]
mod tests {
    //! Goal: the first of several sources that knows a schema counts.

    use super::super::written::Language;
    use super::*;

    /// Has one schema, or is still fetching it.
    #[derive(Debug)]
    struct One(u32, Option<&'static str>);

    impl Schemas for One {
        fn look_up(&self, id: &Id) -> LookUp {
            match self {
                One(number, Some(text)) if *id == Id::Number(*number) => {
                    LookUp::Known(Arc::new(Written::alone(Language::Avro, *text)))
                }
                One(number, None) if *id == Id::Number(*number) => LookUp::Pending,
                One(number, _) => LookUp::Absent(format!("{id} is not {number}")),
            }
        }
    }

    fn text(found: LookUp) -> String {
        match found {
            LookUp::Known(written) => written.text.clone(),
            LookUp::Pending => "pending".to_owned(),
            LookUp::Absent(why) => why,
        }
    }

    #[test]
    fn first_source_that_has_a_schema_counts() {
        let of = |list| Sources { list, id_bytes: IdBytes::Four };
        let sources = of(vec![Arc::new(One(1, Some("a"))), Arc::new(One(1, Some("b"))), Arc::new(One(2, None))]);
        assert_eq!(text(sources.look_up(&Id::Number(1))), "a");
        assert_eq!(text(sources.look_up(&Id::Number(2))), "pending");
        assert_eq!(text(sources.look_up(&Id::Number(3))), "schema 3 is not 1; schema 3 is not 2");
        assert!(text(of(vec![]).look_up(&Id::Number(3))).contains("neither a schema registry nor a folder"));
    }
}
