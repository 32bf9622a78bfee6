//! Sequences of records that are to be written to a store's files.

/// Receives one record: a key and its value, or `None` if the key is deleted.
pub type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// A sequence of records: a function that passes each record to its argument, in the order of the keys. It may be
/// called more than once.
pub type Records<'a> = dyn Fn(&mut Put<'_>) + 'a;
