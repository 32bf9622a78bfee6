//! How sockets are opened, and to which of a broker's addresses.

use std::net::SocketAddr;

/// Which of a broker's addresses are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// All addresses, in the order in which the system returns them.
    #[default]
    Any,
    /// Only IPv4 addresses.
    V4,
    /// Only IPv6 addresses.
    V6,
}

impl Family {
    /// All families, by their names in `broker.address.family`.
    pub const NAMED: [(&'static str, Self); 3] = [("any", Self::Any), ("v4", Self::V4), ("v6", Self::V6)];

    /// The family's name in `broker.address.family`.
    pub(super) fn as_str(self) -> &'static str {
        Self::NAMED.iter().find(|(_, family)| *family == self).map_or("", |(name, _)| name)
    }

    /// Whether the family allows this address.
    pub(super) fn contains(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// How sockets are opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// Which addresses are used.
    pub family: Family,
    /// Whether the system probes connections that are idle for long (`SO_KEEPALIVE`).
    pub keepalive: bool,
}
