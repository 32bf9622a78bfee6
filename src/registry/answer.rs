//! What a registry's answers mean. Pure.

use hyper::header::{CONTENT_TYPE, LOCATION};
use serde_json::Value;

use crate::observe::Asked;
use crate::schemas::{Language, Reference, fingerprint};
use crate::web::Answer;

/// The longest schema.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// How many characters of a text from the registry are shown at most.
const SAID_CHARS_MAX: usize = 200;

/// Why there is no schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The registry does not have the schema.
    Absent(String),
    /// The registry has the schema, but ratchet cannot use it.
    Unusable(String),
    /// The registry refuses ratchet's login.
    Refused(String),
    /// There is no answer, or not that of a registry.
    Failed(String),
}

impl Missing {
    /// How a request that ended so is counted.
    pub fn asked(&self) -> Asked {
        match self {
            Self::Absent(_) => Asked::Absent,
            Self::Unusable(_) => Asked::Found,
            Self::Refused(_) => Asked::Refused,
            Self::Failed(_) => Asked::Failed,
        }
    }

    /// The same error with another text.
    pub fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Absent(why) => Self::Absent(change(why)),
            Self::Unusable(why) => Self::Unusable(change(why)),
            Self::Refused(why) => Self::Refused(change(why)),
            Self::Failed(why) => Self::Failed(change(why)),
        }
    }
}

/// A schema as a registry gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The language of the schema.
    pub language: Language,
    /// The text of the schema.
    pub text: String,
    /// The schemas that it refers to; `None` if the registry has to be asked for them separately.
    pub references: Option<Vec<Reference>>,
    /// The schema's id and its version, if it was asked for by its subject.
    pub registered: (Option<u64>, Option<u64>),
}

/// What messages about an error's answer need.
pub struct ErrorContext<'a> {
    /// What to correct if the registry refuses the login.
    pub advice: &'a str,
    /// Removes secrets from a text of the registry.
    pub masked: &'a dyn Fn(&str) -> String,
}

/// Checks an answer's status: an error unless it is 200 to 299. `what` is the request, for messages.
pub fn accepted(answer: &Answer, what: &str, context: &ErrorContext<'_>) -> Result<(), Missing> {
    let status = answer.status;
    let (is_absent, said) = error_of(answer);
    let said = said.map(|said| format!(" ({})", clean(&(context.masked)(&said)))).unwrap_or_default();
    match status {
        200..=299 => Ok(()),
        401 | 403 => Err(Missing::Refused(format!("it answers {status} to {what}: {}", context.advice))),
        404 if is_absent => Err(Missing::Absent(format!("it answers 404 to {what}{said}"))),
        404 => Err(Missing::Failed(format!(
            "it answers 404 to {what}{said}, and not as a registry that lacks a schema: is schema_registry.url the \
             registry's address, with its path?"
        ))),
        300..=399 => Err(Missing::Failed(format!(
            "it answers {status} to {what}, and leads to {}: write that address into schema_registry.url",
            clean(&(context.masked)(&leads_to(answer)))
        ))),
        _ => Err(Missing::Failed(format!("it answers {status} to {what}{said}"))),
    }
}

/// Whether an error says that there is no such schema, and its message: Confluent's (`error_code`, `message`) or
/// Apicurio's (`name`, `detail`).
fn error_of(answer: &Answer) -> (bool, Option<String>) {
    let Ok(body) = serde_json::from_slice::<Value>(&answer.body) else { return (false, None) };
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let code = body.get("error_code").and_then(Value::as_u64).unwrap_or(0);
    let is_absent =
        (40_400..40_500).contains(&code) || text("name").is_some_and(|name| name.ends_with("NotFoundException"));
    let said = text("message").or_else(|| text("detail")).or_else(|| text("title"));
    (is_absent, said.map(str::to_owned))
}

/// Where a redirect leads, without the user, the query and the fragment, which may hold secrets.
fn leads_to(answer: &Answer) -> String {
    let to = answer.headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("nowhere");
    let to = to.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = to.split_once("//") else { return to.to_owned() };
    format!("{scheme}//{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest))
}

/// A schema in an answer of Confluent's API.
pub fn confluent(answer: &Answer, what: &str) -> Result<Given, Missing> {
    let body = json(answer, what)?;
    let text = body.get("schema").and_then(Value::as_str);
    let text = text.ok_or_else(|| no_registry(answer, what, "JSON without a schema"))?;
    let name = body.get("schemaType").and_then(Value::as_str).unwrap_or("AVRO");
    let language = Language::of_registry(name);
    let language = language
        .ok_or_else(|| Missing::Unusable(format!("it is of the type {}, which ratchet does not read", clean(name))))?;
    let references = body.get("references").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let references: Option<Vec<Reference>> = references.iter().map(reference).collect();
    let references = references.ok_or_else(|| no_registry(answer, what, "references without a name or a subject"))?;
    let number = |name: &str| body.get(name).and_then(Value::as_u64);
    let registered = (number("id"), number("version"));
    bounded(Given { language, text: text.to_owned(), references: Some(references), registered })
}

fn reference(value: &Value) -> Option<Reference> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let version = value.get("version")?;
    let version = version.as_u64().map(|number| number.to_string()).or_else(|| version.as_str().map(str::to_owned))?;
    Some(Reference { name: text("name")?, subject: text("subject")?, version })
}

