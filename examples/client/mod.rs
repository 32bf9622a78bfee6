//! A client for the examples: one POST with a key, and what its answer means for a step. Programs use one like reqwest.

use std::error::Error;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use ratchet::{Key, StepError, Worker};
use tokio::net::TcpStream;

const USAGE: &str = "usage: [--until-drained] --config FILE TOPOLOGY";
/// What is read of an answer.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Posts JSON under a key. Returns the answer's body.
pub async fn post(url: String, key: Key, body: String) -> Result<String, StepError> {
    let uri: Uri = url.parse()?;
    let authority = uri.authority().ok_or_else(|| StepError::rejected("the address has no host"))?.clone();
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    // Nothing was sent: it has certainly not happened.
    let stream = TcpStream::connect(address).await.map_err(|error| StepError::again(error.to_string()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(connection);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header("idempotency-key", key.as_str())
        .body(Full::new(Bytes::from(body)))?;
    // From here on an error may mean that it has happened: `?` says so.
    let answer = sender.send_request(request).await?;
    let status = answer.status().as_u16();
    let read = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    match status {
        200..300 => {
            let body = read.map_err(|error: Box<dyn Error + Send + Sync>| StepError::unknown(error.to_string()))?;
            Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
        }
        // A wrong secret is not the record's fault.
        401 | 403 | 407 | 429 => Err(StepError::again(format!("{uri} answered {status}"))),
        400..=407 | 410..=424 | 426..=428 => Err(StepError::rejected(format!("{uri} answered {status}"))),
        _ => Err(StepError::unknown(format!("{uri} answered {status}"))),
    }
}

/// A worker as the examples' options say, and the topology: `[--until-drained] --config FILE TOPOLOGY`.
pub fn options() -> Result<(Worker, String), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (until_drained, arguments) = match &arguments[..] {
        [flag, others @ ..] if flag == "--until-drained" => (true, others),
        others => (false, others),
    };
    let [flag, config, topology] = arguments else { return Err(USAGE.into()) };
    if flag != "--config" {
        return Err(USAGE.into());
    }
    let worker = Worker::new().config(config);
    Ok((if until_drained { worker.until_drained() } else { worker }, topology.clone()))
}
