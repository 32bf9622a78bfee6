//! Requests that are carried out once: what every store and every way to it must do, on real servers.
//!
//! `stores` has one suite for all stores, `fronts` one for the layer and the proxy on each of them.

mod fronts;
mod rights;
mod schedules;
mod stores;
mod transaction;
