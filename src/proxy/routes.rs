//! Path patterns of routes.

/// A pattern of paths. Paths are matched as clients write them: nothing is decoded or normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// If the pattern ends in `*`: what precedes the `*` in the last segment.
    last_start: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Exactly this text.
    Literal(String),
    /// Any segment that is not empty.
    Any,
}

impl Pattern {
    /// Reads a path that begins with `/`. `*` in place of a segment matches any segment that is not empty; at the
    /// end it matches everything that follows.
    pub fn parse(text: &str) -> Option<Self> {
        let below = text.strip_prefix('/')?;
        let is_allowed = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !text.bytes().all(is_allowed) {
            return None;
        }
        let mut segments: Vec<&str> = below.split('/').collect();
        let last = segments.pop_if(|last| last.ends_with('*'));
        let last_start = last.and_then(|last| last.strip_suffix('*'));
        if segments.iter().any(|segment| *segment != "*" && segment.contains('*'))
            || last_start.is_some_and(|start| start.contains('*'))
        {
            return None;
        }
        let segment = |segment: &str| if segment == "*" { Segment::Any } else { Segment::Literal(segment.to_owned()) };
        let segments = segments.into_iter().map(segment).collect();
        Some(Self { text: text.to_owned(), segments, last_start: last_start.map(str::to_owned) })
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the pattern matches this path.
    pub fn fits(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else { return false };
        for segment in &self.segments {
            let Some(path) = left else { return false };
            let (first, rest) = path.split_once('/').map_or((path, None), |(first, rest)| (first, Some(rest)));
            let fits = match segment {
                Segment::Literal(text) => text == first,
                Segment::Any => !first.is_empty(),
            };
            if !fits {
                return false;
            }
            left = rest;
        }
        match &self.last_start {
            None => left.is_none(),
            Some(start) => left.is_some_and(|left| left.starts_with(start.as_str())),
        }
    }

    /// Whether the pattern matches every path that `other` matches. For two different patterns it is `false`, even if
    /// every path does match, if this one does not end in `*`, or `other` has a `*` before its last segment.
    pub fn covers(&self, other: &Self) -> bool {
        self == other
            || self.last_start.is_some() && !other.text.contains("*/") && {
                let shortest = other.text.strip_suffix('*').unwrap_or(&other.text);
                self.fits(shortest)
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().fits(path)
    }

    #[test]
    fn star_matches_a_segment_or_everything_that_follows() {
        assert!(fits("/", "/"));
        assert!(fits("/charges", "/charges"));
        assert!(!fits("/charges", "/charges/"), "a trailing slash counts");
        assert!(!fits("/charges", "/charges/1"));
        assert!(fits("/accounts/*/charges", "/accounts/7/charges"));
        assert!(!fits("/accounts/*/charges", "/accounts//charges"), "a segment is not empty");
        assert!(!fits("/accounts/*/charges", "/accounts/7/8/charges"));
        for path in ["/charges/", "/charges/1", "/charges/1/refunds"] {
            assert!(fits("/charges/*", path), "{path}");
        }
        assert!(!fits("/charges/*", "/charges"));
        assert!(fits("/charges*", "/charges") && fits("/charges*", "/charges-old/1"));
        assert!(fits("/*", "/") && fits("/*", "/a/b"));
        assert!(fits("/a/*/b/*", "/a/1/b/2/3") && !fits("/a/*/b/*", "/a/1/c/2"));
        assert!(!fits("/*", "*"), "a request for the whole server has no path");
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
