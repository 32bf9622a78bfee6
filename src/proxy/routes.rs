//! Path patterns of routes.

/// A pattern of paths. Paths are matched as clients write them: nothing is decoded or normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// If the pattern ends in `*`: what precedes the `*` in the last segment.
    last_segment_prefix: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exactly this text.
    Literal(String),
    /// Any segment that is not empty.
    Any,
}

impl Pattern {
    /// Parses a pattern. A `*` that is a whole segment matches any segment that is not empty; a `*` at the end of the
    /// pattern matches the rest of the path, which may be empty.
    ///
    /// `None` if the pattern does not begin with `/`, has a `*` elsewhere, or has a character that cannot occur in a
    /// path: `?`, `#`, a blank, or one that is not printable ASCII.
    pub fn parse(text: &str) -> Option<Self> {
        let relative = text.strip_prefix('/')?;
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !text.bytes().all(is_allowed) {
            return None;
        }
        let mut segments: Vec<&str> = relative.split('/').collect();
        let last = segments.pop_if(|last| last.ends_with('*'));
        let last_segment_prefix = last.and_then(|last| last.strip_suffix('*'));
        if segments.iter().any(|segment| *segment != "*" && segment.contains('*'))
            || last_segment_prefix.is_some_and(|prefix| prefix.contains('*'))
        {
            return None;
        }
        let segment = |segment: &str| if segment == "*" { Segment::Any } else { Segment::Literal(segment.to_owned()) };
        let segments = segments.into_iter().map(segment).collect();
        let last_segment_prefix = last_segment_prefix.map(str::to_owned);
        Some(Self { text: text.to_owned(), segments, last_segment_prefix })
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches this path.
    pub fn matches(&self, path: &str) -> bool {
        let Some(mut remaining) = path.strip_prefix('/').map(Some) else { return false };
        for segment in &self.segments {
            let Some(segments_left) = remaining else { return false };
            let (first, rest) = match segments_left.split_once('/') {
                Some((first, rest)) => (first, Some(rest)),
                None => (segments_left, None),
            };
            let matches = match segment {
                Segment::Literal(text) => text == first,
                Segment::Any => !first.is_empty(),
            };
            if !matches {
                return false;
            }
            remaining = rest;
        }
        match &self.last_segment_prefix {
            None => remaining.is_none(),
            Some(prefix) => remaining.is_some_and(|path| path.starts_with(prefix.as_str())),
        }
    }

    /// Whether the pattern certainly matches every path that `other` matches: the two are the same; or this one ends in
    /// `*` and matches the shortest path that `other` matches, and `other` has no `*` before its last segment.
    pub fn covers(&self, other: &Self) -> bool {
        self == other
            || self.last_segment_prefix.is_some() && !other.text.contains("*/") && {
                let shortest = other.text.strip_suffix('*').unwrap_or(&other.text);
                self.matches(shortest)
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn star_matches_a_segment_or_everything_that_follows() {
        assert!(matches("/", "/"));
        assert!(matches("/charges", "/charges"));
        assert!(!matches("/charges", "/charges/"), "a trailing slash counts");
        assert!(!matches("/charges", "/charges/1"));
        assert!(matches("/accounts/*/charges", "/accounts/7/charges"));
        assert!(!matches("/accounts/*/charges", "/accounts//charges"), "a segment is not empty");
        assert!(!matches("/accounts/*/charges", "/accounts/7/8/charges"));
        for path in ["/charges/", "/charges/1", "/charges/1/refunds"] {
            assert!(matches("/charges/*", path), "{path}");
        }
        assert!(!matches("/charges/*", "/charges"));
        assert!(matches("/charges*", "/charges") && matches("/charges*", "/charges-old/1"));
        assert!(matches("/*", "/") && matches("/*", "/a/b"));
        assert!(matches("/a/*/b/*", "/a/1/b/2/3") && !matches("/a/*/b/*", "/a/1/c/2"));
        assert!(!matches("/*", "*"), "a request for the whole server has no path");
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for text in ["charges", "", "/a*b", "/a*/b", "/**", "/a b", "/a?b=1", "/ä"] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn wider_pattern_covers_a_narrower_one() {
        let covers = |one: &str, other: &str| Pattern::parse(one).unwrap().covers(&Pattern::parse(other).unwrap());
        assert!(covers("/*", "/charges") && covers("/charges/*", "/charges/*") && covers("/charges*", "/charges/*"));
        assert!(!covers("/charges", "/charges/*") && !covers("/charges/*", "/charges") && !covers("/a/*", "/*"));
        assert!(covers("/a/*/c", "/a/*/c"));
    }
}
