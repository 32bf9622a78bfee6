//! Mistakes in what a user wrote, each with its place and what to write instead; and all of them together.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, Severity, SourceCode};
use miette::{MietteError, MietteSpanContents, SourceSpan, SpanContents, ThemeCharacters, ThemeStyles};

use crate::words::counted;

/// Width at which mistakes are rendered, in columns.
const WIDTH: usize = 110;

/// A place in a [`File`], in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The first byte.
    pub start: usize,
    /// Number of bytes.
    pub length: usize,
}

impl Place {
    /// The bytes from `start` up to, and not including, `end`.
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, length: end.saturating_sub(start) }
    }

    /// The byte after the last.
    pub fn end(self) -> usize {
        self.start + self.length
    }
}

/// A text that was read, under the name that the user knows.
#[derive(Clone)]
pub struct File {
    source: NamedSource<String>,
}

impl File {
    /// The text of `name`.
    pub fn new(name: impl AsRef<str>, text: impl Into<String>) -> Self {
        Self { source: NamedSource::new(name, text.into()) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// Its text.
    pub fn text(&self) -> &str {
        self.source.inner()
    }

    /// The same file with `*` for every byte in these places, so that a mistake next to a secret can be rendered
    /// without showing it. Places that do not fit the text are ignored.
    #[must_use]
    pub fn masked(&self, places: &[Place]) -> Self {
        let mut text = self.text().to_owned();
        for place in places {
            if let Some(secret) = text.get(place.start..place.end()) {
                let mask: String = secret
                    .bytes()
                    .map(|byte| if byte.is_ascii_whitespace() { char::from(byte) } else { '*' })
                    .collect();
                text.replace_range(place.start..place.end(), &mask);
            }
        }
        Self::new(self.name(), text)
    }

    /// Line and column, from 1, of the character at this byte.
    pub fn line_column(&self, byte: usize) -> (usize, usize) {
        let before = &self.text()[..self.text().floor_char_boundary(byte)];
        let line = before.rsplit('\n').next().unwrap_or_default();
        (before.matches('\n').count() + 1, line.chars().count() + 1)
    }
}

/// Like [`NamedSource`], but columns are counted in characters, as by [`File::line_column`] and editors.
impl SourceCode for File {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents = self.source.read_span(span, lines_before, lines_after)?;
        // With preceding lines, what is read begins at the first column.
        let column = if lines_before > 0 { contents.column() } else { self.line_column(span.offset()).1 - 1 };
        Ok(Box::new(MietteSpanContents::new_named(
            self.name().to_owned(),
            contents.data(),
            *contents.span(),
            contents.line(),
            column,
            contents.line_count(),
        )))
    }
}

/// Shows the file's name only: its text may hold secrets.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Something in what a user wrote that is wrong, or that deserves a warning.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Mistake {
    message: String,
    label: String,
    help: Option<String>,
    warning: bool,
    at: Option<(Arc<File>, Place)>,
}

impl Mistake {
    /// What is wrong. Lower case, no full stop, never a secret.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to write instead.
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The label shown at the place itself.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The file, the line and the column, both from 1.
    pub fn position(&self) -> Option<(&str, usize, usize)> {
        let (file, place) = self.at.as_ref()?;
        let (line, column) = file.line_column(place.start);
        Some((file.name(), line, column))
    }

    /// Whether it is a warning only.
    pub fn is_warning(&self) -> bool {
        self.warning
    }

    /// The mistake with the lines it is in, for a terminal; ends with a newline.
    pub fn render(&self, colored: bool) -> String {
        let styles = if colored { ThemeStyles::ansi() } else { ThemeStyles::none() };
        let theme = GraphicalTheme { characters: ThemeCharacters::unicode(), styles };
        let mut out = String::new();
        let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false);
        match handler.render_report(&mut out, self) {
            Ok(()) => out,
            Err(fmt::Error) => format!("{self}\n"),
        }
    }
}

