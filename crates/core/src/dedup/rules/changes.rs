//! Which rules differ between two canonical texts, for people.

use super::Rules;

impl Rules {
    /// The rules that differ from the former rules' text, each with its old and its new version. Empty if the texts are the
    /// same.
    pub fn changes_since(&self, former: &str) -> Vec<String> {
        let now = self.text();
        let (former, now) = (lines(former), lines(&now));
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in former.iter().chain(&now) {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let change = |name: &str| {
            let [before, after] = [&former, &now].map(|lines| values(lines, name));
            (before != after).then(|| format!("`{}` was {}, and is {}", shown(name), said(&before), said(&after)))
        };
        names.into_iter().filter_map(change).collect()
    }
}

/// The lines of a text, each with its name.
fn lines(text: &str) -> Vec<(&str, &str)> {
    text.lines().filter_map(|line| line.split_once(": ")).collect()
}

fn values<'a>(lines: &[(&'a str, &'a str)], name: &str) -> Vec<&'a str> {
    lines.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value).collect()
}

/// A rule as a topology names it.
fn shown(name: &str) -> String {
    match name {
        "key_format" | "value_format" => format!("input.{name}"),
        "kinds" => "kinds.of".to_owned(),
        "delete" | "read" | "truncate" | "message" | "table" => format!("kinds.{name}"),
        _ => name.to_owned(),
    }
}

fn said(values: &[&str]) -> String {
    match values {
        [] | ["none"] => "nothing".to_owned(),
        values => values.join(", then "),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: every rule that differs is named with both versions, and none that does not.

    use super::*;
    use crate::dedup::{Format, Identity, Path, Version};

    fn rules(identity: &[&str], version: Option<&str>) -> Rules {
        let path = |text: &str| Path::parse(text).unwrap();
        Rules::new(
            Identity::of_paths(identity.iter().map(|text| path(text))),
            version.map(|of| Version::integer(path(of))),
        )
    }

    #[test]
    fn changed_rules_are_named_with_both_versions() {
        let former = rules(&["value.id"], Some("value.v")).text();
        let mut now = rules(&["value.id", "value.op"], None);
        now.value_format = Format::ConnectJson;
        let changes = now.changes_since(&former);
        assert_eq!(
            changes,
            [
                "`input.value_format` was json, and is connect_json",
                "`identity` was value.id, and is value.id, then value.op",
                "`version` was integer [value.v], and is nothing",
            ]
        );
    }

    #[test]
    fn same_rules_have_no_changes() {
        let rules = rules(&["value.id"], Some("value.v"));
        assert!(rules.changes_since(&rules.text()).is_empty());
    }

    #[test]
    fn text_of_another_release_is_compared_line_by_line() {
        let now = rules(&["value.id"], None);
        let former = now.text() + "contents: value\n";
        assert_eq!(now.changes_since(&former), ["`contents` was value, and is nothing"]);
    }
}
