//! Reads the parsed YAML of a proxy's file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::Method;
use tracing_subscriber::EnvFilter;

use super::command_line::COMMAND_LINE;
use super::config::{Bounds, Config, KeyUse, Route, Rule};
use super::keys;
use super::rule::{defaults, rule};
use super::store::{self, StoreConfig};
use super::values::{choice, duration, size};
use crate::http::proxying::{AT_WORK_MAX, BODIES_BYTES_MAX, is_failure};
use crate::http::request::OnInDoubt;
use crate::observe::logs;
use crate::proxy::routes::Pattern;
use crate::proxy::upstream::{Origin, Protocol};
use crate::tls::{self, ALPN_HTTP_1_1, ALPN_HTTP_2, Renewed};
use crate::yaml::read::clipped;
use crate::yaml::{Field, Fields, Node, Placed, Reader, Shape, Text};

/// The least and the most that `head_bytes_max` may be.
const HEAD_BYTES: (u64, u64) = (8 << 10, 1 << 20);
/// The largest bound on connections and on requests.
const COUNT_MAX: usize = 1_000_000;
/// The most that `bodies_bytes_max` may be.
const BODIES_BYTES: u64 = 64 << 30;
/// The most that `body_rate_min` may be.
const BODY_RATE: u64 = 1 << 20;
const SCOPE_BYTES_MAX: usize = 100;

/// The whole file; `None` after mistakes, which are reported.
pub fn config(tree: &Node, reader: &mut Reader<'_>) -> Option<Config> {
    let top = reader.root(tree, &keys::TOP, Shape { what: "a mapping", example: "listen: 127.0.0.1:8080" })?;
    let listen = top.require("listen", reader);
    let listen = listen.and_then(|field| reader.text(field).and_then(|text| address(field, &text, reader)));
    let origin = upstream(&top, reader);
    let store = top.require("store", reader).and_then(|field| store::read(field, reader));
    let scope = top.get("scope").and_then(|field| reader.parsed(field, parse_scope));
    let tls = top.get("tls").map(|field| client_tls(field, reader));
    // `None` after a mistake, `Some(None)` if it is off.
    let http = match top.get("http") {
        None => "127.0.0.1:9464".parse().ok().map(Some),
        Some(field) => {
            let text = reader.text(field);
            text.and_then(|text| match text.value.reveal() {
                "off" => Some(None),
                _ => address(field, &text, reader).map(|address| Some(address.value)),
            })
        }
    };
    let bounds = bounds(&top, reader);
    let store_wait = duration(&top, "store_timeout", 5_000, reader);
    let stop_wait = duration(&top, "stop_timeout", 25_000, reader);
    let sets_host = choice(&top, "host", &[("keep", false), ("upstream", true)], reader);
    let trusts_forwarded = top.get("trust_forwarded").and_then(|field| reader.boolean(field));
    let (log_format, log_level) = log(&top, reader);
    let store_kind = store.as_ref().map(StoreConfig::kind);
    let base = rule(&top, &defaults(), store_kind, reader);
    let routes = routes(&top, (&base, store_kind), reader);
    if let (Some(field), Some(listen)) = (top.get("http"), &listen)
        && http == Some(Some(listen.value))
        && listen.value.port() != 0
    {
        let message = "`http` is the address that clients connect to".to_owned();
        reader.mistake(field.place(), message, "`listen` has the same address", "name another port");
    }
    Some(Config {
        listen: listen?.value,
        upstream: origin?,
        store: store?,
        service: scope.map(|scope| scope.value).unwrap_or_default(),
        // Without `tls` it is off; with a mistake in it, there are no settings.
        tls: tls.map_or(Some(None), |tls| tls.map(Some))?,
        metrics_listen: http?,
        sets_host: sets_host.unwrap_or(false),
        trusts_forwarded: trusts_forwarded.is_some_and(|trusts| trusts.value),
        bounds,
        store_wait,
        stop_wait,
        log_format,
        log_level,
        routes,
        warnings: Vec::new(),
    })
}

/// A service's name.
fn parse_scope(text: &str) -> Option<String> {
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (text.len() <= SCOPE_BYTES_MAX && !text.is_empty() && text.bytes().all(is_character)).then(|| text.to_owned())
}

