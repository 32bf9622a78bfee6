//! What a case sets: on the layer by a call, in a proxy's file by a line.

use std::time::Duration;

use http::{HeaderName, StatusCode};
use ratchet::http::{Idempotency, OnInDoubt};

/// A setting.
#[derive(Clone, Copy, Debug)]
pub enum Set {
    Scope(&'static str),
    Required,
    Header(&'static str),
    NoCaller,
    Caller(&'static str),
    /// This header, or the one that it is if nothing is said.
    CallerRequired(Option<&'static str>),
    FingerprintHeader(&'static str),
    FingerprintExcept(&'static [&'static str]),
    Remembered(&'static [&'static str]),
    Retention(Duration),
    Lease(Duration),
    Wait(Duration),
    RequestBytesMax(usize),
    AnswerBytesMax(usize),
    AtWorkMax(usize),
    BodiesBytesMax(usize),
    ReservationHeader(&'static str),
    /// Nothing runs twice.
    RefuseInDoubt,
    Released(&'static [u16]),
}

impl Set {
    /// The layer, set like this.
    pub fn on(&self, layer: Idempotency) -> Idempotency {
        let name = HeaderName::from_static;
        match *self {
            Set::Scope(scope) => layer.scope(scope),
            Set::Required => layer.required(true),
            Set::Header(header) => layer.header(name(header)),
            Set::NoCaller => layer.caller(|_| None),
            Set::Caller(header) => layer.caller_header(name(header)),
            Set::CallerRequired(None) => layer.caller_required(true),
            Set::CallerRequired(Some(header)) => layer.caller_header(name(header)).caller_required(true),
            Set::FingerprintHeader(header) => layer.fingerprint_headers([name(header)]),
            Set::FingerprintExcept(fields) => layer.fingerprint_except(fields.iter().copied()).expect("fields"),
            Set::Remembered(headers) => layer.remembered_headers(headers.iter().copied().map(name)),
            Set::Retention(length) => layer.retention(length),
            Set::Lease(length) => layer.lease(length),
            Set::Wait(length) => layer.wait(length),
            Set::RequestBytesMax(bytes) => layer.request_bytes_max(bytes),
            Set::AnswerBytesMax(bytes) => layer.answer_bytes_max(bytes),
            Set::AtWorkMax(requests) => layer.at_work_max(requests),
            Set::BodiesBytesMax(bytes) => layer.bodies_bytes_max(bytes),
            Set::ReservationHeader(header) => layer.reservation_header(name(header)),
            Set::RefuseInDoubt => layer.on_in_doubt(OnInDoubt::Refuse),
            Set::Released(statuses) => {
                layer.released(statuses.iter().map(|status| StatusCode::from_u16(*status).expect("a status")))
            }
        }
    }

    /// The line of a proxy's file.
    pub fn line(&self) -> String {
        let ms = |length: Duration| format!("{}ms", length.as_millis());
        let line = match *self {
            Set::Scope(scope) => format!("scope: {scope}"),
            Set::Required => "key: required".to_owned(),
            Set::Header(header) => format!("header: {header}"),
            Set::NoCaller => "caller: none".to_owned(),
            Set::Caller(header) => format!("caller: {header}"),
            Set::CallerRequired(None) => "caller: {required: true}".to_owned(),
            Set::CallerRequired(Some(header)) => format!("caller: {{header: {header}, required: true}}"),
            Set::FingerprintHeader(header) => format!("fingerprint: {{headers: [{header}]}}"),
            Set::FingerprintExcept(fields) => format!("fingerprint: {{except: [{}]}}", fields.join(", ")),
            Set::Remembered(headers) => format!("remember: {{headers: [{}]}}", headers.join(", ")),
            Set::Retention(length) => format!("retention: {}", ms(length)),
            Set::Lease(length) => format!("lease: {}", ms(length)),
            Set::Wait(length) => format!("wait: {}", ms(length)),
            Set::RequestBytesMax(bytes) => format!("request_bytes_max: {bytes}B"),
            Set::AnswerBytesMax(bytes) => format!("answer_bytes_max: {bytes}B"),
            Set::AtWorkMax(requests) => format!("at_work_max: {requests}"),
            Set::BodiesBytesMax(bytes) => format!("bodies_bytes_max: {bytes}B"),
            Set::ReservationHeader(header) => format!("reservation_header: {header}"),
            Set::RefuseInDoubt => "on_in_doubt: refuse".to_owned(),
            Set::Released(statuses) => format!("released: {statuses:?}"),
        };
        line + "\n"
    }
}
