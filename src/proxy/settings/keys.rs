//! Every key that a proxy's file may hold: its type, its default and its meaning. The reader, the schema and the tables
//! of docs/http-idempotency.md are built from these.
//!
//! A rule says how requests with keys are handled. Its settings may be at the top of the file, or in one of the routes,
//! which are for some requests only.

use super::store::STORE;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

const ADDRESS: Type = Type::Text("an IP address and a port");
const ADDRESS_OR_OFF: Type = Type::Text("an IP address and a port, or `off`");
const HEADER_NAME: Type = Type::Text("a header's name");
const HEADER_NAMES: Type = Type::ListOrNone("a list of headers' names", &HEADER_NAME);
const CALLERS: Type =
    Type::AnyOf("a header's name, `none`, or a mapping", &[HEADER_NAME, Type::mapping(&CALLER_MAPPING)]);
const FILE: Type = Type::Text("a file's path");
/// A type that allows a few words.
macro_rules! words {
    ($($word:literal),+) => { Type::Words(|| [$($word),+].map(str::to_owned).to_vec()) };
}

const STATUS: Type = Type::AnyOf(
    "a status from 400 to 599, or `4xx`",
    &[Type::Integer("a status from 400 to 599", 400, 599), words!["4xx"]],
);

/// These keys, followed by those of a rule.
macro_rules! with_rule {
    ($($own:expr,)*) => {
        &[
            $($own,)*
            KEY, HEADER, CALLER, RETENTION, WAIT, LEASE, GRACE, ON_IN_DOUBT, RELEASED, ON_STORE_DOWN, FINGERPRINT_KEY, REMEMBER_KEY,
            REQUEST_BYTES_MAX, ANSWER_BYTES_MAX, TIMEOUT, RESERVATION_HEADER,
        ]
    };
}

