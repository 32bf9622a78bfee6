//! Parses a database's url: tokio-postgres does that, except for the TLS parameters that it does not know.
//!
//! No error quotes any part of the url: in a malformed one, any part may belong to the password. For a url that could
//! be parsed, [`Target::description`] has the parts that are not secret.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// PostgreSQL's default port.
const PORT: u16 = 5432;
/// The timeout of connecting to one host, unless the url sets `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The idle time after which the first TCP keepalive probe is sent.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The time between two keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// The number of unanswered keepalive probes after which the connection is lost.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long sent data may remain unacknowledged before the connection is lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(15);

/// What the server's certificate is verified against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateCheck {
    /// Nothing. Whether the connection is encrypted depends on the `sslmode`.
    Nothing,
    /// The certificate authorities.
    Authority,
    /// The certificate authorities, and the host's name.
    Host,
}

/// A database's address, and how to connect to it.
#[derive(Clone)]
pub(super) struct Target {
    pub config: Config,
    pub check: CertificateCheck,
    /// The file with the certificates of the authorities; `None` for the system's.
    pub authorities_file: Option<PathBuf>,
    /// The files with the client's certificate and with its key.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("check", &self.check)
            .field("authorities_file", &self.authorities_file)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a url.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "the url cannot be read: write 'postgres://user:password@host:port/database' with special characters of the \
         password written as %XX, or 'host=… user=… password=… dbname=…'"
    )]
    Syntax,
    #[error("parameter {0} of the url is unknown or has an invalid value")]
    Parameter(usize),
    #[error("the url's sslmode is not one of disable, prefer, require, verify-ca, verify-full")]
    SslMode,
    #[error(
        "the url names an sslrootcert, which sslmode=prefer, the default, ignores: write sslmode=verify-full, or verify-ca if \
         the server's name is not in its certificate"
    )]
    RootUnused,
    #[error("the url names only one of sslcert and sslkey, which belong together")]
    IncompleteCertificate,
    #[error("the url names no host")]
    MissingHost,
}

/// The TLS parameters, which tokio-postgres does not know, or of which it knows only some values.
#[derive(Default)]
struct TlsParameters {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl TlsParameters {
    /// Sets a parameter. Returns `false` if it is not a TLS parameter.
    fn set(&mut self, key: &str, value: &str) -> bool {
        let field = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return false,
        };
        *field = Some(value.to_owned());
        true
    }
}

impl Target {
    /// Parses a url, or a list of `key=value` pairs.
    pub fn read(url: &str) -> Result<Self, Error> {
        let mut tls = TlsParameters::default();
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let rest = if is_url { take_tls_from_url(url, &mut tls)? } else { take_tls_from_pairs(url, &mut tls)? };
        let mut config: Config = rest.parse().map_err(|_| Error::Syntax)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::MissingHost);
        }
        if is_url && has_second_at(url) {
            return Err(Error::Syntax);
        }
        let system_root = tls.root.as_deref() == Some("system");
        let (mode, check) = match tls.mode.as_deref() {
            // As in libpq: sslrootcert=system implies sslmode=verify-full.
            None if system_root => (SslMode::Require, CertificateCheck::Host),
            None | Some("prefer") if tls.root.is_some() => return Err(Error::RootUnused),
            None | Some("prefer") => (SslMode::Prefer, CertificateCheck::Nothing),
            Some("disable") => (SslMode::Disable, CertificateCheck::Nothing),
            Some("require") if tls.root.is_some() => (SslMode::Require, CertificateCheck::Authority),
            Some("require") => (SslMode::Require, CertificateCheck::Nothing),
            Some("verify-ca") => (SslMode::Require, CertificateCheck::Authority),
            Some("verify-full") => (SslMode::Require, CertificateCheck::Host),
            Some(_) => return Err(Error::SslMode),
        };
        let client_certificate = match (tls.certificate, tls.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            _ => return Err(Error::IncompleteCertificate),
        };
        config.ssl_mode(mode);
        set_failure_detection(&mut config);
        let authorities_file = tls.root.filter(|_| !system_root).map(PathBuf::from);
        Ok(Self { config, check, authorities_file, client_certificate })
    }
}

