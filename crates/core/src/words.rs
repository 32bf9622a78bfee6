//! Numbers with their nouns, and the texts of errors, for messages.

use std::error::Error;
use std::fmt::Display;

/// `1 record`, `2 records`, `3 identities`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let is_one = count == N::from(1);
    match noun.strip_suffix('y') {
        _ if is_one => format!("{count} {noun}"),
        Some(stem) => format!("{count} {stem}ies"),
        None => format!("{count} {noun}s"),
    }
}

/// The form that agrees with the number: `has` or `have`.
pub fn agreeing<'w, N: PartialEq + From<u8>>(count: N, one: &'w str, several: &'w str) -> &'w str {
    if count == N::from(1) { one } else { several }
}

/// The messages of an error and of its causes, in lower case and separated by colons.
pub fn error_text(error: &dyn Error) -> String {
    let mut text = in_lower_case(&error.to_string());
    let mut source = error.source();
    while let Some(error) = source {
        let more = in_lower_case(&error.to_string());
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

fn in_lower_case(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    // Unless it begins with something like TLS.
    let is_word = letters.clone().nth(1).is_some_and(|second| !second.is_uppercase());
    match letters.next() {
        Some(first) if is_word => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!(
            [0, 1, 2].map(|count: u64| counted(count, "partition")),
            ["0 partitions", "1 partition", "2 partitions"]
        );
        assert_eq!([1, 2].map(|count: i32| counted(count, "identity")), ["1 identity", "2 identities"]);
        assert_eq!([0, 1, 2].map(|count: usize| agreeing(count, "has", "have")), ["have", "has", "have"]);
    }
}
