//! Bearer tokens: who may do what, and whose signatures count.

use crate::client::Site;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::KeyPair;
use serde_json::{Value, json};
use sheaf_file_server::TokenConfig;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// Issuer of tokens on this machine.
struct Issuer {
    url: String,
    keys: Arc<Mutex<Vec<(String, KeyPair)>>>,
    /// How often its keys were read.
    readings: Arc<AtomicUsize>,
}

impl Issuer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let keys = Arc::new(Mutex::new(vec![("first".to_owned(), key())]));
        let issuer = Self {
            url: url.clone(),
            keys: keys.clone(),
            readings: Arc::default(),
        };
        let readings = issuer.readings.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut lines = BufReader::new(stream.try_clone().expect("cloned")).lines();
                let first = lines.next().expect("a line").expect("readable");
                while lines
                    .next()
                    .is_some_and(|line| !line.expect("readable").is_empty())
                {}
                let body = if first.contains("/.well-known/openid-configuration ") {
                    json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") })
                } else {
                    readings.fetch_add(1, Ordering::SeqCst);
                    let keys = keys.lock().expect("not poisoned");
                    json!({ "keys": keys.iter().map(jwk).collect::<Vec<_>>() })
                };
                let body = body.to_string();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).expect("sent");
            }
        });
        issuer
    }

    fn claims(&self, scope: &str) -> Value {
        json!({
            "iss": self.url,
            "sub": "test",
            "aud": "https://wlcg.cern.ch/jwt/v1/any",
            "exp": now() + 600,
            "nbf": now(),
            "wlcg.ver": "1.0",
            "scope": scope,
        })
    }

    /// Signs claims with its last key.
    fn sign(&self, claims: &Value) -> String {
        let keys = self.keys.lock().expect("not poisoned");
        let (id, key) = keys.last().expect("a key");
        sign(id, key, claims)
    }

    fn token(&self, scope: &str) -> String {
        self.sign(&self.claims(scope))
    }

    fn site(&self) -> Site {
        Site::start(|config| {
            config.is_writable = true;
            config.tokens = Some(TokenConfig {
                issuers: vec![self.url.clone()],
                audiences: vec!["https://store.example".to_owned()],
            });
        })
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("generated")
}

fn jwk((id, key): &(String, KeyPair)) -> Value {
    // 4, x, y: the uncompressed form of a point.
    let point = key.public_key_raw();
    json!({
        "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id,
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]),
        "y": URL_SAFE_NO_PAD.encode(&point[33..]),
    })
}

