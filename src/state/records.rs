//! Records on their way to the disk.

/// Takes one record: a key, and its value or `None` to delete it.
pub type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// Records to be written: passes each of them, in key order, to its argument; `None` deletes. It may be called
/// more than once.
pub type Records<'a> = dyn Fn(&mut Put<'_>) + 'a;
