//! The address of a request: which parts of its template are the host, the path and the query.
//!
//! An address is `http://` or `https://`, a host with or without a port, a path, a query. User, password and fragment have
//! no place in it: a secret goes into a header, and a fragment is never sent. What is fixed has to be written as it is
//! sent: visible characters of ASCII, with `%20` for a blank.
//!
//! A part of the record can stand for a part of path or query. It can stand for a part of the host too if the topology
//! lists the hosts: what comes of host and port has to be among them ([`Address::is_listed`]).
//!
//! **Failure**: a [`Problem`] in words that quote nothing: an address may be secret.

use std::net::Ipv6Addr;

use crate::dedup::Path;
use crate::topology::sink::http::template::{Piece, Template};
use crate::yaml::Text;

/// Maximum length of a request's address, in bytes: less than HTTP's crates take, more than servers do.
pub const ADDRESS_BYTES_MAX: usize = 32 * 1024;

/// Where a part of an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// Scheme, host and port, up to the first slash after them.
    Host,
    /// The path, with its first slash.
    Path,
    /// The query, with its question mark.
    Query,
}

/// An address whose parts are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    parts: Vec<(Region, Part)>,
}

/// A part of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The same for each record.
    Fixed(Text),
    /// What this path leads to in the record.
    Record(Path),
}

/// Why a template is not the address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It begins with something else.
    #[error("it begins with neither `https://` nor `http://`")]
    Scheme,
    /// There is no host.
    #[error("there is no host in it")]
    NoHost,
    /// What cannot be a host with or without a port.
    #[error("its host is not a name or an address, with or without a port")]
    Host,
    /// `user:password@`.
    #[error("there is a user in it")]
    User,
    /// `#`.
    #[error("there is a `#` in it, and what follows that is never sent")]
    Fragment,
    /// A character that has to be written otherwise.
    #[error("there is a character in it that has to be written as `%` and two hexadecimal digits")]
    Character,
    /// A segment `.` or `..`.
    #[error("there is a `.` or `..` for a folder in it, which is not sent as it stands")]
    Dots,
}

impl Address {
    /// Tells an address's parts apart.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(template: &Template) -> Result<Self, Problem> {
        let Some(Piece::Fixed { text: first, .. }) = template.pieces().first() else { return Err(Problem::Scheme) };
        let scheme = scheme_bytes(first.reveal()).ok_or(Problem::Scheme)?;
        let mut parts = Vec::new();
        let mut region = Region::Host;
        for (number, piece) in template.pieces().iter().enumerate() {
            let text = match piece {
                Piece::Fixed { text, .. } => text,
                Piece::Record(path) => {
                    parts.push((region, Part::Record(path.clone())));
                    continue;
                }
            };
            let mut rest = text.reveal();
            // The slashes of `https://` end nothing.
            let mut from = if number == 0 { scheme } else { 0 };
            while let Some((at, next)) = region_end(region, rest, from) {
                add(&mut parts, region, &rest[..at], text);
                (region, rest, from) = (next, &rest[at..], 1);
            }
            add(&mut parts, region, rest, text);
        }
        let address = Self { parts };
        address.check(scheme).map(|()| address)
    }

    /// Its parts, in order, and where each is.
    pub fn parts(&self) -> &[(Region, Part)] {
        &self.parts
    }

    /// Whether a part of the host comes from the record.
    pub fn takes_host_from_record(&self) -> bool {
        self.parts.iter().any(|(region, part)| *region == Region::Host && matches!(part, Part::Record(_)))
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> String {
        let origin = self.fixed(Region::Host, "");
        origin.split_once("://").map_or(origin.as_str(), |(scheme, _)| scheme).to_ascii_lowercase()
    }

    /// Host and port, unless a part of them comes from the record.
    pub fn host(&self) -> Option<String> {
        let origin = (!self.takes_host_from_record()).then(|| self.fixed(Region::Host, ""))?;
        origin.split_once("://").map(|(_, host)| host.to_owned())
    }

    /// Whether host and port, behind the scheme, are among those that are listed; letters' case does not matter.
    pub fn is_listed(origin: &str, hosts: &[String]) -> bool {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        hosts.iter().any(|listed| listed.eq_ignore_ascii_case(host))
    }

    /// Whether this is a host, with or without a port.
    pub fn is_host(text: &str) -> bool {
        let (is_name, after) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((address, after))) => (address.parse::<Ipv6Addr>().is_ok(), after),
            Some(None) => return false,
            None => {
                let (name, after) = text.split_at(text.find(':').unwrap_or(text.len()));
                let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                (!name.is_empty() && name.chars().all(is_in_name), after)
            }
        };
        let is_port = |port: &str| {
            port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        is_name && (after.is_empty() || after.strip_prefix(':').is_some_and(is_port))
    }

    /// The fixed texts of a region, each part of the record as `part`.
    fn fixed(&self, of: Region, part: &str) -> String {
        let in_region = self.parts.iter().filter(|(region, _)| *region == of);
        in_region.map(|(_, known)| if let Part::Fixed(text) = known { text.reveal() } else { part }).collect()
    }

    fn check(&self, scheme: usize) -> Result<(), Problem> {
        // What stands for a part of the record is a name, a segment and a value.
        let text: String = [Region::Host, Region::Path, Region::Query].map(|region| self.fixed(region, "1")).concat();
        if text.contains('#') {
            return Err(Problem::Fragment);
        }
        let host = self.fixed(Region::Host, "1");
        let host = &host[scheme..];
        match host {
            "" => return Err(Problem::NoHost),
            _ if host.contains('@') => return Err(Problem::User),
            _ if !Self::is_host(host) => return Err(Problem::Host),
            _ => {}
        }
        if !text.chars().all(is_sent_as_it_is) || has_broken_escape(&text) {
            return Err(Problem::Character);
        }
        if has_dots(self.fixed(Region::Path, "x").as_bytes()) { Err(Problem::Dots) } else { Ok(()) }
    }
}

