//! The language of scripts: one call per line, and what must be seen.
//!
//! `VERB WORD... => SEEN`; without `=> SEEN`, it is `ok`. `play` lists the verbs. A partition is `topic:number`, a
//! record `key=value` (`-` for null), an offset to commit `topic:number@offset/text`.

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    pub words: Vec<String>,
    pub expected: String,
}

/// A script.
#[derive(Clone, Debug)]
pub struct Script {
    pub lines: Vec<Line>,
}

impl Script {
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let parse = |line: &str| {
            let (call, expected) = line.split_once("=>").unwrap_or((line, "ok"));
            let words = call.split_whitespace().map(str::to_owned).collect();
            Line { text: line.to_owned(), words, expected: expected.trim().to_owned() }
        };
        Self { lines: lines.map(parse).collect() }
    }
}

/// `key=value`, `-` for null.
pub fn record(word: &str) -> (Option<&str>, Option<&str>) {
    let (key, value) = word.split_once('=').expect("a record is KEY=VALUE");
    let of = |text| (text != "-").then_some(text);
    (of(key), of(value))
}

/// `topic:number`.
pub fn partition(word: &str) -> (&str, i32) {
    let (topic, number) = word.rsplit_once(':').expect("a partition is TOPIC:NUMBER");
    (topic, number.parse().expect("a partition's number"))
}

/// `topic:number@offset/text`.
pub fn offset(word: &str) -> ((&str, i32), i64, &str) {
    let (at, rest) = word.split_once('@').expect("an offset is PARTITION@OFFSET/TEXT");
    let (number, text) = rest.split_once('/').unwrap_or((rest, ""));
    (partition(at), number.parse().expect("an offset"), text)
}

#[test]
fn lines_are_read() {
    let script = Script::parse("\n  topic in 1\n see in:0 => 0:a | 1\n");
    assert_eq!(script.lines[0].words, ["topic", "in", "1"]);
    assert_eq!(script.lines[0].expected, "ok");
    assert_eq!(script.lines[1].expected, "0:a | 1");
    assert_eq!(record("-=1"), (None, Some("1")));
    assert_eq!(offset("in:0@7/a"), (("in", 0), 7, "a"));
}
