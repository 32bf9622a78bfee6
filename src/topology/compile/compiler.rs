//! The compiler: a spec, what it comes from, and the report of its mistakes. Each file beside this one checks and compiles
//! a block of the spec.

use std::sync::Arc;

use crate::topology::names;
use crate::topology::presets::Preset;
use crate::topology::spec::Spec;
use crate::yaml::read::clipped;
use crate::yaml::{File, Place, Report, Text};

/// Compiles a spec.
pub struct Compiler<'a> {
    pub spec: &'a Spec,
    /// The source of some of the spec's blocks.
    pub preset: Option<&'static Preset>,
    pub file: &'a Arc<File>,
    pub report: &'a mut Report,
}

impl Compiler<'_> {
    pub fn mistake(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.mistake((self.file, place), message, label, help);
    }

    pub fn warning(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.warning((self.file, place), message, label, help);
    }

    pub fn name(&mut self) -> Option<String> {
        let name = self.spec.name.as_ref()?;
        let text = name.value.reveal();
        if names::is_name(text) {
            return Some(text.to_owned());
        }
        let message = format!("a topology's name is 1 to {} lower-case letters, digits and `-`", names::NAME_CHARS_MAX);
        let nearest = names::nearest_name(text).filter(|_| !name.value.is_secret());
        let help = format!("write e.g. `name: {}`", nearest.as_deref().unwrap_or("payments"));
        self.mistake(name.place, message, format!("`{}` is not such a name", shown(&name.value)), help);
        None
    }
}

/// A text to show in a label; a secret as `***`.
pub fn shown(text: &Text) -> String {
    clipped(&text.to_string())
}
