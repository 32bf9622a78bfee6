//! Reading a url: tokio-postgres does that, except for the parameters of TLS that it does not know.
//!
//! No error quotes any of it: where a url is written wrongly, any part of it may be part of the password. Of one that
//! could be read, [`Target::shown`] has what is not secret.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// PostgreSQL's own port.
const PORT: u16 = 5432;
/// How long connecting to a host may take, unless the url says otherwise.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// A connection on which nothing has come for this long is asked whether it is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// How long until it is asked again.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// How often it is asked.
const KEEPALIVE_RETRIES: u32 = 3;
/// How long something that was sent may remain unacknowledged.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);

/// What the server's certificate is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Nothing: encrypted if the server can, or always.
    Nothing,
    /// The authorities.
    Authority,
    /// The authorities and the host's name.
    Host,
}

/// Where a database is, and how to get there.
#[derive(Clone)]
pub(super) struct Target {
    pub config: Config,
    pub check: Check,
    /// The file of the authorities; `None` for those of the system.
    pub root: Option<PathBuf>,
    /// The files of the client's certificate and of its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("check", &self.check).field("root", &self.root).finish_non_exhaustive()
    }
}

/// What is wrong with a url.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error(
        "the url cannot be read: write 'postgres://user:password@host:port/database' with special characters of the \
         password written as %XX, or 'host=… user=… password=… dbname=…'"
    )]
    Shape,
    #[error("parameter {0} of the url is not known or has a value that cannot be")]
    Parameter(usize),
    #[error("the url's sslmode is none of disable, prefer, require, verify-ca, verify-full")]
    Mode,
    #[error(
        "the url names an sslrootcert, which sslmode=prefer, the default, ignores: write sslmode=verify-full, or verify-ca if \
         the server's name is not in its certificate"
    )]
    RootUnused,
    #[error("the url names only one of sslcert and sslkey, which belong together")]
    Certificate,
    #[error("the url names no host")]
    Host,
}

/// The parameters that tokio-postgres does not know, or knows half of.
#[derive(Default)]
struct Tls {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

impl Tls {
    /// Takes a parameter, if it is one of these.
    fn take(&mut self, key: &str, value: &str) -> bool {
        let place = match key {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            "sslcert" => &mut self.certificate,
            "sslkey" => &mut self.key,
            _ => return false,
        };
        *place = Some(value.to_owned());
        true
    }
}

impl Target {
    /// Reads a url of either form.
    pub fn read(url: &str) -> Result<Self, Error> {
        let mut tls = Tls::default();
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        let rest = if is_url { without_tls_url(url, &mut tls)? } else { without_tls_pairs(url, &mut tls)? };
        let mut config: Config = rest.parse().map_err(|_| Error::Shape)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::Host);
        }
        if is_url && has_second_at(url) {
            return Err(Error::Shape);
        }
        let system_root = tls.root.as_deref() == Some("system");
        let (mode, check) = match tls.mode.as_deref() {
            // As libpq does: who names authorities wants them looked at, who names the system's also the host's name.
            None if system_root => (SslMode::Require, Check::Host),
            None | Some("prefer") if tls.root.is_some() => return Err(Error::RootUnused),
            None | Some("prefer") => (SslMode::Prefer, Check::Nothing),
            Some("disable") => (SslMode::Disable, Check::Nothing),
            Some("require") if tls.root.is_some() => (SslMode::Require, Check::Authority),
            Some("require") => (SslMode::Require, Check::Nothing),
            Some("verify-ca") => (SslMode::Require, Check::Authority),
            Some("verify-full") => (SslMode::Require, Check::Host),
            Some(_) => return Err(Error::Mode),
        };
        let certificate = match (tls.certificate, tls.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            _ => return Err(Error::Certificate),
        };
        config.ssl_mode(mode);
        keep_alive(&mut config);
        let root = tls.root.filter(|_| !system_root).map(PathBuf::from);
        Ok(Self { config, check, root, certificate })
    }
}

