//! A client's body that breaks off or is no body is the client's failure: 400, no failure of the service's is counted, and
//! the log has one line for many.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{metric, outcomes};
use super::service::Service;
use crate::program::Room;
use crate::until::DEADLINE;

const LINE: &str = "requests could not be forwarded completely";

/// What a client is answered that sends this and waits.
async fn said(proxy: std::net::SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    // The connection may be reset after the answer.
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut said)).await;
    drop(read.expect("it is closed"));
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_is_none_is_its_clients_failure() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "idle_timeout: 2s");
    let post = |more: &str, body: &str| {
        format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n{more}\r\n{body}")
    };
    let broken = ["5\r\nhello\r\nZZ\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-1\r\n"];
    for body in broken {
        let got = said(proxy.address, &post("", body)).await;
        assert!(got.starts_with("HTTP/1.1 400") && got.contains("urn:ratchet:proxy:body-unread"), "{body:?}: {got}");
        let got = said(proxy.address, &post("idempotency-key: k\r\n", body)).await;
        assert!(got.starts_with("HTTP/1.1 400") && got.contains("idempotency:body-unread"), "{body:?}: {got}");
    }
    // One that does not come in time.
    let late = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nhello";
    let got = said(proxy.address, late).await;
    assert!(got.starts_with("HTTP/1.1 400") && got.contains("urn:ratchet:proxy:body-unread"), "{got}");
    // One whose client goes away.
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(late.as_bytes()).await.unwrap();
    drop(stream);
    let refused = 2.0 * broken.len() as f64 + 1.0;
    let counted = outcomes(proxy.metrics, "body_refused").await;
    assert!(counted >= refused, "{counted} of {refused}: {}", proxy.log());
    tokio::time::sleep(Duration::from_millis(300)).await;
    for failure in ["lost", "late", "not_sent"] {
        let series = format!("ratchet_http_upstream_failures_total{{failure=\"{failure}\",route=\"default\"}}");
        assert_eq!(metric(proxy.metrics, &series).await, 0.0, "{failure}: {}", proxy.log());
    }
    let log = proxy.log();
    assert_eq!(log.lines().filter(|line| line.contains(LINE)).count(), 1, "{log}");
    assert!(!log.contains("the service did not answer a request"), "{log}");
}
