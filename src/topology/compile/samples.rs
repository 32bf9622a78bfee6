//! Sample names that a pattern matches, for trying out what such topics would lead to.

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::topology::names;

/// Maximum number of samples for a pattern, and for each of its pieces.
const SAMPLES_MAX: usize = 64;
/// What a sample has in place of any character: the first that fits.
const PREFERRED: &str = "xa0A-_.";

/// Some of the topic names that `pattern` matches.
pub fn of(pattern: &str) -> Vec<String> {
    let Ok(hir) = regex_syntax::parse(pattern) else { return Vec::new() };
    let found = expand(&hir);
    // An unanchored pattern allows anything before and after it.
    let around =
        found.iter().flat_map(|name| [name.clone(), format!("x{name}"), format!("{name}x"), format!("x{name}x")]);
    around.filter(|name| names::topic_problem(name).is_none()).collect()
}

fn expand(hir: &Hir) -> Vec<String> {
    let mut samples = match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => vec![String::new()],
        HirKind::Literal(literal) => vec![String::from_utf8_lossy(&literal.0).into_owned()],
        HirKind::Class(class) => one_of(class).into_iter().map(String::from).collect(),
        HirKind::Repetition(repetition) => {
            let min = usize::try_from(repetition.min).unwrap_or(usize::MAX);
            // A piece repeated too often would not fit into a topic's name.
            let once = expand(&repetition.sub).into_iter();
            let fits = |sample: &String| sample.len().saturating_mul(min) <= names::TOPIC_CHARS_MAX;
            let repeat = |sample: String| if sample.is_empty() { sample } else { sample.repeat(min.max(1)) };
            let mut samples: Vec<String> = once.filter(fits).map(repeat).collect();
            if min == 0 {
                samples.push(String::new());
            }
            samples
        }
        HirKind::Capture(capture) => expand(&capture.sub),
        HirKind::Concat(pieces) => pieces.iter().fold(vec![String::new()], |samples, piece| {
            let next = expand(piece);
            let joined = samples.iter().flat_map(|sample| next.iter().map(move |piece| format!("{sample}{piece}")));
            joined.filter(|sample| sample.len() <= names::TOPIC_CHARS_MAX).take(SAMPLES_MAX).collect()
        }),
        HirKind::Alternation(alternatives) => alternatives.iter().flat_map(expand).collect(),
    };
    samples.truncate(SAMPLES_MAX);
    samples
}

/// A character in a class that is allowed in a topic's name.
fn one_of(class: &Class) -> Option<char> {
    let holds = |c: char| match class {
        Class::Unicode(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&c)),
        Class::Bytes(class) => class.iter().any(|range| (range.start()..=range.end()).contains(&(c as u8))),
    };
    let letters = ('a'..='z').chain('A'..='Z').chain('0'..='9');
    PREFERRED.chars().chain(letters).find(|c| holds(*c))
}

#[cfg(test)]
mod tests {
    //! Goal: every sample of a pattern is a valid topic name, and for the usual patterns at least one matches.

    use super::*;
    use crate::topology::Pattern;

    #[test]
    fn usual_patterns_have_matching_samples() {
        for pattern in [
            "shop",
            r"^shop\..+$",
            r"^(shop|bank)\.[a-z0-9_-]{2,}$",
            r"^dbserver1\.inventory\.(?:orders|customers)$",
            r"^\w+\.public\.\w+(\.v\d+)?$",
            r"(?i)^shop",
            r"^[^_].*",
            "",
        ] {
            let names = of(pattern);
            let parsed = Pattern::parse(pattern).unwrap();
            assert!(names.iter().any(|name| parsed.is_match(name)), "{pattern}: {names:?}");
            assert!(names.iter().all(|name| names::topic_problem(name).is_none()), "{pattern}: {names:?}");
        }
    }

    #[test]
    fn excessive_patterns_are_rejected_or_cheap() {
        assert!(Pattern::parse(&"(a{1000}){1000}".repeat(20)).is_err());
        assert!(of(&"(a|b|c|d)".repeat(40)).len() <= 4 * SAMPLES_MAX);
        assert!(of("(((a{200}){200}){200}){200}").len() <= 4 * SAMPLES_MAX);
    }
}
