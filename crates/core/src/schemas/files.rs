//! Schemas in the files of a folder, without a registry.
//!
//! A file's extension is its language (`.avsc`, `.proto`, `.json`), and its name says which records use it:
//!
//! - `5.avsc`: records with the number 5, whichever registry gave it
//! - `89791762-2336-186f-9674-299b90a8e2e1.proto`: records with this GUID, or this version id of AWS Glue
//! - `payments-value.avsc`, `payments-key.avsc`: values and keys of the topic `payments` that carry no id
//! - any `.avsc`: records of single-object Avro, by the schema's fingerprint
//! - any other name, also in subfolders: other schemas refer to an Avro file by the full name of the type that it
//!   defines, and to a Protobuf file by its path
//!
//! Hidden files and files with other extensions are ignored. The folder is read once.
//!
//! **Failure**: a file that cannot be read, or a second file for an id, is an error that names the file. A reference
//! without a file is left out: the schema's parser reports it, unless it is one of Protobuf's own imports.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fingerprint;
use super::id::{Id, hyphenated, uuid_of};
use super::known::{LookUp, Schemas};
use super::written::{Language, Written};

/// The maximum size of a schema.
pub const TEXT_BYTES_MAX: u64 = 1 << 20;
/// The maximum number of files.
const FILES_MAX: usize = 10_000;
/// The maximum depth of subfolders.
const FOLDERS_MAX: usize = 8;

/// The schemas of a folder.
pub struct Files {
    dir: PathBuf,
    numbers: BTreeMap<u64, Arc<Written>>,
    uuids: BTreeMap<[u8; 16], Arc<Written>>,
    prints: BTreeMap<u64, Arc<Written>>,
    subjects: BTreeMap<String, Arc<Written>>,
}

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder or a file cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    Unread {
        /// Its path.
        path: PathBuf,
        /// Why it cannot be read.
        error: io::Error,
    },
    /// A file cannot be used.
    #[error("the schema {} {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// There are too many files.
    #[error("there are more than {FILES_MAX} files in {}: name a folder that holds schemas only", dir.display())]
    TooMany {
        /// The folder.
        dir: PathBuf,
    },
}

/// A file as it was read.
struct File {
    path: PathBuf,
    /// Its path within the folder, with slashes.
    name: String,
    language: Language,
    text: String,
    /// For Avro: the types that it defines and needs.
    walked: Option<fingerprint::Walked>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Files {
    /// Reads the schemas of a folder.
    ///
    /// # Errors
    /// The folder or a file cannot be used.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let mut read = Vec::new();
        collect(dir, dir, 0, &mut read)?;
        read.sort_by(|a, b| a.name.cmp(&b.name));
        let catalogue = Catalogue::new(&read);
        let mut files = Self {
            dir: dir.to_owned(),
            numbers: BTreeMap::new(),
            uuids: BTreeMap::new(),
            prints: BTreeMap::new(),
            subjects: BTreeMap::new(),
        };
        for (at, file) in read.iter().enumerate() {
            let written = Arc::new(Written {
                language: file.language,
                text: file.text.clone(),
                references: catalogue.references(at),
            });
            files.add(file, written)?;
        }
        Ok(files)
    }

    /// The number of schemas that have an id or a subject.
    pub fn count(&self) -> usize {
        self.numbers.len() + self.uuids.len() + self.subjects.len()
    }

    fn add(&mut self, file: &File, written: Arc<Written>) -> Result<(), Error> {
        if let Some(walked) = &file.walked {
            // Two files with one canonical form differ only in what no reader needs, except for aliases.
            self.prints.entry(walked.fingerprint()).or_insert_with(|| Arc::clone(&written));
        }
        let Some((stem, _)) = file.name.rsplit_once('.').filter(|(stem, _)| !stem.contains('/')) else { return Ok(()) };
        let before = match (stem.parse(), uuid_of(stem)) {
            (Ok(number), _) => self.numbers.insert(number, written),
            (_, Some(uuid)) => self.uuids.insert(uuid, written),
            _ => self.subjects.insert(stem.to_owned(), written),
        };
        match before {
            None => Ok(()),
            Some(_) => {
                let why = format!("is there twice: another file names {stem} too; keep one of them");
                Err(Error::Unusable { path: file.path.clone(), why })
            }
        }
    }

    fn found(&self, id: Id) -> Option<&Arc<Written>> {
        match (id, id.number(), id.uuid()) {
            (Id::Fingerprint(print), ..) => self.prints.get(&print),
            (_, Some(number), _) => self.numbers.get(&number),
            (_, _, Some(uuid)) => self.uuids.get(&uuid),
            _ => None,
        }
    }
}

