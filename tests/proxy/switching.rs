//! Changes of protocol: a web socket's handshake, and what goes over it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::program::Room;

/// The handshake of RFC 6455, 1.3.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Reads a head.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

/// A server of web sockets that gives each text back, unmasked, until the client closes.
async fn serve(mut stream: TcpStream) -> String {
    let asked = head(&mut stream).await;
    let said = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {ACCEPT}\r\n\r\n"
    );
    stream.write_all(said.as_bytes()).await.unwrap();
    loop {
        let mut frame = [0; 6];
        stream.read_exact(&mut frame).await.unwrap();
        let mut data = vec![0; usize::from(frame[1] & 0x7f)];
        stream.read_exact(&mut data).await.unwrap();
        data.iter_mut().zip(frame[2..].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        stream.write_all(&[frame[0], u8::try_from(data.len()).unwrap()]).await.unwrap();
        stream.write_all(&data).await.unwrap();
        if frame[0] == 0x88 {
            return asked;
        }
    }
}

fn masked(kind: u8, text: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let data = text.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [0x80 | kind, 0x80 | u8::try_from(text.len()).unwrap()].into_iter().chain(mask).chain(data).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn web_socket_goes_through() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (room, address) = (Room::new(), listener.local_addr().unwrap());
    let served = tokio::spawn(async move { serve(listener.accept().await.unwrap().0).await });
    let proxy = room.start(&format!("http://{address}"), "key: required\nidle_timeout: 1s\nhead_timeout: 1s");
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let asked = format!(
        "GET /chat HTTP/1.1\r\nHost: shop.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await.unwrap();
    let said = head(&mut stream).await;
    assert!(said.starts_with("http/1.1 101"), "{said}");
    assert!(said.contains("upgrade: websocket") && said.contains(&ACCEPT.to_ascii_lowercase()), "{said}");
    for text in ["hello", "again"] {
        stream.write_all(&masked(1, text)).await.unwrap();
        let mut frame = [0; 7];
        stream.read_exact(&mut frame).await.unwrap();
        assert_eq!(&frame[2..], text.as_bytes());
        // It may be silent for longer than a connection without a request.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
    stream.write_all(&masked(8, "")).await.unwrap();
    let asked = served.await.unwrap();
    assert!(asked.starts_with("get /chat http/1.1") && asked.contains("host: shop.example"), "{asked}");
    assert!(asked.contains("x-forwarded-for: 127.0.0.1") && asked.contains("connection: upgrade"), "{asked}");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [0x88, 0], "the service's own end");
}

/// By HTTP/2 within a connection that has changed to it, requests would go past every rule.
#[tokio::test(flavor = "multi_thread")]
async fn no_other_protocol_is_changed_to() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (room, address) = (Room::new(), listener.local_addr().unwrap());
    // It changes to whatever it is asked for.
    let served = tokio::spawn(async move {
        let mut asked = Vec::new();
        while asked.len() < 4 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let head = head(&mut stream).await;
            let said = match head.contains("upgrade:") {
                true => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
                false => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            };
            stream.write_all(said.as_bytes()).await.unwrap();
            asked.push(head);
        }
        asked
    });
    let proxy = room.start(&format!("http://{address}"), "key: required");
    for protocols in ["h2c", "h2c, websocket", "websocket, h2c", "websocket\r\nUpgrade: h2c"] {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        let asked = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocols}\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        );
        stream.write_all(asked.as_bytes()).await.unwrap();
        let said = head(&mut stream).await;
        assert!(said.starts_with("http/1.1 200"), "{protocols}: {said}");
    }
    for asked in served.await.unwrap() {
        assert!(!asked.contains("upgrade") && !asked.contains("http2-settings"), "{asked}");
    }
}
