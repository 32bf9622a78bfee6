//! A schema with all that it refers to.
//!
//! Bounds: [`REFERENCES_MAX`] schemas, [`BYTES_MAX`] bytes of them. A schema that is referred to more than once is asked
//! for once for each name.

use std::collections::HashSet;

use super::answer::{self, Given, Missing};
use super::api::{Base, Question, referred};
use super::client::{Client, Got};
use crate::schemas::{Id, Language, Reference, Written};

/// The most schemas that a schema may refer to, directly or not.
const REFERENCES_MAX: usize = 256;
/// The most bytes of all of them.
const BYTES_MAX: usize = 8 << 20;

/// The latest version of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latest {
    /// The schema's number, if the registry says it.
    pub id: Option<u64>,
    /// The version, if the registry says it.
    pub version: Option<u64>,
    /// The schema.
    pub written: Written,
}

/// A schema that is asked for as another one refers to it.
struct Referred {
    name: String,
    at: Place,
}

/// Where a schema is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// A version of a subject, by Confluent's API.
    Version { subject: String, version: String },
    /// An address of Apicurio's own API: of the text, and of what it refers to.
    There { url: String, references: String },
}

/// What is left to do for a schema's references.
enum Step {
    Ask(Referred),
    Add { name: String, text: String },
}

impl Client {
    /// The schema with this id.
    ///
    /// # Errors
    /// There is none, or no answer.
    pub async fn schema(&self, id: Id) -> Result<Written, Missing> {
        let mut failed = None;
        // Some addresses may have either of two versions of an API.
        for attempt in 0.. {
            let question = |base: &Base| Ok(base.schema(id, self.ids_of)?.into_iter().nth(attempt));
            let found = match self.ask(question).await {
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

    /// The latest version of a subject; `None` if the registry knows no such subject.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn latest(&self, subject: &str) -> Result<Option<Latest>, Missing> {
        let found = match self.ask(|base| Ok(Some(base.latest(subject)))).await {
            Ok(Some(found)) => self.complete(found).await,
            Ok(None) | Err(Missing::Absent(_)) => return Ok(None),
            Err(missing) => Err(missing),
        };
        let latest = found.map(|(written, (id, version))| Some(Latest { id, version, written }));
        latest.map_err(|missing| self.hidden(missing))
    }

    /// Asks one question; what it gives, and where to ask for what it refers to. `None` if there is no such question.
    async fn ask(
        &self,
        question: impl Fn(&Base) -> Result<Option<Question>, String>,
    ) -> Result<Option<(Given, String)>, Missing> {
        // The question's form depends on the address that answers.
        let forms = std::cell::RefCell::new(None);
        let got = self.get(|base| {
            let asked = question(base)?;
            let url = match &asked {
                None => String::new(),
                Some(Question::Confluent(url) | Question::Apicurio { url, .. }) => url.clone(),
            };
            *forms.borrow_mut() = asked;
            match url.is_empty() {
                true => Err(String::new()),
                false => Ok(url),
            }
        });
        let got = got.await;
        match (got, forms.into_inner()) {
            (Err(Missing::Unusable(why)), None) if why.is_empty() => Ok(None),
            (Err(missing), _) => Err(missing),
            (Ok(got), Some(question)) => given(&got, &question).map(Some),
            (Ok(_), None) => Ok(None),
        }
    }

    /// A schema with all that it refers to.
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
                return Err(Missing::Unusable(format!("it refers to more than {REFERENCES_MAX} others")));
            }
            let (referred, references) = self.referred(&name, &at, language).await?;
            bytes += referred.text.len();
            if bytes > BYTES_MAX {
                return Err(Missing::Unusable("it refers to more than 8 MiB of others".to_owned()));
            }
            let steps = self.steps(&referred, &references).await?;
            left.push(Step::Add { name, text: referred.text });
            left.extend(steps);
        }
        Ok((Written { language, text: given.text, references: found }, given.registered))
    }

    /// What a schema refers to itself, the last one first. `references` is where to ask, if it does not say so itself.
    async fn steps(&self, given: &Given, references: &str) -> Result<Vec<Step>, Missing> {
        let step = |name: String, at| Step::Ask(Referred { name, at });
        if let Some(named) = &given.references {
            let of_version = |Reference { name, subject, version }: &Reference| {
                step(name.clone(), Place::Version { subject: subject.clone(), version: version.clone() })
            };
            return Ok(named.iter().rev().map(of_version).collect());
        }
        let got = self.get_there(references).await?;
        let named = answer::apicurio_references(&got.answer, &got.what)?;
        let there = |(group, Reference { name, subject, version }): (Option<String>, Reference)| match referred(
            references,
            group.as_deref(),
            &subject,
            &version,
        )? {
            Question::Apicurio { url, references } => Some(step(name, Place::There { url, references })),
            Question::Confluent(_) => None,
        };
        Ok(named.into_iter().rev().filter_map(there).collect())
    }

    /// A schema that another one refers to.
    async fn referred(&self, name: &str, at: &Place, language: Language) -> Result<(Given, String), Missing> {
        let found = match at {
            Place::Version { subject, version } => {
                let found = self.ask(|base| Ok(Some(base.version(subject, version)))).await;
                found.map(|found| found.ok_or_else(|| Missing::Unusable("it cannot be asked for".to_owned())))
            }
            Place::There { url, references } => {
                let got = self.get_there(url).await;
                let question = Question::Apicurio { url: url.clone(), references: references.clone() };
                got.map(|got| given(&got, &question))
            }
        };
        let (referred, references) = found.and_then(|found| found).map_err(|missing| match missing {
            Missing::Absent(why) => Missing::Absent(format!("what it refers to as {}: {why}", answer::clean(name))),
            Missing::Unusable(why) => Missing::Unusable(format!("what it refers to as {}: {why}", answer::clean(name))),
            other => other,
        })?;
        // A text alone may look like another language; what refers to it knows.
        Ok((Given { language, ..referred }, references))
    }
}

/// What an answer gives, and where to ask for what it refers to.
fn given(got: &Got, question: &Question) -> Result<(Given, String), Missing> {
    match question {
        Question::Confluent(_) => answer::confluent(&got.answer, &got.what).map(|given| (given, String::new())),
        Question::Apicurio { references, .. } => {
            answer::apicurio(&got.answer, &got.what).map(|given| (given, references.clone()))
        }
    }
}