fn upstream(top: &Fields<'_>, reader: &mut Reader<'_>) -> Option<Origin> {
    let protocols = [("auto", Protocol::Auto), ("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    let protocol = choice(top, "upstream_protocol", &protocols, reader).unwrap_or(Protocol::Auto);
    let connect_wait = duration(top, "connect_timeout", 5_000, reader);
    let field = top.require("upstream", reader)?;
    let what = "an address such as http://127.0.0.1:3000, without a path";
    let url = reader.parsed(&field.described(what), |text| Origin::parse(text, protocol, connect_wait));
    let authorities = top.get("upstream_authorities").and_then(|field| reader.text(field));
    let origin = url?.value;
    match origin.with_tls(authorities.as_ref().map(|file| PathBuf::from(file.value.reveal())).as_deref()) {
        Ok(origin) => Some(origin),
        Err(why) => {
            let place = authorities.map_or(field.place(), |file| file.place);
            reader.mistake(place, why, "required for TLS with the service", "name a PEM file of certificates");
            None
        }
    }
}

/// TLS with clients.
fn client_tls(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Renewed<rustls::ServerConfig>> {
    let fields = reader.fields(field, &keys::TLS)?;
    let mut file = |key: &str| fields.require(key, reader).and_then(|field| reader.text(field));
    let (certificate, key) = (file("certificate"), file("key"));
    let path = |file: &Placed<_>| PathBuf::from(crate::yaml::Text::reveal(&file.value));
    let tls = tls::server(&path(certificate.as_ref()?), &path(key.as_ref()?), &[ALPN_HTTP_2, ALPN_HTTP_1_1]);
    match tls.current() {
        Ok(_) => Some(tls),
        Err(why) => {
            let help = "name a PEM file with a certificate, and one with its private key";
            reader.mistake(field.place(), why, "needed here", help);
            None
        }
    }
}

fn bounds(top: &Fields<'_>, reader: &mut Reader<'_>) -> Bounds {
    let mut count = |key: &str, default: usize| {
        let parse = |text: &str| text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
        top.get(key).and_then(|field| reader.parsed(field, parse)).map_or(default, |count| count.value)
    };
    Bounds {
        connections_max: count("connections_max", 1_024),
        requests_max: count("requests_max", 2_048),
        at_work_max: count("at_work_max", AT_WORK_MAX),
        bodies_bytes_max: size(top, "bodies_bytes_max", (1, BODIES_BYTES), reader).unwrap_or(BODIES_BYTES_MAX),
        has_shares: choice(top, "shares", &[("address", true), ("none", false)], reader).unwrap_or(true),
        body_rate_min: size(top, "body_rate_min", (1, BODY_RATE), reader).unwrap_or(1 << 10),
        head_bytes_max: size(top, "head_bytes_max", HEAD_BYTES, reader).unwrap_or(64 << 10),
        head_wait: duration(top, "head_timeout", 10_000, reader),
        idle_wait: duration(top, "idle_timeout", 60_000, reader),
    }
}

fn log(top: &Fields<'_>, reader: &mut Reader<'_>) -> (logs::Format, String) {
    let fields = top.get("log").and_then(|field| reader.fields(field, &keys::LOG));
    let formats = [("text", logs::Format::Text), ("json", logs::Format::Json)];
    let format = fields.as_ref().and_then(|fields| choice(fields, "format", &formats, reader));
    let level = fields.as_ref().and_then(|fields| fields.get("level")).and_then(|field| {
        let text = reader.text(field)?;
        let word = text.value.reveal();
        if word.contains(['=', ',']) {
            let parse = |text: &str| EnvFilter::try_new(text).ok().map(|_| text.to_owned());
            return reader.convert(&field.name, &text, field.shape, parse).map(|level| level.value);
        }
        let levels = ["error", "warn", "info", "debug", "trace"].map(|level| (level, level));
        reader.choose(&field.name, &text, &levels).map(|level| level.value.to_owned())
    });
    (format.unwrap_or_default(), level.unwrap_or_else(|| "info".to_owned()))
}

/// The routes, followed by the one for all other requests, whose rule is `base`. Each route inherits from `base`.
fn routes(top: &Fields<'_>, (base, store_kind): (&Rule, Option<&str>), reader: &mut Reader<'_>) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let no_items = Vec::new();
    let (items, list_field) = match top.get("routes") {
        Some(field) => match &field.node.value {
            crate::yaml::Value::List(items) => (items, Some(field)),
            _ => {
                reader.wrong(field);
                (&no_items, None)
            }
        },
        None => (&no_items, None),
    };
    // Whether any rule for requests with keys has its `caller` from the top.
    let mut uses_default_caller = base.key != KeyUse::Off;
    for item in items {
        let Some(field) = list_field.map(|field| field.item(item).described("a mapping")) else { continue };
        let Some(fields) = reader.fields(&field, &keys::ROUTE) else { continue };
        let place = fields.get("path").map_or(field.place(), Field::place);
        let path = fields.require("path", reader).and_then(|field| {
            let what = "a path that begins with `/`, with `*` for a whole segment or at the end";
            reader.parsed(&field.described(what), Pattern::parse)
        });
        let methods = fields.get("methods").and_then(|field| reader.list(field)).unwrap_or_default();
        let methods = methods.iter().filter_map(|field| method(field, reader)).collect();
        let rule = rule(&fields, base, store_kind, reader);
        warn_of_unused_statuses(&fields, uses_statuses(&rule), reader);
        uses_default_caller |= rule.key != KeyUse::Off && fields.get("caller").is_none();
        let Some(path) = path else { continue };
        let route = Route { path: Some(path.value), methods, rule };
        if let Some(earlier) = routes.iter().find(|earlier| hides(earlier, &route)) {
            let message = format!("the route `{}` is never used", route.name());
            let label = format!("`{}` before it already matches all of its requests", earlier.name());
            reader.mistake(place, message, label, "put the narrower route first, or remove one of them");
        }
        routes.push(route);
    }
    routes.push(Route { path: None, methods: Vec::new(), rule: base.clone() });
    let is_used = routes.iter().any(|route| uses_statuses(&route.rule));
    warn_of_unused_statuses(top, is_used, reader);
    if uses_default_caller && top.get("caller").is_none() {
        warn_of_missing_caller(top, reader);
    }
    routes
}

/// Whether `released` has an effect. If requests in doubt are carried out again anyway, a list that has only failures
/// (408, or 500 or more) has no effect.
fn uses_statuses(rule: &Rule) -> bool {
    let has_non_failures = rule.releasing_statuses.iter().any(|status| !is_failure(*status));
    rule.key != KeyUse::Off && (rule.on_in_doubt == OnInDoubt::Refuse || has_non_failures)
}

/// Warns of a `released` that no rule uses.
fn warn_of_unused_statuses(fields: &Fields<'_>, is_used: bool, reader: &mut Reader<'_>) {
    let Some(place) = fields.get("released").map(Field::place).filter(|_| !is_used) else { return };
    let message =
        "`released` has no effect: after an answer of 408, or of 500 or more, the next request is carried out anyway";
    let help = "write `on_in_doubt: refuse`, so that only these statuses release a request, or remove `released`";
    reader.report.warning((&reader.file, place), message.to_owned(), "not used", help);
}

/// Warns of a missing `caller`: it decides who gets whose responses, so the file's author has to have considered it.
fn warn_of_missing_caller(top: &Fields<'_>, reader: &mut Reader<'_>) {
    let Some(place) = top.get("upstream").map(Field::place) else { return };
    let message = "nothing says how to tell callers apart: all clients without `Authorization` count as one caller, \
                   and may receive each other's answers";
    let help = if reader.file.name() == COMMAND_LINE {
        "pass `--caller none` if all clients are one caller, or `--caller HEADER` with the header that a gateway in \
         front sets; in a file (`--config`), `caller: {required: true}` refuses clients that do not send \
         `Authorization`"
    } else {
        "write `caller: {required: true}`, which refuses clients that do not send `Authorization`, `caller: HEADER` \
         with the header that a gateway in front sets, or `caller: none` if all clients are one caller"
    };
    reader.report.warning((&reader.file, place), message.to_owned(), "the service that these clients call", help);
}

/// Whether every request of a route falls under an earlier route.
fn hides(earlier: &Route, route: &Route) -> bool {
    let covers_methods = earlier.methods.is_empty()
        || !route.methods.is_empty() && route.methods.iter().all(|method| earlier.methods.contains(method));
    covers_methods && earlier.path.iter().zip(&route.path).all(|(earlier, path)| earlier.covers(path))
}

/// A method, in upper case as it is sent.
fn method(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Method> {
    let parse = |text: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        Method::from_bytes(text.as_bytes()).ok().filter(|_| text.bytes().all(is_allowed))
    };
    let text = reader.text(field)?;
    let upper = text.value.reveal().to_ascii_uppercase();
    if text.value.is_secret() || upper == text.value.reveal() || parse(&upper).is_none() {
        return reader.convert(&field.name, &text, field.shape, parse).map(|method| method.value);
    }
    let message = format!("`{}`: methods are written in upper-case letters", field.name);
    reader.mistake(text.place, message, format!("`{}` is not", text.value.reveal()), format!("write `{upper}`"));
    None
}

/// An address to listen on. Names are refused: they may have several addresses, or change them.
fn address(field: &Field<'_>, text: &Placed<Text>, reader: &mut Reader<'_>) -> Option<Placed<SocketAddr>> {
    let word = text.value.reveal();
    let port = word.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    match (word.parse::<SocketAddr>(), port) {
        (Err(_), Some(port)) if !text.value.is_secret() && word.parse::<IpAddr>().is_err() => {
            let (name, key) = (&field.name, field.name.rsplit('.').next().unwrap_or_default());
            let message = format!("`{name}` must be {}", field.shape.what);
            let help = format!(
                "a host's name is not looked up: write `{key}: 127.0.0.1:{port}` for this machine alone, or \
                 `{key}: 0.0.0.0:{port}` for all of its addresses"
            );
            reader.mistake(text.place, message, format!("`{}` is not", clipped(word)), help);
            None
        }
        _ => reader.convert(&field.name, text, field.shape, |text| text.parse().ok()),
    }
}
