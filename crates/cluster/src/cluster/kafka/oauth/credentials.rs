//! What librdkafka's properties say about getting tokens, read as librdkafka reads them: of several names of a property
//! the last one counts, an empty value is none.
//!
//! **Failure**: what is missing, and what asks for another way to get tokens, is refused by the property's name. No
//! message holds a value.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use http::Uri;

use super::super::wire::login::check_extension;
use crate::cluster::{Error, ErrorKind};

const METHOD: &str = "sasl.oauthbearer.method";
const CLIENT_ID: &str = "sasl.oauthbearer.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.secret";
const SCOPE: &str = "sasl.oauthbearer.scope";
const EXTENSIONS: &str = "sasl.oauthbearer.extensions";
const URL: &str = "sasl.oauthbearer.token.endpoint.url";
const GRANT: &str = "sasl.oauthbearer.grant.type";
const METADATA: &str = "sasl.oauthbearer.metadata.authentication.type";
const UNSECURED: &str = "enable.sasl.oauthbearer.unsecure.jwt";
const CA_LOCATION: &str = "https.ca.location";
const CA_PEM: &str = "https.ca.pem";
/// What a token is asked for by with another type of grant.
const ASSERTION: &str = "sasl.oauthbearer.assertion.";

/// Other names of the same properties.
const ALIASES: [(&str, &str); 2] = [
    (CLIENT_ID, "sasl.oauthbearer.client.credentials.client.id"),
    (CLIENT_SECRET, "sasl.oauthbearer.client.credentials.client.secret"),
];

/// Whether a property is about asking for tokens, which is done here and not by librdkafka.
pub fn is_own(property: &str) -> bool {
    let is_assertion = property.starts_with(ASSERTION);
    let own = [METHOD, CLIENT_ID, CLIENT_SECRET, SCOPE, EXTENSIONS, URL, GRANT, METADATA, CA_LOCATION, CA_PEM];
    is_assertion || own.contains(&property) || ALIASES.iter().any(|(_, alias)| *alias == property)
}

/// How messages name the purpose of tokens and the settings to correct.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// The purpose of a token, to follow the word "token".
    pub purpose: &'static str,
    /// The settings that may be wrong if the endpoint refuses a token.
    pub all: &'static str,
    /// The setting with the endpoint's address.
    pub url: &'static str,
    /// The setting with the authorities that the endpoint's certificate is from.
    pub authorities: &'static str,
    /// Whether a token may be any text if the endpoint says how long it is valid. Brokers check tokens themselves, so
    /// theirs have to be JWTs.
    pub are_opaque: bool,
}

impl Names {
    /// The names of Kafka's properties.
    pub const OF_KAFKA: Self = Self {
        purpose: "to log in to Kafka with",
        all: "sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret, sasl.oauthbearer.scope or \
              sasl.oauthbearer.token.endpoint.url",
        url: URL,
        authorities: "https.ca.location or https.ca.pem",
        are_opaque: false,
    };

    /// The setting with the authorities, for this TLS property of Kafka.
    pub fn authority(&self, property: &str) -> String {
        match self.are_opaque {
            true => self.authorities.to_owned(),
            false => format!("the kafka property {}", property.replacen("ssl.", "https.", 1)),
        }
    }
}

/// How tokens are asked for.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The client.
    pub client_id: String,
    /// Its password.
    pub client_secret: String,
    /// What the token is to be good for, if that is said.
    pub scope: Option<String>,
    /// What is said to brokers beside the token.
    pub extensions: Vec<(String, String)>,
    /// Where tokens are asked for: `http` or `https`, and a host.
    pub url: Uri,
    /// A file or a folder of authorities' certificates, or `probe`.
    pub ca_location: Option<String>,
    /// Authorities' certificates.
    pub ca_pem: Option<String>,
    /// How messages name these settings.
    pub names: &'static Names,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Whether anybody on the way to the endpoint can read them.
    pub fn are_sent_in_clear(&self) -> bool {
        let host = self.url.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_here = host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        self.url.scheme_str() == Some("http") && !is_here
    }

    /// Those of a client's properties; `None` if it logs in without tokens, or librdkafka makes them itself.
    ///
    /// # Errors
    /// The property that is missing, wrong or not known here.
    pub fn of(properties: &BTreeMap<String, String>) -> Result<Option<Self>, Error> {
        let given = Given(properties);
        let is_login =
            given.last(&["security.protocol"]).is_some_and(|text| text.to_ascii_lowercase().starts_with("sasl"));
        let mechanism = given.last(&["sasl.mechanism", "sasl.mechanisms"]);
        if !is_login || !mechanism.is_some_and(|mechanism| mechanism.eq_ignore_ascii_case("OAUTHBEARER")) {
            return Ok(None);
        }
        match given.text(METHOD).unwrap_or("default") {
            method if method.eq_ignore_ascii_case("oidc") => given.credentials().map(Some),
            method if method.eq_ignore_ascii_case("default") => given.nothing().map(|()| None),
            _ => Err(refused(METHOD, "is neither default nor oidc")),
        }
    }
}

