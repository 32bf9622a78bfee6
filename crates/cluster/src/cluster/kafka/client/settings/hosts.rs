//! The bootstrap addresses, as librdkafka reads them: `host`, `host:port` or `PROTOCOL://host:port`, separated by
//! commas.

use std::net::Ipv6Addr;

use super::super::super::wire::brokers::Address;

/// Kafka's default port.
const PORT: u16 = 9092;

/// The addresses in a list, without duplicates, for clients with this security protocol.
///
/// # Errors
/// Why librdkafka would leave an address out or misread it.
pub(super) fn addresses(list: &str, protocol: &str) -> Result<Vec<Address>, &'static str> {
    let mut addresses = Vec::new();
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let address = address(text, protocol)?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { Err("it names no broker") } else { Ok(addresses) }
}

fn address(text: &str, protocol: &str) -> Result<Address, &'static str> {
    const UNREADABLE: &str = "one of its brokers is not in the form host:port";
    let text = match text.split_once("://") {
        None => text,
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(protocol) => {
            rest.split_once('/').map_or(rest, |(host_and_port, _)| host_and_port)
        }
        Some(_) => return Err("one of its brokers has a protocol other than security.protocol"),
    };
    let to_address =
        |host: &str, port| Address { host: if host.is_empty() { "localhost" } else { host }.to_owned(), port };
    if let Some(bracketed) = text.strip_prefix('[') {
        let (host, rest) = bracketed.split_once(']').ok_or(UNREADABLE)?;
        let host: Ipv6Addr = host.parse().map_err(|_| UNREADABLE)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => self::port(port).ok_or(UNREADABLE)?,
            None if rest.is_empty() => PORT,
            None => return Err(UNREADABLE),
        };
        return Ok(to_address(&host.to_string(), port));
    }
    match text.split_once(':') {
        None => Ok(to_address(text, PORT)),
        Some((host, port)) if !port.contains(':') => {
            self::port(port).map(|port| to_address(host, port)).ok_or(UNREADABLE)
        }
        // More than one colon: an IPv6 address without a port.
        Some(_) => text.parse().map(|host: Ipv6Addr| to_address(&host.to_string(), PORT)).map_err(|_| UNREADABLE),
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses_as_text(list: &str) -> Result<String, &'static str> {
        let found = addresses(list, "sasl_ssl")?;
        Ok(found.iter().map(Address::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn brokers_are_read_as_librdkafka_reads_them() {
        for (list, expected) in [
            ("a:1", "a:1"),
            ("a", "a:9092"),
            (" a:1, b , ,a:1,", "a:1 b:9092"),
            ("SASL_SSL://a:1,sasl_ssl://b/path", "a:1 b:9092"),
            ("[::1]:5,[fe80::1],::2", "[::1]:5 [fe80::1]:9092 [::2]:9092"),
            (":7", "localhost:7"),
        ] {
            assert_eq!(addresses_as_text(list).as_deref(), Ok(expected), "{list}");
        }
    }

    #[test]
    fn brokers_that_cannot_be_read_are_errors() {
        for list in ["", " , ", "a:0", "a:x", "a:1x", "a:70000", "PLAINTEXT://a:1", "[a]:1", "[::1", "[::1]x", "a:1:2"]
        {
            assert!(addresses_as_text(list).is_err(), "{list}");
        }
    }
}
