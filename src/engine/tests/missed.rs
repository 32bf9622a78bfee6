//! Goal: a store whose last transaction is gone from its changelog is refused, and `changelog rebuild` says to move the
//! store away if the changelog holds all that it holds.

use super::*;
use crate::engine::rebuild::{self, rebuild_on};
use crate::format::{ChangelogOffset, StoreMeta};
use crate::state::{Memory, Store, Survey};

const INPUT: &str = "orders";

#[test]
fn store_with_a_lost_position_record_is_refused_and_named_by_a_rebuild() {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), "clean");
    site.send(INPUT, "a", &[1, 2, 3]);
    site.drain(&topology).unwrap();
    let rebuild_changelog = || rebuild_on(&site.cluster, &site.config(), &topology, false);
    assert!(rebuild_changelog().is_ok());

    let found = Survey::of_folder(&site.config().state_dir).stores("shop", INPUT).unwrap();
    let [found] = &found[..] else { panic!("{} stores", found.len()) };
    let mut store = Store::open(&found.path, &Memory::new(64 << 20)).unwrap();
    let meta = store.meta().unwrap().unwrap();
    // The offset of an entry.
    store
        .set_meta(&StoreMeta { position_offset: meta.position_offset.map(|at| ChangelogOffset(at.0 - 1)), ..meta })
        .unwrap();
    drop(store);
    let ended = site.drain(&topology);
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: true, .. })), "{ended:?}");
    let Err(rebuild::Error::Refused(messages)) = rebuild_changelog() else { panic!("the changelog is usable") };
    assert!(messages.len() == 1 && messages[0].contains("processed again: move its folder away"), "{messages:?}");

    std::fs::remove_dir_all(&found.path).unwrap();
    site.send(INPUT, "a", &[3, 4]);
    site.drain(&topology).unwrap();
    assert!(rebuild_changelog().is_ok());
    assert_eq!(site.values("clean").len(), 4);
}