/// Whether a segment of a path means a folder, its own or the one above, however it is written: it would be resolved
/// before it is sent.
pub fn has_dots(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| {
        let plain = String::from_utf8_lossy(segment).to_ascii_lowercase().replace("%2e", ".");
        matches!(plain.as_str(), "." | "..")
    })
}

/// How long the scheme is, with its colon and slashes.
fn scheme_bytes(text: &str) -> Option<usize> {
    let begins = |scheme: &&str| text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    ["https://", "http://"].iter().find(|scheme| begins(scheme)).map(|scheme| scheme.len())
}

/// Where a region ends in a text that begins in it, looked for from a byte on, and what begins there.
fn region_end(region: Region, text: &str, from: usize) -> Option<(usize, Region)> {
    let found = |ends: &[char]| text.get(from..).and_then(|rest| rest.find(ends)).map(|at| from + at);
    let at = match region {
        // A backslash is one of the host's characters here, and refused as such.
        Region::Host => found(&['/', '?'])?,
        Region::Path => found(&['?'])?,
        Region::Query => return None,
    };
    Some((at, if text[at..].starts_with('?') { Region::Query } else { Region::Path }))
}

fn add(parts: &mut Vec<(Region, Part)>, region: Region, text: &str, of: &Text) {
    if !text.is_empty() {
        let text = if of.is_secret() { Text::secret(text) } else { Text::plain(text) };
        parts.push((region, Part::Fixed(text)));
    }
}

/// Whether a character of path or query is sent as it stands there (RFC 3986).
fn is_sent_as_it_is(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')
}

/// Whether there is a `%` without two hexadecimal digits after it.
fn has_broken_escape(text: &str) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit();
    text.split('%').skip(1).any(|after| !after.as_bytes().get(..2).is_some_and(|two| two.iter().all(is_hex)))
}

#[cfg(test)]
mod tests {
    //! Goal: nothing from a record can become another part of the address than the topology says.

    use super::*;
    use crate::yaml_testing::Fake;