impl Schemas for Files {
    fn look_up(&self, id: &Id) -> LookUp {
        if let Some(written) = self.found(*id) {
            return LookUp::Known(Arc::clone(written));
        }
        let dir = self.dir.display();
        LookUp::Absent(match (id.number(), id.uuid()) {
            (Some(number), _) => {
                format!("{id} is not in the folder {dir}: put it there as {number}.avsc, .proto or .json")
            }
            (_, Some(uuid)) => {
                format!("{id} is not in the folder {dir}: put it there as {}.avsc, .proto or .json", hyphenated(uuid))
            }
            _ => format!("{id} is not in the folder {dir}: put its schema there, as a file that ends with .avsc"),
        })
    }

    fn of_subject(&self, subject: &str) -> Option<Arc<Written>> {
        self.subjects.get(subject).cloned()
    }
}

/// All files, by the names that schemas use for them.
struct Catalogue<'a> {
    files: &'a [File],
    /// Avro: types by their full names.
    types: BTreeMap<&'a str, usize>,
    /// Protobuf: files by their paths.
    paths: BTreeMap<&'a str, usize>,
}

impl<'a> Catalogue<'a> {
    fn new(files: &'a [File]) -> Self {
        let (mut types, mut paths) = (BTreeMap::new(), BTreeMap::new());
        for (at, file) in files.iter().enumerate() {
            // Types inside of it are used by way of the outermost one.
            let outermost = file.walked.as_ref().and_then(|walked| walked.defined.first());
            outermost.map(|name| types.entry(name.as_str()).or_insert(at));
            if file.language == Language::Protobuf {
                paths.insert(file.name.as_str(), at);
            }
        }
        Self { files, types, paths }
    }

    /// The names and the texts of the files that a file refers to, directly or not.
    fn references(&self, at: usize) -> Vec<(String, String)> {
        let (mut seen, mut found) = (vec![false; self.files.len()], Vec::new());
        seen[at] = true;
        // The files to visit, their names, and whether the files that they refer to have been visited.
        let mut left: Vec<(usize, String, bool)> = self.direct(at).map(|(at, name)| (at, name, false)).collect();
        while let Some((at, name, is_done)) = left.pop() {
            if is_done {
                found.push((name, self.files[at].text.clone()));
            } else if !std::mem::replace(&mut seen[at], true) {
                left.push((at, name, true));
                left.extend(self.direct(at).map(|(at, name)| (at, name, false)));
            }
        }
        found
    }

    /// The files that a file refers to directly, the last one first.
    fn direct(&self, at: usize) -> impl Iterator<Item = (usize, String)> + '_ {
        let file = &self.files[at];
        let names: Vec<String> = match (&file.walked, file.language) {
            (Some(walked), _) => walked.missing.clone(),
            (None, Language::Protobuf) => imports(&file.text),
            _ => Vec::new(),
        };
        let by_name = if file.language == Language::Avro { &self.types } else { &self.paths };
        names.into_iter().rev().filter_map(|name| by_name.get(name.as_str()).map(|at| (*at, name)))
    }
}

/// The paths that a Protobuf file imports.
fn imports(text: &str) -> Vec<String> {
    let statements = text.split([';', '\n']).map(str::trim_start).filter_map(|line| line.strip_prefix("import"));
    let quoted = statements.filter_map(|rest| {
        let rest = rest.trim_start();
        let rest = ["public", "weak", "option"].iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        rest[1..].split_once(quote).map(|(path, _)| path.to_owned())
    });
    quoted.collect()
}

fn collect(root: &Path, dir: &Path, depth: usize, read: &mut Vec<File>) -> Result<(), Error> {
    let unread = |path: &Path, error| Error::Unread { path: path.to_owned(), error };
    for entry in fs::read_dir(dir).map_err(|error| unread(dir, error))? {
        let path = entry.map_err(|error| unread(dir, error))?.path();
        let is_hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        if path.is_dir() {
            if depth < FOLDERS_MAX {
                collect(root, &path, depth + 1, read)?;
            }
        } else if let Some(file) = file(root, &path)? {
            read.push(file);
            if read.len() > FILES_MAX {
                return Err(Error::TooMany { dir: root.to_owned() });
            }
        }
    }
    Ok(())
}

