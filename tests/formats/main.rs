//! The bytes of earlier releases: what each format's program wrote is kept in `tests/fixtures`, and stays readable for
//! ever; what a later release writes is refused by name.
//!
//! - `fixtures`: where they are, and rooms in which the program continues from one
//! - `decode`: each kind of bytes keeps its meaning
//! - `engine`: the whole program continues from a folder of topics, with its stores and without
//! - `later`: the program meets a later format number, in each place that has one
//! - `write`: writes the fixtures of today's formats; ignored, for `make fixtures`

mod decode;
mod engine;
mod fixtures;
mod later;
mod write;
