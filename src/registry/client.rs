//! One question to a registry's addresses, one after the other: the one that answered last comes first.
//!
//! **Failure**: if no address has an answer, the failure of one that may have had it counts: an absent schema is absent
//! only if no address has failed.

use std::cell::Cell;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{Request, Uri};

use super::answer::{Missing, accepted, clean};
use super::api::Base;
use crate::cluster::kafka::{AccessTokens, TokenClient};
use crate::config::{IdsOf, OAuth, SchemaRegistry};
use crate::observe::{Asked, SchemaMetrics};
use crate::tls::{self, ALPN_HTTP_1_1};
use crate::web::{Answer, Failure, Web};
use crate::yaml::Text;

/// The longest answer: a schema of a mebibyte, whose JSON escapes may be longer than what they stand for.
const BODY_BYTES_MAX: usize = 4 << 20;
/// How often a token is looked for that has been asked for.
const TOKEN_WAIT: Duration = Duration::from_millis(20);

/// What is answered to a `GET`.
pub struct Got {
    /// The answer.
    pub answer: Answer,
    /// The question, for messages.
    pub what: String,
}

/// Asks a registry.
pub struct Client {
    web: Web,
    bases: Vec<Base>,
    /// The address that answered last.
    last: Cell<usize>,
    login: Login,
    others: Vec<(HeaderName, HeaderValue)>,
    /// What of the settings must not be shown, in each form in which it is sent.
    secrets: Vec<String>,
    timeout: Duration,
    metrics: SchemaMetrics,
    /// What a number is at Apicurio.
    pub ids_of: IdsOf,
}

/// How ratchet says who it is.
enum Login {
    Nobody,
    Fixed { header: HeaderValue, settings: &'static str },
    Tokens(AccessTokens),
}

impl Client {
    /// Connects to nothing yet; tokens begin to be obtained.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn new(settings: &SchemaRegistry, metrics: SchemaMetrics) -> Result<Self, String> {
        let own = settings.certificate.as_deref().zip(settings.key.as_deref());
        let speaks_tls = settings.urls.iter().any(|url| url.starts_with("https"));
        let tls = speaks_tls.then(|| tls::client_as(settings.ca.as_deref(), own, &[ALPN_HTTP_1_1]).into());
        let others =
            [("target-sr-cluster", &settings.logical_cluster), ("confluent-identity-pool-id", &settings.identity_pool)];
        let others = others.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        let others = others.map(|(name, value)| Ok((HeaderName::from_static(name), header(value.reveal(), name)?)));
        Ok(Self {
            web: Web::new(tls),
            bases: settings.urls.iter().map(|url| Base::of(url)).collect(),
            last: Cell::new(0),
            login: login(settings)?,
            others: others.collect::<Result<_, String>>()?,
            secrets: secrets(settings),
            timeout: Duration::from_millis(settings.timeout_ms),
            metrics,
            ids_of: settings.ids_of,
        })
    }

    /// The answer to a question, whose address depends on that of the registry.
    ///
    /// # Errors
    /// There is none.
    pub async fn get(&self, url_of: impl Fn(&Base) -> Result<String, String>) -> Result<Got, Missing> {
        let mut missing: Option<Missing> = None;
        for step in 0..self.bases.len() {
            let at = (self.last.get() + step) % self.bases.len();
            let url = url_of(&self.bases[at]).map_err(Missing::Unusable)?;
            let got = self.get_at(&url, &self.bases[at].url).await;
            self.metrics.asked(got.as_ref().map_or_else(Missing::asked, |_| Asked::Found));
            match got {
                Ok(got) => {
                    self.last.set(at);
                    return Ok(got);
                }
                Err(found) => missing = Some(missing.map_or(found.clone(), |before| worse(before, found))),
            }
        }
        Err(missing.unwrap_or_else(|| Missing::Failed("it has no address".to_owned())))
    }

    /// The same at an address of its own, which another answer has led to.
    pub async fn get_there(&self, url: &str) -> Result<Got, Missing> {
        let base = self.bases.iter().map(|base| base.url.as_str()).find(|base| same_server(base, url));
        let base = base.ok_or_else(|| Missing::Unusable("it refers to another registry".to_owned()))?;
        let got = self.get_at(url, base).await;
        self.metrics.asked(got.as_ref().map_or_else(Missing::asked, |_| Asked::Found));
        got
    }

    async fn get_at(&self, url: &str, base: &str) -> Result<Got, Missing> {
        let path = url.strip_prefix(base).unwrap_or(url).split('?').next().unwrap_or_default();
        let what = format!("GET {path}");
        let named = |missing: Missing| {
            let at = |why: String| format!("{base}: {why}");
            match missing {
                Missing::Absent(why) => Missing::Absent(at(why)),
                Missing::Unusable(why) => Missing::Unusable(why),
                Missing::Refused(why) => Missing::Refused(at(why)),
                Missing::Failed(why) => Missing::Failed(at(why)),
            }
        };
        let answered = tokio::time::timeout(self.timeout, self.exchange(url)).await;
        let answer = match answered {
            Ok(answer) => answer.map_err(named)?,
            Err(_) => return Err(named(Missing::Failed(format!("it does not answer within {:?}", self.timeout)))),
        };
        let accepted = accepted(&answer, &what, self.advice()).map(|_| ());
        accepted.map_err(|missing| named(self.hidden(missing)))?;
        Ok(Got { answer, what })
    }