/// The top of the file.
pub static TOP: Mapping = Mapping::of(with_rule![
    Key::required(
        "listen",
        ADDRESS,
        "listen: 127.0.0.1:8080",
        "the address that clients connect to, over HTTP/1.1 or HTTP/2",
    ),
    Key::required(
        "upstream",
        Type::Text("an address"),
        "upstream: http://127.0.0.1:3000",
        "the service behind the proxy: `http://` or `https://`, a host, and a port unless it is 80 or 443",
    ),
    Key::required(
        "store",
        Type::mapping(&STORE),
        "store: {embedded: {dir: /var/lib/ratchet/requests}}",
        "[where requests and their answers are remembered](#the-proxys-store)",
    ),
    Key::optional(
        "scope",
        Type::Pattern("a name of up to 100 letters, digits, `-`, `_` and `.`", "^[A-Za-z0-9._-]{1,100}$"),
        "scope: shop",
        "the service's name, where proxies of several services [share a store](#the-proxys-store): a key belongs to \
         one service only",
    ),
    Key::optional(
        "routes",
        Type::ListOrNone("a list of routes", &Type::Mapping("a mapping", &ROUTE)),
        "routes: [{path: '/charges/*', key: required}]",
        "[rules for some of the requests](#routes); the first that matches applies; if none does, the top-level keys \
         apply",
    ),
    Key::optional(
        "tls",
        Type::mapping(&TLS),
        "tls: {certificate: tls/server.pem, key: tls/server.key}",
        "speaks TLS with clients: `certificate`, a file with the certificate and its chain, and `key`",
    ),
    Key::optional("http", ADDRESS_OR_OFF, "http: 127.0.0.1:9464", "address of `/metrics`, `/livez` and `/readyz`, or `off`")
        .or(Omitted::Is("127.0.0.1:9464")),
    Key::optional(
        "upstream_protocol",
        words!["auto", "http1", "http2"],
        "upstream_protocol: http2",
        "the protocol used towards the service: `http1`, `http2` (without TLS too, as gRPC needs it), or `auto`: \
         HTTP/2 if TLS negotiates it. Web sockets use HTTP/1.1",
    )
    .or(Omitted::Is("auto")),
    Key::optional(
        "upstream_authorities",
        FILE,
        "upstream_authorities: tls/ca.pem",
        "a file of certificates of the authorities trusted to sign the service's certificate",
    )
    .or(Omitted::Words("the system's")),
    Key::optional(
        "host",
        words!["keep", "upstream"],
        "host: upstream",
        "the `Host` sent to the service: `keep` for the client's, or `upstream` for the service's own",
    )
    .or(Omitted::Is("keep")),
    Key::optional(
        "trust_forwarded",
        Type::Boolean,
        "trust_forwarded: true",
        "whether `Forwarded` and `X-Forwarded-...` of clients are passed on: only if all clients are proxies of your own",
    )
    .or(Omitted::Is("false")),
    Key::optional("connect_timeout", Type::Duration, "connect_timeout: 5s", "how long a connection to the service may take")
        .or(Omitted::Is("5s")),
    Key::optional(
        "connections_max",
        Type::Integer("a whole number from 1 to 1000000", 1, 1_000_000),
        "connections_max: 1024",
        "the most client connections open at once. Beyond that, the connection that has been idle longest is closed \
         for a new one; while all are at work, new ones wait",
    )
    .or(Omitted::Is("1024")),
    Key::optional(
        "requests_max",
        Type::Integer("a whole number from 1 to 1000000", 1, 1_000_000),
        "requests_max: 2048",
        "the most requests in progress at once, with or without a key, web sockets included: each may need a \
         connection to the service. More are refused with 503",
    )
    .or(Omitted::Is("2048")),
    Key::optional(
        "at_work_max",
        Type::Integer("a whole number from 1 to 1000000", 1, 1_000_000),
        "at_work_max: 1024",
        "the most requests with a key at work at once, including those that wait for another one and those whose \
         clients are gone; more are refused with 503",
    )
    .or(Omitted::Is("1024")),
    Key::optional(
        "bodies_bytes_max",
        Type::Size("a size from 1B to 64GiB"),
        "bodies_bytes_max: 256MiB",
        "the memory for the bodies of requests under a key and of their answers until they are sent; requests and replays \
         take at most three quarters of it. A request or a replay that does not fit is refused with 503, but one \
         always fits. A first answer that does not fit is given, and only its digest is remembered",
    )
    .or(Omitted::Is("256MiB")),
    Key::optional(
        "shares",
        words!["address", "none"],
        "shares: none",
        "who gets a [share](#shares) of these four limits: each client's `address` (with `trust_forwarded`, the last \
         address in `X-Forwarded-For`), or `none`",
    )
    .or(Omitted::Is("address")),
    Key::optional(
        "body_rate_min",
        Type::Size("a size from 1B to 1MiB"),
        "body_rate_min: 1KiB",
        "the minimum average rate, in bytes a second after the first `idle_timeout`, at which the body of a request \
         with a key must arrive and a client must read an answer",
    )
    .or(Omitted::Is("1KiB")),
    Key::optional(
        "head_bytes_max",
        Type::Size("a size from 8KiB to 1MiB"),
        "head_bytes_max: 64KiB",
        "the largest head of a request; a larger one is refused with 431",
    )
    .or(Omitted::Is("64KiB")),
    Key::optional(
        "head_timeout",
        Type::Duration,
        "head_timeout: 10s",
        "how long a client may take to send a request's head, or for the TLS handshake",
    )
    .or(Omitted::Is("10s")),
    Key::optional(
        "idle_timeout",
        Type::Duration,
        "idle_timeout: 60s",
        "how long a client's connection is kept open without a request, how long the next piece of a request's body \
         may take, and how long a client may read nothing, with HTTP/2 nothing of an answer",
    )
    .or(Omitted::Is("60s")),
    Key::optional(
        "store_timeout",
        Type::Duration,
        "store_timeout: 5s",
        "how long the store may take to answer, and how long the proxy tries to save an answer",
    )
    .or(Omitted::Is("5s")),
    Key::optional(
        "stop_timeout",
        Type::Duration,
        "stop_timeout: 25s",
        "how long requests at work may take to finish after SIGTERM; those left then are cut off, and in doubt",
    )
    .or(Omitted::Is("25s")),
    Key::optional(
        "log",
        Type::mapping(&LOG),
        "log: {format: json, level: info}",
        "[logging](operations.md#configuration): `format` and `level`",
    )
    .or(Omitted::Words("`text`, `info`")),
]);