    fn read(text: &str) -> Result<Vec<(Region, String)>, Problem> {
        let environment = Fake::default().with_variable("URL", "https://api.example.com:8443/v1?a=1");
        let address = Address::read(&Template::parse(text, &environment).unwrap())?;
        let shown = |(region, part): &(Region, Part)| match part {
            Part::Fixed(text) => (*region, text.reveal().to_owned()),
            Part::Record(path) => (*region, format!("<{path}>")),
        };
        Ok(address.parts().iter().map(shown).collect())
    }

    #[test]
    fn parts_are_told_apart() {
        use Region::{Host, Path, Query};
        let cases: &[(&str, &[(Region, &str)])] = &[
            ("http://a", &[(Host, "http://a")]),
            ("HTTPS://a:8080/", &[(Host, "HTTPS://a:8080"), (Path, "/")]),
            ("http://[::1]:80/x", &[(Host, "http://[::1]:80"), (Path, "/x")]),
            ("http://a?b=/c?", &[(Host, "http://a"), (Query, "?b=/c?")]),
            (
                "http://a/b/{value.c}/d?e={value.f}&g={key}",
                &[
                    (Host, "http://a"),
                    (Path, "/b/"),
                    (Path, "<value.c>"),
                    (Path, "/d"),
                    (Query, "?e="),
                    (Query, "<value.f>"),
                    (Query, "&g="),
                    (Query, "<key>"),
                ],
            ),
            (
                "http://{value.h}.a/{key}",
                &[(Host, "http://"), (Host, "<value.h>"), (Host, ".a"), (Path, "/"), (Path, "<key>")],
            ),
            (
                "${env:URL}&b={key}",
                &[(Host, "https://api.example.com:8443"), (Path, "/v1"), (Query, "?a=1&b="), (Query, "<key>")],
            ),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|(region, text)| (*region, (*text).to_owned())).collect();
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, problem) in [
            ("", Problem::Scheme),
            ("a/b", Problem::Scheme),
            ("ftp://a", Problem::Scheme),
            ("{value.url}", Problem::Scheme),
            ("http{key}://a", Problem::Scheme),
            ("http://", Problem::NoHost),
            ("http:///a", Problem::NoHost),
            ("http://?a", Problem::NoHost),
            ("http://a b/", Problem::Host),
            ("http://a:x/", Problem::Host),
            ("http://a:/", Problem::Host),
            ("http://a:0/", Problem::Host),
            ("http://a:70000/", Problem::Host),
            ("http://a:+80/", Problem::Host),
            ("http://a:1:2/", Problem::Host),
            ("http://[::1/", Problem::Host),
            ("http://[x]/", Problem::Host),
            ("http://[::1]8/", Problem::Host),
            ("http://a\\b/", Problem::Host),
            ("http://ann:pw@a/", Problem::User),
            ("http://{value.u}@a/", Problem::User),
            ("http://a/#b", Problem::Fragment),
            ("http://a#b", Problem::Fragment),
            ("http://a/ b", Problem::Character),
            ("http://a/ä", Problem::Character),
            ("http://a/\\b", Problem::Character),
            ("http://a/\nb", Problem::Character),
            ("http://a/%2", Problem::Character),
            ("http://a/%zz", Problem::Character),
            ("http://a/../b", Problem::Dots),
            ("http://a/%2E%2e/b", Problem::Dots),
            ("http://a/.", Problem::Dots),
        ] {
            assert_eq!(read(text), Err(problem), "{text}");
        }
        for text in ["http://a/@b:c", "http://a/..b/.c?x=../y", "http://a/{key}..", "http://a/%20"] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn host_from_a_record_has_to_be_listed_whole() {
        let hosts = ["a.example.com".to_owned(), "b:8080".to_owned()];
        for (origin, expected) in [
            ("https://a.example.com", true),
            ("https://A.Example.COM", true),
            ("http://b:8080", true),
            ("http://b", false),
            ("https://a.example.com:444", false),
            ("https://a.example.com.evil.example", false),
            ("https://evil@a.example.com", false),
            ("https://", false),
        ] {
            assert_eq!(Address::is_listed(origin, &hosts), expected, "{origin}");
        }
    }
}
