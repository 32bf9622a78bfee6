//! The text of topologies' rules, saved beside the stores: if a topology is refused because its rules have changed, the
//! refusal can name the rule. A **slot** (`slot-N`) is the folder of one process in the state folder.
//!
//! The file `slot-N/.rules/TOPOLOGY.DIGEST` holds exactly the text whose digest begins with these 16 hexadecimal
//! digits. It is written when a topology starts under rules that are new to this slot. Changelogs, stores and committed
//! offsets have only the digest. The text only explains the digest, and is used only if it has that digest. The name of
//! no topology's folder begins with a dot, so other releases ignore the folder `.rules`.
//!
//! **Failure**: the text may be unreadable, or missing, as in slots of former releases and on other machines. Then the
//! former rules are unknown. If a text cannot be written, it is missing later.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::dir::{StateSlot, file_name};

/// The folder of the texts, in a slot.
const RULES_FOLDER: &str = ".rules";
/// Accessible to this user only, like everything in a slot.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The longest text that is read. No topology's file is longer.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// The file of the rules whose digest begins with these digits, in the slot.
fn rules_file(slot: &Path, topology: &str, short_digest: &str) -> PathBuf {
    slot.join(RULES_FOLDER).join(format!("{}.{}", file_name(topology), file_name(short_digest)))
}

/// Saves the text of a topology's rules in this slot, unless the slot already has it; `short_digest` has the first
/// digits of the text's digest.
pub fn save(slot: &StateSlot, topology: &str, short_digest: &str, text: &str) -> io::Result<()> {
    let file = rules_file(slot.path(), topology, short_digest);
    if file.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(slot.path().join(RULES_FOLDER))?;
    // Written under another name first: a process that is killed leaves no partial text under this one.
    let new_file = file.with_extension("new");
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&new_file)?;
    written.write_all(text.as_bytes())?;
    written.sync_all()?;
    fs::rename(&new_file, &file)
}

/// The text of a topology's rules whose digest begins with `short_digest`, from any slot of the state folder `root`.
/// `is_wanted` checks the digest of a text that was found; `None` if it accepts no text.
pub fn find(root: &Path, topology: &str, short_digest: &str, is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let slots = fs::read_dir(root).ok()?;
    let mut texts = slots.filter_map(|slot| {
        let path = rules_file(&slot.ok()?.path(), topology, short_digest);
        let length = fs::metadata(&path).ok()?.len();
        (length <= TEXT_BYTES_MAX).then(|| fs::read_to_string(path).ok()).flatten()
    });
    texts.find(|text| is_wanted(text))
}

#[cfg(test)]
mod tests {
    //! Goal: a text is found by its digest in any slot; a missing or damaged text, or that of another topology, is not.

    use super::*;
    use crate::state::Survey;

    #[test]
    fn text_is_found_by_its_digest_in_any_slot() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (StateSlot::lock(root.path()).unwrap(), StateSlot::lock(root.path()).unwrap());
        save(&first, "t", "aa", "text a").unwrap();
        save(&second, "t", "bb", "text b").unwrap();
        save(&second, "t", "bb", "text b").unwrap();
        let find = |topology: &str, digest: &str| find(root.path(), topology, digest, |_| true);
        assert_eq!(find("t", "aa").as_deref(), Some("text a"));
        assert_eq!(find("t", "bb").as_deref(), Some("text b"));
        assert_eq!([find("u", "aa"), find("t", "cc"), find("t", "../aa")], [None, None, None]);
    }

    #[test]
    fn text_with_another_digest_is_ignored() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (StateSlot::lock(root.path()).unwrap(), StateSlot::lock(root.path()).unwrap());
        save(&first, "t", "aa", "damaged").unwrap();
        let whole = |text: &str| text == "whole";
        assert_eq!(find(root.path(), "t", "aa", whole), None);
        save(&second, "t", "aa", "whole").unwrap();
        assert_eq!(find(root.path(), "t", "aa", whole).as_deref(), Some("whole"));
        assert_eq!(find(&root.path().join("nowhere"), "t", "aa", whole), None);
    }

    #[test]
    fn folder_of_rules_is_not_taken_for_a_store() {
        let root = tempfile::tempdir().unwrap();
        let slot = StateSlot::lock(root.path()).unwrap();
        save(&slot, "t", "aa", "text").unwrap();
        let survey = Survey::of_folder(root.path());
        assert!(survey.stores("t", "in").unwrap().is_empty() && survey.stores("rules", "t").unwrap().is_empty());
    }
}
