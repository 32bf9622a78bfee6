//! `store`, a key of a proxy's settings file: where the proxy remembers requests and their answers. Its value is a
//! mapping with one key, which names the kind of store, and under that key the settings of the store.

use std::path::PathBuf;

use super::values::size;
use crate::postgres;
use crate::redis;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};
use crate::yaml::read::listed;
use crate::yaml::{Field, Placed, Reader, Text, secrets};

/// The names of the kinds of stores.
pub const KINDS: &[&str] = &["embedded", "postgres", "redis"];
/// The schema in PostgreSQL unless the file names another.
const DEFAULT_SCHEMA: &str = "ratchet";
/// The least and the greatest `store_bytes_max`. The store's log alone would fill a store below the least.
const STORE_BYTES_RANGE: (u64, u64) = (128 << 20, 16 << 40);

/// The keys under `store`.
pub static STORE: Mapping = Mapping {
    one_of: KINDS,
    ..Mapping::of(&[
        Key::optional(
            "embedded",
            Type::mapping(&EMBEDDED),
            "embedded: {dir: /var/lib/ratchet/requests}",
            "in a folder, `dir`, used only by this process and created if it does not exist; `store_bytes_max` [bounds \
             its size](#how-large-the-embedded-store-gets)",
        ),
        Key::optional(
            "postgres",
            Type::mapping(&POSTGRES),
            "postgres: {url: '${env:DATABASE_URL}'}",
            "in a table of PostgreSQL, which several proxies may share: `url`, and `schema` (`ratchet`)",
        ),
        Key::optional(
            "redis",
            Type::mapping(&REDIS),
            "redis: {url: '${env:REDIS_URL}'}",
            "in Redis, which several proxies may share: `url`",
        ),
    ])
};

static EMBEDDED: Mapping = Mapping::of(&[
    Key::required("dir", Type::Text("a folder's path, without `~`"), "dir: /var/lib/ratchet/requests", "the folder"),
    Key::optional(
        "store_bytes_max",
        Type::Size("a size from 128MiB to 16TiB"),
        "store_bytes_max: 10GiB",
        "the largest total size of its files. Beyond that, requests under new keys are refused with 503",
    ),
]);

static POSTGRES: Mapping = Mapping::of(&[
    Key::required("url", Type::Text("an address"), "url: ${env:DATABASE_URL}", "the database's address"),
    Key::optional("schema", Type::Text("a schema's name"), "schema: ratchet", "the schema of the table `request`")
        .or(Omitted::Is(DEFAULT_SCHEMA)),
]);

static REDIS: Mapping =
    Mapping::of(&[Key::required("url", Type::Text("an address"), "url: ${env:REDIS_URL}", "the server's address")]);

/// All mappings, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&STORE, &EMBEDDED, &POSTGRES, &REDIS];

/// A kind of store, and what it needs to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// A folder that one process has open.
    Embedded {
        /// The folder.
        dir: PathBuf,
        /// The bound on the size of its files, if there is one.
        bytes_max: Option<usize>,
    },
    /// A table of PostgreSQL.
    Postgres {
        /// The database's address.
        url: Text,
        /// The table's schema.
        schema: String,
    },
    /// Redis.
    Redis {
        /// The server's address.
        url: Text,
    },
}

impl StoreConfig {
    /// Describes its kind and its address in words, without secrets.
    pub fn describe(&self) -> String {
        match self {
            Self::Embedded { dir, .. } => format!("embedded, in {}", dir.display()),
            Self::Postgres { url, schema } => {
                let table = format!("postgres, in the table {schema}.request");
                // Does not fail: the url was checked when the settings were read.
                postgres::describe_url(url.reveal()).map_or(table.clone(), |database| format!("{table} of {database}"))
            }
            Self::Redis { url } => match redis::Address::read(url.reveal()) {
                Ok(address) => format!("redis, at {}", address.display_name()),
                Err(_) => "redis".to_owned(),
            },
        }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "embedded",
            Self::Postgres { .. } => "postgres",
            Self::Redis { .. } => "redis",
        }
    }
}

/// Reads the value of `store`. Reports all mistakes to `reader`; `None` if they leave the store unknown.
pub fn read(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<StoreConfig> {
    let fields = reader.fields(field, &STORE)?;
    let mut kinds = KINDS.iter().filter_map(|kind| Some((*kind, fields.get(kind)?)));
    let Some((kind, kind_field)) = kinds.next() else {
        if KINDS.iter().all(|kind| fields.misspelt(kind).is_none()) {
            let message = format!("`store` must name one kind: {}", listed(KINDS));
            reader.mistake(field.place(), message, "none is named", "write e.g. `store: {embedded: {dir: requests}}`");
        }
        return None;
    };
    if let Some((second, second_field)) = kinds.next() {
        let message = format!("a proxy has one store, not `{kind}` and `{second}`");
        reader.mistake(second_field.key_place, message, "a second one", "remove one of them");
    }
    match kind {
        "embedded" => {
            let fields = reader.fields(kind_field, &EMBEDDED)?;
            let path = |text: &str| (!text.starts_with('~')).then(|| PathBuf::from(text));
            let dir = fields.require("dir", reader).and_then(|field| reader.parsed(field, path));
            let bytes_max = size(&fields, "store_bytes_max", STORE_BYTES_RANGE, reader);
            Some(StoreConfig::Embedded { dir: dir?.value, bytes_max })
        }
        "postgres" => {
            let fields = reader.fields(kind_field, &POSTGRES)?;
            let schema = fields.get("schema").map(|field| reader.text(field));
            let url = fields.require("url", reader).cloned();
            let check = |url: &str| match secrets::url_problem(url) {
                Some(problem) => Err(problem.to_owned()),
                None => postgres::check_url(url),
            };
            let url = address(&url?, ("a database", "postgresql://user:password@host/database"), check, reader)?;
            let schema =
                schema.map_or(Some(DEFAULT_SCHEMA.to_owned()), |schema| Some(schema?.value.reveal().to_owned()))?;
            Some(StoreConfig::Postgres { url, schema })
        }
        _ => {
            let fields = reader.fields(kind_field, &REDIS)?;
            let url = fields.require("url", reader).cloned();
            let example = ("a server of Redis", "redis://user:password@host:6379/0");
            Some(StoreConfig::Redis { url: address(&url?, example, redis::check_url, reader)? })
        }
    }
}

/// Reads the address of `what`, such as `example`; `None` after a mistake, which is reported. The password must come
/// from an environment variable or from another file, not from the settings file itself.
fn address(
    field: &Field<'_>,
    (what, example): (&str, &str),
    check: impl Fn(&str) -> Result<(), String>,
    reader: &mut Reader<'_>,
) -> Option<Text> {
    let url: Placed<Text> = reader.text(field)?;
    let name = &field.name;
    if let Err(problem) = check(url.value.reveal()) {
        let message = format!("`{name}` is not the address of {what}: {problem}");
        let help = format!("write e.g. `url: ${{env:STORE_URL}}`, which holds `{example}`");
        reader.mistake(url.place, message, "not a valid address", help);
        return None;
    }
    // As written in the settings file, before variables and files are put in.
    let source = reader.file.text().get(url.place.start..url.place.end()).unwrap_or_default();
    if secrets::has_password(source) || !url.value.is_secret() && secrets::has_password(url.value.reveal()) {
        let message = format!("the password in `{name}` is a secret and must not be written out");
        let help = "write `url: ${env:STORE_URL}` or `url: ${file:PATH}`, or one of these in the password's place";
        reader.mistake(url.place, message, "not shown", help);
        return None;
    }
    Some(url.value)
}
