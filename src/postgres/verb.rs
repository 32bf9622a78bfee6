//! Checks the first word of a user's statement, without a database.

/// The words that a statement may begin with. Statements that control the transaction are not among them.
pub const VERBS: [&str; 10] =
    ["insert", "update", "delete", "merge", "select", "with", "values", "truncate", "call", "notify"];

/// Checks that an SQL statement begins with one of [`VERBS`], without a database.
///
/// # Errors
/// A message that quotes the word with which the statement begins instead.
pub fn check_verb(text: &str) -> Result<(), String> {
    let verb = first_word(text).to_ascii_lowercase();
    if VERBS.contains(&verb.as_str()) {
        return Ok(());
    }
    let known = VERBS.join(", ");
    if verb.is_empty() {
        return Err(format!("there is no SQL in it: it has to begin with one of {known}"));
    }
    Err(format!(
        "it begins with '{verb}', but has to begin with one of {known}: ratchet begins and ends the transaction"
    ))
}

/// The first word after white space, comments and opening parentheses.
fn first_word(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
        } else if rest.starts_with("/*") {
            rest = behind_comment(rest);
        } else {
            return rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        }
    }
}

/// The text behind the comment at its beginning. Comments nest.
fn behind_comment(text: &str) -> &str {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = &text[at..];
        let opens = rest.find("/*");
        let closes = rest.find("*/");
        match (opens, closes) {
            (_, None) => return "",
            (Some(opens), Some(closes)) if opens < closes => (depth, at) = (depth + 1, at + opens + 2),
            (_, Some(closes)) => {
                (depth, at) = (depth.saturating_sub(1), at + closes + 2);
                if depth == 0 {
                    return &text[at..];
                }
            }
        }
    }
}
