//! Questions to the addresses of a registry. They are asked in turn, beginning with the one that answered last.
//!
//! An address whose answer cannot be read, a login page for example, has failed like one that is down: the next one is
//! asked.
//!
//! **Failure**: if no address answers, an address that failed counts for more than one that lacks the schema, since it
//! might have the schema. So a schema is absent only if no address has failed.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Request, Uri};

use super::answer::{ErrorContext, Missing, accepted, clean};
use super::api::{Base, Question};
use crate::cluster::kafka::{AccessTokens, TokenClient};
use crate::config::{IdsOf, OAuth, SchemaRegistry};
use crate::observe::{Asked, SchemaMetrics};
use crate::tls::{self, ALPN_HTTP_1_1};
use crate::web::{Answer, Failure, Web};
use crate::yaml::Text;
use crate::yaml::text::MASK;

/// The longest answer: a schema of 1 MiB, which JSON escapes can lengthen.
const BODY_BYTES_MAX: usize = 4 << 20;
/// The pause between two checks whether a requested token has arrived.
const TOKEN_WAIT: Duration = Duration::from_millis(20);

/// Asks a registry.
pub struct Client {
    web: Web,
    bases: Vec<Base>,
    /// The index of the address that answered last.
    last: Cell<usize>,
    login: Login,
    /// Headers that every request carries, besides that of the login.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The settings that must not be shown, in every form in which they are sent.
    secrets: Vec<String>,
    /// The access token that was sent last, which must not be shown either.
    sent_token: RefCell<Option<String>>,
    timeout: Duration,
    metrics: SchemaMetrics,
    /// The kind of Apicurio's ids that plain numbers are.
    pub ids_of: IdsOf,
}

/// How ratchet logs in.
enum Login {
    Nobody,
    Fixed { header: HeaderValue, advice: &'static str },
    Tokens(AccessTokens),
}

impl Client {
    /// Connects to nothing yet. The first access token is requested now.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(settings: &SchemaRegistry, metrics: SchemaMetrics) -> Result<Self, String> {
        let own = settings.certificate.as_deref().zip(settings.key.as_deref());
        let speaks_tls = settings.urls.iter().any(|url| url.starts_with("https"));
        let tls = speaks_tls.then(|| tls::client_as(settings.ca.as_deref(), own, &[ALPN_HTTP_1_1]).into());
        let headers =
            [("target-sr-cluster", &settings.logical_cluster), ("confluent-identity-pool-id", &settings.identity_pool)];
        let headers = headers.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let headers = headers.map(|(name, value)| Ok((HeaderName::from_static(name), header(value.reveal(), name)?)));
        Ok(Self {
            web: Web::new(tls),
            bases: settings.urls.iter().map(|url| Base::of(url)).collect(),
            last: Cell::new(0),
            login: login(settings)?,
            headers: headers.collect::<Result<_, String>>()?,
            secrets: secrets(settings),
            sent_token: RefCell::new(None),
            timeout: Duration::from_millis(settings.timeout_ms),
            metrics,
            ids_of: settings.ids_of,
        })
    }

    /// Asks one address after the other, until `read` can read an answer. `question` returns what to ask a given
    /// address; an address for which it returns `None` is passed over. `None` if all addresses are.
    ///
    /// # Errors
    /// No address gave an answer that can be read.
    pub async fn ask<T>(
        &self,
        question: impl Fn(&Base) -> Result<Option<Question>, String>,
        read: impl Fn(&Question, &Answer, &str) -> Result<T, Missing>,
    ) -> Result<Option<T>, Missing> {
        let mut missing: Option<Missing> = None;
        for step in 0..self.bases.len() {
            let at = (self.last.get() + step) % self.bases.len();
            let base = &self.bases[at];
            let Some(asked) = question(base).map_err(Missing::Unusable)? else { continue };
            match self.get(asked.url(), &base.url, |answer, what| read(&asked, answer, what)).await {
                Ok(found) => {
                    self.last.set(at);
                    return Ok(Some(found));
                }
                Err(found) => missing = Some(missing.map_or(found.clone(), |before| worse(before, found))),
            }
        }
        missing.map_or(Ok(None), Err)
    }