impl Target {
    /// The reason why the server is not authenticated; `None` if it is, or if all hosts are this machine.
    pub fn missing_authentication(&self) -> Option<String> {
        let Self { config, check, .. } = self;
        let is_local = |address: &std::net::IpAddr| address.is_loopback();
        let is_remote = match config.get_hostaddrs() {
            [] => config.get_hosts().iter().any(|host| match host {
                Host::Tcp(name) => name != "localhost" && !name.parse().is_ok_and(|address| is_local(&address)),
                #[cfg(unix)]
                Host::Unix(_) => false,
            }),
            addresses => addresses.iter().any(|address| !is_local(address)),
        };
        let why = match (check, config.get_ssl_mode()) {
            (CertificateCheck::Host, _) => return None,
            (CertificateCheck::Authority, _) => "sslmode=verify-ca accepts any certificate of the authority",
            (CertificateCheck::Nothing, SslMode::Disable) => "sslmode=disable encrypts nothing",
            (CertificateCheck::Nothing, SslMode::Prefer) => "sslmode=prefer, the default, checks no certificate",
            (CertificateCheck::Nothing, _) => "sslmode=require without sslrootcert checks no certificate",
        };
        is_remote.then(|| why.to_owned())
    }

    /// The database, its addresses and the user, for messages; never the password.
    pub fn description(&self) -> String {
        let Self { config, .. } = self;
        let hosts: Vec<String> = match config.get_hosts() {
            [] => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
            hosts => hosts.iter().map(host).collect(),
        };
        let port = |index: usize| match config.get_ports() {
            [] => PORT,
            [port] => *port,
            ports => ports.get(index).copied().unwrap_or(PORT),
        };
        let addresses: Vec<String> =
            hosts.iter().enumerate().map(|(index, host)| format!("{host}:{}", port(index))).collect();
        let user = config.get_user();
        let database = config.get_dbname().or(user).map(|name| format!(" {name:?}")).unwrap_or_default();
        let user = user.map_or_else(|| "the operating system's user".to_owned(), |user| format!("user {user:?}"));
        format!("database{database} at {} as {user}", addresses.join(", "))
    }
}

fn host(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    }
}

/// Whether there is a second `@` before the query. Then the first one was probably meant as part of the password, and
/// the rest of the password would be taken for the host.
fn has_second_at(url: &str) -> bool {
    let front = url.split_once('@').map_or("", |(_, rest)| rest);
    front.split('?').next().is_some_and(|front| front.contains('@'))
}

