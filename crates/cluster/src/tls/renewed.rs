//! What is made of files, and made anew once they hold something else: certificates and keys are replaced while a
//! process runs (cert-manager, the links of a mounted Secret).
//!
//! The files are looked at when something is needed, for each new connection; a small file takes less than a handshake.
//!
//! Invariants: what counts was made of contents that were there together, before and after they were read; once
//! something counts, something always does.
//!
//! **Failure**: contents that cannot be used are reported once, in a warning, and what was made before stays in use.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How often files are read again that change while they are read.
const TRIES: usize = 3;

type Make<T> = dyn Fn() -> Result<T, String> + Send + Sync;

/// What is made of files, and made anew once they have changed.
pub struct Renewed<T> {
    files: Vec<PathBuf>,
    make: Box<Make<T>>,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// What counts, and what the files held when it was made.
    made: Option<(Arc<T>, u64)>,
    /// What they held that could not be used, and was said.
    refused: Option<u64>,
}

impl<T> fmt::Debug for Renewed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewed").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T> Renewed<T> {
    /// Nothing is read before it is needed. `make` reads the `files`, and names the file that it cannot use; of a
    /// folder, it reads the files in it.
    pub fn new(
        files: impl IntoIterator<Item = PathBuf>,
        make: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Self {
        let state = Mutex::new(State { made: None, refused: None });
        Self { files: files.into_iter().collect(), make: Box::new(make), state }
    }

    /// What is made of the files as they are; of what they held before, while they cannot be used.
    ///
    /// # Errors
    /// It was never made, and why not.
    pub fn current(&self) -> Result<Arc<T>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = digest(&self.files);
        for _ in 0..TRIES {
            match &state.made {
                Some((made, of)) if *of == held || state.refused == Some(held) => return Ok(Arc::clone(made)),
                _ => {}
            }
            let made = (self.make)();
            let after = digest(&self.files);
            if after != held {
                held = after;
                continue;
            }
            match made {
                Ok(made) => return Ok(self.renew(&mut state, made, held)),
                Err(why) if state.made.is_none() => return Err(why),
                Err(why) => {
                    tracing::warn!("{why}; what was read before stays in use until it is replaced");
                    state.refused = Some(held);
                }
            }
        }
        // They are just being replaced: the next connection looks again.
        let made = state.made.as_ref().map(|(made, _)| Arc::clone(made));
        made.ok_or_else(|| format!("{} changes while it is read", self.named()))
    }

    fn renew(&self, state: &mut State<T>, made: T, held: u64) -> Arc<T> {
        if state.made.is_some() {
            tracing::info!("{} was replaced; new connections use it from now on", self.named());
        }
        let made = Arc::new(made);
        *state = State { made: Some((Arc::clone(&made), held)), refused: None };
        made
    }

    fn named(&self) -> String {
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        names.join(", ")
    }
}

/// A digest of the contents of these files, and of the files in these folders; a file that cannot be read counts as
/// missing. The digest detects changes; it is no protection against an attacker.
pub fn digest(files: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for file in files {
        match file.is_dir() {
            true => digest_folder(file, &mut hasher),
            false => std::fs::read(file).ok().hash(&mut hasher),
        }
    }
    hasher.finish()
}