    /// Asks at a URL that an earlier answer has led to, on one of the registry's servers.
    ///
    /// # Errors
    /// There is no answer that can be read, or the URL is not on one of these servers.
    pub async fn ask_at<T>(
        &self,
        url: &str,
        read: impl FnOnce(&Answer, &str) -> Result<T, Missing>,
    ) -> Result<T, Missing> {
        let base = self.bases.iter().map(|base| base.url.as_str()).find(|base| same_server(base, url));
        let base = base.ok_or_else(|| Missing::Unusable("it refers to another registry".to_owned()))?;
        self.get(url, base, read).await
    }

    /// Sends one request, reads its answer and counts it. `base` is the registry's address, for messages.
    async fn get<T>(
        &self,
        url: &str,
        base: &str,
        read: impl FnOnce(&Answer, &str) -> Result<T, Missing>,
    ) -> Result<T, Missing> {
        let path = url.strip_prefix(base).unwrap_or(url).split('?').next().unwrap_or_default();
        let what = format!("GET {path}");
        let answered = match tokio::time::timeout(self.timeout, self.exchange(url)).await {
            Ok(answered) => answered,
            Err(_) => Err(Missing::Failed(format!("it does not answer within {:?}", self.timeout))),
        };
        let found = answered.and_then(|answer| {
            let context = ErrorContext { advice: self.advice(), masked: &|said: &str| self.masked(said) };
            accepted(&answer, &what, &context)?;
            read(&answer, &what)
        });
        self.metrics.asked(found.as_ref().map_or_else(Missing::asked, |_| Asked::Found));
        found.map_err(|missing| match missing {
            // Every address would give the same schema.
            Missing::Unusable(why) => Missing::Unusable(why),
            missing => missing.map(|why| format!("{base}: {why}")),
        })
    }

    async fn exchange(&self, url: &str) -> Result<Answer, Missing> {
        let uri: Uri = url.parse().map_err(|_| Missing::Unusable("its URL is too long or invalid".to_owned()))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::get(path)
            .header(ACCEPT, "application/vnd.schemaregistry.v1+json, application/json, */*;q=0.5")
            .body(Full::new(Bytes::new()))
            .map_err(|_| Missing::Unusable("its URL is invalid".to_owned()))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.iter().cloned());
        match &self.login {
            Login::Nobody => {}
            Login::Fixed { header, .. } => {
                headers.insert(AUTHORIZATION, header.clone());
            }
            Login::Tokens(tokens) => {
                let token = token(tokens).await?;
                let bearer = header(&format!("Bearer {token}"), "the token").map_err(Missing::Failed)?;
                headers.insert(AUTHORIZATION, bearer);
                *self.sent_token.borrow_mut() = Some(token);
            }
        }
        self.web.exchange(&uri, request, BODY_BYTES_MAX).await.map_err(failed)
    }

    /// What to correct if the registry refuses ratchet.
    fn advice(&self) -> &'static str {
        match &self.login {
            Login::Nobody => {
                "set schema_registry.username and password, token or oauth, or a certificate, or let the registry be \
                 read without a login"
            }
            Login::Fixed { advice, .. } => advice,
            Login::Tokens(_) => {
                "correct schema_registry.oauth, logical_cluster or identity_pool, or the client's rights"
            }
        }
    }

    /// The error without the secrets that its text may hold, such as those that the registry sent back.
    pub fn hidden(&self, missing: Missing) -> Missing {
        missing.map(|why| self.masked(&why))
    }

    /// A text without secrets. A text from the registry must be masked before it is shortened: a part of a secret would
    /// not be found.
    fn masked(&self, text: &str) -> String {
        let sent = self.sent_token.borrow();
        let secrets = self.secrets.iter().chain(sent.as_ref());
        secrets.fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), MASK))
    }
}

