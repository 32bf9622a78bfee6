//! Sequences of records that are written to the disk.

/// Receives one record: a key and its value, or `None` if the key is deleted.
pub type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// A sequence of records: a function that passes each record, in the order of their keys, to its argument. It may be
/// called more than once.
pub type Records<'a> = dyn Fn(&mut Put<'_>) + 'a;
