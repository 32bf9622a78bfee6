//! Requests and responses as frames, without their lengths.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

/// A request that was read from a connection.
pub struct Incoming {
    pub api: ApiKey,
    pub version: i16,
    pub correlation: i32,
    pub body: Bytes,
}

impl Incoming {
    /// `None` if the frame is no request: the broker closes the connection.
    pub fn read(frame: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let (api, version) = (ApiKey::try_from(number(0)?).ok()?, number(2)?);
        let mut body = Bytes::copy_from_slice(frame);
        let header = RequestHeader::decode(&mut body, api.request_header_version(version)).ok()?;
        Some(Self { api, version, correlation: header.correlation_id, body })
    }
}

/// A response with its header.
pub fn encode<R: Encodable + HeaderVersion>(response: &R, correlation: i32, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut bytes, R::header_version(version)).expect("a header of this version");
    response.encode(&mut bytes, version).expect("a response of this version");
    bytes.to_vec()
}

/// A request's body, if there is nothing else: what follows a request is a mistake of the client's.
pub fn decode<R: Decodable>(incoming: &Incoming) -> Option<R> {
    let mut body = incoming.body.clone();
    let request = R::decode(&mut body, incoming.version).ok()?;
    body.is_empty().then_some(request)
}

/// A string as the protocol's types have it.
pub fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}