impl Target {
    /// Why the server is not authenticated; `None` if it is, or if all hosts are this machine.
    pub fn unauthenticated(&self) -> Option<String> {
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
            (Check::Host, _) => return None,
            (Check::Authority, _) => "sslmode=verify-ca accepts any certificate of the authority",
            (Check::Nothing, SslMode::Disable) => "sslmode=disable encrypts nothing",
            (Check::Nothing, SslMode::Prefer) => "sslmode=prefer, the default, checks no certificate",
            (Check::Nothing, _) => "sslmode=require without sslrootcert checks no certificate",
        };
        is_remote.then(|| why.to_owned())
    }

    /// The database, where it is and as whom, for messages: never the password.
    pub fn shown(&self) -> String {
        let Self { config, .. } = self;
        let hosts: Vec<String> = match config.get_hosts() {
            [] => config.get_hostaddrs().iter().map(ToString::to_string).collect(),
            hosts => hosts.iter().map(host).collect(),
        };
        let port = |at: usize| match config.get_ports() {
            [] => PORT,
            [one] => *one,
            ports => ports.get(at).copied().unwrap_or(PORT),
        };
        let addresses: Vec<String> =
            hosts.iter().enumerate().map(|(at, host)| format!("{host}:{}", port(at))).collect();
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

/// Whether there is another `@` behind the one that ends the password: then that one was meant to be part of it, and
/// what would be taken for the host holds the rest of it.
fn has_second_at(url: &str) -> bool {
    let front = url.split_once('@').map_or("", |(_, rest)| rest);
    front.split('?').next().is_some_and(|front| front.contains('@'))
}

/// Sees to it that a server that is gone is noticed, as far as the url does not say how.
fn keep_alive(config: &mut Config) {
    let two_hours = Duration::from_secs(2 * 60 * 60);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_WAIT);
    }
    if config.get_keepalives_idle() == two_hours {
        config.keepalives_idle(KEEPALIVE_IDLE);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    if config.get_keepalives_retries().is_none() {
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
    }
}

/// The url without the parameters that tokio-postgres does not know.
fn without_tls_url(url: &str, tls: &mut Tls) -> Result<String, Error> {
    // As tokio-postgres does: what is before the first @ is the user and the password, whatever is in it.
    let host = url.find('@').map_or(0, |at| at + 1);
    let Some((_, query)) = url[host..].split_once('?') else { return Ok(url.to_owned()) };
    let front = &url[..url.len() - query.len() - 1];
    let mut kept: Vec<&str> = Vec::new();
    for (at, pair) in query.split('&').enumerate().filter(|(_, pair)| !pair.is_empty()) {
        let unknown = || Error::Parameter(at + 1);
        let (key, value) = pair.split_once('=').ok_or_else(unknown)?;
        let key = unescaped(key).ok_or_else(unknown)?;
        let value = unescaped(value).ok_or_else(unknown)?;
        if tls.take(&key, &value) {
            continue;
        }
        if pair.contains('@') {
            return Err(unknown());
        }
        // Alone, so that an error can say which one it is.
        format!("postgres://?{pair}").parse::<Config>().map_err(|_| unknown())?;
        kept.push(pair);
    }
    Ok(if kept.is_empty() { front.to_owned() } else { format!("{front}?{}", kept.join("&")) })
}

/// The same for `key=value` pairs, whose values may be in single quotes, with backslashes before what is special.
fn without_tls_pairs(text: &str, tls: &mut Tls) -> Result<String, Error> {
    let mut kept = String::new();
    let mut rest = text.trim_start();
    let mut at = 0;
    while !rest.is_empty() {
        at += 1;
        let (key, after) = rest.split_once('=').ok_or(Error::Shape)?;
        let (value, length) = value(after.trim_start()).ok_or(Error::Shape)?;
        let after = &after.trim_start()[length..];
        if !tls.take(key.trim(), &value) {
            let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
            let pair = format!("{}='{escaped}' ", key.trim());
            pair.parse::<Config>().map_err(|_| Error::Parameter(at))?;
            kept += &pair;
        }
        rest = after.trim_start();
    }
    Ok(kept)
}

/// The value at the beginning of a text, and how many bytes it takes there.
fn value(text: &str) -> Option<(String, usize)> {
    let is_quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut characters = text.char_indices().skip(usize::from(is_quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\'' if is_quoted => return Some((value, at + 1)),
            '\\' => value.push(characters.next()?.1),
            other if !is_quoted && other.is_whitespace() => return Some((value, at)),
            other => value.push(other),
        }
    }
    (!is_quoted).then_some((value, text.len()))
}

