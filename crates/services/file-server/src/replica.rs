//! Copies of a file at other servers of the same service: clients are sent there for what is not here, and get the list
//! of equal copies of what is.
//!
//! Bytes never pass two servers: the answer is a redirection, as a director sends packets and keeps out of the bytes. A
//! server that is asked by another one answers for its own folder alone, so no request goes round in a circle.

use crate::answer::{Answer, Content};
use crate::digest::Stated;
use crate::head::Head;
use crate::link;
use crate::metalink;
use crate::metrics::Counts;
use crate::path::TreePath;
use crate::peer::Peers;
use crate::stating::want;
use crate::sums::SumStore;
use crate::tree::Tree;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Empty};
use sheaf_write::Sums;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Header by which one server asks another for its own folder alone.
const LOCAL: &str = "x-sheaf-local";
/// Longest time for a peer to say whether it has a file.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Longest time for a peer to tell a checksum, for which it may have to read the file.
const CHECKSUM_WITHIN: Duration = Duration::from_secs(120);
/// How long is remembered which peers have a file, and that none has it.
const FOUND_FOR: Duration = Duration::from_secs(10);
const NONE_FOR: Duration = Duration::from_secs(1);
/// Files that are remembered.
const REMEMBERED_MAX: usize = 4096;
/// Most peers of a server.
pub(crate) const PEERS_MAX: usize = 64;

/// Peers of a server, and what is known of them.
pub(crate) struct Replicas {
    /// Addresses without a slash at the end.
    peers: Vec<String>,
    client: Peers,
    /// Whether clients are sent to where the catalogue says that a file was shipped to.
    follows_shipped: bool,
    /// Takes turns among peers that have a file.
    turn: AtomicUsize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    files: HashMap<String, (Copies, Instant)>,
    order: VecDeque<String>,
}

/// Peers that have a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Copies {
    urls: Vec<String>,
    /// Peers that did not say.
    silent: Vec<String>,
}

impl Replicas {
    /// Returns the peers of a server, if it has any.
    ///
    /// # Errors
    ///
    /// The address that no peer can have, and what is expected.
    pub(crate) fn new(
        peers: &[String],
        follows_shipped: bool,
        client: Peers,
    ) -> Result<Self, String> {
        let mut addresses: Vec<String> = Vec::new();
        for peer in peers {
            client.check(peer)?;
            let address = peer.trim_end_matches('/');
            if address.contains(['?', '#']) {
                return Err(format!(
                    "found `{peer}`, expected a URL without `?` and `#`"
                ));
            }
            addresses.push(address.to_owned());
        }
        if addresses.len() > PEERS_MAX {
            let found = addresses.len();
            return Err(format!("found {found} peers, expected up to {PEERS_MAX}"));
        }
        Ok(Self {
            peers: addresses,
            client,
            follows_shipped,
            turn: AtomicUsize::new(0),
            known: Mutex::default(),
        })
    }

    /// Returns the peers that have a file, of a moment ago or asked now.
    async fn copies(&self, path: &TreePath, head: &Head) -> Copies {
        let target = path.to_target();
        if let Some(copies) = self.remembered(&target) {
            return copies;
        }
        let Some(_place) = self.client.place() else {
            // Too many questions at once: no peer has said anything.
            return Copies {
                urls: Vec::new(),
                silent: self.peers.clone(),
            };
        };
        let headers = asking(head);
        let asked = self.peers.iter().map(|peer| {
            let url = format!("{peer}{target}");
            let headers = &headers;
            async move {
                let asked = self.client.send(&Method::HEAD, &url, headers, nothing);
                let reply = tokio::time::timeout(ANSWER_WITHIN, asked).await;
                (peer, url.clone(), reply)
            }
        });
        let mut copies = Copies::default();
        for (peer, url, reply) in join_all(asked).await {
            match reply {
                Ok(Ok(reply)) if reply.response.status() == 200 => copies.urls.push(url),
                Ok(Ok(reply)) if reply.response.status().is_client_error() => {}
                Ok(Ok(reply)) => {
                    let status = reply.response.status();
                    tracing::debug!(peer, %status, "A peer does not say whether it has a file");
                    copies.silent.push(peer.clone());
                }
                Ok(Err(error)) => {
                    tracing::debug!(peer, error, "A peer does not answer");
                    copies.silent.push(peer.clone());
                }
                Err(_) => copies.silent.push(peer.clone()),
            }
        }
        self.remember(target, &copies);
        copies
    }