/// Sets the timeouts by which a lost server is noticed, except for those that the url sets.
fn set_failure_detection(config: &mut Config) {
    let default_idle = Duration::from_secs(2 * 60 * 60);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_keepalives_idle() == default_idle {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
}

/// Moves the TLS parameters from a url to `tls`, and returns the url without them.
fn take_tls_from_url(url: &str, tls: &mut TlsParameters) -> Result<String, Error> {
    // As in tokio-postgres: everything before the first @ is the user and the password.
    let host = url.find('@').map_or(0, |at| at + 1);
    let Some((_, query)) = url[host..].split_once('?') else { return Ok(url.to_owned()) };
    let front = &url[..url.len() - query.len() - 1];
    let mut kept: Vec<&str> = Vec::new();
    for (index, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
        let unknown = || Error::Parameter(index + 1);
        let (key, value) = pair.split_once('=').ok_or_else(unknown)?;
        let key = percent_decoded(key).ok_or_else(unknown)?;
        let value = percent_decoded(value).ok_or_else(unknown)?;
        if tls.set(&key, &value) {
            continue;
        }
        if pair.contains('@') {
            return Err(unknown());
        }
        // Parsed alone, so that the error can name the parameter.
        format!("postgres://?{pair}").parse::<Config>().map_err(|_| unknown())?;
        kept.push(pair);
    }
    Ok(if kept.is_empty() { front.to_owned() } else { format!("{front}?{}", kept.join("&")) })
}

/// Moves the TLS parameters from `key=value` pairs to `tls`, and returns the other pairs. Values may be in single
/// quotes, and special characters are escaped by backslashes.
fn take_tls_from_pairs(text: &str, tls: &mut TlsParameters) -> Result<String, Error> {
    let mut kept = String::new();
    let mut rest = text.trim_start();
    let mut index = 0;
    while !rest.is_empty() {
        index += 1;
        let (key, after) = rest.split_once('=').ok_or(Error::Syntax)?;
        let (value, length) = leading_value(after.trim_start()).ok_or(Error::Syntax)?;
        let after = &after.trim_start()[length..];
        if !tls.set(key.trim(), &value) {
            let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
            let pair = format!("{}='{escaped}' ", key.trim());
            pair.parse::<Config>().map_err(|_| Error::Parameter(index))?;
            kept += &pair;
        }
        rest = after.trim_start();
    }
    Ok(kept)
}

/// The value at the beginning of a text, without quotes and escapes, and its length in the text in bytes.
fn leading_value(text: &str) -> Option<(String, usize)> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((index, character)) = characters.next() {
        match character {
            '\'' if is_quoted => return Some((value, index + 1)),
            '\\' => value.push(characters.next()?.1),
            other if !is_quoted && other.is_whitespace() => return Some((value, index)),
            other => value.push(other),
        }
    }
    (!is_quoted).then_some((value, text.len()))
}