/// A schema's text in an answer of Apicurio's own API.
pub fn apicurio(answer: &Answer, what: &str) -> Result<Given, Missing> {
    if is_html(answer) {
        return Err(no_registry(answer, what, "HTML"));
    }
    let text = String::from_utf8(answer.body.to_vec());
    let text = text.map_err(|_| Missing::Unusable("its text is not UTF-8".to_owned()))?;
    let named = answer.headers.get("x-registry-artifacttype").and_then(|name| name.to_str().ok());
    let language = match named {
        Some(name) => Language::of_registry(name).ok_or_else(|| {
            Missing::Unusable(format!("it is of the type {}, which ratchet does not read", clean(name)))
        })?,
        None => language_of(&text),
    };
    bounded(Given { language, text, references: None, registered: (None, None) })
}

/// The language of a text, guessed where the registry does not name it.
pub fn language_of(text: &str) -> Language {
    match serde_json::from_str::<Value>(text) {
        Err(_) => Language::Protobuf,
        Ok(schema) if schema.get("$schema").is_some() || schema.get("$id").is_some() => Language::JsonSchema,
        Ok(_) if is_avro(text) => Language::Avro,
        Ok(_) => Language::JsonSchema,
    }
}

/// Whether a text is an Avro schema and not a JSON Schema, whose types would be the names of missing types in Avro.
fn is_avro(text: &str) -> bool {
    let others = ["object", "number", "integer"];
    fingerprint::walked(text).is_some_and(|walked| !walked.missing.iter().any(|name| others.contains(&name.as_str())))
}

/// The references of a schema by Apicurio's own API: each with its group, artifact and version.
pub fn apicurio_references(answer: &Answer, what: &str) -> Result<Vec<(Option<String>, Reference)>, Missing> {
    let body = json(answer, what)?;
    let list = body.as_array().ok_or_else(|| no_registry(answer, what, "JSON that is not a list"))?;
    let read = |value: &Value| {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let reference = Reference { name: text("name")?, subject: text("artifactId")?, version: text("version")? };
        Some((text("groupId"), reference))
    };
    let references: Option<Vec<_>> = list.iter().map(read).collect();
    references.ok_or_else(|| no_registry(answer, what, "references without a name or an artifact"))
}

fn bounded(given: Given) -> Result<Given, Missing> {
    match given.text.len() > TEXT_BYTES_MAX {
        true => Err(Missing::Unusable("it is larger than 1 MiB".to_owned())),
        false => Ok(given),
    }
}

fn json(answer: &Answer, what: &str) -> Result<Value, Missing> {
    serde_json::from_slice(&answer.body)
        .map_err(|_| no_registry(answer, what, if is_html(answer) { "HTML" } else { "something that is not JSON" }))
}

fn no_registry(answer: &Answer, what: &str, found: &str) -> Missing {
    Missing::Failed(format!(
        "it answers {} to {what} with {found}: is schema_registry.url the registry's address, and not that of a \
         console or a proxy that asks for a login?",
        answer.status
    ))
}

fn is_html(answer: &Answer) -> bool {
    let kind = answer.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let begins = answer.body.iter().find(|byte| !byte.is_ascii_whitespace());
    kind.to_ascii_lowercase().contains("html") || begins == Some(&b'<')
}

