//! A read-only view of a state folder: the stores of a topology's tasks in all slots (the folders of the processes),
//! including stores that were set aside while others are built in their place, and stores that a process has open.

use std::path::{Path, PathBuf};

use super::aside::ASIDE_SUFFIX;
use super::dir::{self, StateSlot};
use super::disk::Read;
use super::{Error, Memory};
use crate::format::{POSITION_KEY, PositionRecord, STORE_META_KEY, StoreMeta};

/// The size of the block cache for stores that are only read.
const MEMORY_BYTES: u64 = 16 << 20;

/// A state folder that is only read. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Survey {
    root: PathBuf,
    memory: Memory,
}

impl Survey {
    /// The state folder that this slot is in.
    pub fn of(slot: &StateSlot, memory: &Memory) -> Self {
        let root = slot.path().parent().unwrap_or(slot.path());
        Self { root: root.to_owned(), memory: memory.clone() }
    }

    /// The state folder `root`, which need not exist.
    pub fn of_folder(root: &Path) -> Self {
        Self { root: root.to_owned(), memory: Memory::new(MEMORY_BYTES) }
    }

    /// The state folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The stores of `topology`'s tasks for `topic`, ordered by path.
    pub fn stores(&self, topology: &str, topic: &str) -> Result<Vec<FoundStore>, Error> {
        let mut stores: Vec<FoundStore> = Vec::new();
        for folder in self.memory.disk().folders(&self.root, &dir::file_name(topology))? {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let task = name.strip_suffix(ASIDE_SUFFIX).unwrap_or(name);
            let number =
                task.rsplit_once('-').filter(|(prefix, _)| *prefix == dir::file_name(topic)).map(|(_, number)| number);
            let Some(partition) = number.and_then(|number| number.parse().ok()) else { continue };
            stores.push(FoundStore { path: folder, partition, memory: self.memory.clone() });
        }
        stores.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(stores)
    }
}

/// A store that was found.
#[derive(Clone, Debug)]
pub struct FoundStore {
    /// Its folder.
    pub path: PathBuf,
    /// The partition that the folder is named after.
    pub partition: i32,
    memory: Memory,
}

impl FoundStore {
    /// Opens the store read-only, as it is on the disk, even while a process has it open. `None` if the store was
    /// never written to.
    pub fn open(&self) -> Result<Option<StoreReader>, Error> {
        let files = self.memory.disk().open_to_read(&self.path)?;
        Ok(files.map(|files| StoreReader { path: self.path.clone(), files }))
    }
}

/// A store that is open for reading only: its files do not change.
pub struct StoreReader {
    path: PathBuf,
    files: Box<dyn Read>,
}

impl StoreReader {
    /// The meta of the last commit or load: how far the store has applied its changelog. `None` for a store that was
    /// never written to.
    pub fn meta(&self) -> Result<Option<StoreMeta>, Error> {
        self.get_decoded(STORE_META_KEY, StoreMeta::decode)
    }

    /// The position record: how far the input partition was processed. `None` if there is none yet.
    pub fn position(&self) -> Result<Option<PositionRecord>, Error> {
        self.get_decoded(POSITION_KEY, PositionRecord::decode_either)
    }

    /// The value under `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.files.get(key)
    }

    /// Like [`super::Store::scan`].
    pub fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        self.files.scan(after, keys_max, &mut visit)
    }

    fn get_decoded<T>(
        &self,
        key: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, crate::format::Error>,
    ) -> Result<Option<T>, Error> {
        let damaged =
            |error: crate::format::Error| Error::Damaged { path: self.path.clone(), reason: error.to_string() };
        self.get(key)?.map(|bytes| decode(&bytes).map_err(damaged)).transpose()
    }
}
