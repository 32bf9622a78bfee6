//! Lists of calls and of HTTP requests: the options, a table for people, and lines for scripts.

use std::io::{self, Write};

use super::Failure;
use super::stderr::say;

/// Options of a list.
#[derive(Debug, clap::Args)]
pub struct Listing {
    /// Only those in doubt: they may have been carried out, and only a person can find out
    #[arg(long)]
    pub in_doubt: bool,

    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
}

impl Listing {
    /// Prints a table, or a line for each. If there is nothing to print, the reason goes to standard error: `nothing`, unless
    /// only what is in doubt was asked for.
    pub fn print<T, const N: usize>(
        &self,
        all: &[T],
        nothing: &str,
        line: impl Fn(&T) -> String,
        (heads, cells): ([&str; N], impl Fn(&T) -> [String; N]),
    ) -> Result<(), Failure> {
        let text = match (self.json, all.is_empty()) {
            (true, false) => all.iter().map(|one| line(one) + "\n").collect(),
            (_, true) => {
                say(format_args!("{}\n", if self.in_doubt { "nothing is in doubt" } else { nothing }));
                String::new()
            }
            (false, false) => table(heads, all.iter().map(cells)),
        };
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
    }
}

/// A cell: `-` if there is nothing to show.
pub fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// A time, in UTC; `None` if it is beyond what can be written.
pub fn time(ms: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(ms).ok().map(|time| time.to_string())
}

/// Rows below their heads; all columns but the last are as wide as they have to be.
pub fn table<const N: usize>(heads: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = [heads.map(str::to_owned)].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