/// A text from outside, made fit for a log: on one line, and shortened.
pub fn clean(said: &str) -> String {
    said.chars().take(SAID_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    //! Goal: a registry's answers are understood, and an error says what else has answered.

    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Answer {
        let named = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let headers: HeaderMap = headers.iter().map(named).collect();
        Answer { status, headers, body: body.as_bytes().to_vec().into() }
    }

    fn refused(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Missing {
        let masked = |said: &str| said.replace("swordfish", "***");
        let context = ErrorContext { advice: "correct the password", masked: &masked };
        accepted(&answer(status, headers, body), "GET /x", &context).unwrap_err()
    }

    #[test]
    fn schema_of_confluent_has_its_type_and_references() {
        let body = r#"{"schema": "message A {}", "schemaType": "PROTOBUF", "maxId": 7, "subject": "s", "version": 3,
            "id": 5, "references": [{"name": "m.proto", "subject": "m", "version": 2}]}"#;
        let given = confluent(&answer(200, &[], body), "GET /x").unwrap();
        assert_eq!((given.language, given.text.as_str()), (Language::Protobuf, "message A {}"));
        assert_eq!(given.registered, (Some(5), Some(3)));
        let expected = Reference { name: "m.proto".to_owned(), subject: "m".to_owned(), version: "2".to_owned() };
        assert_eq!(given.references, Some(vec![expected]));
        let avro = confluent(&answer(200, &[], r#"{"schema": "\"int\""}"#), "GET /x").unwrap();
        assert_eq!((avro.language, avro.references), (Language::Avro, Some(vec![])));
    }

    #[test]
    fn only_an_error_of_a_registry_says_that_a_schema_is_absent() {
        for body in [
            r#"{"error_code": 40403, "message": "Schema 5 not found"}"#,
            r#"{"error_code": 404, "name": "ArtifactNotFoundException", "message": "No artifact"}"#,
            r#"{"status": 404, "name": "ContentNotFoundException", "title": "none"}"#,
        ] {
            assert!(matches!(refused(404, &[], body), Missing::Absent(_)), "{body}");
        }
        for body in ["", "not found", r#"{"error_code": 404, "message": "HTTP 404 Not Found"}"#, "[]", "<html></html>"]
        {
            assert!(matches!(refused(404, &[], body), Missing::Failed(_)), "{body}");
        }
    }

    #[test]
    fn other_statuses_say_what_to_do() {
        let Missing::Refused(said) = refused(401, &[], r#"{"message": "hunter2"}"#) else { panic!("401") };
        assert_eq!(said, "it answers 401 to GET /x: correct the password");
        let Missing::Failed(said) = refused(302, &[("location", "https://me:hunter2@login/?token=t")], "") else {
            panic!("302")
        };
        assert!(said.contains(", and leads to https://login/: write that address"), "{said}");
        let Missing::Failed(said) = refused(503, &[], r#"{"error_code": 50003, "message": "a\nb"}"#) else {
            panic!("503")
        };
        assert_eq!(said, "it answers 503 to GET /x (a b)");
        let cut_off = format!(r#"{{"message": "{}swordfish"}}"#, "x".repeat(SAID_CHARS_MAX - 5));
        let Missing::Failed(said) = refused(500, &[], &cut_off) else { panic!("500") };
        assert!(said.ends_with("x***)"), "a secret is hidden before the text is shortened: {said}");
    }

    #[test]
    fn error_says_what_has_answered_in_place_of_a_registry() {
        let html = "<!doctype html><title>Log in</title>";
        for (given, found) in [
            (answer(200, &[], html), "with HTML"),
            (answer(200, &[("content-type", "text/html; charset=utf-8")], ""), "with HTML"),
            (answer(200, &[], "hello"), "with something that is not JSON"),
            (answer(200, &[], "{}"), "with JSON without a schema"),
            (answer(200, &[], r#"{"schema": "x", "references": [{}]}"#), "with references without a name"),
        ] {
            let Err(Missing::Failed(said)) = confluent(&given, "GET /x") else { panic!("{found}") };
            assert!(said.contains(found), "{said}");
        }
        assert!(matches!(apicurio(&answer(200, &[], html), "GET /x"), Err(Missing::Failed(_))));
    }

    #[test]
    fn schemas_of_unknown_types_and_too_large_ones_are_unusable() {
        let other = answer(200, &[], r#"{"schema": "x", "schemaType": "THRIFT"}"#);
        assert!(matches!(confluent(&other, "GET /x"), Err(Missing::Unusable(why)) if why.contains("type THRIFT")));
        let large = format!(r#"{{"schema": "{}"}}"#, "x".repeat(TEXT_BYTES_MAX + 1));
        assert!(matches!(confluent(&answer(200, &[], &large), "GET /x"), Err(Missing::Unusable(_))));
        let openapi = answer(200, &[("x-registry-artifacttype", "OPENAPI")], "{}");
        assert!(matches!(apicurio(&openapi, "GET /x"), Err(Missing::Unusable(_))));
    }

    #[test]
    fn language_of_apicurios_text_is_guessed() {
        for (text, language) in [
            (r#"{"type": "record", "name": "R", "fields": []}"#, Language::Avro),
            (r#""string""#, Language::Avro),
            (r#"{"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}"#, Language::JsonSchema),
            (r#"{"type": "object", "properties": {}}"#, Language::JsonSchema),
            ("syntax = \"proto3\"; message A {}", Language::Protobuf),
        ] {
            assert_eq!(apicurio(&answer(200, &[], text), "GET /x").unwrap().language, language, "{text}");
        }
        let named = answer(200, &[("x-registry-artifacttype", "JSON")], r#"{"type": "string"}"#);
        assert_eq!(apicurio(&named, "GET /x").unwrap().language, Language::JsonSchema);
    }

    #[test]
    fn references_of_apicurio_name_artifacts() {
        let body = r#"[{"groupId": null, "artifactId": "money", "version": "1", "name": "b.Money"}]"#;
        let found = apicurio_references(&answer(200, &[], body), "GET /x").unwrap();
        assert_eq!((found[0].0.as_deref(), found[0].1.subject.as_str()), (None, "money"));
        assert!(apicurio_references(&answer(200, &[], "{}"), "GET /x").is_err());
    }
}
