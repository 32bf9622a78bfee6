//! Tokens for logins by OAUTHBEARER, by client credentials (RFC 6749, section 4.4): what librdkafka calls
//! `sasl.oauthbearer.method=oidc`, with its properties. The librdkafka that is built in cannot ask for tokens, since it
//! has no libcurl: so they are asked for here, once for all clients, those of the wire and those of librdkafka.
//!
//! - `credentials`: what the properties say
//! - `endpoint`: asks the token endpoint; `answer`: what its answers mean
//! - `source`: has a token for all clients, and gets the next one in time
//! - `access`: the same for services other than Kafka
//!
//! Invariants: none of its properties is given to librdkafka. A token endpoint is asked by one thread of each source,
//! never by a lane's.
//!
//! **Failure**: what a person has to fix (a wrong secret, say) is [`NoToken`](super::wire::login::NoToken) with
//! `is_lasting`; an endpoint that cannot be reached is a `NoToken` without it. Both are tried again, with
//! exponential back-off; the last token counts until it ends. No message holds a property's value, a token or the
//! secret, not even where the endpoint sends it back.

mod access;
mod answer;
mod credentials;
mod endpoint;
mod source;
#[cfg(test)]
mod tests;

pub use access::{AccessTokens, NoAccess, TokenClient};
pub(super) use credentials::{Credentials, is_own};
pub(super) use source::{Hears, Held, Source};
