//! A topology's YAML while it is written: its lines, the comments among them, and the doubts about it.

use super::sample::Sample;
use super::shape::Shape;
use crate::words::{agreeing, counted};

/// The column at which comments wrap.
const WIDTH: usize = 100;

/// A topology, or part of one, while it is written.
#[derive(Default)]
pub struct Draft {
    /// Its YAML.
    pub lines: String,
    /// The doubts about it, in sentences.
    pub unsure: Vec<String>,
}

impl Draft {
    /// Adds a line of YAML.
    pub fn line(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    /// Adds a comment, wrapped to a readable width.
    pub fn comment(&mut self, text: &str) {
        let mut width = 0;
        for word in text.split_whitespace() {
            // names come from the capture: none may end the comment
            let word: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            if width > 0 && width + 1 + word.len() > WIDTH {
                self.lines.push('\n');
                width = 0;
            }
            self.lines.push_str(if width == 0 { "# " } else { " " });
            self.lines.push_str(&word);
            width += word.len() + if width == 0 { 2 } else { 1 };
        }
        self.lines.push('\n');
    }

    /// Adds a comment: how many values have this form.
    pub fn shape(&mut self, shape: &Shape, count: usize, sample: &Sample) {
        let values = counted(sample.json(), "value");
        self.comment(&format!("{count} of {values} {} {shape}.", agreeing(count, "is", "are")));
    }
}

/// A path as YAML.
pub fn in_yaml(path: &str) -> String {
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', "''")) }
}
