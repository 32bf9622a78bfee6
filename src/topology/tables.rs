//! Tables of keys, as the pages have them, for the tests that compare them.

use std::path::Path;

use crate::yaml::keys::{Key, Mapping, Omitted};

/// A table of keys: its name, its head and its rows.
pub(crate) type Table = (&'static str, &'static str, Vec<String>);

/// The rows of a mapping's keys.
pub(crate) fn rows(mapping: &Mapping) -> Vec<String> {
    mapping.keys.iter().map(|key| row("", key)).collect()
}

/// The row of one key.
pub(crate) fn row(prefix: &str, key: &Key) -> String {
    let default = match key.default {
        Omitted::Refused => "required".to_owned(),
        Omitted::Nothing => "none".to_owned(),
        Omitted::Is(value) => format!("`{value}`"),
        Omitted::Words(words) => words.to_owned(),
    };
    format!("| `{prefix}{}` | {} | {default} |\n", key.name, key.about)
}

/// `page` with this table put between its marks.
fn with_table(page: &str, name: &str, heads: &str, rows: &[String]) -> String {
    let (start, end) = (format!("<!-- keys of {name} -->\n"), "<!-- end of keys -->");
    let (before, rest) = page.split_once(&start).unwrap_or_else(|| panic!("no {start:?} in the reference"));
    let (_, after) = rest.split_once(end).unwrap();
    let line = "|---".repeat(heads.split('|').count());
    let table = format!("| {heads} |\n{line}|\n{}", rows.concat());
    format!("{before}{start}{table}{end}{after}")
}

/// Compares a page's tables with the keys in `source`, or writes them (`make schema`).
#[track_caller]
pub(crate) fn compare_tables(path: &Path, tables: Vec<Table>, source: &str) {
    let page = std::fs::read_to_string(path).unwrap();
    let now = tables.into_iter().fold(page.clone(), |page, (name, heads, rows)| with_table(&page, name, heads, &rows));
    if std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(path, &now).unwrap();
    } else {
        assert!(now == page, "{} has other tables than {source}: run `make schema`", path.display());
    }
}