/// A text with each `%XX` as the byte that it means.
fn unescaped(text: &str) -> Option<String> {
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
    fn both_forms_say_the_same() {
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
    fn parameters_of_tls_are_taken_out() {
        let target = read("postgres://h/db?sslmode=verify-full&sslrootcert=%2Fa%20b%2Fca.pem&connect_timeout=9");
        assert_eq!((target.check, target.config.get_ssl_mode()), (Check::Host, SslMode::Require));
        assert_eq!(target.root, Some(PathBuf::from("/a b/ca.pem")));
        assert_eq!(target.config.get_connect_timeout(), Some(&Duration::from_secs(9)));
        let target = read("host=h sslmode='verify-ca' sslcert=c.pem sslkey=k.pem password=a\\'b");
        assert_eq!((target.check, target.root), (Check::Authority, None));
        assert_eq!(target.certificate, Some(("c.pem".into(), "k.pem".into())));
        assert_eq!(target.config.get_password(), Some(&b"a'b"[..]));
    }

    #[test]
    fn password_may_hold_anything_but_an_at_sign() {
        let target = read("postgres://u:p?sslmode=a/b@h:1/db?sslmode=disable");
        assert_eq!(target.config.get_password(), Some(&b"p?sslmode=a/b"[..]));
        assert_eq!(target.config.get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn modes_mean_what_they_mean_to_libpq() {
        for (parameters, mode, check) in [
            ("", SslMode::Prefer, Check::Nothing),
            ("?sslmode=prefer", SslMode::Prefer, Check::Nothing),
            ("?sslmode=disable", SslMode::Disable, Check::Nothing),
            ("?sslmode=require", SslMode::Require, Check::Nothing),
            ("?sslmode=require&sslrootcert=ca.pem", SslMode::Require, Check::Authority),
            ("?sslrootcert=system", SslMode::Require, Check::Host),
            ("?sslmode=disable&sslrootcert=ca.pem", SslMode::Disable, Check::Nothing),
        ] {
            let target = read(&format!("postgres://h/db{parameters}"));
            assert_eq!((target.config.get_ssl_mode(), target.check), (mode, check), "{parameters}");
        }
    }

    /// libpq ignores it, although its author meant to authenticate the server.
    #[test]
    fn authorities_that_would_be_ignored_are_refused() {
        for parameters in
            ["sslrootcert=ca.pem", "sslmode=prefer&sslrootcert=ca.pem", "sslmode=prefer&sslrootcert=system"]
        {
            let error = Target::read(&format!("postgres://h/db?{parameters}")).expect_err(parameters);
            assert_eq!(error, Error::RootUnused, "{parameters}");
        }
    }

    #[test]
    fn servers_that_are_not_authenticated_are_told_from_others() {
        for (url, why) in [
            ("postgres://h/db", "sslmode=prefer"),
            ("postgres://h/db?sslmode=disable", "encrypts nothing"),
            ("postgres://h/db?sslmode=require", "sslmode=require"),
            ("postgres://h/db?sslmode=require&sslrootcert=ca.pem", "verify-ca"),
            ("postgres://localhost,h/db", "sslmode=prefer"),
            ("host=localhost hostaddr=10.0.0.1", "sslmode=prefer"),
        ] {
            let said = read(url).unauthenticated();
            assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{url}: {said:?}");
        }
        for url in [
            "postgres://h/db?sslmode=verify-full",
            "postgres://h/db?sslrootcert=system",
            "postgres://localhost,127.0.0.1/db",
            "postgres:///db?host=/run/pg",
            "host=db hostaddr=::1",
        ] {
            assert_eq!(read(url).unauthenticated(), None, "{url}");
        }
    }

    #[test]
    fn what_is_shown_is_all_but_the_password() {
        for (url, shown) in [
            ("postgres://ann:s3cret@db/shop", "database \"shop\" at db:5432 as user \"ann\""),
            ("postgres://ann:s3cret@h1:1,h2:2/db", "database \"db\" at h1:1, h2:2 as user \"ann\""),
            ("host=h1,h2 port=7 user=ann password=s3cret", "database \"ann\" at h1:7, h2:7 as user \"ann\""),
            ("hostaddr=127.0.0.1 dbname=db", "database \"db\" at 127.0.0.1:5432 as the operating system's user"),
            ("postgres:///db?host=/run/pg&user=ann%40b", "database \"db\" at /run/pg:5432 as user \"ann@b\""),
        ] {
            assert_eq!(read(url).shown(), shown);
        }
    }

    #[test]
    fn errors_quote_nothing() {
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
