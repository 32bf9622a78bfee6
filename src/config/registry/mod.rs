//! The settings of the schema registry, and of the folder of schemas.
//!
//! - `settings`: the settings as other rooms use them · `keys`: how they are written · `check`: whether they fit
//!   together

mod check;
mod keys;
mod settings;

pub use check::check;
pub use keys::KEYS;
pub use settings::{IdsOf, OAuth, SchemaRegistry, is_address, is_secret, is_secret_key, names_a_user};

#[cfg(test)]
mod tests;
