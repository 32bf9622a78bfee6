//! Secrets that are planted where users keep theirs, and must never be printed.

/// A text that does not occur by chance, different for each `place`.
pub fn planted(place: &str) -> String {
    format!("hunter2-{place}-Zq7Yw")
}

/// Traces of a planted secret in anything printed.
const TRACES: [&str; 8] = [
    "hunter2",
    // In base64, at each of the three possible alignments.
    "aHVudGVyM",
    "h1bnRlcj",
    "dW50ZXIy",
    // Its first letters as `{:?}` and `{:x?}` show bytes, and in hex.
    "104,117,110,116",
    "68,75,6e,74",
    "68756e746572",
    "68756E746572",
];

/// Fails if any planted secret can be seen in what was printed.
#[track_caller]
pub fn assert_hidden(what: &str, printed: &str) {
    // Framed messages are wrapped even inside words, and bytes are shown with spaces in between.
    let joined: String = printed.chars().filter(|c| !c.is_whitespace() && *c != '│').collect();
    for trace in TRACES {
        if let Some(at) = printed.find(trace) {
            let line_start = printed[..at].rfind('\n').map_or(0, |end| end + 1);
            let line = printed[line_start..].lines().next().unwrap_or_default();
            panic!("{what} shows a secret ({trace}): {line}");
        }
        assert!(!joined.contains(trace), "{what} shows a secret ({trace}), in pieces:\n{printed}");
    }
}
