//! Bearer tokens of the WLCG profile: signed by an issuer that is trusted, for this server, not expired.
//!
//! Keys of an issuer are read from it (OpenID Connect Discovery, RFC 7517), and kept; a token that was checked is known
//! until it expires.

use crate::answer::Answer;
use crate::config::TokenConfig;
use crate::head::Head;
use crate::outside::{self, CaError};
use crate::path::TreePath;
use crate::rights::{Need, Rights};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use thiserror::Error;
use ureq::Agent;

/// Audience by which the profile names every server.
const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// Difference of clocks that is allowed.
const LEEWAY_S: u64 = 10;
/// How long keys count before they are read again.
const KEYS_FOR: Duration = Duration::from_secs(3600);
/// Shortest time between two readings, whatever keys tokens name.
const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// Tokens that are known.
const KNOWN_MAX: usize = 4096;
/// Largest answer of an issuer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Signatures with a key that only the issuer has. The others of the library are of a secret that both sides know.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Reason why a token gives no right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
enum TokenError {
    #[error("expected a header `Authorization` with a bearer token")]
    None,
    #[error("found no token of three parts in base64")]
    Malformed,
    #[error("the issuer {0} is not trusted")]
    Issuer(String),
    #[error("found the signature {0}, expected one with a public key")]
    Algorithm(String),
    #[error("the issuer has no such key")]
    Key,
    #[error("the keys of the issuer cannot be read: {0}")]
    Unreachable(String),
    #[error("{0}")]
    Refused(String),
}

/// Issuer that is trusted, and its keys.
struct Issuer {
    url: String,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    set: Option<JwkSet>,
    /// When they were read, or when that was tried.
    at: Option<Instant>,
}

/// Check of tokens.
pub(crate) struct Guard {
    issuers: Vec<Issuer>,
    audiences: Vec<String>,
    agent: Agent,
    /// By the SHA-256 of the token.
    known: Mutex<HashMap<[u8; 32], Known>>,
}

/// Token that was checked.
struct Known {
    rights: Arc<Rights>,
    /// Second since 1970 from which it does not count.
    until: u64,
}

#[derive(Debug, Deserialize)]
struct Claims {
    exp: u64,
    #[serde(default)]
    scope: String,
}

#[derive(Debug, Deserialize)]
struct Issued {
    iss: String,
}

#[derive(Debug, Deserialize)]
struct Discovery {
    jwks_uri: String,
}

impl Guard {
    /// Makes a check by issuers that are asked with checks by `ca`.
    pub(crate) fn new(config: &TokenConfig, ca: Option<&Path>) -> Result<Self, CaError> {
        let issuers = config.issuers.iter().map(|url| Issuer {
            url: url.trim_end_matches('/').to_owned(),
            keys: Mutex::default(),
        });
        let mut audiences = config.audiences.clone();
        audiences.push(ANY_AUDIENCE.to_owned());
        Ok(Self {
            issuers: issuers.collect(),
            audiences,
            agent: outside::agent(ca)?,
            known: Mutex::default(),
        })
    }

    /// Returns the rights of the bearer of a request, or the answer that refuses it.
    pub(crate) async fn rights(self: &Arc<Self>, head: &Head) -> Result<Arc<Rights>, Answer> {
        let token = head.get("authorization").and_then(bearer);
        let Some(token) = token.filter(|token| token.len() <= TOKEN_BYTES_MAX) else {
            return Err(unauthorized(&TokenError::None));
        };
        let hash = hash(token);
        if let Some(rights) = self.known(&hash) {
            return Ok(rights);
        }
        let (guard, token) = (self.clone(), token.to_owned());
        // The issuer may have to be asked.
        let checked = tokio::task::spawn_blocking(move || guard.check(&token)).await;
        match checked {
            Ok(Ok((rights, until))) => {
                let rights = Arc::new(rights);
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                if known.len() >= KNOWN_MAX {
                    known.clear();
                }
                let granted = rights.clone();
                known.insert(hash, Known { rights, until });
                Ok(granted)
            }
            Ok(Err(error @ TokenError::Unreachable(_))) => Err(Answer::refusal(503, error)),
            Ok(Err(error)) => Err(unauthorized(&error)),
            Err(_) => Err(Answer::refusal(503, "the server is about to end")),
        }
    }