fn failed(failure: Failure) -> Missing {
    Missing::Failed(match failure {
        Failure::Unreached(why) => format!("it cannot be reached: {}", clean(&why)),
        Failure::Untrusted(why) => {
            format!("no TLS with it: {}; name its authority by schema_registry.ca", clean(&why))
        }
        Failure::NoTls(why) => format!("no TLS with it: {}", clean(&why)),
        Failure::Unanswered(why) => format!("it does not answer: {}", clean(&why)),
        Failure::TooLong(_) => return Missing::Unusable("the answer is longer than 4 MiB".to_owned()),
        Failure::Unusable(why) => format!("it cannot be asked: {}", clean(&why)),
    })
}

/// The error that counts, of two addresses: a failure rather than an absence, otherwise the first one.
fn worse(before: Missing, found: Missing) -> Missing {
    match (&before, &found) {
        (Missing::Absent(_), Missing::Failed(_) | Missing::Refused(_)) => found,
        _ => before,
    }
}

fn same_server(base: &str, url: &str) -> bool {
    let server = |url: &str| {
        url.split_once("://")
            .map(|(scheme, rest)| (scheme.to_owned(), rest.split('/').next().unwrap_or_default().to_owned()))
    };
    server(base) == server(url)
}

/// The valid token, once it has arrived.
async fn token(tokens: &AccessTokens) -> Result<String, Missing> {
    loop {
        match tokens.current() {
            Ok(token) => return Ok(token),
            Err(missing) if missing.is_lasting => return Err(Missing::Refused(missing.why)),
            // The token was requested; the time that an answer may take bounds this loop.
            Err(missing) if missing.is_awaited => tokio::time::sleep(TOKEN_WAIT).await,
            Err(missing) => return Err(Missing::Failed(missing.why)),
        }
    }
}

fn login(settings: &SchemaRegistry) -> Result<Login, String> {
    let SchemaRegistry { username, password, token, oauth, .. } = settings;
    if let (Some(user), Some(password)) = (username, password) {
        let user = STANDARD.encode(format!("{}:{}", user.reveal(), password.reveal()));
        let header = header(&format!("Basic {user}"), "schema_registry.password")?;
        let advice = "correct schema_registry.username or password, or the user's rights";
        return Ok(Login::Fixed { header, advice });
    }
    if let Some(token) = token {
        let header = header(&format!("Bearer {}", token.reveal()), "schema_registry.token")?;
        return Ok(Login::Fixed { header, advice: "correct schema_registry.token, or its rights" });
    }
    let OAuth { url: Some(url), client_id: Some(client), client_secret: Some(secret), scope, ca } = oauth else {
        return Ok(Login::Nobody);
    };
    let client = TokenClient {
        url: url.clone(),
        client_id: client.reveal().to_owned(),
        client_secret: secret.reveal().to_owned(),
        scope: scope.as_ref().map(|scope| scope.reveal().to_owned()),
        authorities: ca.clone(),
    };
    AccessTokens::begin(client).map(Login::Tokens)
}

fn header(value: &str, name: &str) -> Result<HeaderValue, String> {
    let mut header = HeaderValue::from_str(value)
        .map_err(|_| format!("{name} cannot be sent in a header: it holds a line break, for example"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// The settings that must not be shown, in every form in which they are sent.
fn secrets(settings: &SchemaRegistry) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    if let (Some(user), Some(password)) = (&settings.username, &settings.password) {
        secrets.push(STANDARD.encode(format!("{}:{}", user.reveal(), password.reveal())));
    }
    let texts = [&settings.password, &settings.token, &settings.oauth.client_secret];
    secrets.extend(texts.into_iter().flatten().map(Text::reveal).filter(|text| !text.is_empty()).map(str::to_owned));
    secrets
}
