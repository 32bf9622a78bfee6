//! A setting as a layer gives it: text with its place.

use std::sync::Arc;

use crate::yaml::{File, Place, Placed, Text};

/// One setting of one layer.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name, e.g. `commit.interval`.
    pub name: String,
    /// The place of the name.
    pub name_place: Place,
    /// Its text, after substitution.
    pub text: Placed<Text>,
    /// The file that it is in.
    pub file: Arc<File>,
}

/// The settings of all layers.
#[derive(Debug, Default)]
pub struct Collected {
    /// All settings; later ones override earlier ones.
    pub settings: Vec<Setting>,
    /// Names of settings or sections that could not be read, which was reported as a mistake. An empty name stands for
    /// a whole file.
    pub(super) unread: Vec<String>,
}

impl Collected {
    /// The effective setting of this name.
    pub fn last(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().rev().find(|setting| setting.name == name)
    }

    /// Whether a reported mistake may be the reason why this setting is missing.
    pub fn may_miss(&self, name: &str) -> bool {
        let hides = |unread: &String| {
            name.strip_prefix(unread.as_str())
                .is_some_and(|rest| unread.is_empty() || rest.is_empty() || rest.starts_with('.'))
        };
        self.unread.iter().any(hides)
    }
}