    fn known(&self, hash: &[u8; 32]) -> Option<Arc<Rights>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let token = known.get(hash)?;
        if token.until > now() {
            return Some(token.rights.clone());
        }
        known.remove(hash);
        None
    }

    /// Checks a token. Returns its rights and the second of their end.
    fn check(&self, token: &str) -> Result<(Rights, u64), TokenError> {
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(TokenError::Algorithm(format!("{:?}", header.alg)));
        }
        let url = issuer_of(token).ok_or(TokenError::Malformed)?;
        let mut issuers = self.issuers.iter();
        let issuer = issuers.find(|issuer| issuer.url == url.trim_end_matches('/'));
        let issuer = issuer.ok_or_else(|| TokenError::Issuer(url.clone()))?;
        let key = self.key(issuer, header.kid.as_deref())?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_S;
        validation.validate_nbf = true;
        validation.set_audience(&self.audiences);
        validation.set_issuer(&[&url]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        let checked = decode::<Claims>(token, &key, &validation);
        let claims = checked
            .map_err(|error| TokenError::Refused(error.to_string()))?
            .claims;
        Ok((Rights::of_scope(&claims.scope), claims.exp))
    }

    /// Returns the key with this id, the only one if a token names none.
    fn key(&self, issuer: &Issuer, id: Option<&str>) -> Result<DecodingKey, TokenError> {
        let mut keys = issuer.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let age = keys.at.map(|at| at.elapsed());
        let mut failed = None;
        let is_missing = keys.set.as_ref().is_none_or(|set| find(set, id).is_none());
        let is_due = age.is_none_or(|age| age > if is_missing { AGAIN_AFTER } else { KEYS_FOR });
        if is_due {
            keys.at = Some(Instant::now());
            match self.read_keys(&issuer.url) {
                // Old keys count until the issuer is back.
                Err(error) => failed = Some(error),
                Ok(set) => keys.set = Some(set),
            }
        }
        match (&keys.set, failed) {
            (Some(set), _) => find(set, id).ok_or(TokenError::Key),
            (None, Some(error)) => {
                // The next request asks again: it may be a matter of a moment.
                keys.at = None;
                Err(TokenError::Unreachable(error))
            }
            (None, None) => Err(TokenError::Key),
        }
    }

    fn read_keys(&self, issuer: &str) -> Result<JwkSet, String> {
        let discovery = format!("{issuer}/.well-known/openid-configuration");
        let discovery: Discovery = self.read_json(&discovery)?;
        self.read_json(&discovery.jwks_uri)
    }

    fn read_json<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, String> {
        if !outside::is_safe(url) {
            return Err(format!("found {url}, expected https"));
        }
        let answer = self.agent.get(url).call();
        let mut answer = answer.map_err(|error| format!("{url}: {error}"))?;
        if !answer.status().is_success() {
            return Err(format!("{url}: status {}", answer.status()));
        }
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let text = body
            .read_to_string()
            .map_err(|error| format!("{url}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{url}: {error}"))
    }
}

/// Refuses a request whose bearer may not do this.
pub(crate) fn forbidden(need: Need, path: &TreePath) -> Answer {
    let what = match need {
        Need::Read => "storage.read",
        Need::Create => "storage.create",
        Need::Modify => "storage.modify",
    };
    let why = format_args!("the token lacks {what} at /{}", path.as_str()).to_string();
    Answer::refusal(403, why).with("WWW-Authenticate", "Bearer error=\"insufficient_scope\"")
}

fn unauthorized(error: &TokenError) -> Answer {
    let challenge = match error {
        TokenError::None => "Bearer",
        _ => "Bearer error=\"invalid_token\"",
    };
    Answer::refusal(401, error).with("WWW-Authenticate", challenge)
}

/// Takes the scheme off a header; it has any case (RFC 9110, section 11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Reads the issuer of a token that is not checked yet, to know whose keys to check it by.
fn issuer_of(token: &str) -> Option<String> {
    let bytes = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let issued: Issued = serde_json::from_slice(&bytes).ok()?;
    Some(issued.iss)
}

fn find(set: &JwkSet, id: Option<&str>) -> Option<DecodingKey> {
    let key = match (id, &set.keys[..]) {
        (Some(id), _) => set.find(id)?,
        (None, [key]) => key,
        (None, _) => return None,
    };
    DecodingKey::from_jwk(key).ok()
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
