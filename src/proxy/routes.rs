//! The patterns of routes' paths.

/// A pattern of paths. Paths are matched as clients write them: nothing is decoded or normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    segments: Vec<Segment>,
    /// The start of the last segment, if any rest may follow it.
    rest: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Is(String),
    /// Any segment that is not empty.
    Any,
}

impl Pattern {
    /// Reads a path that begins with `/`. `*` in place of a segment matches any segment; at the end it matches any
    /// rest.
    pub fn parse(text: &str) -> Option<Self> {
        let below = text.strip_prefix('/')?;
        let is_character = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
        if !text.bytes().all(is_character) {
            return None;
        }
        let mut segments: Vec<&str> = below.split('/').collect();
        let rest = segments.pop_if(|last| last.ends_with('*'));
        let rest = rest.and_then(|rest| rest.strip_suffix('*'));
        if segments.iter().any(|segment| *segment != "*" && segment.contains('*'))
            || rest.is_some_and(|rest| rest.contains('*'))
        {
            return None;
        }
        let segment = |segment: &str| if segment == "*" { Segment::Any } else { Segment::Is(segment.to_owned()) };
        let segments = segments.into_iter().map(segment).collect();
        Some(Self { text: text.to_owned(), segments, rest: rest.map(str::to_owned) })
    }

    /// The pattern as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches this path.
    pub fn fits(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else { return false };
        for segment in &self.segments {
            let Some(text) = left else { return false };
            let (first, rest) = text.split_once('/').map_or((text, None), |(first, rest)| (first, Some(rest)));
            let fits = match segment {
                Segment::Is(known) => known == first,
                Segment::Any => !first.is_empty(),
            };
            if !fits {
                return false;
            }
            left = rest;
        }
        match &self.rest {
            None => left.is_none(),
            Some(rest) => left.is_some_and(|left| left.starts_with(rest.as_str())),
        }
    }

    /// Whether it matches every path that another pattern matches, as far as that can be told.
    pub fn covers(&self, other: &Self) -> bool {
        self == other
            || self.rest.is_some() && !other.text.contains("*/") && {
                let least = other.text.strip_suffix('*').unwrap_or(&other.text);
                self.fits(least)
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
    fn star_matches_a_segment_or_any_rest() {
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