/// A route.
pub static ROUTE: Mapping = Mapping::of(with_rule![
    Key::required(
        "path",
        Type::Pattern("a path that begins with `/`", "^/"),
        "path: /accounts/*/charges",
        "the paths it applies to, as clients write them. `*` in place of a segment matches any segment, at the end any \
         rest",
    ),
    Key::optional(
        "methods",
        Type::List("a list of methods", &Type::Text("a method")),
        "methods: [POST]",
        "the methods it applies to",
    )
    .or(Omitted::Words("all")),
]);

/// The keys of a rule, at the top or in a route.
#[cfg(test)]
pub static RULE: Mapping = Mapping::of(with_rule![]);

const KEY: Key = Key::optional(
    "key",
    words!["required", "optional", "off"],
    "key: required",
    "whether requests that may change something must have a key (`required`), may have one (`optional`), or are passed \
     on unchanged, with or without a key (`off`)",
)
.or(Omitted::Is("optional"));
const HEADER: Key = Key::optional("header", HEADER_NAME, "header: X-Request-Key", "the header that carries the key")
    .or(Omitted::Is("Idempotency-Key"));
const CALLER: Key = Key::optional(
    "caller",
    CALLERS,
    "caller: X-Tenant",
    "the header that tells [callers](#what-is-answered) apart, each with its own keys; clients that do not send it \
     count as one caller; `none` if all clients are one caller. With `{header: X-Tenant, required: true}` a request \
     with a key but without this header is answered 400; where `header` is left out it is the one from the top, or \
     `Authorization`",
)
.or(Omitted::Is("Authorization"));
const RETENTION: Key = Key::optional("retention", Type::Duration, "retention: 24h", "how long answers are remembered")
    .or(Omitted::Is("24h"));