    async fn exchange(&self, url: &str) -> Result<Answer, Missing> {
        let uri: Uri =
            url.parse().map_err(|_| Missing::Unusable("its address is too long or no address".to_owned()))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::get(path)
            .header(ACCEPT, "application/vnd.schemaregistry.v1+json, application/json, */*;q=0.5")
            .body(Full::new(Bytes::new()))
            .map_err(|_| Missing::Unusable("its address is no address".to_owned()))?;
        let headers = request.headers_mut();
        headers.extend(self.others.iter().cloned());
        match &self.login {
            Login::Nobody => {}
            Login::Fixed { header, .. } => {
                headers.insert(AUTHORIZATION, header.clone());
            }
            Login::Tokens(tokens) => {
                headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", token(tokens).await?), "the token")?);
            }
        }
        let answered = self.web.exchange(&uri, request, BODY_BYTES_MAX).await;
        answered.map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> Missing {
        self.hidden(Missing::Failed(match failure {
            Failure::Unreached(why) => format!("it cannot be reached: {}", clean(&why)),
            Failure::Untrusted(why) => {
                format!("no TLS with it: {}; name its authority by schema_registry.ca", clean(&why))
            }
            Failure::NoTls(why) => format!("no TLS with it: {}", clean(&why)),
            Failure::Unanswered(why) => format!("it does not answer: {}", clean(&why)),
            Failure::TooLong(_) => return Missing::Unusable("the answer is longer than 4 MiB".to_owned()),
            Failure::Unusable(why) => format!("it cannot be asked: {}", clean(&why)),
        }))
    }

    /// What to correct where the registry does not let ratchet in.
    fn advice(&self) -> &'static str {
        match &self.login {
            Login::Nobody => {
                "set schema_registry.username and password, token or oauth, or a certificate, or allow reading without"
            }
            Login::Fixed { settings, .. } => settings,
            Login::Tokens(_) => {
                "correct schema_registry.oauth, logical_cluster or identity_pool, or the client's rights"
            }
        }
    }

    /// Without what must not be shown, wherever it comes from.
    pub fn hidden(&self, missing: Missing) -> Missing {
        let hide = |said: String| self.secrets.iter().fold(said, |said, secret| said.replace(secret.as_str(), "***"));
        match missing {
            Missing::Absent(why) => Missing::Absent(hide(why)),
            Missing::Unusable(why) => Missing::Unusable(hide(why)),
            Missing::Refused(why) => Missing::Refused(hide(why)),
            Missing::Failed(why) => Missing::Failed(hide(why)),
        }
    }
}

/// What counts of two addresses' answers: a failure rather than an absence, and the first of two alike.
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

/// The token that is valid now, once there is one.
async fn token(tokens: &AccessTokens) -> Result<String, Missing> {
    loop {
        match tokens.current() {
            Ok(token) => return Ok(token),
            Err(missing) if missing.is_lasting => return Err(Missing::Refused(missing.why)),
            // It is being asked for: the time that an answer may take bounds this.
            Err(missing) if missing.is_awaited => tokio::time::sleep(TOKEN_WAIT).await,
            Err(missing) => return Err(Missing::Failed(missing.why)),
        }
    }
}

fn login(settings: &SchemaRegistry) -> Result<Login, String> {
    let SchemaRegistry { username, password, token, oauth, .. } = settings;
    if let (Some(user), Some(password)) = (username, password) {
        let user = STANDARD.encode(format!("{}:{}", user.reveal(), password.reveal()));
        let header =
            sensitive(&format!("Basic {user}"), "schema_registry.password").map_err(|missing| match missing {
                Missing::Absent(why) | Missing::Unusable(why) | Missing::Refused(why) | Missing::Failed(why) => why,
            })?;
        return Ok(Login::Fixed {
            header,
            settings: "correct schema_registry.username or password, or the user's rights",
        });
    }
    if let Some(token) = token {
        let header = header(&format!("Bearer {}", token.reveal()), "schema_registry.token")?;
        return Ok(Login::Fixed { header, settings: "correct schema_registry.token, or its rights" });
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
        .map_err(|_| format!("{name} holds what cannot be sent in a header, a line's end say"))?;
    header.set_sensitive(true);
    Ok(header)
}

fn sensitive(value: &str, name: &str) -> Result<HeaderValue, Missing> {
    header(value, name).map_err(Missing::Failed)
}

/// What must not be shown, in each form in which it is sent.
fn secrets(settings: &SchemaRegistry) -> Vec<String> {
    let mut secrets: Vec<String> = Vec::new();
    if let (Some(user), Some(password)) = (&settings.username, &settings.password) {
        secrets.push(STANDARD.encode(format!("{}:{}", user.reveal(), password.reveal())));
    }
    let texts = [&settings.password, &settings.token, &settings.oauth.client_secret];
    secrets.extend(texts.into_iter().flatten().map(Text::reveal).filter(|text| !text.is_empty()).map(str::to_owned));
    secrets
}
