//! TLS with an origin.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::settings::Shared;
use crate::tls::{ALPN_HTTP_1_1, ALPN_HTTP_2};
use crate::words::error_text;

/// Performs the TLS handshake with a host. Returns the stream, and whether the host has accepted HTTP/2, which is
/// offered if `offers_http2`.
pub(super) async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    stream: T,
    host: &str,
    offers_http2: bool,
) -> Result<(TlsStream<T>, bool), String> {
    let mut config = shared.tls.current()?;
    if !offers_http2 {
        Arc::make_mut(&mut config).alpn_protocols = vec![ALPN_HTTP_1_1.to_vec()];
    }
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is not a valid name for a certificate"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("no TLS with {host}: {}", error_text(&error)))?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP_2);
    Ok((stream, is_http2))
}