/// The schema in a file; `None` if the file has another extension.
fn file(root: &Path, path: &Path) -> Result<Option<File>, Error> {
    let language = match path.extension().and_then(|ending| ending.to_str()) {
        Some("avsc") => Language::Avro,
        Some("proto") => Language::Protobuf,
        Some("json") => Language::JsonSchema,
        _ => return Ok(None),
    };
    let unread = |error| Error::Unread { path: path.to_owned(), error };
    let unusable = |why: &str| Error::Unusable { path: path.to_owned(), why: why.to_owned() };
    if fs::metadata(path).map_err(unread)?.len() > TEXT_BYTES_MAX {
        return Err(unusable("is larger than 1 MiB"));
    }
    let text = String::from_utf8(fs::read(path).map_err(unread)?).map_err(|_| unusable("is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
    let walked = match language {
        Language::Avro => {
            Some(fingerprint::walked(&text).ok_or_else(|| unusable("is not an Avro schema: check its JSON"))?)
        }
        _ => None,
    };
    let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    Ok(Some(File { path: path.to_owned(), name, language, text, walked }))
}

#[cfg(test)]
mod tests {
    //! Goal: schemas are found by the names of their files, and come with the schemas that they refer to.

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn known(files: &Files, id: Id) -> Arc<Written> {
        match files.look_up(&id) {
            LookUp::Known(written) => written,
            other => panic!("{other:?}"),
        }
    }

    fn absent(files: &Files, id: Id) -> String {
        match files.look_up(&id) {
            LookUp::Absent(why) => why,
            other => panic!("{other:?}"),
        }
    }

    const UUID: &str = "89791762-2336-186f-9674-299b90a8e2e1";

    #[test]
    fn names_of_files_are_ids_and_subjects() {
        let folder = folder(&[
            ("5.avsc", r#""int""#),
            ("6.proto", "message A {}"),
            ("7.json", "{}"),
            (&format!("{UUID}.avsc"), r#""long""#),
            ("payments-value.avsc", r#""string""#),
            (".hidden.avsc", "nothing"),
            ("README.md", "nothing"),
        ]);
        let files = Files::open(folder.path()).unwrap();
        for id in [Id::Number(5), Id::Long(5), Id::Global(5), Id::Content(5)] {
            assert_eq!(*known(&files, id), Written::alone(Language::Avro, r#""int""#));
        }
        assert_eq!(known(&files, Id::Number(6)).language, Language::Protobuf);
        assert_eq!(known(&files, Id::Number(7)).language, Language::JsonSchema);
        let uuid = uuid_of(UUID).unwrap();
        assert_eq!(known(&files, Id::Guid(uuid)).text, r#""long""#);
        assert_eq!(known(&files, Id::Glue(uuid)).text, r#""long""#);
        assert_eq!(known(&files, Id::Fingerprint(0x7275_D51A_3F39_5C8F)).text, r#""int""#);
        assert_eq!(files.of_subject("payments-value").unwrap().text, r#""string""#);
        assert!(files.of_subject("payments-key").is_none());
        assert_eq!(files.count(), 5);
    }

    #[test]
    fn absent_schema_is_reported_with_the_name_that_its_file_would_have() {
        let folder = folder(&[]);
        let files = Files::open(folder.path()).unwrap();
        assert!(absent(&files, Id::Number(5)).ends_with("put it there as 5.avsc, .proto or .json"));
        assert!(absent(&files, Id::Glue([0; 16])).contains("00000000-0000-0000-0000-000000000000.avsc"));
        assert!(absent(&files, Id::Fingerprint(5)).contains("fingerprint 0000000000000005 is not in the folder"));
    }

    #[test]
    fn avro_types_of_other_files_are_references_in_order() {
        let folder = folder(&[
            ("5.avsc", r#"{"type":"record","name":"R","namespace":"a","fields":[{"name":"m","type":"b.Money"}]}"#),
            (
                "money.avsc",
                r#"{"type":"record","name":"Money","namespace":"b","fields":[
                    {"name":"c","type":"Currency"},{"name":"r","type":["null","a.R"]}]}"#,
            ),
            ("shared/currency.avsc", r#"{"type":"enum","name":"b.Currency","symbols":["EUR"]}"#),
        ]);
        let files = Files::open(folder.path()).unwrap();
        let written = known(&files, Id::Number(5));
        let names: Vec<&str> = written.references.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b.Currency", "b.Money"]);
    }

    #[test]
    fn protobuf_imports_are_paths_within_the_folder() {
        let folder = folder(&[
            (
                "5.proto",
                "syntax = \"proto3\";\nimport \"google/protobuf/any.proto\";\n\
                 import public 'common/money.proto'; message A {}",
            ),
            ("common/money.proto", "import \"common/currency.proto\";\n// import \"5.proto\"\nmessage Money {}"),
            ("common/currency.proto", "import \"common/money.proto\";"),
            ("common/other.proto", ""),
        ]);
        let files = Files::open(folder.path()).unwrap();
        let written = known(&files, Id::Number(5));
        let names: Vec<&str> = written.references.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["common/currency.proto", "common/money.proto"]);
    }

    #[test]
    fn unusable_files_are_errors_that_name_them() {
        let large = " ".repeat((1 << 20) + 1);
        for (files, said) in [
            (&[("5.avsc", "{")][..], "5.avsc is not an Avro schema: check its JSON"),
            (&[("5.proto", &large)], "5.proto is larger than 1 MiB"),
            (&[("5.proto", ""), ("5.avsc", r#""int""#)], "5.proto is there twice: another file names 5 too"),
        ] {
            let folder = folder(files);
            let error = Files::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(Files::open(Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("cannot be read"));
    }
}
