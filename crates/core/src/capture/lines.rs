//! The lines of files, and of standard input, one after the other; compressed ones are unpacked.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Error;
use super::packed::{self, Unpacked};

/// Maximum length of a line, so that a file without line feeds cannot take all memory. Far more than a
/// broker accepts as one record.
const LINE_BYTES_MAX: u64 = 256 << 20;

/// The place of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineNumber<'a> {
    /// The file's name, or `standard input`.
    pub file: &'a str,
    /// The line's number, from 1.
    pub line: u64,
}

impl fmt::Display for LineNumber<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Reads lines.
pub struct Lines {
    /// The sources not yet read, the next one last.
    waiting: Vec<Source>,
    current: Option<Current>,
    bytes_read: u64,
}

enum Source {
    StandardInput,
    File(PathBuf),
}

struct Current {
    name: String,
    reader: BufReader<Box<dyn Read>>,
    /// If the file is compressed: how many bytes were read from it, and how many of them are counted already.
    taken: Option<(Rc<Cell<u64>>, u64)>,
    /// The number of the last line read, from 1.
    line: u64,
}

impl Lines {
    /// Opens these files; `-`, or no file at all, is standard input. All files must exist now.
    pub fn open(files: &[PathBuf]) -> Result<Self, Error> {
        let missing: Vec<String> =
            files.iter().filter(|file| *file != Path::new("-")).filter_map(|file| trouble(file)).collect();
        if !missing.is_empty() {
            return Err(Error {
                text: missing.join("; "),
                help: "give files of records, one a line, or `-` for standard input",
            });
        }
        let mut waiting: Vec<Source> = files.iter().rev().map(Source::new).collect();
        if waiting.is_empty() {
            waiting.push(Source::StandardInput);
        }
        Ok(Self { waiting, current: None, bytes_read: 0 })
    }

    /// How many bytes there are in all; `None` if that cannot be known in advance. Only right before the
    /// first line is read.
    pub fn bytes_total(&self) -> Option<u64> {
        self.waiting.iter().map(Source::bytes).sum()
    }

    /// How many bytes of the files were read; for compressed files, compressed bytes.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Whether reading the next line may block, since nothing is buffered.
    pub fn may_wait(&self) -> bool {
        self.current.as_ref().is_none_or(|current| current.reader.buffer().is_empty())
    }

    /// Puts the next line that is not blank into `line`, without its line feed; `None` at the end.
    pub fn next<'a>(&'a mut self, line: &mut Vec<u8>) -> Result<Option<LineNumber<'a>>, Error> {
        loop {
            let current = match &mut self.current {
                Some(current) => current,
                empty => match self.waiting.pop() {
                    Some(source) => empty.insert(source.open()?),
                    None => return Ok(None),
                },
            };
            let read = current.read(line)?;
            self.bytes_read += current.progress(read);
            if read == 0 {
                self.current = None;
            } else if !line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(self.current.as_ref().map(Current::place))
    }
}

impl Source {
    fn new(file: &PathBuf) -> Self {
        if file == Path::new("-") { Self::StandardInput } else { Self::File(file.clone()) }
    }

    fn bytes(&self) -> Option<u64> {
        match self {
            Self::StandardInput => None,
            Self::File(file) => file.metadata().ok().filter(|found| found.is_file()).map(|found| found.len()),
        }
    }

    fn open(self) -> Result<Current, Error> {
        let (name, reader): (_, Box<dyn Read>) = match self {
            Self::StandardInput => ("standard input".to_owned(), Box::new(io::stdin())),
            Self::File(file) => {
                let name = file.display().to_string();
                let opened = File::open(&file).map_err(|error| unreadable(&name, &error))?;
                (name, Box::new(opened))
            }
        };
        match packed::unpack(reader).map_err(|error| unreadable(&name, &error))? {
            Ok(Unpacked { reader, taken }) => {
                Ok(Current { name, reader, taken: taken.map(|taken| (taken, 0)), line: 0 })
            }
            Err(packer) => Err(Error {
                text: format!("{name} is compressed ({packer}), which cannot be read"),
                help: "unpack it first; gzip and zstd are unpacked automatically",
            }),
        }
    }
}

impl Current {
    fn place(&self) -> LineNumber<'_> {
        LineNumber { file: &self.name, line: self.line }
    }

    /// How many bytes of the file were read for a line of `read` bytes.
    fn progress(&mut self, read: u64) -> u64 {
        match &mut self.taken {
            None => read,
            Some((taken, counted)) => taken.get() - std::mem::replace(counted, taken.get()),
        }
    }

    /// Puts the next line into `line`, without its line feed, and returns how many bytes it took; 0 at the end.
    fn read(&mut self, line: &mut Vec<u8>) -> Result<u64, Error> {
        line.clear();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line);
        let read = read.map_err(|error| unreadable(&self.name, &error))? as u64;
        self.line += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read == LINE_BYTES_MAX {
            let text = format!("{}: the line is longer than {} MiB", self.place(), LINE_BYTES_MAX >> 20);
            return Err(Error { text, help: "write one record a line" });
        }
        Ok(read)
    }
}

/// Why this file cannot be read, as far as is known without opening it.
fn trouble(file: &Path) -> Option<String> {
    match file.metadata() {
        Ok(found) if found.is_dir() => Some(format!("{} is a folder", file.display())),
        Ok(_) => None,
        Err(error) => Some(format!("cannot read {}: {error}", file.display())),
    }
}

fn unreadable(name: &str, error: &io::Error) -> Error {
    Error { text: format!("cannot read {name}: {error}"), help: "give a file that can be read" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line with its place.
    fn read(lines: &mut Lines) -> Vec<(String, String)> {
        let mut seen = Vec::new();
        let mut line = Vec::new();
        while let Some(place) = lines.next(&mut line).unwrap() {
            let number = place.line;
            seen.push((number.to_string(), String::from_utf8(line.clone()).unwrap()));
        }
        seen
    }

    fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn blank_lines_count_but_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let files = [file(&folder, "a", "1\n\n  \n2"), file(&folder, "b", ""), file(&folder, "c", "3\n")];
        let mut lines = Lines::open(&files).unwrap();
        assert_eq!(lines.bytes_total(), Some(9));
        let seen = read(&mut lines);
        let seen: Vec<_> = seen.iter().map(|(number, text)| (number.as_str(), text.as_str())).collect();
        assert_eq!(seen, [("1", "1"), ("4", "2"), ("1", "3")]);
        assert_eq!(lines.bytes_read(), 9);
    }

    #[test]
    fn all_missing_files_are_reported_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Lines::open(&[folder.path().join("x"), folder.path().join("y"), folder.path().into()]);
        let text = opened.err().expect("files that are not there were opened").text;
        assert!(text.contains("/x") && text.contains("/y") && text.contains("is a folder"), "{text}");
    }

    #[test]
    fn size_of_standard_input_is_unknown() {
        assert_eq!(Lines::open(&[]).unwrap().bytes_total(), None);
        assert_eq!(Lines::open(&["-".into()]).unwrap().bytes_total(), None);
    }
}
