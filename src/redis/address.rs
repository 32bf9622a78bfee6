//! The address of a server of Redis: host, port, database, user and password.

use std::fmt;

use ::redis::{Client, ConnectionAddr, IntoConnectionInfo as _};

/// A server's address. Shows neither user nor password.
#[derive(Clone)]
pub struct Address {
    client: Client,
    display_name: String,
    /// The password, plain and as written in the url: no message may contain it.
    secrets: Vec<String>,
}

impl Address {
    /// Reads `redis://user:password@host:port/database`, or `rediss://` for TLS.
    ///
    /// # Errors
    /// What is wrong with the url, without quoting it.
    pub fn read(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("it must begin with `redis://`, or with `rediss://` for TLS".to_owned());
        };
        if !matches!(scheme, "redis" | "rediss") {
            return Err("it begins with neither `redis://` nor `rediss://`".to_owned());
        }
        if rest.contains(['?', '#']) {
            return Err("it has settings behind `?` or `#`, but there are no such settings: in a password, write `?` \
                        as `%3F` and `#` as `%23`"
                .to_owned());
        }
        // The message of the crate `redis` might quote the url.
        let connection_info = url.into_connection_info().map_err(|_| {
            "it is not of the form `redis://user:password@host:port/database`, where the database is a number"
                .to_owned()
        })?;
        let display_name = match connection_info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => format!("{host}:{port}"),
            _ => return Err("it names no host".to_owned()),
        };
        let settings = connection_info.redis_settings();
        let display_name = if settings.db() == 0 { display_name } else { format!("{display_name}/{}", settings.db()) };
        let mut secrets: Vec<String> = settings.password().map(str::to_owned).into_iter().collect();
        // The password as written in the url, where it may be percent-encoded.
        let user_and_password = rest.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
        secrets.extend(user_and_password.map(|(_, password)| password.to_owned()));
        secrets.retain(|secret| !secret.is_empty());
        let client = Client::open(connection_info).map_err(|_| "it is not a valid address of a server".to_owned())?;
        Ok(Self { client, display_name, secrets })
    }

    /// The host and the port, and the database unless it is 0: for messages.
    pub fn display_name(&self) -> &str {
        &self.display_name
    }

    /// The identity of the server and its database: the same for all spellings of an address, and for all users.
    pub fn server_identity(&self) -> String {
        self.display_name.to_ascii_lowercase()
    }

    /// The client of the crate `redis` for this address.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Masks the password in a text.
    pub(super) fn mask_secrets(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.display_name).finish()
    }
}

/// Checks that [`Address::read`] accepts a url.
///
/// # Errors
/// What is wrong with the url, without quoting it.
pub fn check_url(url: &str) -> Result<(), String> {
    Address::read(url).map(drop)
}

#[cfg(test)]
mod tests {
    //! Goal: addresses are read as intended, and messages about invalid ones do not contain the password.

    use super::*;

    #[test]
    fn addresses_show_no_password() {
        for (url, shown) in [
            ("redis://h", "h:6379"),
            ("redis://h:7000/3", "h:7000/3"),
            ("rediss://ann:hunter2@h:7000", "h:7000"),
            ("redis://:hun%40ter2@h/1", "h:6379/1"),
        ] {
            let address = Address::read(url).unwrap();
            assert_eq!(address.display_name(), shown, "{url}");
            assert_eq!(format!("{address:?}"), format!("Address({shown:?})"));
        }
    }

    #[test]
    fn all_spellings_of_an_address_name_the_same_server() {
        let server = |url: &str| Address::read(url).unwrap().server_identity();
        for url in [
            "redis://h/",
            "redis://h:6379",
            "redis://h:6379/",
            "redis://h/0",
            "redis://H:6379/0",
            "redis://ann:hunter2@h",
            "rediss://h",
        ] {
            assert_eq!(server(url), server("redis://h"), "{url}");
        }
        for url in ["redis://i", "redis://h:6380", "redis://h/1"] {
            assert_ne!(server(url), server("redis://h"), "{url}");
        }
    }

    #[test]
    fn invalid_addresses_are_refused_without_showing_the_password() {
        for (url, words) in [
            ("h:6379", "must begin"),
            ("postgres://ann:hunter2@h", "neither"),
            ("redis+unix:///run/redis.sock?pass=hunter2", "neither"),
            ("redis://ann:hunter2@h:port", "form"),
            ("redis://ann:hunter2@h/first", "form"),
            ("redis://ann:hunter2@", "form"),
            ("rediss://ann:hunter2@h/#insecure", "settings"),
            ("redis://ann:hun#ter2@h", "settings"),
        ] {
            let problem = Address::read(url).unwrap_err();
            assert!(problem.contains(words) && !problem.contains("ter2"), "{url}: {problem}");
        }
    }
}
