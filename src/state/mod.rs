//! What tasks remember, on this machine's disk: the only room that knows RocksDB as a store.
//!
//! - [`StateDir`]: the folder in which a process keeps its stores
//! - [`Store`]: a task's store; [`Overlay`]: a transaction's writes until Kafka has committed;
//!   [`LoadBuffer`]: what a restore has read from the changelog; [`Frozen`]: a full memtable, within a [`Budget`] and
//!   its [`Bounds`]
//! - [`aside`]: how stores that cannot be built upon are set aside; [`Survey`]: a read-only view of a state folder
//! - [`Memory`]: what all stores of a process share; [`Registry`]: which of them are open
//! - [`longest_stall`]: a disk that has not responded for long
//! - [`disk`]: the storage beneath stores, which need not be RocksDB
//!
//! Invariants:
//! - Nothing uncommitted is ever in a store: writes wait in an [`Overlay`], and [`Store::commit`] is called
//!   after Kafka has committed. So a store is never wiped for being unclean.
//! - A store that is opened after a crash equals the state after some earlier commit, whole, with the meta
//!   of that commit; or its meta names no transaction, because it was being restored.
//! - Nothing is removed except inside a slot of a marked state folder.
//!
//! **Failure**: a store can always be rebuilt from the changelog. So no call repairs anything: its
//! [`Error`] says what is wrong, and whether the store is to be dropped and reopened ([`Error::Full`],
//! [`Error::Io`]) or rebuilt ([`Error::Damaged`]). The bytes are those of [`crate::format`].

pub mod aside;
mod background;
mod build;
mod dir;
pub mod disk;
mod error;
mod filling;
mod load;
mod memory;
mod memtable;
mod overlay;
mod records;
mod registry;
mod rocks;
pub mod rules;
mod run;
mod stalls;
mod store;
mod survey;

pub use dir::StateDir;
pub use error::Error;
pub use load::{Bound, LoadBuffer, key_head};
pub use memory::Memory;
pub use memtable::{Bounds, Budget, Frozen};
pub use overlay::{KeyHash, Overlay};
pub use registry::{Registry, StoreLock};
pub use stalls::{Stall, longest as longest_stall};
pub use store::Store;
pub use survey::{Found, StoreReader, Survey};

#[cfg(test)]
pub(crate) mod tests;
