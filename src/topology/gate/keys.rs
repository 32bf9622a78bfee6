//! The keys of `gate`.

use crate::topology::gate::OnUnavailable;
use crate::topology::keys::values::NAME;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

/// `gate`.
pub static GATE: Mapping = Mapping::of(&[Key::required(
    "redis",
    Type::mapping(&REDIS),
    "redis: {url: '${env:REDIS_URL}'}",
    "a server of Redis, 7.0 or later",
)]);

/// `gate.redis`.
pub static REDIS: Mapping = Mapping::of(&[
    Key::required(
        "url",
        Type::Text("the server's address"),
        "url: ${env:REDIS_URL}",
        "the server's address, `redis://user:password@host:port/database`, or `rediss://` for TLS. A password in it is \
         from `${env:NAME}` or `${file:PATH}`, and not written out; `test` and `replay` need neither",
    ),
    Key::optional(
        "name",
        NAME,
        "name: payments",
        "the gate's name: topologies that name the same one, on the same server, share what it knows",
    )
    .or(Omitted::Words("the topology's name")),
    Key::optional(
        "retention",
        Type::Duration,
        "retention: 7d",
        "how long the server keeps an identity, by its own clock, since it was first passed on",
    )
    .or(Omitted::Is("7d")),
    Key::optional(
        "on_unavailable",
        Type::Words(|| OnUnavailable::ALL.iter().map(|value| value.as_str().to_owned()).collect()),
        "on_unavailable: hold",
        "the server does not answer, or refuses what it is asked: `hold` lets records wait, `pass` lets them go on as if \
         there were no gate",
    )
    .or(Omitted::Is("hold")),
]);

/// All of them.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&GATE, &REDIS];
