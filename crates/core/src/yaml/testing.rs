//! Shared by the tests that read YAML. Each crate includes this file by its path, because tests of one crate cannot use
//! the test code of another.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::yaml::Environment;

/// An environment with the contents that a test gives it.
#[derive(Clone, Debug, Default)]
pub struct Fake {
    pub variables: BTreeMap<String, String>,
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub cores: usize,
}

impl Fake {
    pub fn with_file(mut self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.files.insert(PathBuf::from(path), text.as_ref().to_vec());
        self
    }

    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }
}

impl Environment for Fake {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn variables(&self) -> Vec<(String, String)> {
        self.variables.clone().into_iter().collect()
    }

    fn read_file(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn cores(&self) -> usize {
        self.cores
    }
}

/// Texts that are nearly YAML: what breaks parsers is seldom random.
pub fn yamlish() -> impl Strategy<Value = String> {
    let words = [
        "name",
        "input",
        "topics",
        "identity",
        "version",
        "kafka",
        "sasl.password",
        "a",
        "é",
        "😀",
        ": ",
        ":",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "\t",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "\"",
        "'",
        "|",
        ">",
        "&x ",
        "*x",
        "!t ",
        "!!str ",
        "<<: ",
        "---\n",
        "...\n",
        "#",
        "%YAML 1.2\n",
        "? ",
        "${env:A}",
        "${",
        "$${",
        "null",
        "~",
        "1",
        "30d",
        "\r\n",
        "\u{feff}",
        "\u{85}",
        "\u{0}",
        "\\",
        "@",
        "`",
    ];
    prop_oneof![
        proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..60).prop_map(|words| words.concat()),
        ".{0,200}",
        "[\\PC\n\t \\[\\]{}:,&*!|>'\"%@`#-]{0,200}",
    ]
}