    fn remembered(&self, target: &str) -> Option<Copies> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (copies, until) = known.files.get(target)?;
        (*until > Instant::now()).then(|| copies.clone())
    }

    fn remember(&self, target: String, copies: &Copies) {
        let within = match copies.urls.is_empty() {
            true => NONE_FOR,
            false => FOUND_FOR,
        };
        let entry = (copies.clone(), Instant::now() + within);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.files.insert(target.clone(), entry).is_none() {
            known.order.push_back(target);
        }
        if known.order.len() > REMEMBERED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.files.remove(&oldest);
        }
    }

    /// Returns the peers whose copy has these checksums and this length; they may have to read it.
    async fn equal(&self, path: &TreePath, head: &Head, sums: &Sums) -> Vec<String> {
        let Some(_place) = self.client.place() else {
            return Vec::new();
        };
        let target = path.to_target();
        let mut headers = asking(head);
        headers.insert(
            "want-digest",
            HeaderValue::from_static("adler32, crc32c;q=0.9"),
        );
        let asked = self.peers.iter().map(|peer| {
            let url = format!("{peer}{target}");
            let headers = &headers;
            async move {
                let asked = self.client.send(&Method::HEAD, &url, headers, nothing);
                let reply = tokio::time::timeout(CHECKSUM_WITHIN, asked).await;
                let reply = reply.ok()?.ok()?;
                let text = |name: &str| {
                    let value = reply.response.headers().get(name);
                    value.and_then(|value| value.to_str().ok()).unwrap_or("")
                };
                let stated = Stated::of_answer(text("digest"), text("repr-digest"));
                let is_equal = reply.response.status() == 200
                    && text(CONTENT_LENGTH.as_str()).parse() == Ok(sums.bytes)
                    && !stated.is_empty();
                if !is_equal {
                    return None;
                }
                if let Some((name, found, expected)) = stated.first_difference(sums) {
                    tracing::warn!(
                        url,
                        "A copy is another file: {name} is {found:08x} there and {expected:08x} here"
                    );
                    return None;
                }
                Some(url)
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// Returns where the catalogue says that a file was shipped to.
    fn shipped(&self, tree: &Tree, sums: &SumStore, path: &TreePath) -> Vec<String> {
        let Some((_, name)) = path.split().filter(|_| self.follows_shipped) else {
            return Vec::new();
        };
        let places = sums.shipped_to(tree, path);
        let is_web = |place: &String| place.starts_with("https://") || place.starts_with("http://");
        let name = TreePath::encoded(name);
        places
            .into_iter()
            .filter(is_web)
            .map(|place| format!("{place}/{name}"))
            .collect()
    }
}

fn nothing() -> Result<crate::peer::SentBody, String> {
    Ok(Empty::new().map_err(|never| match never {}).boxed_unsync())
}

/// Headers of a question to a peer: the token of the client goes with it, as the client itself would send it there.
fn asking(head: &Head) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        HeaderName::from_static(LOCAL),
        HeaderValue::from_static("1"),
    );
    let bearer = head.get("authorization").map(HeaderValue::from_str);
    if let Some(Ok(bearer)) = bearer {
        headers.insert(AUTHORIZATION, bearer);
    }
    headers
}

/// Returns whether the request is one of a peer, which wants to know of this folder alone.
fn is_local(head: &Head) -> bool {
    head.get(LOCAL).is_some()
}

/// Answers a request for a file that is not here: sends the client to a server that has it.
pub(crate) async fn elsewhere(
    replicas: &Replicas,
    (tree, sums, counts): (&Tree, &SumStore, &Counts),
    path: &TreePath,
    head: &Head,
    missing: Answer,
) -> Answer {
    if is_local(head) || path.is_hidden() || path.split().is_none() {
        return missing;
    }
    let mut copies = replicas.copies(path, head).await;
    copies.urls.extend(replicas.shipped(tree, sums, path));
    if copies.urls.is_empty() {
        counts.elsewhere(copies.silent.is_empty());
        if copies.silent.is_empty() {
            return missing;
        }
        let silent = copies.silent.join(", ");
        let why = format_args!("the file is not here, and {silent} does not answer").to_string();
        return Answer::refusal(503, why).with("Retry-After", 1);
    }
    counts.redirected();
    let turn = replicas.turn.fetch_add(1, Ordering::Relaxed) % copies.urls.len();
    copies.urls.rotate_left(turn);
    let answer = Answer::refusal(307, "the file is at another server")
        .with("Location", &copies.urls[0])
        .with("Cache-Control", "no-store");
    match &copies.urls[1..] {
        [] => answer,
        others => {
            let links = link::of_duplicates(others.iter().map(String::as_str));
            answer.with("Link", links)
        }
    }
}

/// Adds the equal copies of a file to the answer to a HEAD that wants a checksum, or makes the list of them that a
/// client of Metalink asks for.
pub(crate) async fn listed(
    replicas: &Replicas,
    (tree, sums, is_tls): (&Tree, &SumStore, bool),
    path: &TreePath,
    head: &Head,
    answer: Answer,
) -> Answer {
    if is_local(head) {
        return answer;
    }
    let wants_list = metalink::is_wanted(head);
    let wants_links = head.method() == "HEAD" && want(head).is_some();
    let Some(file) = answer.content.file().filter(|_| wants_list || wants_links) else {
        return answer;
    };
    let Some(sums) = sums.known(tree, path, file) else {
        return answer;
    };
    let copies = replicas.equal(path, head, &sums).await;
    if wants_links && !wants_list {
        if copies.is_empty() {
            return answer;
        }
        let links = link::of_duplicates(copies.iter().map(String::as_str));
        return answer.with("Link", links);
    }
    let scheme = if is_tls { "https" } else { "http" };
    let host = head.get("host").unwrap_or_default();
    let here = format!("{scheme}://{host}{}", path.to_target());
    let name = path.split().map_or("", |(_, name)| name);
    let urls = std::iter::once(here.as_str()).chain(copies.iter().map(String::as_str));
    let text = metalink::write(name, &sums, urls);
    Answer::new(200)
        .with("Content-Type", metalink::TYPE)
        .with("Cache-Control", "no-store")
        .with("Vary", "Accept")
        .content(Content::Bytes(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_an_address_without_a_query() {
        let client = || Peers::new(None, false, true).unwrap();
        let made = |peer: &str| Replicas::new(&[peer.to_owned()], false, client()).map(drop);
        assert_eq!(made("http://127.0.0.1:8080/"), Ok(()));
        assert_eq!(made("https://s2.example.org:8443/data"), Ok(()));
        for peer in ["http://s2.example.org/", "s2", "https://s2/?a=b"] {
            let error = made(peer).unwrap_err();
            assert!(error.contains("expected"), "{error}");
        }
        let many = vec!["https://s2.example.org".to_owned(); PEERS_MAX + 1];
        assert!(Replicas::new(&many, false, client()).is_err());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let client = Peers::new(None, false, true).unwrap();
        let replicas = Replicas::new(&[], false, client).unwrap();
        let copies = Copies {
            urls: vec!["https://s2/a".to_owned()],
            silent: Vec::new(),
        };
        for at in 0..=REMEMBERED_MAX {
            replicas.remember(format!("/{at}"), &copies);
        }
        assert_eq!(replicas.remembered("/0"), None);
        assert_eq!(replicas.remembered("/1"), Some(copies));
        assert_eq!(replicas.known.lock().unwrap().files.len(), REMEMBERED_MAX);
    }
}
