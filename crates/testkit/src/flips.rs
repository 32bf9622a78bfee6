//! Flips one bit at a time in the files of a closed folder, and looks at what becomes of it. Each kind of file is hit.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::random::Random;

/// How long a look at a damaged folder may take: beyond that it hangs.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// The seed of the few flips that each run of the tests has.
const FIXED_SEED: u64 = 42;

/// What has become of a flip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is as without it.
    Same,
    /// It was said, in these words.
    Noticed(String),
    /// Everything is as it was at an earlier moment, and the folder says of which.
    Earlier,
    /// Something is not as it was, and nobody has said so.
    Wrong(String),
}

/// A bit of a file, which is named from its folder on.
#[derive(Clone, Debug)]
pub struct Flip {
    pub file: PathBuf,
    pub bit: u64,
}

impl Flip {
    /// Flips it in a folder.
    pub fn apply(&self, folder: &Path) {
        let path = folder.join(&self.file);
        let mut bytes = fs::read(&path).expect("the file is there");
        bytes[(self.bit / 8) as usize] ^= 1 << (self.bit % 8);
        fs::write(path, bytes).expect("the file can be written");
    }
}

/// How many flips, from which seed: `RATCHET_BIT_FLIPS` and `RATCHET_TEST_SEED`; without the former a `few` that are
/// always the same.
pub fn plan(theme: &str, few: usize) -> (usize, Random) {
    match std::env::var("RATCHET_BIT_FLIPS") {
        Ok(count) => (count.parse().expect("RATCHET_BIT_FLIPS is a number"), Random::seeded(theme)),
        Err(_) => (few, Random::new(FIXED_SEED)),
    }
}

/// What kind of file this is, and how often it is hit in relation to others: small files that hardly matter less often.
fn kind(file: &Path) -> (String, u64) {
    let name = file.file_name().expect("a file's name").to_string_lossy();
    match file.extension().map(|extension| extension.to_string_lossy()) {
        Some(extension) if !name.starts_with("LOG") && !name.starts_with('.') => (extension.into_owned(), 4),
        _ if name.starts_with("MANIFEST") => ("MANIFEST".to_owned(), 4),
        _ => (name.trim_start_matches('.').split(['-', '.']).next().unwrap_or_default().to_owned(), 1),
    }
}

/// The files of a folder and those below it that are not empty, by kind.
fn files(folder: &Path) -> BTreeMap<(String, u64), Vec<(PathBuf, u64)>> {
    fn walk(root: &Path, folder: &Path, all: &mut BTreeMap<(String, u64), Vec<(PathBuf, u64)>>) {
        let mut entries: Vec<_> =
            fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        entries.sort();
        for path in entries {
            let about = fs::metadata(&path).expect("a file");
            if about.is_dir() {
                walk(root, &path, all);
            } else if about.len() > 0 {
                let file = path.strip_prefix(root).expect("it is below").to_owned();
                all.entry(kind(&file)).or_default().push((file, about.len()));
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(folder, folder, &mut all);
    all
}

/// Chooses a bit: first the kind of file, then the file, then the bit.
pub fn choose(folder: &Path, random: &mut Random) -> Flip {
    let files = files(folder);
    let mut at = random.below(files.keys().map(|(_, weight)| weight).sum::<u64>());
    let (_, all) = files
        .iter()
        .find(|((_, weight), _)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        })
        .expect("there are files");
    let (file, length) = &all[random.below(all.len() as u64) as usize];
    Flip { file: file.clone(), bit: random.below(length * 8) }
}

/// A folder for files that are soon gone: in memory, if the system has such a place.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().expect("a folder"))
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let to = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

/// Flips bits in copies of the `whole` folder, one in each, and has `look` use the copy. Panics at the first flip of which
/// nobody says anything although something is wrong, at a panic, and where nothing is said for a minute.
pub fn play(
    theme: &str,
    few: usize,
    whole: &Path,
    look: impl Fn(&Path) -> Outcome + Send + Sync + 'static,
) -> BTreeMap<(String, String), usize> {
    let (count, mut random) = plan(theme, few);
    let look: Arc<dyn Fn(&Path) -> Outcome + Send + Sync> = Arc::new(look);
    let undamaged = look_at(theme, whole, None, &look);
    assert_eq!(undamaged, Outcome::Same, "{theme}: without any flip");
    let mut tally: BTreeMap<(String, String), usize> = BTreeMap::new();
    for number in 0..count {
        let flip = choose(whole, &mut random);
        let outcome = look_at(theme, whole, Some(&flip), &look);
        let said = match &outcome {
            Outcome::Same => "no matter",
            Outcome::Noticed(_) => "noticed",
            Outcome::Earlier => "earlier",
            Outcome::Wrong(what) => panic!("{theme}: flip {number}, {flip:?}: {what}"),
        };
        *tally.entry((kind(&flip.file).0, said.to_owned())).or_default() += 1;
    }
    println!("{theme}: {count} flips: {tally:?}");
    tally
}

fn look_at(
    theme: &str,
    whole: &Path,
    flip: Option<&Flip>,
    look: &Arc<dyn Fn(&Path) -> Outcome + Send + Sync>,
) -> Outcome {
    let folder = scratch();
    let dir = folder.path().join("copy");
    copy(whole, &dir);
    if let Some(flip) = flip {
        flip.apply(&dir);
    }
    let (say, said) = channel();
    let look = Arc::clone(look);
    let thread = thread::spawn(move || {
        let _ = say.send(look(&dir));
    });
    match said.recv_timeout(LOOK_MAX) {
        Ok(outcome) => {
            let _ = thread.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => panic!("{theme}: {flip:?} hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("{theme}: {flip:?} panics"),
    }
}
