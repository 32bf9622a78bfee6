//! The paths that a topology reads, with their alternatives, for a comparison with a schema.

use crate::dedup::{ContentsPart, IdentityPart, Names, Path, Source};
use crate::topology::Topology;
use crate::topology::sink::http::{Body, Json};
use crate::topology::sink::{Parameter, Sink};

/// A value that a topology reads from records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The alternatives; each is a list of paths that are needed together.
    pub any_of: Vec<Vec<Path>>,
    /// Whether a schema without it is an error. A preset also names paths that only some kinds of records have.
    pub is_needed: bool,
}

impl Want {
    fn of(any_of: Vec<Vec<Path>>, is_needed: bool) -> Self {
        Self { any_of, is_needed }
    }

    /// Any one of these places.
    fn first(places: &[Path], is_needed: bool) -> Self {
        Self::of(places.iter().map(|path| vec![path.clone()]).collect(), is_needed)
    }

    /// The paths that a record lacks; `has` says whether it has a path. Empty if the record has an alternative in full.
    pub fn lacking(&self, has: &dyn Fn(&Path) -> bool) -> Vec<&Path> {
        if self.any_of.iter().any(|paths| paths.iter().all(has)) {
            return Vec::new();
        }
        self.any_of.iter().flatten().filter(|path| !has(path)).collect()
    }
}

/// All values that the rules and the sink of a topology read from keys and values.
pub fn wants(topology: &Topology) -> Vec<Want> {
    let rules = &topology.rules;
    let is_own = topology.preset.is_none();
    let mut wants: Vec<Want> = rules.identity.parts.iter().map(|part| Want::of(of_part(part), true)).collect();
    let parts = rules.version.as_ref().map(|version| version.parts.as_slice()).unwrap_or_default();
    for part in parts {
        wants.push(Want::first(&part.of, is_own || part.required || parts.len() == 1));
        wants.extend(part.at_least.iter().map(|places| Want::first(places, is_own)));
    }
    let epoch = rules.epoch.iter().flat_map(|epoch| &epoch.parts);
    wants.extend(epoch.map(|part| Want::first(&part.of, is_own)));
    if let Some(kinds) = &rules.kinds {
        wants.extend([&kinds.of].into_iter().chain(&kinds.table).map(|places| Want::first(places, is_own)));
    }
    let contents = rules.contents.iter().flat_map(|contents| &contents.parts);
    wants.extend(contents.clone().map(|part| Want::of(of_contents(part), is_own)));
    let exceptions = contents.flat_map(|part| match part {
        ContentsPart::Fingerprint { except, .. } => except.as_slice(),
        _ => &[],
    });
    wants.extend(exceptions.map(|path| Want::of(vec![vec![path.clone()]], is_own)));
    wants.extend(topology.sink().into_iter().flat_map(of_sink));
    wants.retain(|want| !want.any_of.is_empty());
    wants
}

/// The alternatives of a part of the identity.
fn of_part(part: &IdentityPart) -> Vec<Vec<Path>> {
    match part {
        IdentityPart::Scalar(path) | IdentityPart::Content(path) => vec![vec![path.clone()]],
        IdentityPart::Fingerprint { of, except } => vec![[of].into_iter().chain(except).cloned().collect()],
        IdentityPart::Bucket { .. } => Vec::new(),
        // Alternatives within alternatives become one list.
        IdentityPart::FirstOf(alternatives) => alternatives.iter().flat_map(|parts| of_parts(parts)).collect(),
        IdentityPart::Rows { of, named: Names::At(path) } => {
            of.iter().map(|object| vec![object.clone(), path.clone()]).collect()
        }
        IdentityPart::Rows { of, .. } => of.iter().map(|object| vec![object.clone()]).collect(),
    }
}

/// The alternatives of several parts together.
fn of_parts(parts: &[IdentityPart]) -> Vec<Vec<Path>> {
    parts.iter().map(of_part).filter(|any_of| !any_of.is_empty()).fold(vec![Vec::new()], |before, any_of| {
        let with = |paths: &Vec<Path>| any_of.iter().map(|more| [&paths[..], more].concat()).collect::<Vec<_>>();
        before.iter().flat_map(with).collect()
    })
}

