//! A database's address: what it looks like, and where its password is.

use super::{File, Place};

/// What an address begins with.
const SCHEMES: &[&str] = &["postgresql://", "postgres://"];
/// The name of a password in a list of settings.
const PASSWORD: &str = "password";

/// What is wrong with a database's address, in words that do not quote it.
pub fn url_problem(url: &str) -> Option<&'static str> {
    if SCHEMES.iter().any(|scheme| url.starts_with(scheme)) {
        return None;
    }
    let (name, value) = url.split_once('=').unwrap_or((url, ""));
    let is_setting = !name.is_empty() && name.trim().bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    match url {
        _ if url.starts_with("jdbc:") => Some("leave `jdbc:` out"),
        _ if url.contains("://") => Some("it begins with neither `postgresql://` nor `postgres://`"),
        _ if is_setting && !value.is_empty() => None,
        _ => Some("it is neither `postgresql://user:password@host/database` nor `host=… user=… dbname=…`"),
    }
}

/// Whether there is a password in a database's address.
pub fn has_password(url: &str) -> bool {
    !passwords(url).is_empty()
}

/// The same file, with the passwords of all databases' addresses in it masked: a mistake beside one can be shown.
pub fn masked(file: &File) -> File {
    file.masked(&passwords(file.text()))
}

/// Where the passwords are in a text.
fn passwords(text: &str) -> Vec<Place> {
    let mut places = Vec::new();
    // Whatever the scheme: it may be a wrong one.
    for (at, scheme) in text.match_indices("://") {
        let from = at + scheme.len();
        let line = text[from..].split(char::is_whitespace).next().unwrap_or_default();
        // The last `@` ends the password, which may hold one that is not escaped.
        let Some((user, _)) = line.rsplit_once('@') else { continue };
        if let Some((name, _)) = user.split_once(':') {
            places.push(Place::new(from + name.len() + 1, from + user.len()));
        }
    }
    let blanks = [' ', '\t'];
    for (at, _) in text.match_indices(PASSWORD) {
        let Some(value) = text[at + PASSWORD.len()..].trim_start_matches(blanks).strip_prefix('=') else { continue };
        let from = text.len() - value.trim_start_matches(blanks).len();
        // Up to a blank, or to the line's end where it is quoted. What else may end it may also be part of it: rather too
        // much is masked.
        let ends = |c: char| if value.starts_with(['\'', '"']) { c == '\n' } else { c.is_whitespace() };
        let value = text[from..].split(ends).next().unwrap_or_default();
        places.push(Place::new(from, from + value.len()));
    }
    places.retain(|place| place.length > 0 && !text[place.start..place.end()].starts_with("${"));
    places
}

#[cfg(test)]
mod tests {
    //! Goal: no password of an address is shown, whatever form the address has.

    use super::*;

    #[test]
    fn passwords_are_masked_in_every_form() {
        for text in [
            "url: postgres://ann:hunter2@db/shop\n",
            "url: 'postgresql://ann:hun@ter2@db/shop'\n",
            "{url: 'host=db user=ann password=hunter2'}",
            "url: host=db password='hunter2' user=ann",
            "url: host = db password = hunter2",
            "url: host=db password=hun,ter2}#ter2 user=ann",
            "{url: \"host=db password='hun ter2'\", schema: ratchet}",
            "url: postgres://db/shop?user=ann&password=hunter2",
            "url: mysql://ann:hunter2@db/shop",
            "url: postgres://ann:hunter2@db/shop # and postgres://bob:hunter2@db",
        ] {
            let shown = masked(&File::new("t", text)).text().to_owned();
            assert!(!shown.contains("ter2"), "{shown}");
            assert_eq!(shown.len(), text.len());
            assert!(has_password(text));
        }
    }

    #[test]
    fn what_is_no_password_is_shown() {
        for text in ["url: ${env:DATABASE_URL}", "url: postgres://ann@db/shop", "url: 'postgres://ann:${env:PW}@db'"] {
            assert_eq!(masked(&File::new("t", text)).text(), text);
        }
    }

    #[test]
    fn addresses_are_told_from_other_texts() {
        for url in ["postgres://db/shop", "postgresql:///shop?host=/run", "host=db user=ann", "service=shop"] {
            assert_eq!(url_problem(url), None, "{url}");
        }
        for (url, words) in [
            ("jdbc:postgresql://db/shop", "jdbc"),
            ("mysql://db/shop", "neither `postgresql://`"),
            ("db:5432/shop", "neither"),
            ("", "neither"),
            ("host=", "neither"),
        ] {
            assert!(url_problem(url).is_some_and(|problem| problem.contains(words)), "{url}");
        }
    }
}
