//! The rules' text, kept beside the stores. With it a refusal can name the rule that has changed.
//!
//! `slot-N/.rules/TOPOLOGY.DIGEST` holds exactly the text from which the digest with these first 16 hex digits is made. It is
//! written when a topology starts under rules that are new to this slot. Only the digest counts: changelogs, stores and
//! committed offsets have it. The text explains the digest, and is believed only if it has that digest. No topology's folder
//! begins with a dot, so other releases never look here.
//!
//! **Failure**: a text may be missing, as in slots of former releases and on other machines, or unreadable. Then the former
//! rules are unknown. A text that cannot be written is missing later.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::dir::{StateDir, file_name};

/// The folder in a slot.
const FOLDER: &str = ".rules";
/// Accessible to this user only, as all else in a slot.
const MODE_DIR: u32 = 0o700;
const MODE_FILE: u32 = 0o600;
/// The longest text that is read: no topology's file is longer.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The file of the rules with this digest, in the slot.
fn file(slot: &Path, topology: &str, short_digest: &str) -> PathBuf {
    slot.join(FOLDER).join(format!("{}.{}", file_name(topology), file_name(short_digest)))
}

/// Keeps the text of a topology's rules, which have this digest, in this slot, unless it is there.
pub fn keep(slot: &StateDir, topology: &str, short_digest: &str, text: &str) -> io::Result<()> {
    let file = file(slot.path(), topology, short_digest);
    if file.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(MODE_DIR).create(slot.path().join(FOLDER))?;
    // A process that is killed leaves nothing half written under the name.
    let new = file.with_extension("new");
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE_FILE).open(&new)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&new, &file)
}

/// The text of a topology's rules with this digest, if any slot of the state folder `root` has one that `is_theirs`.
pub fn find(root: &Path, topology: &str, short_digest: &str, is_theirs: impl Fn(&str) -> bool) -> Option<String> {
    let slots = fs::read_dir(root).ok()?;
    let mut texts = slots.filter_map(|slot| {
        let path = file(&slot.ok()?.path(), topology, short_digest);
        let length = fs::metadata(&path).ok()?.len();
        (length <= TEXT_BYTES_MAX).then(|| fs::read_to_string(path).ok()).flatten()
    });
    texts.find(|text| is_theirs(text))
}

#[cfg(test)]
mod tests {
    //! Goal: a text is found under its digest in any slot, and one that is missing, damaged or another topology's is not.

    use super::*;
    use crate::state::Survey;

    #[test]
    fn text_is_found_by_its_digest_in_any_slot() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (StateDir::lock(root.path()).unwrap(), StateDir::lock(root.path()).unwrap());
        keep(&first, "t", "aa", "text a").unwrap();
        keep(&second, "t", "bb", "text b").unwrap();
        keep(&second, "t", "bb", "text b").unwrap();
        let find = |topology: &str, digest: &str| find(root.path(), topology, digest, |_| true);
        assert_eq!(find("t", "aa").as_deref(), Some("text a"));
        assert_eq!(find("t", "bb").as_deref(), Some("text b"));
        assert_eq!([find("u", "aa"), find("t", "cc"), find("t", "../aa")], [None, None, None]);
    }

    #[test]
    fn text_that_is_not_theirs_is_not_believed() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (StateDir::lock(root.path()).unwrap(), StateDir::lock(root.path()).unwrap());
        keep(&first, "t", "aa", "damaged").unwrap();
        let whole = |text: &str| text == "whole";
        assert_eq!(find(root.path(), "t", "aa", whole), None);
        keep(&second, "t", "aa", "whole").unwrap();
        assert_eq!(find(root.path(), "t", "aa", whole).as_deref(), Some("whole"));
        assert_eq!(find(&root.path().join("nowhere"), "t", "aa", whole), None);
    }

    #[test]
    fn nobody_takes_it_for_a_store() {
        let root = tempfile::tempdir().unwrap();
        let slot = StateDir::lock(root.path()).unwrap();
        keep(&slot, "t", "aa", "text").unwrap();
        let survey = Survey::of_folder(root.path());
        assert!(survey.stores("t", "in").unwrap().is_empty() && survey.stores("rules", "t").unwrap().is_empty());
    }
}