fn digest_folder(folder: &Path, hasher: &mut DefaultHasher) {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        (std::fs::read(&file).ok(), file).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.path(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    /// Two numbers of two files, which must be equal.
    fn pair(folder: &Folder) -> (Arc<AtomicUsize>, Renewed<i32>) {
        let (one, other) = (folder.path("one"), folder.path("other"));
        let made = Arc::new(AtomicUsize::new(0));
        let files = [one.clone(), other.clone()];
        let count = Arc::clone(&made);
        let read = |file: &Path| {
            let unusable = |why: &dyn fmt::Display| format!("{} cannot be used: {why}", file.display());
            let text = fs::read_to_string(file).map_err(|error| unusable(&error))?;
            text.parse::<i32>().map_err(|error| unusable(&error))
        };
        let renewed = Renewed::new(files, move || {
            count.fetch_add(1, Ordering::Relaxed);
            let (one, other) = (read(&one)?, read(&other)?);
            if one == other { Ok(one) } else { Err("they do not fit".to_owned()) }
        });
        (made, renewed)
    }

    #[test]
    fn nothing_is_made_again_before_the_files_hold_something_else() {
        let folder = Folder::new();
        let (made, renewed) = pair(&folder);
        assert!(renewed.current().unwrap_err().contains("one cannot be used"), "it is not there yet");
        folder.write("one", "1");
        folder.write("other", "1");
        let first = renewed.current().unwrap();
        // Touched, and the same.
        folder.write("one", "1");
        assert!(Arc::ptr_eq(&first, &renewed.current().unwrap()));
        assert_eq!((*first, made.load(Ordering::Relaxed)), (1, 2));
        folder.write("one", "2");
        folder.write("other", "2");
        assert_eq!(*renewed.current().unwrap(), 2);
    }

    #[test]
    fn what_cannot_be_used_is_refused_once_and_what_was_before_counts() {
        let folder = Folder::new();
        let (made, renewed) = pair(&folder);
        folder.write("one", "1");
        folder.write("other", "1");
        renewed.current().unwrap();
        for text in ["", "2", "two"] {
            folder.write("one", text);
            let before = made.load(Ordering::Relaxed);
            assert_eq!((*renewed.current().unwrap(), *renewed.current().unwrap()), (1, 1));
            assert_eq!(made.load(Ordering::Relaxed), before + 1, "{text}: it is not tried again and again");
        }
        fs::remove_file(folder.path("other")).unwrap();
        assert_eq!(*renewed.current().unwrap(), 1);
        folder.write("one", "2");
        folder.write("other", "2");
        assert_eq!(*renewed.current().unwrap(), 2);
    }

    /// As Kubernetes replaces a Secret: the files are links into a folder that is a link itself, which is renamed.
    #[test]
    fn links_that_are_swapped_are_followed() {
        let folder = Folder::new();
        let versions = ["1", "2"].map(|text| {
            let version = folder.path(&format!("version-{text}"));
            fs::create_dir(&version).unwrap();
            ["one", "other"].iter().for_each(|name| fs::write(version.join(name), text).unwrap());
            version
        });
        let point = |to: &Path| {
            std::os::unix::fs::symlink(to, folder.path("new")).unwrap();
            fs::rename(folder.path("new"), folder.path("data")).unwrap();
        };
        point(&versions[0]);
        for name in ["one", "other"] {
            std::os::unix::fs::symlink(Path::new("data").join(name), folder.path(name)).unwrap();
        }
        let (_, renewed) = pair(&folder);
        assert_eq!(*renewed.current().unwrap(), 1);
        point(&versions[1]);
        assert_eq!(*renewed.current().unwrap(), 2);
    }

    #[test]
    fn files_that_change_while_they_are_read_are_read_again() {
        let folder = Folder::new();
        let file = folder.write("number", "1");
        let (path, reads) = (file.clone(), AtomicUsize::new(0));
        let renewed = Renewed::new([file], move || {
            let text = fs::read_to_string(&path).unwrap();
            // Somebody replaces it just then, the first two times.
            let count = reads.fetch_add(1, Ordering::Relaxed);
            if count < 2 {
                fs::write(&path, format!("1{count}")).unwrap();
            }
            Ok(text)
        });
        assert_eq!(*renewed.current().unwrap(), "11");
    }

    #[test]
    fn folder_counts_with_what_is_in_it() {
        let folder = Folder::new();
        folder.write("one", "1");
        let path = folder.0.path().to_owned();
        let within = path.clone();
        let renewed = Renewed::new([path], move || Ok(fs::read_dir(&within).unwrap().count()));
        assert_eq!(*renewed.current().unwrap(), 1);
        folder.write("other", "1");
        assert_eq!(*renewed.current().unwrap(), 2);
    }
}
