//! The bytes of earlier releases: what each format's program has written is kept under `tests/fixtures`, and read
//! here for ever; what a later release writes is refused by name.
//!
//! - `fixtures`: where they are, and a place in which the program goes on from one
//! - `decode`: each kind of bytes, one by one, means what it meant
//! - `engine`: the whole program goes on from a folder of topics, with its stores and without
//! - `later`: a format number further on, in each place that has one, met by the program
//! - `write`: makes the fixtures of today's formats; ignored, for `make fixtures`

mod decode;
mod engine;
mod fixtures;
mod later;
mod write;
