//! The state of tasks, in stores on this machine's disk: the only module that uses RocksDB for it.
//!
//! - A **task** is the work on one input partition; a **lane** is a thread with several tasks. A task's **store** has
//!   an **entry** for each identity that is remembered, and the **position record**: how far the partition was
//!   processed.
//! - The **changelog** is a topic that has everything that was committed to the store. A **restore** reads it, and
//!   brings the store up to date or rebuilds it; a **load** is one buffer of the changelog's records that a restore
//!   writes to the store in bulk.
//! - The store's **meta** says how far the store has applied the changelog, and which transaction it is the result of.
//! - A **memtable** holds the last commits in memory. Once full or flushed, it is **frozen**: it accepts no more, and
//!   unless it is small, becomes a **table file**, which RocksDB **ingests**: adds to its own files.
//! - A **slot** is the folder of one process in the state folder, which ratchet's **marker** file identifies.
//!
//! In this module:
//!
//! - [`StateSlot`]: the folder in which a process keeps its stores
//! - [`Store`]: a task's store; [`Overlay`]: a transaction's writes until Kafka has committed;
//!   [`LoadBuffer`]: the changelog records that a restore has read; [`FrozenMemtable`]: a memtable that accepts
//!   no more commits, within a [`MemtableBudget`] and its [`MemtableBounds`]
//! - [`aside`]: sets stores aside while their successors are built; [`Survey`]: a read-only view of a state folder
//! - [`Memory`]: the memory that all stores of a process share; [`Registry`]: the stores that are open
//! - [`longest_stall`]: the disk call that has been in progress longest
//! - [`disk`]: the storage beneath stores, which need not be RocksDB
//!
//! Invariants:
//! - Nothing uncommitted is ever in a store: writes wait in an [`Overlay`], and [`Store::commit`] is called
//!   after Kafka has committed. So a store is never wiped for being unclean.
//! - A store that is opened after a crash has exactly the state after some earlier commit, with the meta of that
//!   commit; or its meta names no transaction, because it was being restored.
//! - Nothing is removed except inside a slot of a state folder that has the marker.
//!
//! **Failure**: a store can always be rebuilt from the changelog. Therefore no call repairs anything: the [`Error`]
//! says what is wrong, and whether the store has to be dropped and reopened ([`Error::Full`], [`Error::Io`]) or rebuilt
//! ([`Error::Damaged`]). [`crate::format`] defines the bytes in stores.

pub mod aside;
mod background;
mod build;
mod cache_filling;
mod dir;
pub mod disk;
mod error;
mod load;
mod memory;
mod memtable;
mod overlay;
mod record_buffer;
mod records;
mod registry;
mod rocks;
pub mod rules;
mod stalls;
mod store;
mod survey;

pub use dir::StateSlot;
pub use error::Error;
pub use load::{BufferBound, LoadBuffer, key_head};
pub use memory::Memory;
pub use memtable::{FrozenMemtable, MemtableBounds, MemtableBudget};
pub use overlay::{KeyHash, Overlay};
pub use registry::{Registry, StoreLock};
pub use stalls::{Stall, longest as longest_stall};
pub use store::Store;
pub use survey::{FoundStore, StoreReader, Survey};

#[cfg(test)]
pub(crate) mod tests;
