//! Goal: whatever the umask, only the user who runs ratchet can look into the state folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use ratchet::cluster::Message;
use ratchet::cluster::embedded::Embedded;
use ratchet::record::Headers;

const TOPOLOGY: &str = "name: t\ninput: {topics: [in]}\nidentity: key\noutput: {topic: out}\n";

/// The folders at and below `folder`.
fn folders(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            all.extend(folders(&entry.path()));
        }
    }
    all
}

#[test]
fn state_folder_is_closed_to_others() {
    let room = tempfile::tempdir().unwrap();
    fs::write(room.path().join("t.yaml"), TOPOLOGY).unwrap();
    let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
    let message = Message {
        topic: "in",
        partition: 0,
        key: Some(b"k"),
        value: Some(b"v"),
        headers: Headers::default(),
        timestamp: Some(1_000),
    };
    cluster.append("in", 0, &[message]).unwrap();
    drop(cluster);
    let run = "umask 0; exec \"$0\" run t.yaml --until-drained --set cluster=embedded --set embedded.dir=topics \
               --set state_dir=state --set topics.create=all --set memory=64MiB --set http=off";
    let ran = Command::new("sh").args(["-c", run, env!("CARGO_BIN_EXE_ratchet")]).current_dir(room.path()).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let all = folders(&room.path().join("state"));
    assert!(all.len() >= 4, "there should be the folder, a slot, a topology and a store: {all:?}");
    for folder in all {
        let mode = fs::metadata(&folder).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{} is {mode:o}", folder.display());
    }
}
