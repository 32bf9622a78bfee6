//! What tasks remember, on this machine's disk: the only room that knows RocksDB as a store.
//!
//! - [`StateDir`]: the folder that a process keeps its stores in
//! - [`Store`]: a task's store; [`Overlay`]: a transaction's writes until Kafka has committed;
//!   [`LoadBuffer`]: what a restore has read of the changelog
//! - [`aside`]: what becomes of a store that cannot be built upon; [`Survey`]: what a state folder holds, only looked at
//! - [`Memory`]: what all stores of a process share; [`Registry`]: which of them are open
//! - [`longest_stall`]: the disk that has not answered for long
//! - [`disk`]: where stores are kept, which need not be RocksDB
//!
//! Invariants:
//! - Nothing uncommitted is ever in a store: writes wait in an [`Overlay`], and [`Store::commit`] is called
//!   after Kafka has committed. So a store is never wiped for being unclean.
//! - A store that is opened after a crash equals the state after some earlier commit, whole, with the meta
//!   of that commit; or its meta names no transaction, because it was being restored.
//! - Nothing is removed but inside a slot of a marked state folder.
//!
//! **Failure**: a store can always be rebuilt from the changelog. So no call repairs anything: it says by
//! its [`Error`] what is wrong, and whether the store is to be dropped and opened again ([`Error::Full`],
//! [`Error::Io`]) or built anew ([`Error::Damaged`]). The bytes are those of [`crate::format`].

pub mod aside;
mod background;
mod build;
mod dir;
pub mod disk;
mod error;
mod load;
mod memory;
mod overlay;
mod registry;
mod rocks;
mod stalls;
mod store;
mod survey;

pub use dir::StateDir;
pub use error::Error;
pub use load::{Bound, LoadBuffer, key_head};
pub use memory::Memory;
pub use overlay::Overlay;
pub use registry::{Registry, StoreLock};
pub use stalls::{Stall, longest as longest_stall};
pub use store::Store;
pub use survey::{Found, StoreReader, Survey};

#[cfg(test)]
mod tests;
