//! An open store on the simulated disk.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratchet::format::{STORE_META_KEY, StoreMeta};
use ratchet::state::disk::{self, Files, Ingest, Read};
use ratchet::state::{Error, FrozenMemtable, LoadBuffer};

use super::{Disk, Folder, Map, Records, SimulatedDisk, Step, apply, damaged, full, owned, scan};

/// A store that has its folder open.
pub struct Simulated {
    disk: SimulatedDisk,
    dir: PathBuf,
    number: u64,
    /// What reads return.
    live: Map,
    under_way: VecDeque<UnderWay>,
    /// Memtables that are not in the store yet, in order.
    tables: VecDeque<(Arc<FrozenMemtable>, Stage)>,
    file_bytes_min: usize,
}

/// How far a memtable is that is not in its store yet.
enum Stage {
    New,
    /// Its file is there the next time.
    LookedAt,
    Failed,
}

/// A load in progress.
struct UnderWay {
    built: Result<LoadBuffer, Error>,
    is_file: bool,
    meta: StoreMeta,
    was_looked_at: bool,
}

impl Simulated {
    pub fn open(simulated: &SimulatedDisk, dir: &Path) -> Result<Self, Error> {
        let mut guard = simulated.lock();
        let disk = &mut *guard;
        let folder = disk.folders.entry(dir.to_owned()).or_default();
        if folder.holder.is_some() {
            return Err(Error::InUse { path: dir.to_owned() });
        }
        if folder.damage == Some(0) {
            return Err(damaged(dir));
        }
        if disk.full.is_some() {
            return Err(full(dir));
        }
        disk.opened += 1;
        folder.holder = Some(disk.opened);
        let (number, file_bytes_min, live) = (disk.opened, disk.loads.file_bytes_min, folder.kept.clone());
        drop(guard);
        let (disk, dir) = (simulated.clone(), dir.to_owned());
        let (under_way, tables) = (VecDeque::new(), VecDeque::new());
        Ok(Self { disk, dir, number, live, under_way, tables, file_bytes_min })
    }

    /// Changes the folder, while this store has it open.
    fn with<T>(&self, act: impl FnOnce(&mut Folder, &mut Option<u32>) -> Result<T, Error>) -> Result<T, Error> {
        let mut guard = self.disk.lock();
        let Disk { folders, full, .. } = &mut *guard;
        match folders.get_mut(&self.dir).filter(|folder| folder.holder == Some(self.number)) {
            Some(folder) => act(folder, full),
            None => Err(Error::Io { path: self.dir.clone(), reason: "the store is closed".to_owned() }),
        }
    }

    /// Fails if it is time for the damage to show.
    fn read(&self) -> Result<(), Error> {
        self.with(|folder, _| match &mut folder.damage {
            None => Ok(()),
            Some(reads) => {
                *reads = reads.saturating_sub(1);
                if *reads == 0 { Err(damaged(&self.dir)) } else { Ok(()) }
            }
        })
    }

    /// Adds a table file, after flushing the writes that it overlaps.
    fn ingest(&mut self, records: Records) -> Result<(), Error> {
        let (Some((first, _)), Some((last, _))) = (records.first(), records.last()) else { return Ok(()) };
        self.with(|folder, is_full| {
            if is_full.is_some() {
                return Err(full(&self.dir));
            }
            let overlaps =
                |step: &Step| !step.is_file && step.records.iter().any(|(key, _)| (first..=last).contains(&key));
            if folder.unflushed.iter().any(overlaps) {
                folder.flush();
            }
            folder.unflushed.push(Step { is_file: true, records: records.clone() });
            Ok(())
        })?;
        apply(&mut self.live, records);
        Ok(())
    }
}

impl Read for Simulated {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.read()?;
        Ok(self.live.get(key).map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        self.read()?;
        Ok(scan(&self.live, after, keys_max, visit))
    }
}

impl Files for Simulated {
    fn get_sorted(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        self.read()?;
        keys.iter().enumerate().for_each(|(at, key)| found(at, self.live.get(*key).map(|value| &**value)));
        Ok(())
    }

