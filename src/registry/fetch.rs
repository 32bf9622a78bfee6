//! A schema with all schemas that it refers to.
//!
//! Bounds: a schema may refer to [`REFERENCES_MAX`] schemas, of [`BYTES_MAX`] bytes together, directly or through
//! others. A schema that is referred to by several names is fetched once for each name.

use std::collections::HashSet;

use super::answer::{self, Given, Missing};
use super::api::{Base, Question, referred};
use super::client::Client;
use crate::schemas::{Id, Language, Reference, Written};
use crate::web::Answer;

/// How many schemas a schema may refer to, directly or through others.
const REFERENCES_MAX: usize = 256;
/// How many bytes these may have together.
const BYTES_MAX: usize = 8 << 20;

/// The latest version of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The schema's id, if the registry says it.
    pub id: Option<u64>,
    /// The version, if the registry says it.
    pub version: Option<u64>,
    /// The schema.
    pub written: Written,
}

/// A schema to fetch because another one refers to it.
struct Referred {
    name: String,
    at: Place,
}

/// Where a schema is in the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// Confluent's API has it as a version of a subject.
    Version { subject: String, version: String },
    /// Apicurio's own API has its text and its references at these URLs.
    Urls { text: String, references: String },
}

/// A step that is left to do for a schema's references.
enum Step {
    Ask(Referred),
    Add { name: String, text: String },
}

impl Client {
    /// The schema with this id.
    ///
    /// # Errors
    /// The registry does not have the schema, or did not answer.
    pub async fn schema(&self, id: Id) -> Result<Written, Missing> {
        let mut failed = None;
        // Apicurio's own API has the schema in one of two versions.
        for attempt in 0.. {
            let question = |base: &Base| Ok(base.schema(id, self.ids_of)?.into_iter().nth(attempt));
            let found = match self.ask(question, given).await {
                Ok(Some(found)) => self.complete(found).await,
                Ok(None) => break,
                Err(missing) => Err(missing),
            };
            match found {
                Ok((written, _)) => return Ok(written),
                Err(Missing::Failed(why)) => drop(failed.get_or_insert(why)),
                Err(missing) => return Err(self.hidden(missing)),
            }
        }
        let why = failed.unwrap_or_else(|| format!("cannot be asked for {id}"));
        Err(self.hidden(Missing::Failed(why)))
    }

    /// The latest version of a subject; `None` if the registry does not have the subject.
    ///
    /// # Errors
    /// The registry did not answer, or ratchet cannot use the schema.
    pub async fn latest(&self, subject: &str) -> Result<Option<Latest>, Missing> {
        let found = match self.ask(|base| Ok(Some(base.latest(subject))), given).await {
            Ok(Some(found)) => self.complete(found).await,
            Ok(None) | Err(Missing::Absent(_)) => return Ok(None),
            Err(missing) => Err(missing),
        };
        let latest = found.map(|(written, (id, version))| Some(Latest { id, version, written }));
        latest.map_err(|missing| self.hidden(missing))
    }

    /// A schema with all schemas that it refers to, and the id and version that it was registered with.
    async fn complete(
        &self,
        (given, references): (Given, String),
    ) -> Result<(Written, (Option<u64>, Option<u64>)), Missing> {
        let language = given.language;
        let (mut found, mut bytes): (Vec<(String, String)>, usize) = (Vec::new(), 0);
        let mut seen: HashSet<(String, Place)> = HashSet::new();
        let mut left: Vec<Step> = self.steps(&given, &references).await?;
        while let Some(step) = left.pop() {
            let Referred { name, at } = match step {
                Step::Add { name, text } => {
                    found.push((name, text));
                    continue;
                }
                Step::Ask(referred) => referred,
            };
            if !seen.insert((name.clone(), at.clone())) {
                continue;
            }
            if seen.len() > REFERENCES_MAX {
                return Err(Missing::Unusable(format!("it refers to more than {REFERENCES_MAX} other schemas")));
            }
            let (referred, references) = self.referred(&name, &at, language).await?;
            bytes += referred.text.len();
            if bytes > BYTES_MAX {
                return Err(Missing::Unusable("it refers to more than 8 MiB of other schemas".to_owned()));
            }
            let steps = self.steps(&referred, &references).await?;
            left.push(Step::Add { name, text: referred.text });
            left.extend(steps);
        }
        Ok((Written { language, text: given.text, references: found }, given.registered))
    }

    /// The steps for the schemas that a schema refers to directly, the last one first. If the answer did not list them,
    /// the list is fetched from the URL `references`.
    async fn steps(&self, given: &Given, references: &str) -> Result<Vec<Step>, Missing> {
        let step = |name: String, at| Step::Ask(Referred { name, at });
        if let Some(named) = &given.references {
            let of_version = |Reference { name, subject, version }: &Reference| {
                step(name.clone(), Place::Version { subject: subject.clone(), version: version.clone() })
            };
            return Ok(named.iter().rev().map(of_version).collect());
        }
        let named = self.ask_at(references, answer::apicurio_references).await?;
        let at_urls = |(group, Reference { name, subject, version }): (Option<String>, Reference)| match referred(
            references,
            group.as_deref(),
            &subject,
            &version,
        )? {
            Question::Apicurio { url, references } => Some(step(name, Place::Urls { text: url, references })),
            Question::Confluent(_) => None,
        };
        Ok(named.into_iter().rev().filter_map(at_urls).collect())
    }

    /// The schema at this place, which another schema of this language refers to by this name.
    async fn referred(&self, name: &str, at: &Place, language: Language) -> Result<(Given, String), Missing> {
        let found = match at {
            Place::Version { subject, version } => {
                let found = self.ask(|base| Ok(Some(base.version(subject, version))), given).await;
                found.and_then(|found| found.ok_or_else(|| Missing::Unusable("it cannot be asked for".to_owned())))
            }
            Place::Urls { text, references } => {
                let found = self.ask_at(text, answer::apicurio).await;
                found.map(|given| (given, references.clone()))
            }
        };
        let (referred, references) = found.map_err(|missing| match missing {
            Missing::Absent(_) | Missing::Unusable(_) => {
                missing.map(|why| format!("the schema that it refers to as {}: {why}", answer::clean(name)))
            }
            other => other,
        })?;
        // The language of a text may be guessed wrong; the schema that refers to it knows.
        Ok((Given { language, ..referred }, references))
    }
}

/// Reads a schema, and returns the URL of its references, if they take a request of their own.
fn given(question: &Question, answer: &Answer, what: &str) -> Result<(Given, String), Missing> {
    match question {
        Question::Confluent(_) => answer::confluent(answer, what).map(|given| (given, String::new())),
        Question::Apicurio { references, .. } => {
            answer::apicurio(answer, what).map(|given| (given, references.clone()))
        }
    }
}
