//! Writes over HTTP: line protocol as InfluxDB takes it, and Prometheus remote write.

use super::answer::Refused;
use super::params::Params;
use crate::gzip::{self, GzipError};
use crate::shared::Shared;
use crate::wall;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sheaf_intake::{Outcome, Peer, Protocol};
use sheaf_samples::wire::line_protocol::Precision;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a write waits for room before it is sent away.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two looks for room.
const ROOM_AGAIN: Duration = Duration::from_millis(2);

/// Media type of OTLP.
const PROTOBUF: &str = "application/x-protobuf";

type Asked = State<Arc<Shared>>;

/// `/write` and `/api/v2/write`
pub(super) async fn lines(
    State(shared): Asked,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let name = params.get("precision").unwrap_or("ns");
    let precision = Precision::of_name(name).ok_or_else(|| {
        influx(
            StatusCode::BAD_REQUEST,
            &format!("parameter \"precision\": found {name:?}, expected ns, us, ms or s"),
        )
    })?;
    let body = unpacked(&shared, &headers, body)?;
    let outcome = take(&shared, address, Protocol::Lines(precision), &body).await?;
    match outcome.first_fault {
        None if outcome.refused == 0 => Ok(StatusCode::NO_CONTENT.into_response()),
        fault => {
            let what = match fault {
                Some(code) => format!("{} ({})", code.found(), code.name()),
                None => "bounds of the source, see /api/sources".to_owned(),
            };
            let text = format!(
                "partial write: {} samples taken, {} bad, {} refused: {what}",
                outcome.taken, outcome.bad, outcome.refused
            );
            Err(influx(StatusCode::BAD_REQUEST, &text))
        }
    }
}

/// `/api/v1/write`
pub(super) async fn remote_write(
    State(shared): Asked,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    body: Bytes,
) -> Result<Response, Refused> {
    let outcome = take(&shared, address, Protocol::RemoteWrite, &body).await?;
    match outcome.first_fault {
        None => Ok(StatusCode::NO_CONTENT.into_response()),
        Some(code) => Err(Refused::bad(format!(
            "{} samples taken, {} bad: {} ({})",
            outcome.taken,
            outcome.bad,
            code.found(),
            code.name()
        ))),
    }
}

/// `/v1/metrics`
pub(super) async fn otlp(
    State(shared): Asked,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .map_or(&b""[..], HeaderValue::as_bytes);
    if !kind.starts_with(PROTOBUF.as_bytes()) {
        let found = String::from_utf8_lossy(kind);
        let text = format!("content-type: found {found:?}, expected {PROTOBUF}");
        return Err(Refused::of(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bad_data",
            text,
        ));
    }
    let body = unpacked(&shared, &headers, body)?;
    let outcome = take(&shared, address, Protocol::Otlp, &body).await?;
    let rejected = outcome.bad + outcome.refused;
    let reason = match outcome.first_fault {
        Some(code) => format!("{} ({})", code.found(), code.name()),
        None => "bounds of the source, see /api/sources".to_owned(),
    };
    if outcome.taken == 0 && outcome.bad > 0 {
        // Nothing could be read: a repetition is no use, as the specification has it.
        return Err(Refused::bad(reason));
    }
    let body = sheaf_samples::wire::otlp::response(rejected, &reason);
    Ok(([(header::CONTENT_TYPE, PROTOBUF)], body).into_response())
}

/// Waits for room, then takes the samples of a request.
async fn take(
    shared: &Shared,
    address: SocketAddr,
    protocol: Protocol,
    body: &[u8],
) -> Result<Outcome, Refused> {
    if shared.kept.is_full.load(Ordering::Relaxed) {
        return Err(Refused::of(
            StatusCode::INSUFFICIENT_STORAGE,
            "storage_full",
            "the disk of the store is full; what it holds can be read",
        ));
    }
    let until = Instant::now() + ROOM_WITHIN;
    while !shared.queue.has_room() {
        if Instant::now() > until {
            return Err(Refused::of(
                StatusCode::SERVICE_UNAVAILABLE,
                "overload",
                "the store is behind; send again later",
            ));
        }
        tokio::time::sleep(ROOM_AGAIN).await;
    }
    let peer = Peer {
        address: address.ip(),
        stream: u64::from(address.port()),
    };
    let mut shard = shared.shard();
    let outcome = shard.take(wall::now_ms(), peer, protocol, body);
    shard.flush();
    Ok(outcome)
}

/// Body without its compression. The bound holds for both forms.
fn unpacked(shared: &Shared, headers: &HeaderMap, body: Bytes) -> Result<Bytes, Refused> {
    match headers
        .get(header::CONTENT_ENCODING)
        .map(axum::http::HeaderValue::as_bytes)
    {
        None | Some(b"identity") => Ok(body),
        Some(b"gzip") => {
            let most = shared.config.request_bytes_max as usize;
            gzip::unpack(&body, most).map_err(|error| {
                let status = match error {
                    GzipError::Damaged(_) => StatusCode::BAD_REQUEST,
                    GzipError::TooBig(_) => StatusCode::PAYLOAD_TOO_LARGE,
                };
                influx(status, &error.to_string())
            })
        }
        Some(other) => {
            let found = String::from_utf8_lossy(other);
            let text = format!("content-encoding: found {found}, expected gzip or identity");
            Err(influx(StatusCode::UNSUPPORTED_MEDIA_TYPE, &text))
        }
    }
}

/// Refusal in the form of InfluxDB, of which clients show the text.
fn influx(status: StatusCode, text: &str) -> Refused {
    Refused::raw(
        status,
        serde_json::json!({ "error": text, "code": "invalid", "message": text }).to_string(),
    )
}
