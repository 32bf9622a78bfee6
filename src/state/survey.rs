//! A read-only view of a state folder: the stores of a topology's tasks in all slots, including those
//! set aside, whether or not a process is using them.

use std::path::{Path, PathBuf};

use super::aside::SUFFIX;
use super::dir::{self, StateDir};
use super::disk::Read;
use super::{Error, Memory};
use crate::format::{POSITION_KEY, PositionRecord, STORE_META_KEY, StoreMeta};

/// Block cache for stores that are only read.
const MEMORY_BYTES: u64 = 16 << 20;

/// A state folder to look at. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Survey {
    root: PathBuf,
    memory: Memory,
}

impl Survey {
    /// The state folder of this slot.
    pub fn of(slot: &StateDir, memory: &Memory) -> Self {
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
    pub fn stores(&self, topology: &str, topic: &str) -> Result<Vec<Found>, Error> {
        let mut all: Vec<Found> = Vec::new();
        for folder in self.memory.disk().folders(&self.root, &dir::file_name(topology))? {
            let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let task = name.strip_suffix(SUFFIX).unwrap_or(name);
            let number = task.rsplit_once('-').filter(|(of, _)| *of == dir::file_name(topic)).map(|(_, number)| number);
            let Some(partition) = number.and_then(|number| number.parse().ok()) else { continue };
            all.push(Found { path: folder, partition, memory: self.memory.clone() });
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }
}

/// A store that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its folder.
    pub path: PathBuf,
    /// The partition that the folder is named after.
    pub partition: i32,
    memory: Memory,
}

impl Found {
    /// Opens it read-only, as it is on the disk, even while it is in use. `None` if it was never written to.
    pub fn read(&self) -> Result<Option<StoreReader>, Error> {
        let files = self.memory.disk().open_to_read(&self.path)?;
        Ok(files.map(|files| StoreReader { path: self.path.clone(), files }))
    }
}

/// A store opened read-only: nothing in it changes, not even on the disk.
pub struct StoreReader {
    path: PathBuf,
    files: Box<dyn Read>,
}

impl StoreReader {
    /// How far the store has got; `None` for one that was never written to.
    pub fn meta(&self) -> Result<Option<StoreMeta>, Error> {
        self.decoded(STORE_META_KEY, StoreMeta::decode)
    }

    /// Its position record.
    pub fn position(&self) -> Result<Option<PositionRecord>, Error> {
        self.decoded(POSITION_KEY, PositionRecord::decode_either)
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

    fn decoded<T>(
        &self,
        key: &[u8],
        decode: impl Fn(&[u8]) -> Result<T, crate::format::Error>,
    ) -> Result<Option<T>, Error> {
        let damaged =
            |error: crate::format::Error| Error::Damaged { path: self.path.clone(), reason: error.to_string() };
        self.get(key)?.map(|bytes| decode(&bytes).map_err(damaged)).transpose()
    }
}
