//! The schema registry's settings, and the folder of schemas.
//!
//! - `settings`: as the other rooms read them · `keys`: as they are written · `check`: whether they fit together

mod check;
mod keys;
mod settings;

pub use check::check;
pub use keys::KEYS;
pub use settings::{IdsOf, OAuth, SchemaRegistry, is_address, is_secret, is_secret_key, names_a_user};

#[cfg(test)]
mod tests;