fn of_contents(part: &ContentsPart) -> Vec<Vec<Path>> {
    match part {
        ContentsPart::Written(path) | ContentsPart::Flattened(path) => vec![vec![path.clone()]],
        ContentsPart::Fingerprint { of, .. } => vec![vec![of.clone()]],
        ContentsPart::Rows(places) => places.iter().map(|path| vec![path.clone()]).collect(),
        ContentsPart::FirstOf(parts) => parts.iter().flat_map(of_contents).collect(),
    }
}

fn of_sink(sink: &Sink) -> Vec<Want> {
    let field = |object: &Path, name: &String| {
        let steps = object.steps.iter().chain([name]).cloned().collect();
        Path { source: object.source.clone(), steps }
    };
    match sink {
        Sink::Postgres(postgres) => {
            let parameters = postgres.statements.iter().flat_map(|statement| &statement.with);
            let want = |parameter: &Parameter| match parameter {
                Parameter::At(places) => Some(Want::first(places, true)),
                Parameter::Row { of, key } => {
                    let row = |object: &Path| key.iter().map(|name| field(object, name)).collect();
                    Some(Want::of(of.iter().map(row).collect(), true))
                }
                Parameter::Digest => None,
            };
            parameters.filter_map(want).collect()
        }
        Sink::Http(http) => {
            let mut wants = Vec::new();
            let templates = [&http.url].into_iter().chain(http.headers.iter().map(|(_, value)| value));
            wants.extend(
                templates.flat_map(|text| text.paths()).map(|path| Want::first(std::slice::from_ref(path), true)),
            );
            if let Body::Json(json) = &http.body {
                of_json(json, &mut wants);
            }
            wants
        }
        Sink::Handler(_) => Vec::new(),
    }
}

fn of_json(json: &Json, wants: &mut Vec<Want>) {
    match json {
        Json::At(places) => wants.push(Want::first(places, true)),
        Json::Object(fields) => fields.iter().for_each(|(_, json)| of_json(json, wants)),
        Json::List(items) => items.iter().for_each(|json| of_json(json, wants)),
    }
}

/// Whether a path leads into the key; false for the value, `None` for anything else.
pub fn is_in_key(path: &Path) -> Option<bool> {
    match path.source {
        Source::Key => Some(true),
        Source::Value => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a path is reported as lacking unless one of its alternatives is there.

    use std::path::Path as File;

    use super::*;
    use crate::topology;
    use crate::yaml::Environment;

    struct One(&'static str);

    impl Environment for One {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }

        fn variables(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn read_file(&self, _: &File) -> std::io::Result<Vec<u8>> {
            Ok(self.0.into())
        }

        fn cores(&self) -> usize {
            1
        }
    }

    /// The paths that a schema with the known paths lacks, each with whether it is needed.
    fn lacking(yaml: &'static str, known: &[&str]) -> Vec<(String, bool)> {
        let topology = topology::load(File::new("t.yaml"), &One(yaml)).unwrap().topology;
        let has = |path: &Path| path.steps.is_empty() || known.contains(&path.to_string().as_str());
        let of = |want: &Want| {
            want.lacking(&has).into_iter().map(|path| (path.to_string(), want.is_needed)).collect::<Vec<_>>()
        };
        wants(&topology).iter().flat_map(of).collect()
    }

    #[test]
    fn paths_of_rules_are_lacking_unless_an_alternative_is_there() {
        let yaml = "\
name: t
input: {topics: [t], value_format: avro}
identity: [value.id, {first_of: [value.a, [value.b, value.c]]}]
version: {of: {first_of: [value.v, value.w]}, as: integer}
contents: {fingerprint: value, except: [value.sent]}
output: {topic: out}
partitioned_by_identity: true
";
        assert_eq!(lacking(yaml, &["value.id", "value.w", "value.sent", "value.b", "value.c"]), []);
        let needed = |paths: &[&str]| paths.iter().map(|path| (path.to_string(), true)).collect::<Vec<_>>();
        assert_eq!(
            lacking(yaml, &["value.b"]),
            needed(&["value.id", "value.a", "value.c", "value.v", "value.w", "value.sent"])
        );
    }

    #[test]
    fn paths_of_a_preset_other_than_identity_and_version_are_not_needed() {
        let yaml = "\
name: t
preset: debezium-postgres@3
input: {topics: [t], key_format: avro, value_format: avro}
output: {topic: out}
";
        let found = lacking(yaml, &[]);
        assert!(found.iter().any(|(path, is_needed)| path == "value.op" && !is_needed), "{found:?}");
    }
}
