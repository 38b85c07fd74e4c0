//! Notifications over HTTP, in the clear or over TLS, signed if the receiver has a key.

use crate::alarms::settings::AlarmsSettings;
use ring::hmac;
use sheaf_alarms::{SIGNATURE_HEADER, signature};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

/// Bytes of an answer that are read, for the log.
const ANSWER_BYTES_MAX: u64 = 1024;

/// Posts `body` as JSON; an answer of success is a delivery.
pub(super) fn post(
    settings: &AlarmsSettings,
    url: &str,
    body: &str,
    secret_file: Option<&str>,
) -> Result<(), String> {
    let timeout = Some(Duration::from_millis(settings.timeout_ms));
    let mut config = Agent::config_builder()
        .timeout_global(timeout)
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .user_agent("sheaf-monitor");
    if url.starts_with("https://") {
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(roots(&settings.ca)?)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        config = config.tls_config(tls.build());
    }
    let agent: Agent = config.build().into();
    let mut request = agent.post(url).header("content-type", "application/json");
    if let Some(file) = secret_file {
        // Read for every attempt, so that a key can be changed while the collector runs.
        let key = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        request = request.header(SIGNATURE_HEADER, sign(key.trim_end(), body));
    }
    let mut answer = request
        .send(body)
        .map_err(|error| format!("{url}: {error}"))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let text = text.lossy_utf8(true).read_to_string().unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    Err(format!("{url}: status {status}: {line}"))
}

fn sign(key: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    signature(body, |bytes| {
        let code = hmac::sign(&key, bytes);
        code.as_ref().try_into().expect("32 bytes of SHA-256")
    })
}

/// Reads the certificates in a PEM file.
fn roots(path: &Path) -> Result<RootCerts, String> {
    let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let certificates = parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        let path = path.display();
        return Err(format!("{path}: found no certificate, expected PEM"));
    }
    Ok(RootCerts::new_with_certs(&certificates))
}
