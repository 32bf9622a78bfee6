//! Checks a sink that calls over HTTP: the request. Its terms are checked by `terms`.

use crate::dedup::Format;
use crate::effect::call::{OverrideClass, StatusCodes};
use crate::topology::Input;
use crate::topology::compile::compiler::{Compiler, shown};
use crate::topology::compile::topics::Written;
use crate::topology::sink::Http;
use crate::topology::sink::http::address::{Address, Problem};
use crate::topology::sink::http::spec::HttpSpec;
use crate::topology::sink::http::template::{Piece, Template};
use crate::topology::sink::http::{Body, Method};
use crate::yaml::{Place, Placed, Text};

/// Headers that belong to the connection or to the message's form, not to its content.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers whose value is a secret.
const SECRET: &[&str] = &["authorization", "cookie", "x-api-key", "api-key", "x-auth-token"];

impl Compiler<'_> {
    /// Reports what is wrong with a sink that calls, whatever the topology's other keys are.
    pub fn check_http(&mut self, http: &HttpSpec) {
        if let Some(url) = &http.url {
            self.check_address(url, http);
        }
        for host in http.hosts.iter().filter(|host| !Address::is_host(host.value.reveal())) {
            let message = "`sink.http.hosts` lists hosts, with their ports or without".to_owned();
            let help = "write e.g. `hosts: [api.example.com, 'api.example.com:8443']`";
            self.mistake(host.place, message, format!("`{}` is none", shown(&host.value)), help);
        }
        self.check_headers(http);
        self.check_body(http);
        self.check_terms(&http.terms);
        let named = |(codes, _): &(Placed<StatusCodes>, _)| (codes.value, codes.place);
        let codes: Vec<(StatusCodes, Place)> = http.answers.iter().map(named).collect();
        for (number, (code, place)) in codes.iter().enumerate() {
            if codes[..number].iter().any(|(known, _)| known == code) {
                let message = format!("`sink.http.answers` names {code} twice");
                self.mistake(*place, message, "again", "remove one of them");
            }
        }
    }

    fn check_address(&mut self, url: &Placed<Template>, http: &HttpSpec) {
        let address = match Address::read(&url.value) {
            Ok(address) => address,
            Err(problem) => {
                let message = format!("`sink.http.url` is not the address of a request: {problem}");
                self.mistake(url.place, message, "not a valid address", address_help(problem));
                return;
            }
        };
        match (address.takes_host_from_record(), http.hosts_place) {
            (true, None) => {
                let message =
                    "a record cannot say which host is called, unless `hosts` lists those that may be".to_owned();
                let help = "write the host out, or add e.g. `hosts: [eu.example.com, us.example.com]` beside `url`";
                self.mistake(url.place, message, "a part of the record stands in the host", help);
            }
            (false, Some(place)) => {
                let message = "`sink.http.hosts` has no effect: the host of `url` is always the same".to_owned();
                let help = "remove it, or let the record name the host, e.g. `url: 'https://{value.host}/charges'`";
                self.mistake(place, message, "never looked at", help);
            }
            _ => {}
        }
    }

    fn check_headers(&mut self, http: &HttpSpec) {
        let key = http.key_header.as_ref();
        for (number, (name, value)) in http.headers.iter().enumerate() {
            if !self.check_header_name(&name.value, name.place, "sink.http.headers") {
                continue;
            }
            let is = |other: &str| name.value.eq_ignore_ascii_case(other);
            if http.headers[..number].iter().any(|(known, _)| is(&known.value)) {
                let message = format!("`sink.http.headers` names `{}` twice", name.value);
                self.mistake(name.place, message, "again: letters' case does not matter", "remove one of them");
            }
            if key.is_some_and(|key| is(key.value.reveal())) {
                let message = format!("the header `{}` is ratchet's: it carries the key", name.value);
                let help = "remove it: a key of your own would not be the same for each attempt and no other call";
                self.mistake(name.place, message, "named by `idempotency_key`", help);
            }
            let fixed = value.value.pieces().iter().filter_map(|piece| match piece {
                Piece::Fixed { text, .. } => Some(text),
                Piece::Record(_) => None,
            });
            if !fixed.flat_map(|text| text.reveal().bytes()).all(|byte| matches!(byte, b' '..=b'~')) {
                let message = format!("the header `{}` has a character that a header does not take", name.value);
                let help = "write visible characters of ASCII; a file's last line break is left out of `${file:PATH}`";
                self.mistake(value.place, message, "somewhere in here", help);
            }
            let is_plain = !value.value.is_secret() && !value.value.holds_record();
            if SECRET.iter().any(|secret| is(secret)) && is_plain {
                let message = format!("the secret of the header `{}` stands in the file", name.value);
                let help = "write e.g. `'Bearer ${file:secrets/token}'`, or `${env:TOKEN}`";
                self.warning(name.place, message, "everyone who may read the file knows it", help);
            }
        }
        if let Some(key) = key {
            self.check_header_name(key.value.reveal(), key.place, "sink.http.idempotency_key.header");
        }
    }

    /// Checks that a header can have this name, and that it is not set otherwise.
    fn check_header_name(&mut self, name: &str, place: Place, key: &str) -> bool {
        let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_in_name) {
            let message = format!("`{key}` names no header: letters, digits and `-` make one");
            self.mistake(place, message, "not a name", "write e.g. `x-tenant`");
            return false;
        }
        if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
            let message =
                format!("the header `{}` cannot be written: it follows from the request", name.to_lowercase());
            self.mistake(place, message, "set by the connection", "remove it");
            return false;
        }
        true
    }

    fn check_body(&mut self, http: &HttpSpec) {
        let (Some(body), Some(method)) = (&http.body, &http.method) else { return };
        if method.value == Method::Get && body.value != Body::None {
            let message = "a request with `method: GET` has no body".to_owned();
            let help = "remove `body`, or write `method: POST`; parts of the record go into the address";
            self.mistake(body.place, message, "never sent", help);
        }
    }

    /// The sink; `None` after a mistake.
    pub fn http(&mut self, spec: &HttpSpec, topics: &Written, input: Option<&Input>) -> Option<Http> {
        let terms = self.terms(&spec.terms, named(spec), topics, input);
        let method = spec.method.as_ref().map_or(Method::Post, |method| method.value);
        let body = spec.body.as_ref().map_or_else(|| default_body(method), |body| body.value.clone());
        Some(Http {
            url: spec.url.as_ref()?.value.clone(),
            hosts: spec.hosts.iter().map(|host| host.value.reveal().to_owned()).collect(),
            method,
            headers: self.headers(spec, &body),
            body,
            key: spec.key_header.as_ref().map(|header| header.value.reveal().to_owned()),
            terms: terms?,
        })
    }

    /// The headers as written, and the type of a body that is JSON.
    fn headers(&self, spec: &HttpSpec, body: &Body) -> Vec<(String, Template)> {
        let written = spec.headers.iter().map(|(name, value)| (name.value.clone(), value.value.clone()));
        let mut headers: Vec<(String, Template)> = written.collect();
        let values = self.spec.input.value_format.as_ref().map_or(Format::Json, |format| format.value);
        let is_json = match body {
            Body::Json(_) => true,
            Body::Value => values != Format::Bytes,
            Body::None => false,
        };
        if is_json && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".to_owned(), Template::fixed(Text::plain("application/json"))));
        }
        headers
    }
}

/// What answers mean otherwise.
fn named(spec: &HttpSpec) -> Vec<(StatusCodes, OverrideClass)> {
    spec.answers.iter().map(|(codes, named)| (codes.value, *named)).collect()
}

const fn default_body(method: Method) -> Body {
    match method {
        Method::Get | Method::Delete => Body::None,
        Method::Post | Method::Put | Method::Patch => Body::Value,
    }
}

const fn address_help(problem: Problem) -> &'static str {
    match problem {
        Problem::Scheme | Problem::NoHost | Problem::Host => {
            "write e.g. `url: https://api.example.com/charges`, or `${env:PAYMENTS_URL}/charges`; scheme and host cannot come \
             from a record, but for hosts that `hosts` lists"
        }
        Problem::User => "write `headers: {authorization: 'Basic ${file:secrets/basic}'}` in place of it",
        Problem::Fragment => "leave it out, or write `%23` to mean the character",
        Problem::Character => "write e.g. `%20` for a blank; parts of the record are encoded by themselves",
        Problem::Dots => "write the address as it is to be sent",
    }
}