    fn write(&mut self, records: &disk::Records<'_>, _bytes: usize, meta: &StoreMeta) -> Result<(), Error> {
        let mut written = Records::new();
        records(&mut |key, value| written.push((key.into(), value.map(Into::into))));
        written.push((STORE_META_KEY.into(), Some(meta.encode().into())));
        self.with(|folder, is_full| {
            match is_full {
                Some(0) => return Err(full(&self.dir)),
                Some(writes) => *writes -= 1,
                None => {}
            }
            folder.unflushed.push(Step { is_file: false, records: written.clone() });
            Ok(())
        })?;
        apply(&mut self.live, written);
        Ok(())
    }

    fn flush(&self) -> Result<(), Error> {
        self.with(|folder, is_full| {
            if is_full.is_some() {
                return Err(full(&self.dir));
            }
            folder.flush();
            Ok(())
        })
    }

    fn copy(&self, to: &Path) -> Result<(), Error> {
        self.read()?;
        self.flush()?;
        let folders = &mut self.disk.lock().folders;
        if folders.contains_key(to) {
            return Err(Error::Io { path: to.to_owned(), reason: "File exists".to_owned() });
        }
        let kept = folders.get(&self.dir).map(|folder| folder.kept.clone()).unwrap_or_default();
        folders.insert(to.to_owned(), Folder { kept, ..Folder::default() });
        Ok(())
    }

    fn fits_one_write(&self, buffer: &LoadBuffer) -> bool {
        buffer.bytes() < self.file_bytes_min
    }

    /// Sorts it at once.
    fn add_load(&mut self, mut buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        let is_file = buffer.bytes() >= self.file_bytes_min && !buffer.is_empty();
        let mut built = buffer.sort(&self.dir);
        if is_file && self.disk.lock().full.is_some() {
            built = built.and(Err(full(&self.dir)));
        }
        self.under_way.push_back(UnderWay { built: built.map(|()| buffer), is_file, meta, was_looked_at: false });
        Ok(())
    }

    fn add_memtable(&mut self, table: Arc<FrozenMemtable>) -> Result<(), Error> {
        self.tables.push_back((table, Stage::New));
        Ok(())
    }

    fn ingest_pending(&mut self, mode: Ingest) -> Result<usize, Error> {
        while let Some((table, stage)) = self.tables.front_mut() {
            let is_file = table.bytes() >= self.file_bytes_min;
            match stage {
                Stage::New if is_file && mode != Ingest::All => {
                    *stage = Stage::LookedAt;
                    break;
                }
                Stage::Failed if mode == Ingest::Ready => break,
                Stage::New | Stage::LookedAt | Stage::Failed => *stage = Stage::Failed,
            }
            let table = Arc::clone(table);
            if is_file {
                let mut records = Records::new();
                let added: Result<(), Error> = table.try_each_with_meta(|key, value| {
                    records.push((key.into(), value.map(Into::into)));
                    Ok(())
                });
                added.and_then(|()| self.ingest(records))?;
            } else {
                self.write(&|put| table.each(put), table.bytes(), table.meta())?;
            }
            self.tables.pop_front();
        }
        while let Some(first) = self.under_way.front_mut() {
            if mode != Ingest::All && !first.was_looked_at {
                first.was_looked_at = true;
                break;
            }
            let Some(UnderWay { built, is_file, meta, .. }) = self.under_way.pop_front() else { break };
            let mut buffer = built?;
            if is_file {
                let position = buffer.split_position();
                self.ingest(owned(buffer.iter()))?;
                buffer = position;
            }
            self.write(&|put| buffer.iter().for_each(|(key, value)| put(key, value)), buffer.bytes(), &meta)?;
        }
        Ok(self.under_way.len() + self.tables.len())
    }

    fn drop_loads(&mut self) {
        self.under_way.clear();
    }

    fn end_load(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.live.is_empty())
    }

    /// The exact number.
    fn entries_estimate(&self) -> u64 {
        self.live.len() as u64
    }

    /// The bytes of keys and values.
    fn bytes(&self) -> u64 {
        self.live.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }

    fn path(&self) -> &Path {
        &self.dir
    }

    fn set_file_bytes_min(&mut self, bytes: usize) {
        self.file_bytes_min = bytes;
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        // Closing flushes, if possible.
        let (number, mut disk) = (self.number, self.disk.lock());
        let is_full = disk.full.is_some();
        let folder = disk.folders.get_mut(&self.dir).filter(|folder| folder.holder == Some(number));
        if let Some(folder) = folder {
            folder.holder = None;
            folder.fall_back(if is_full { 0 } else { usize::MAX });
        }
    }
}