/// The properties as they were set.
struct Given<'a>(&'a BTreeMap<String, String>);

impl<'a> Given<'a> {
    fn last(&self, names: &[&str]) -> Option<&'a str> {
        // In this order librdkafka is given them.
        let set = self.0.iter().rfind(|(name, _)| names.contains(&name.as_str()));
        // What a text begins with librdkafka removes.
        set.map(|(_, text)| text.trim_ascii_start()).filter(|text| !text.is_empty())
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        let alias = ALIASES.iter().find(|(own, _)| *own == name).map_or(name, |(_, alias)| *alias);
        self.last(&[name, alias])
    }

    fn needed(&self, name: &'static str) -> Result<&'a str, Error> {
        self.text(name).ok_or_else(|| refused(name, "is missing: sasl.oauthbearer.method oidc needs it"))
    }

    /// The tokens are librdkafka's own: then these properties would be for nothing.
    fn nothing(&self) -> Result<(), Error> {
        let is_set = |(name, text): &(&String, &String)| *name != METHOD && is_own(name) && !text.is_empty();
        match self.0.iter().find(is_set) {
            Some((name, _)) => Err(refused(name, "counts only with sasl.oauthbearer.method: oidc; set that, too")),
            None => Ok(()),
        }
    }

    fn credentials(&self) -> Result<Credentials, Error> {
        self.check_way()?;
        let owned = |text: &str| text.to_owned();
        let url = url_of(self.needed(URL)?);
        let (ca_location, ca_pem) = (self.text(CA_LOCATION).map(owned), self.text(CA_PEM).map(owned));
        if ca_location.is_some() && ca_pem.is_some() {
            return Err(refused(CA_PEM, "cannot be set together with https.ca.location"));
        }
        Ok(Credentials {
            client_id: owned(self.needed(CLIENT_ID)?),
            client_secret: owned(self.needed(CLIENT_SECRET)?),
            scope: self.text(SCOPE).map(owned),
            extensions: extensions(self.text(EXTENSIONS).unwrap_or_default())?,
            url: url.ok_or_else(|| refused(URL, "is no address such as https://host/path, without a user"))?,
            ca_location,
            ca_pem,
            names: &Names::OF_KAFKA,
        })
    }

    /// Whether tokens are asked for by client credentials, the only way that is known here.
    fn check_way(&self) -> Result<(), Error> {
        let is = |name, word: &str| self.text(name).is_none_or(|text| text.eq_ignore_ascii_case(word));
        if !is(GRANT, "client_credentials") {
            return Err(refused(GRANT, "has to be client_credentials: ratchet asks for tokens in no other way"));
        }
        if !is(METADATA, "none") {
            return Err(refused(METADATA, "has to be none: ratchet asks for tokens by client credentials only"));
        }
        if let Some((name, _)) = self.0.iter().find(|(name, text)| name.starts_with(ASSERTION) && !text.is_empty()) {
            return Err(refused(name, "is for assertions: ratchet asks for tokens by client credentials only"));
        }
        match self.text(UNSECURED) {
            Some(flag) if !["false", "f", "0"].iter().any(|word| flag.eq_ignore_ascii_case(word)) => {
                Err(refused(UNSECURED, "cannot be set together with sasl.oauthbearer.method: oidc"))
            }
            _ => Ok(()),
        }
    }
}

/// The HTTP address in a text, if it has a host and no user.
pub fn url_of(text: &str) -> Option<Uri> {
    text.parse::<Uri>().ok().filter(|url| {
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        is_http && url.authority().is_some_and(|at| !at.host().is_empty() && !at.as_str().contains('@'))
    })
}

/// `key=value`, separated by commas; a backslash takes its meaning from a character.
fn extensions(text: &str) -> Result<Vec<(String, String)>, Error> {
    let mut parts = Vec::new();
    for part in split(text) {
        let (key, value) =
            part.split_once('=').ok_or_else(|| refused(EXTENSIONS, "is no list of key=value, separated by commas"))?;
        check_extension(key, value).map_err(|why| refused(EXTENSIONS, &format!("cannot be used: {why}")))?;
        parts.push((key.to_owned(), value.to_owned()));
    }
    Ok(parts)
}

/// Splits a list as librdkafka's `rd_string_split` does.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut part, mut chars) = (Vec::new(), String::new(), text.chars());
    let mut end = |part: &mut String| {
        let whole = std::mem::take(part);
        parts.extend(Some(whole.trim_end()).filter(|whole| !whole.is_empty()).map(str::to_owned));
    };
    while let Some(char) = chars.next() {
        match char {
            ',' => end(&mut part),
            '\\' => part.extend(chars.next().map(|char| match char {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                '0' => '\0',
                other => other,
            })),
            char if char.is_ascii_whitespace() && part.is_empty() => {}
            char => part.push(char),
        }
    }
    end(&mut part);
    parts
}

fn refused(property: &str, why: &str) -> Error {
    Error::new(ErrorKind::Refused, format!("the kafka property {property} {why}"))
}