fn sign(id: &str, key: &KeyPair, claims: &Value) -> String {
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some(id.to_owned());
    let key = EncodingKey::from_ec_der(&key.serialize_der());
    encode(&header, claims, &key).expect("signed")
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn status(site: &Site, method: &str, target: &str, token: &str, more: &str) -> u16 {
    let mut client = site.connect();
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let body: &[u8] = if method == "PUT" { b"x" } else { b"" };
    client.request(method, target, &format!("{authorization}{more}"), body);
    client.reply(method).status
}

#[test]
fn scopes_say_what_may_be_done_where() {
    let issuer = Issuer::start();
    let site = issuer.site();
    std::fs::create_dir(site.path("run3")).expect("made");
    site.write("run3/a", b"x");
    site.write("b", b"x");
    let read = issuer.token("storage.read:/run3");
    let create = issuer.token("storage.create:/run3");
    let modify = issuer.token("storage.read:/ storage.modify:/run3");
    let none = issuer.token("openid profile");
    let to = |path: &str| format!("Destination: {path}\r\n");
    let cases = [
        ("GET", "/run3/a", "", "", 401),
        ("GET", "/run3/a", &read, "", 200),
        ("GET", "/b", &read, "", 403),
        ("GET", "/run3/a", &none, "", 403),
        ("PROPFIND", "/run3", &read, "Depth: 1\r\n", 207),
        ("PROPFIND", "/", &read, "Depth: 1\r\n", 403),
        ("PUT", "/run3/new", &read, "", 403),
        ("PUT", "/run3/new", &create, "", 201),
        ("PUT", "/run3/new", &create, "", 403),
        ("PUT", "/run3/new", &modify, "", 204),
        ("PUT", "/new", &create, "", 403),
        ("DELETE", "/run3/new", &create, "", 403),
        ("COPY", "/b", &modify, &to("/run3/b"), 201),
        ("COPY", "/b", &modify, &to("/c"), 403),
        ("MOVE", "/b", &modify, &to("/run3/c"), 403),
        ("MOVE", "/run3/b", &modify, &to("/run3/c"), 201),
        ("DELETE", "/run3/new", &modify, "", 204),
        ("OPTIONS", "/", "", "", 200),
    ];
    for (method, target, token, more, expected) in cases {
        let found = status(&site, method, target, token, more);
        assert_eq!(found, expected, "{method} {target} {more}");
    }
    assert_eq!(
        issuer.readings.load(Ordering::SeqCst),
        1,
        "the keys are kept"
    );
    let reply = site.connect().ask("GET", "/run3/a", "");
    assert_eq!(reply.get("www-authenticate"), Some("Bearer"));
}

#[test]
fn tokens_of_others_or_of_other_times_give_no_right() {
    let issuer = Issuer::start();
    let site = issuer.site();
    site.write("a", b"x");
    let with = |name: &str, value: Value| {
        let mut claims = issuer.claims("storage.read:/");
        claims[name] = value;
        status(&site, "GET", "/a", &issuer.sign(&claims), "")
    };
    assert_eq!(with("sub", json!("another")), 200);
    assert_eq!(with("aud", json!(["x", "https://store.example"])), 200);
    assert_eq!(with("aud", json!("https://other.example")), 401);
    assert_eq!(with("exp", json!(now() - 60)), 401);
    assert_eq!(with("nbf", json!(now() + 600)), 401);
    assert_eq!(with("iss", json!("https://evil.example")), 401);
    assert_eq!(with("exp", Value::Null), 401);
    assert_eq!(with("aud", Value::Null), 401);
    // Signed by a key that is not the issuer's, under the name of one that is.
    let claims = issuer.claims("storage.read:/");
    assert_eq!(
        status(&site, "GET", "/a", &sign("first", &key(), &claims), ""),
        401
    );
    assert_eq!(
        status(&site, "GET", "/a", &sign("unknown", &key(), &claims), ""),
        401
    );
    // Without a signature, or by a secret.
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let unsigned = format!("{}.{}.", part(json!({"alg": "none"})), part(claims.clone()));
    assert_eq!(status(&site, "GET", "/a", &unsigned, ""), 401);
    let secret = encode(
        &Header::new(Algorithm::HS256),
        &claims,
        &EncodingKey::from_secret(b"x"),
    );
    assert_eq!(
        status(&site, "GET", "/a", &secret.expect("signed"), ""),
        401
    );
    let token = issuer.token("storage.read:/");
    let (head, signature) = token.rsplit_once('.').expect("three parts");
    let changed = part(issuer.claims("storage.modify:/"));
    let header = head.split('.').next().expect("a header");
    let forged = format!("{header}.{changed}.{signature}");
    assert_eq!(status(&site, "GET", "/a", &forged, ""), 401);
    for token in ["x", "x.y", "..", "é"] {
        assert_eq!(status(&site, "GET", "/a", token, ""), 401, "{token}");
    }
}

#[test]
fn an_issuer_off_this_machine_needs_https() {
    let issuer = Issuer::start();
    let site = issuer.site();
    let mut config = sheaf_file_server::FileServerConfig::new(
        site.path(""),
        "127.0.0.1:0".parse().expect("an address"),
    );
    config.tokens = Some(TokenConfig {
        issuers: vec!["http://issuer.example".to_owned()],
        audiences: Vec::new(),
    });
    let refused = sheaf_file_server::FileServer::start(&config, &site.registry);
    let text = refused.expect_err("refused").to_string();
    assert!(text.contains("expected a URL with https"), "{text}");
}