/// A percent-encoded text, decoded; `None` if it is malformed.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use tokio_postgres::config::{Host, TargetSessionAttrs};

    use super::*;

    fn read(url: &str) -> Target {
        Target::read(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn url_and_pairs_give_the_same_configuration() {
        let url = read("postgresql://me:pass%20word@h1:1,h2:2/db?target_session_attrs=read-write&sslmode=disable");
        let pairs = read(
            r"host=h1,h2 port=1,2 user=me password='pass word' dbname = db target_session_attrs=read-write sslmode=disable",
        );
        assert!(url.config == pairs.config);
        assert_eq!(url.config.get_password(), Some(&b"pass word"[..]));
        assert_eq!(url.config.get_hosts(), [Host::Tcp("h1".to_owned()), Host::Tcp("h2".to_owned())]);
        assert_eq!(url.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    }

    #[test]
    fn tls_parameters_are_removed_from_the_configuration() {
        let target = read("postgres://h/db?sslmode=verify-full&sslrootcert=%2Fa%20b%2Fca.pem&connect_timeout=9");
        assert_eq!((target.check, target.config.get_ssl_mode()), (CertificateCheck::Host, SslMode::Require));
        assert_eq!(target.authorities_file, Some(PathBuf::from("/a b/ca.pem")));
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        let target = read("host=h sslmode='verify-ca' sslcert=c.pem sslkey=k.pem password=a\\'b");
        assert_eq!((target.check, target.authorities_file), (CertificateCheck::Authority, None));
        assert_eq!(target.client_certificate, Some(("c.pem".into(), "k.pem".into())));
        assert_eq!(target.config.get_password(), Some(&b"a'b"[..]));
    }

    #[test]
    fn password_may_contain_any_character_but_an_at_sign() {
        let target = read("postgres://u:p?sslmode=a/b@h:1/db?sslmode=disable");
        assert_eq!(target.config.get_password(), Some(&b"p?sslmode=a/b"[..]));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn sslmodes_have_the_meaning_of_libpq() {
        for (parameters, mode, check) in [
            ("", SslMode::Prefer, CertificateCheck::Nothing),
            ("?sslmode=prefer", SslMode::Prefer, CertificateCheck::Nothing),
            ("?sslmode=disable", SslMode::Disable, CertificateCheck::Nothing),
            ("?sslmode=require", SslMode::Require, CertificateCheck::Nothing),
            ("?sslmode=require&sslrootcert=ca.pem", SslMode::Require, CertificateCheck::Authority),
            ("?sslrootcert=system", SslMode::Require, CertificateCheck::Host),
            ("?sslmode=disable&sslrootcert=ca.pem", SslMode::Disable, CertificateCheck::Nothing),
        ] {
            let target = read(&format!("postgres://h/db{parameters}"));
            assert_eq!((target.config.get_ssl_mode(), target.check), (mode, check), "{parameters}");
        }
    }

    /// libpq ignores `sslrootcert` then, although the url's author meant to authenticate the server.
    #[test]
    fn url_whose_sslrootcert_would_be_ignored_is_refused() {
        for parameters in
            ["sslrootcert=ca.pem", "sslmode=prefer&sslrootcert=ca.pem", "sslmode=prefer&sslrootcert=system"]
        {
            let error = Target::read(&format!("postgres://h/db?{parameters}")).expect_err(parameters);
            assert_eq!(error, Error::RootUnused, "{parameters}");
        }
    }

    #[test]
    fn missing_authentication_is_explained() {
        for (url, why) in [
            ("postgres://h/db", "sslmode=prefer"),
            ("postgres://h/db?sslmode=disable", "encrypts nothing"),
            ("postgres://h/db?sslmode=require", "sslmode=require"),
            ("postgres://h/db?sslmode=require&sslrootcert=ca.pem", "verify-ca"),
            ("postgres://localhost,h/db", "sslmode=prefer"),
            ("host=localhost hostaddr=10.0.0.1", "sslmode=prefer"),
        ] {
            let reason = read(url).missing_authentication();
            assert!(reason.as_ref().is_some_and(|reason| reason.contains(why)), "{url}: {reason:?}");
        }
        for url in [
            "postgres://h/db?sslmode=verify-full",
            "postgres://h/db?sslrootcert=system",
            "postgres://localhost,127.0.0.1/db",
            "postgres:///db?host=/run/pg",
            "host=db hostaddr=::1",
        ] {
            assert_eq!(read(url).missing_authentication(), None, "{url}");
        }
    }

    #[test]
    fn description_has_everything_but_the_password() {
        for (url, description) in [
            ("postgres://ann:s3cret@db/shop", "database \"shop\" at db:5432 as user \"ann\""),
            ("postgres://ann:s3cret@h1:1,h2:2/db", "database \"db\" at h1:1, h2:2 as user \"ann\""),
            ("host=h1,h2 port=7 user=ann password=s3cret", "database \"ann\" at h1:7, h2:7 as user \"ann\""),
            ("hostaddr=127.0.0.1 dbname=db", "database \"db\" at 127.0.0.1:5432 as the operating system's user"),
            ("postgres:///db?host=/run/pg&user=ann%40b", "database \"db\" at /run/pg:5432 as user \"ann@b\""),
        ] {
            assert_eq!(read(url).description(), description);
        }
    }

    #[test]
    fn errors_do_not_quote_the_url() {
        for url in [
            "postgres://u:s3cret@h:port/db",
            "postgres://u:s3cret",
            "postgres://u:s3c?ret",
            "postgres://u@h/db?s3c=ret@h",
            "postgres://u:a@s3cret@h/db",
            "postgres://u:a@s3c/ret@h/db",
            "postgres://u@h/db?s3cret",
            "postgres://u:s3cret@h/db?sslmode=s3cret",
            "postgres://u:s3cret@h/db?sslcert=a",
            "mysql://u:s3cret@h/db",
            "host=h password=a s3cret",
            "host=h password=a s3cret=b",
            "host=h password='s3cret",
            "user=u password=s3cret",
            "s3cret",
            "",
        ] {
            let error = Target::read(url).expect_err(url).to_string();
            assert!(!error.contains("s3c") && !error.contains("ret@"), "{error}");
        }
        assert!(!format!("{:?}", read("postgres://u:s3cret@h/db")).contains("s3cret"));
    }
}
