//! The output of a capture: standard output, or a file that gets its name only once it is complete.
//!
//! Until then the file is called `NAME.partial`. An existing file is never overwritten.
//!
//! **Failure**: a file that cannot be written to, with its name; its contents up to then stay.

use std::fs::{self, File};
use std::io::{self, BufWriter, Stdout, Write};
use std::path::{Path, PathBuf};

use crate::capture::Packer;
use crate::cli::Failure;

/// The output of a capture.
pub enum Output {
    /// To standard output.
    Stdout(BufWriter<Stdout>),
    /// To a file.
    File(Box<Whole>),
}

/// A file that is being written.
pub struct Whole {
    name: PathBuf,
    /// The file's name until it is complete; the final name if that is not an ordinary file, such as a pipe.
    written: PathBuf,
    packer: Packer<BufWriter<File>>,
}

impl Output {
    /// Opens this file, or standard output.
    pub fn open(name: Option<&Path>) -> Result<Self, Failure> {
        let Some(name) = name else { return Ok(Self::Stdout(BufWriter::new(io::stdout()))) };
        let is_special = name.metadata().is_ok_and(|found| !found.is_file());
        let (written, opened) = if is_special {
            (name.to_owned(), File::options().write(true).open(name))
        } else {
            refuse_existing(name)?;
            let partial = partial_of(name);
            let opened = File::create_new(&partial);
            (partial, opened)
        };
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::input(
                format!("{} exists: another capture writes it, or one was not completed", written.display()),
                "remove it if it is of no use, or name another file",
            ),
            _ => Failure::input(format!("cannot write {}: {error}", written.display()), "name another file"),
        })?;
        let packer = Packer::new(name, BufWriter::new(file));
        Ok(Self::File(Box::new(Whole { name: name.to_owned(), written, packer })))
    }

    /// Writes lines.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Stdout(out) => out.write_all(lines).map_err(|error| Failure::output(&error)),
            Self::File(file) => {
                let Whole { packer, written, .. } = &mut **file;
                packer.write_all(lines).map_err(|error| incomplete(written, &error))
            }
        }
    }

    /// Completes the output, and gives the file its name.
    pub fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Stdout(mut out) => out.flush().map_err(|error| Failure::output(&error)),
            Self::File(file) => {
                let Whole { name, written, packer } = *file;
                let completed = packer.finish().and_then(|out| out.into_inner().map_err(io::Error::from));
                let completed = completed.and_then(|file| match written == name {
                    true => Ok(()),
                    false => file.sync_all().and_then(|()| fs::rename(&written, &name)),
                });
                completed.map_err(|error| incomplete(&written, &error))
            }
        }
    }

    /// Keeps an incomplete file under its temporary name. Returns that name.
    pub fn abandon(self) -> Option<PathBuf> {
        match self {
            Self::Stdout(mut out) => {
                // There is an error already.
                let _ = out.flush();
                None
            }
            Self::File(file) => {
                let Whole { name, written, packer } = *file;
                let _ = packer.finish();
                (written != name).then_some(written)
            }
        }
    }
}

fn partial_of(name: &Path) -> PathBuf {
    let mut partial = name.as_os_str().to_owned();
    partial.push(".partial");
    partial.into()
}

/// The topic may no longer have the records of an earlier capture.
fn refuse_existing(name: &Path) -> Result<(), Failure> {
    match name.symlink_metadata() {
        Ok(_) => Err(Failure::input(format!("{} exists", name.display()), "remove it, or name another file")),
        Err(_) => Ok(()),
    }
}

fn incomplete(written: &Path, error: &io::Error) -> Failure {
    Failure::run_with_help(
        format!("cannot write {}: {error}", written.display()),
        "it is not complete; make room, or name a file elsewhere, and run the command again",
    )
}

#[cfg(test)]
mod tests {
    //! Goal: a file has its name if and only if it is whole, and nothing is overwritten.

    use super::*;
    use crate::capture::{Form, read_all};

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    }

    #[test]
    fn file_gets_its_name_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        for (name, form) in [("a.jsonl", Form::Values), ("b.jsonl.gz", Form::Values), ("c.zst", Form::Values)] {
            let path = folder.path().join(name);
            let mut output = Output::open(Some(&path)).unwrap();
            output.write(b"1\n2\n").unwrap();
            assert!(!path.exists() && names(folder.path()).contains(&format!("{name}.partial")));
            output.finish().unwrap();
            assert_eq!(read_all(path, None, "in").map(|(read, all)| (read, all.len())), Ok((form, 2)));
        }
        assert_eq!(names(folder.path()), ["a.jsonl", "b.jsonl.gz", "c.zst"]);
    }

    #[test]
    fn what_is_not_whole_stays_under_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl.gz");
        let mut output = Output::open(Some(&path)).unwrap();
        output.write(b"1\n").unwrap();
        let partial = output.abandon().unwrap();
        assert_eq!(names(folder.path()), ["a.jsonl.gz.partial"]);
        assert_eq!(read_all(partial, None, "in").unwrap().1.len(), 1);
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (path, partial) = (folder.path().join("a"), folder.path().join("b.partial"));
        fs::write(&path, "precious").unwrap();
        fs::write(&partial, "precious").unwrap();
        for name in ["a", "b"] {
            let Err(Failure::Input(message)) = Output::open(Some(&folder.path().join(name))) else { panic!("{name}") };
            assert!(message.text().contains("exists"), "{}", message.text());
        }
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&partial).unwrap()),
            (b"precious".to_vec(), b"precious".to_vec())
        );
        let missing = folder.path().join("nowhere/a");
        assert!(matches!(Output::open(Some(&missing)), Err(Failure::Input(_))));
    }
}
