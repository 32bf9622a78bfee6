//! The driver for PostgreSQL against a real one: what commits, what is refused, and what is left after every failure.
//!
//! The server is started by the tests, in its own folder and on a free port; each test has its own database.

mod bundles;
mod commit;
mod decimals;
mod expected;
mod inbox;
mod inspect;
mod own_tables;
pub mod proxy;
mod rejected;
mod speed;
mod tables;
mod task;
mod trouble;
mod ways_in;
