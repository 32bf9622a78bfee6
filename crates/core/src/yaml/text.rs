//! A text that may be secret, and the substitution that makes it so.
//!
//! Substituted in values, not in keys, of both kinds of file:
//!
//! - `${env:NAME}` stands for an environment variable; it is a mistake if the variable is not set
//! - `${env:NAME:-default}` stands for `default` if the variable is not set or empty
//! - `${file:PATH}` stands for a file's text without its final line ending; a relative path starts at the working
//!   folder
//! - `$${` stands for `${` itself
//!
//! Values are substituted after the YAML is parsed: whatever a variable holds, it stays one text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Environment;

/// What is shown in place of a secret.
pub const MASK: &str = "***";
/// Maximum size of a file substituted by `${file:PATH}`.
const FILE_BYTES_MAX: usize = 64 * 1024;

/// A text that may be secret; if so, `Display` and `Debug` show it as `***`.
#[derive(Clone, Default)]
pub struct Text {
    text: String,
    secret: bool,
    /// The text before the substitution, if it names files.
    origin: Option<Arc<Origin>>,
}

/// Texts are equal if they say the same, and both are secret or neither is, wherever they come from.
impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.secret) == (&other.text, other.secret)
    }
}

impl Eq for Text {}

/// A text with `${file:PATH}` in it, as written.
struct Origin {
    text: String,
    files: Vec<PathBuf>,
}

impl Text {
    /// A text that is not secret.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), secret: false, origin: None }
    }

    /// A secret text.
    pub fn secret(text: impl Into<String>) -> Self {
        Self { text: text.into(), secret: true, origin: None }
    }

    /// The text itself: never for a log, an error, a dump or a metric if [`Text::is_secret`].
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Whether it is secret.
    pub fn is_secret(&self) -> bool {
        self.secret
    }

    /// The files that parts of the text were read from.
    pub fn files(&self) -> &[PathBuf] {
        self.origin.as_ref().map_or(&[], |origin| &origin.files)
    }

    /// This text with the present contents of its files.
    ///
    /// # Errors
    /// As [`substitute`].
    pub fn read_again(&self, environment: &dyn Environment) -> Result<Self, Error> {
        match &self.origin {
            Some(origin) => substitute(&origin.text, environment),
            None => Ok(self.clone()),
        }
    }

    /// The same text, secret.
    #[must_use]
    pub fn into_secret(self) -> Self {
        Self { secret: true, ..self }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.secret { MASK } else { &self.text })
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.secret { f.write_str(MASK) } else { fmt::Debug::fmt(&self.text, f) }
    }
}

/// Why a substitution failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `${` without `}`.
    #[error("`${{` has no `}}`")]
    Unclosed,
    /// Neither `env:` nor `file:`.
    #[error("`${{{0}}}` names neither `env:` nor `file:`")]
    Unknown(String),
    /// A variable that is not set and has no default.
    #[error("the environment variable `{0}` is not set")]
    NotSet(String),
    /// A file that cannot be read.
    #[error("the file `{path}` cannot be read: {reason}")]
    File {
        /// Its path.
        path: String,
        /// Why not.
        reason: String,
    },
}

impl Error {
    /// What to write instead.
    pub fn help(&self) -> String {
        match self {
            Self::Unclosed => "close it, e.g. ${env:NAME}; to mean `${` itself, write `$${`".to_owned(),
            Self::Unknown(_) => {
                "write ${env:NAME}, ${env:NAME:-default} or ${file:PATH}; to mean `${` itself, write `$${`".to_owned()
            }
            Self::NotSet(name) => format!("set it, or give a default: ${{env:{name}:-default}}"),
            Self::File { .. } => "relative paths start at the working folder; the file must be UTF-8 text".to_owned(),
        }
    }
}

/// `text` with its substitutions made; secret if there were any.
pub fn substitute(text: &str, environment: &dyn Environment) -> Result<Text, Error> {
    substitute_each(text, environment, |_| {})
}

/// The same; `each` is given what is substituted.
pub fn substitute_each(text: &str, environment: &dyn Environment, mut each: impl FnMut(&str)) -> Result<Text, Error> {
    let mut out = String::with_capacity(text.len());
    let mut secret = false;
    let mut files = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at]);
            out.push('{');
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let (name, after) = rest[at + 2..].split_once('}').ok_or(Error::Unclosed)?;
        let resolved = resolve(name, environment)?;
        each(&resolved);
        files.extend(name.strip_prefix("file:").map(PathBuf::from));
        out.push_str(&resolved);
        secret = true;
        rest = after;
    }
    out.push_str(rest);
    let origin = (!files.is_empty()).then(|| Arc::new(Origin { text: text.to_owned(), files }));
    Ok(Text { text: out, secret, origin })
}

/// Resolves the text between `${` and `}`.
fn resolve(name: &str, environment: &dyn Environment) -> Result<String, Error> {
    if let Some(variable) = name.strip_prefix("env:") {
        let (variable, default) = match variable.split_once(":-") {
            Some((variable, default)) => (variable, Some(default)),
            None => (variable, None),
        };
        return match (environment.variable(variable), default) {
            (Some(value), _) if !value.is_empty() => Ok(value),
            (_, Some(default)) => Ok(default.to_owned()),
            (Some(empty), None) => Ok(empty),
            (None, None) => Err(Error::NotSet(variable.to_owned())),
        };
    }
    let Some(path) = name.strip_prefix("file:") else { return Err(Error::Unknown(name.to_owned())) };
    let failed = |reason: String| Error::File { path: path.to_owned(), reason };
    let bytes = environment.read_substituted(Path::new(path)).map_err(|error| failed(error.to_string()))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(failed(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".to_owned()))?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
