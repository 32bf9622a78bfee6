//! ratchet under hostile input, on the embedded cluster: whole lanes, and the built program's folders. What needs a
//! real broker is in `tests/kafka`.

mod folders;
mod hostile;
mod lanes;