impl Diagnostic for Mistake {
    fn severity(&self) -> Option<Severity> {
        Some(if self.warning { Severity::Warning } else { Severity::Error })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.at.as_ref().map(|(file, _)| &**file as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (_, place) = self.at.as_ref()?;
        let span = SourceSpan::new(place.start.into(), place.length);
        Some(Box::new(std::iter::once(LabeledSpan::new_with_span(Some(self.label.clone()), span))))
    }
}

/// Everything wrong with what was loaded. Never empty.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    mistakes: Vec<Mistake>,
}

impl Diagnostics {
    /// The mistakes, including warnings, by file and place.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }

    /// The mistakes, to be combined with others.
    pub fn into_mistakes(self) -> Vec<Mistake> {
        self.mistakes
    }

    /// All mistakes, each with the lines it is in, and their number, for a terminal.
    pub fn render(&self, colored: bool) -> String {
        let mut out: String = self.mistakes.iter().map(|mistake| mistake.render(colored) + "\n").collect();
        out.push_str(&format!("{self}\n"));
        out
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warnings = self.mistakes.iter().filter(|mistake| mistake.warning).count();
        f.write_str(&counted(self.mistakes.len() - warnings, "mistake"))?;
        match warnings {
            0 => Ok(()),
            _ => write!(f, ", {}", counted(warnings, "warning")),
        }
    }
}

impl std::error::Error for Diagnostics {}

impl Diagnostic for Diagnostics {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.mistakes.iter().map(|mistake| mistake as &dyn Diagnostic)))
    }
}

/// Mistakes and warnings being collected.
#[derive(Debug, Default)]
pub struct Report {
    mistakes: Vec<Mistake>,
}

impl Report {
    /// Adds a mistake at a place.
    pub fn mistake(
        &mut self,
        at: (&Arc<File>, Place),
        message: String,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Some(at), message, label.into(), help.into(), false);
    }

    /// Adds a warning at a place.
    pub fn warning(
        &mut self,
        at: (&Arc<File>, Place),
        message: String,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.add(Some(at), message, label.into(), help.into(), true);
    }

    /// Adds a mistake that is in no file.
    pub fn placeless(&mut self, message: String, help: impl Into<String>) {
        self.add(None, message, String::new(), help.into(), false);
    }

    fn add(&mut self, at: Option<(&Arc<File>, Place)>, message: String, label: String, help: String, warning: bool) {
        let help = (!help.is_empty()).then_some(help);
        let at = at.map(|(file, place)| (Arc::clone(file), place));
        self.mistakes.push(Mistake { message, label, help, warning, at });
    }

    /// Adds what another report has collected.
    pub fn append(&mut self, mistakes: impl IntoIterator<Item = Mistake>) {
        self.mistakes.extend(mistakes);
    }

    /// Whether there is nothing but warnings.
    pub fn is_fine(&self) -> bool {
        self.mistakes.iter().all(|mistake| mistake.warning)
    }

    /// Returns `value` and the warnings, or everything reported, ordered by place within each file.
    ///
    /// # Panics
    /// If `value` is `None` although no mistake was reported: code that gives up must say why.
    pub fn finish<T>(mut self, value: Option<T>) -> Result<(T, Vec<Mistake>), Diagnostics> {
        // Files keep the order in which they were read; the sort is stable.
        let mut files: Vec<*const File> = Vec::new();
        let mut keyed: Vec<_> = self.mistakes.drain(..).map(|mistake| (order(&mut files, &mistake), mistake)).collect();
        keyed.sort_by_key(|(key, _)| *key);
        let mistakes: Vec<Mistake> = keyed.into_iter().map(|(_, mistake)| mistake).collect();
        if mistakes.iter().any(|mistake| !mistake.warning) {
            return Err(Diagnostics { mistakes });
        }
        Ok((value.expect("nothing is given up without a mistake"), mistakes))
    }
}

/// The sort key of a mistake: when its file was first named, then its place there.
fn order(files: &mut Vec<*const File>, mistake: &Mistake) -> (usize, usize) {
    let Some((file, place)) = &mistake.at else { return (usize::MAX, 0) };
    let file = Arc::as_ptr(file);
    let index = files.iter().position(|known| *known == file).unwrap_or_else(|| {
        files.push(file);
        files.len() - 1
    });
    (index, place.start)
}
