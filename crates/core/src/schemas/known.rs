//! Looking a schema up, without ever waiting for it.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::framing::IdBytes;
use super::id::Id;
use super::written::Written;

/// What is known of a schema now.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// The schema. The same one for the same id, always.
    Known(Arc<Written>),
    /// It is being fetched, which is tried again for as long as it takes: look again later.
    Pending,
    /// There is none, and why: a sentence that names the id. It may appear later.
    Absent(String),
}

/// Where schemas come from.
pub trait Schemas: Send + Sync + Debug {
    /// The schema with this id. Never blocks: of an unknown id it begins to fetch the schema, and says
    /// [`LookUp::Pending`] until it is there.
    fn look_up(&self, id: &Id) -> LookUp;

    /// The schema of records of a subject (`payments-value`, `payments-key`) that carry no id. Never blocks.
    fn of_subject(&self, subject: &str) -> Option<Arc<Written>> {
        let _ = subject;
        None
    }

    /// The same as [`Schemas::look_up`], for commands that have nothing else to do: waits for this long at most until it
    /// is no longer pending.
    fn wait_for(&self, id: &Id, wait: Duration) -> LookUp {
        let _ = wait;
        self.look_up(id)
    }

    /// Why schemas are pending longer than it takes to ask for them; `None` if nothing is wrong. Never holds a secret.
    fn trouble(&self) -> Option<String> {
        None
    }
}

/// Several sources, or none: the first one that has a schema counts. Where schemas come from is not part of what a
/// topology is, so that all are equal.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The sources, in the order in which they are asked.
    pub list: Vec<Arc<dyn Schemas>>,
    /// How long numbers are that records name schemas by.
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

    /// The first source's answer that is not "absent"; the last one's otherwise.
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
                LookUp::Absent(format!("{id} is not known: there is neither a schema registry nor a folder of schemas"))
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
    //! Goal: of several sources the first one that knows a schema counts.

    use super::super::written::Language;
    use super::*;

    /// Knows one schema, or is still asking for it.
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
