//! Names as protoc derives them.

/// Appends a name of words with underscores between them in camel case.
pub(crate) fn push_camel_case(name: &str, is_first_upper: bool, out: &mut String) {
    let mut is_upper = is_first_upper;
    for c in name.chars() {
        if c == '_' {
            is_upper = true;
        } else {
            out.push(if is_upper { c.to_ascii_uppercase() } else { c });
            is_upper = false;
        }
    }
}