const WAIT: Key = Key::optional(
    "wait",
    Type::Duration,
    "wait: 10s",
    "how long a request waits for an earlier one with the same key before it is answered 409",
)
.or(Omitted::Words("not at all"));
const LEASE: Key = Key::optional(
    "lease",
    Type::Duration,
    "lease: 30s",
    "how long the process that carries a request out may be silent before the request counts as in doubt; at least \
     `1s`",
)
.or(Omitted::Is("30s"));
const GRACE: Key = Key::optional(
    "grace",
    Type::Duration,
    "grace: 5m",
    "how long a request stays reserved after its `timeout`, since the service may still be working on it: meanwhile \
     others with its key are answered as if it were at work. After that it is in doubt. `timeout` and `grace` together \
     must be longer than the service ever works",
)
.or(Omitted::Is("60s"));
const ON_IN_DOUBT: Key = Key::optional(
    "on_in_doubt",
    words!["run", "refuse"],
    "on_in_doubt: refuse",
    "it is not known whether a request was carried out: `run` carries it out again (at least once), `refuse` never \
     does (at most once), and an answer of 408, or of 500 or more, leaves it [in doubt](#in-doubt) too",
)
.or(Omitted::Is("run"));
const RELEASED: Key = Key::optional(
    "released",
    Type::ListOrNone("a list of statuses, each from 400 to 599, or `4xx` for 400 to 499 except 408", &STATUS),
    "released: [4xx, 503]",
    "statuses from 400 to 599, or `4xx` for 400 to 499 except 408, with which the service says that it has done \
     nothing. After these a request is released: nothing is remembered, and the next one is carried out. 408, and statuses \
     of 500 and more, matter only with `on_in_doubt: refuse`",
)
.or(Omitted::Words("none"));
const ON_STORE_DOWN: Key = Key::optional(
    "on_store_down",
    words!["refuse", "pass"],
    "on_store_down: pass",
    "the store does not answer, or has no room for a new key: `refuse` with 503, or `pass` the request on, unprotected",
)
.or(Omitted::Is("refuse"));
const FINGERPRINT_KEY: Key = Key::optional(
    "fingerprint",
    Type::mapping(&FINGERPRINT),
    "fingerprint: {except: [sent_at]}",
    "[what makes two requests the same](#what-is-answered), besides method, path, query and body: `headers` that \
     count too, and `except`, fields of JSON that do not",
)
.or(Omitted::Words("the whole body, no headers"));
const REMEMBER_KEY: Key = Key::optional(
    "remember",
    Type::mapping(&REMEMBER),
    "remember: {headers: [content-type, x-charge-id]}",
    "`headers` of answers that are remembered and replayed",
)
.or(Omitted::Words("`content-type`, `content-encoding`, `content-language`, `etag`, `link`, `location`, and those of [CORS](#browsers)"));
const REQUEST_BYTES_MAX: Key = Key::optional(
    "request_bytes_max",
    Type::Size("a size from 1B to 1GiB"),
    "request_bytes_max: 1MiB",
    "the largest body of a request under a key, which is held in memory; a larger one is refused with 413",
)
.or(Omitted::Is("1MiB"));
const ANSWER_BYTES_MAX: Key = Key::optional(
    "answer_bytes_max",
    Type::Size("a size from 1B to 64MiB"),
    "answer_bytes_max: 1MiB",
    "the largest answer body that is remembered; for a larger one only its digest is",
)
.or(Omitted::Is("1MiB"));
const TIMEOUT: Key = Key::optional(
    "timeout",
    Type::Duration,
    "timeout: 60s",
    "how long the service may take to begin its answer once it has the request; after that, 504. For requests with a \
     key also how long each piece of the answer may take, unless it is a stream of events",
)
.or(Omitted::Is("60s"));
const RESERVATION_HEADER: Key = Key::optional(
    "reservation_header",
    HEADER_NAME,
    "reservation_header: Idempotency-Reservation",
    "the header that tells the service its reservation, as `ID.TOKEN` in hexadecimal digits",
);

/// `caller` as a mapping.
pub static CALLER_MAPPING: Mapping = Mapping::of(&[
    Key::optional("header", HEADER_NAME, "header: X-Tenant", "the header by which callers are told apart")
        .or(Omitted::Words("the one from the top, or `Authorization`")),
    Key::optional(
        "required",
        Type::Boolean,
        "required: true",
        "whether a request with a key but without this header is refused with 400",
    )
    .or(Omitted::Is("false")),
]);

/// `tls`.
pub static TLS: Mapping = Mapping::of(&[
    Key::required("certificate", FILE, "certificate: tls/server.pem", "the certificate and its chain, as PEM"),
    Key::required("key", FILE, "key: tls/server.key", "its private key, as PEM"),
]);

/// `log`.
pub static LOG: Mapping = Mapping::of(&[
    Key::optional("format", words!["text", "json"], "format: json", "`text` or `json`").or(Omitted::Is("text")),
    Key::optional("level", Type::Text("a level, or a filter"), "level: info", "a level, or a filter")
        .or(Omitted::Is("info")),
]);

/// `fingerprint`.
pub static FINGERPRINT: Mapping = Mapping::of(&[
    Key::optional("headers", HEADER_NAMES, "headers: [api-version]", "headers that count"),
    Key::optional(
        "except",
        Type::ListOrNone("a list of fields of JSON", &Type::Text("a field of JSON")),
        "except: [sent_at, meta.attempt]",
        "fields of JSON bodies that are ignored",
    ),
]);

/// `remember`.
pub static REMEMBER: Mapping =
    Mapping::of(&[Key::required("headers", HEADER_NAMES, "headers: [content-type]", "headers that are remembered")]);

/// All mappings, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&TOP, &ROUTE, &RULE, &CALLER_MAPPING, &TLS, &LOG, &FINGERPRINT, &REMEMBER];
