//! A store behind this server: its files are served with the names, tokens, checksums and limits of this one.
//!
//! Bytes pass this server, as they come. An upload is sent on but for its last piece, which waits until the checksum of
//! all is compared with the one that the client states: a store that keeps no half files has the whole or nothing then.
//! What a store cannot do is refused with status 501.

mod http;
mod s3;
mod store;

use crate::answer::{Answer, Content, Flow};
use crate::body::{Body, BodyError};
use crate::condition::{Outcome, Version};
use crate::config::StoreConfig;
use crate::dav;
use crate::digest::Stated;
use crate::get::{conditions, refusal};
use crate::head::Head;
use crate::metalink::escaped;
use crate::metrics::Counts;
use crate::path::TreePath;
use crate::peer::{Peers, Reply, SentBody};
use crate::rights::{Need, Rights};
use crate::stating::{acceptable, want};
use crate::sums::KINDS;
use crate::tokens;
use crate::tree::TreeError;
use crate::watch::Phase;
use crate::writing::WRITE_BYTES;
use ::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED};
use ::http::{HeaderName, HeaderValue, Method};
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use httpdate::HttpDate;
use hyper::body::Frame;
use sheaf_write::{Summing, Sums};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant, SystemTime};
use store::{Ask, Entry, Store};
use tokio::sync::mpsc;
use tracing::warn;

/// Methods of a server with a store behind it.
const READING: &str = "GET, HEAD, OPTIONS, PROPFIND";
const ALL: &str = "GET, HEAD, OPTIONS, PROPFIND, PUT, DELETE, MKCOL";
/// Headers of a request that the store sees: of the range and the conditions of a GET.
const PASSED: [&str; 6] = [
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "if-unmodified-since",
];
/// Headers of the store's answer that the client sees.
const RETURNED: [&str; 5] = [
    "content-type",
    "content-range",
    "etag",
    "last-modified",
    "accept-ranges",
];
/// Longest time without a byte from the store.
const STALL: Duration = Duration::from_secs(60);
/// Longest time until a store answers for an upload that it has.
const STORED_WITHIN: Duration = Duration::from_secs(300);
/// How often, and with which pauses, the half of an upload is looked for.
const HALF_LOOKS: u32 = 8;
const HALF_PAUSE: Duration = Duration::from_millis(100);
/// Pieces of an upload that wait for the store.
const PIECES: usize = 4;
/// Largest page of a list, and most pages of one.
const PAGE_BYTES_MAX: usize = 4 << 20;
const PAGES_MAX: usize = 100;

/// Store behind a server.
pub(crate) struct Front {
    store: Box<dyn Store>,
    client: Peers,
}

/// File as the store has it.
struct Standing {
    bytes: Option<u64>,
    version: Version,
    stated: Stated,
}

/// Reason why an upload did not become a file.
enum PutError {
    Body(BodyError),
    Differs(String),
    /// The store does not take it; its answer says why.
    Store,
}

impl Front {
    /// Opens a store.
    ///
    /// # Errors
    ///
    /// What was found and what is expected.
    pub(crate) fn new(config: &StoreConfig, client: Peers) -> Result<Self, String> {
        let store: Box<dyn Store> = match config {
            StoreConfig::Http { url, token_file } => {
                client.check(url)?;
                Box::new(http::Http::new(url, token_file.clone())?)
            }
            StoreConfig::S3 { url, access } => Box::new(s3::S3::new(url, access.clone())?),
        };
        let root = TreePath::of_target("/").map_err(|error| error.to_string())?;
        // Where tokens and signatures would travel in the clear shows now, not at the first request.
        let ask = store.ask(&Method::HEAD, &root, &Stated::default())?;
        client.check(&ask.url).map_err(|_| {
            let server = without_query(&ask.url);
            format!("found the store at {server}, expected https, or this machine")
        })?;
        Ok(Self { store, client })
    }

    /// Makes the answer to a request, as far as the bearer has the right to it.
    pub(crate) async fn respond(
        &self,
        (counts, is_writable): (&Counts, bool),
        head: &Head,
        path: &TreePath,
        rights: Option<&Rights>,
        body: &mut Body<'_>,
    ) -> Answer {
        let method = head.method();
        let is_read = matches!(method, "GET" | "HEAD" | "PROPFIND");
        if path.is_hidden() {
            return refusal(match is_read {
                true => TreeError::NotFound,
                false => TreeError::Denied,
            });
        }
        if !is_read && !is_writable {
            return Answer::refusal(405, "files here are only read").with("Allow", READING);
        }
        if let Some(why) = self.store.cannot(method) {
            return Answer::refusal(501, why).with("Allow", ALL);
        }
        let lacks = |need| rights.is_some_and(|rights| !rights.allow(need, path));
        let answered = match method {
            _ if is_read && lacks(Need::Read) => return tokens::forbidden(Need::Read, path),
            "GET" | "HEAD" => self.get(head, path).await,
            "PROPFIND" => self.list(head, path, body).await,
            "PUT" | "DELETE" | "MKCOL" => {
                let standing = match self.standing(path).await {
                    Ok(standing) => standing,
                    Err(answer) => return answer,
                };
                let need = match (method, &standing) {
                    ("PUT" | "MKCOL", None) => Need::Create,
                    _ => Need::Modify,
                };
                if lacks(need) {
                    return tokens::forbidden(need, path);
                }
                let version = standing.as_ref().map(|standing| &standing.version);
                if conditions(head).check(version, false) == Outcome::Failed {
                    return Answer::refusal(412, "the file is another version");
                }
                match method {
                    "PUT" => self.put(counts, head, path, body, standing.is_some()).await,
                    "DELETE" if standing.is_none() => Err(refusal(TreeError::NotFound)),
                    method => self.change(method, path).await,
                }
            }
            other => {
                let found = format!(
                    "the store behind this server cannot {}",
                    other.escape_debug()
                );
                Err(Answer::refusal(501, found).with("Allow", ALL))
            }
        };
        answered.unwrap_or_else(|refused| refused)
    }

    async fn send(&self, method: &Method, ask: &Ask) -> Result<Reply, Answer> {
        let none = || Ok(Empty::new().map_err(|never| match never {}).boxed_unsync());
        self.send_with(method, ask, none).await
    }

    async fn send_with(
        &self,
        method: &Method,
        ask: &Ask,
        body: impl Fn() -> Result<SentBody, String>,
    ) -> Result<Reply, Answer> {
        let sent = self.client.send(method, &ask.url, &ask.headers, body).await;
        sent.map_err(|error| {
            // A signature is none to be read in a log.
            let error = error.replace(&ask.url, without_query(&ask.url));
            warn!(error, "The store does not answer");
            Answer::refusal(502, "the store behind this server does not answer")
        })
    }

    fn ask(&self, method: &Method, path: &TreePath, sent: &Stated) -> Result<Ask, Answer> {
        self.store.ask(method, path, sent).map_err(broken)
    }

    /// Asks the store for a file's length, version and checksums; `None` if it has none.
    async fn standing(&self, path: &TreePath) -> Result<Option<Standing>, Answer> {
        let ask = self.ask(&Method::HEAD, path, &Stated::default())?;
        let reply = self.send(&Method::HEAD, &ask).await?;
        match reply.response.status().as_u16() {
            404 => return Ok(None),
            200 => {}
            status => return Err(refused(status)),
        }
        let headers = reply.response.headers();
        let modified = text(headers, &LAST_MODIFIED);
        let modified = httpdate::parse_http_date(modified).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Some(Standing {
            bytes: text(headers, &CONTENT_LENGTH).parse().ok(),
            version: Version {
                etag: text(headers, &ETAG).to_owned(),
                modified,
            },
            stated: self.store.stated(headers),
        }))
    }

    async fn get(&self, head: &Head, path: &TreePath) -> Result<Answer, Answer> {
        let is_head = head.method() == "HEAD";
        let method = if is_head { Method::HEAD } else { Method::GET };
        let mut ask = self.ask(&method, path, &Stated::default())?;
        for name in PASSED {
            let value = head.get(name).map(HeaderValue::from_str);
            if let Some(Ok(value)) = value {
                ask.headers.insert(HeaderName::from_static(name), value);
            }
        }
        let reply = self.send(&method, &ask).await?;
        let status = reply.response.status().as_u16();
        if !matches!(status, 200 | 206 | 304 | 416) {
            return Err(refused(status));
        }
        let headers = reply.response.headers();
        let mut answer = Answer::new(status);
        for name in RETURNED {
            if let Some(Ok(value)) = headers.get(name).map(HeaderValue::to_str) {
                answer = answer.with(name, value);
            }
        }
        if let Some(want) = want(head).filter(|_| status != 416) {
            let stated = match is_head {
                true => self.store.stated(headers),
                // Not every store tells checksums with the bytes.
                false => {
                    let standing = self.standing(path).await?;
                    standing.map(|it| it.stated).unwrap_or_default()
                }
            };
            if let Some((name, value)) = want.header_stated(&stated) {
                answer = answer.with(name, value);
            }
        }
        let length = text(headers, &CONTENT_LENGTH).parse().ok();
        Ok(match (status, length) {
            (304, _) => answer,
            (416, _) => answer.content(Content::Bytes(b"416 Range Not Satisfiable\n".to_vec())),
            (_, Some(length)) => answer.content(Content::Stream {
                flow: flow_of(reply),
                length,
            }),
            (_, None) => answer.content(Content::Flow(flow_of(reply))),
        })
    }

    async fn put(
        &self,
        counts: &Counts,
        head: &Head,
        path: &TreePath,
        body: &mut Body<'_>,
        was_there: bool,
    ) -> Result<Answer, Answer> {
        let stated = acceptable(head, path)?;
        let Some(length) = body.stated() else {
            return Err(Answer::refusal(411, "the store expects `Content-Length`"));
        };
        if let Some(most) = self.store.bytes_max().filter(|most| length > *most) {
            let why = format!("found {length} bytes, expected up to {most}");
            return Err(Answer::refusal(413, why));
        }
        let mut ask = self.ask(&Method::PUT, path, &stated)?;
        ask.headers
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
        let kind = HeaderValue::from_static("application/octet-stream");
        ask.headers.insert(CONTENT_TYPE, kind);
        let (pieces, sent) = mpsc::channel(PIECES);
        let sent = RefCell::new(Some(sent));
        let once = || match sent.borrow_mut().take() {
            Some(sent) => Ok(body_of(sent)),
            None => Err("the store sends uploads elsewhere, which is not followed".to_owned()),
        };
        let put = async {
            let mut sending = std::pin::pin!(self.send_with(&Method::PUT, &ask, once));
            let mut pumping = std::pin::pin!(pump(counts, body, &stated, pieces));
            tokio::select! {
                biased;
                pumped = &mut pumping => match pumped {
                    Ok(sums) => {
                        // All of it is there; what the store does with it now may take a while.
                        let reply = tokio::time::timeout(STORED_WITHIN, sending).await;
                        let late = |_| Answer::refusal(504, "the store does not answer in time");
                        Ok((sums, reply.map_err(late)??))
                    }
                    Err(PutError::Store) => {
                        let reply = sending.await?;
                        Err(refused(reply.response.status().as_u16()))
                    }
                    Err(PutError::Differs(why)) => Err(Answer::refusal(422, why)),
                    Err(PutError::Body(error)) => Err(Answer::refusal(400, error).closing()),
                },
                reply = &mut sending => match reply?.response.status().as_u16() {
                    // Before the last piece no store can have it all.
                    200..=299 => Err(Answer::refusal(502, "the store has not taken all of it")),
                    status => Err(refused(status)),
                },
            }
        };
        let put = put.await;
        let put = match put {
            Ok((sums, reply)) if reply.response.status().is_success() => {
                body.watched().enter(Phase::Working, Instant::now());
                let compared = self.compared(path, &sums).await;
                if compared.is_err() && !was_there {
                    // What is wrong is none to be found later.
                    let _ = self.change("DELETE", path).await;
                }
                compared.map(|()| sums)
            }
            Ok((_, reply)) => Err(refused(reply.response.status().as_u16())),
            Err(answer) => Err(answer),
        };
        match put {
            Ok(sums) => {
                let answer = Answer::new(if was_there { 204 } else { 201 });
                let wanted = want(head).and_then(|wanted| wanted.header(&sums));
                Ok(match wanted {
                    Some((name, value)) => answer.with(name, value),
                    None => answer,
                })
            }
            Err(answer) => {
                if !was_there && self.store.keeps_halves() {
                    self.remove_half(path, length).await;
                }
                Err(answer)
            }
        }
    }

    /// Removes what the store has kept of an upload that broke off. The store may open the file only now, so it is
    /// looked for again and again for a moment.
    async fn remove_half(&self, path: &TreePath, length: u64) {
        for _ in 0..HALF_LOOKS {
            if let Ok(Some(standing)) = self.standing(path).await
                && standing.bytes != Some(length)
                && let Err(answer) = self.change("DELETE", path).await
            {
                let status = answer.status;
                warn!(
                    path = path.as_str(),
                    status, "The store keeps half of an upload"
                );
            }
            tokio::time::sleep(HALF_PAUSE).await;
        }
    }

    /// Compares what the store has with what was sent.
    async fn compared(&self, path: &TreePath, sums: &Sums) -> Result<(), Answer> {
        let lost = |why: String| Answer::refusal(502, format!("the store has another file: {why}"));
        let there = self.standing(path).await?;
        let there = there.ok_or_else(|| lost("it is not there".to_owned()))?;
        if let Some(bytes) = there.bytes.filter(|bytes| *bytes != sums.bytes) {
            return Err(lost(format!("{bytes} bytes, expected {}", sums.bytes)));
        }
        match there.stated.first_difference(sums) {
            None => Ok(()),
            Some((name, sent, there)) => {
                Err(lost(format!("{name} is {there:08x}, expected {sent:08x}")))
            }
        }
    }

    /// Passes on a request that has no body and no answer but its status.
    async fn change(&self, method: &str, path: &TreePath) -> Result<Answer, Answer> {
        let method = Method::from_bytes(method.as_bytes()).map_err(broken)?;
        let ask = self.ask(&method, path, &Stated::default())?;
        let reply = self.send(&method, &ask).await?;
        match reply.response.status().as_u16() {
            201 => Ok(Answer::new(201)),
            200 | 202 | 204 => Ok(Answer::new(204)),
            status => Err(refused(status)),
        }
    }

    async fn list(
        &self,
        head: &Head,
        path: &TreePath,
        body: &mut Body<'_>,
    ) -> Result<Answer, Answer> {
        let depth = head.get("depth").map(str::trim);
        let Some(depth) = depth.filter(|depth| ["0", "1"].contains(depth)) else {
            return Err(Answer::refusal(403, "expected `Depth: 0` or `Depth: 1`"));
        };
        let xml = match body.whole(dav::BODY_BYTES_MAX).await {
            Ok(xml) => xml,
            Err(error @ BodyError::TooLong(_)) => return Err(Answer::refusal(413, error)),
            Err(error) => return Err(Answer::refusal(400, error).closing()),
        };
        body.watched().enter(Phase::Working, Instant::now());
        if self.store.list(path, None).is_none() {
            return self.pass_list(path, depth, xml).await;
        }
        let mut responses = String::new();
        let standing = match path.is_folder || path.as_str().is_empty() {
            true => None,
            false => self.standing(path).await?,
        };
        if let Some(file) = standing {
            let entry = Entry {
                name: String::new(),
                is_folder: false,
                bytes: file.bytes.unwrap_or(0),
                modified: Some(file.version.modified),
                etag: Some(file.version.etag),
            };
            write_response(&mut responses, &path.to_target(), &entry);
            return Ok(multi_status(&responses));
        }
        let entries = self.entries(path).await?;
        if entries.is_empty() && !path.as_str().is_empty() {
            return Err(refusal(TreeError::NotFound));
        }
        let folder = Entry {
            name: String::new(),
            is_folder: true,
            bytes: 0,
            modified: None,
            etag: None,
        };
        let here = path.to_target();
        let here = format!("{}/", here.trim_end_matches('/'));
        write_response(&mut responses, &here, &folder);
        let shown = entries.iter().filter(|_| depth == "1");
        for entry in shown.filter(|entry| !path.join(&entry.name).is_hidden()) {
            let end = if entry.is_folder { "/" } else { "" };
            let target = path.join(&entry.name).to_target();
            write_response(&mut responses, &format!("{target}{end}"), entry);
        }
        Ok(multi_status(&responses))
    }

    /// Reads all pages of a list.
    async fn entries(&self, path: &TreePath) -> Result<Vec<Entry>, Answer> {
        let mut all = Vec::new();
        let mut from = None;
        for _ in 0..PAGES_MAX {
            let Some(ask) = self.store.list(path, from.as_deref()) else {
                return Ok(all);
            };
            let reply = self.send(&Method::GET, &ask.map_err(broken)?).await?;
            if reply.response.status() != 200 {
                return Err(refused(reply.response.status().as_u16()));
            }
            let limited = http_body_util::Limited::new(reply.response.into_body(), PAGE_BYTES_MAX);
            let collected = tokio::time::timeout(STALL, limited.collect()).await;
            let collected = collected.map_err(broken)?.map_err(broken)?;
            let page = String::from_utf8(collected.to_bytes().to_vec()).map_err(broken)?;
            let (entries, next) = self.store.read_list(path, &page).map_err(broken)?;
            all.extend(entries);
            from = next;
            if from.is_none() {
                return Ok(all);
            }
        }
        Err(Answer::refusal(
            507,
            format!("found more than {PAGES_MAX} pages of a list"),
        ))
    }

    async fn pass_list(
        &self,
        path: &TreePath,
        depth: &str,
        xml: Vec<u8>,
    ) -> Result<Answer, Answer> {
        let method = Method::from_bytes(b"PROPFIND").map_err(broken)?;
        let mut ask = self.ask(&method, path, &Stated::default())?;
        let headers = [
            ("depth", depth.to_owned()),
            ("content-length", xml.len().to_string()),
            ("content-type", "application/xml".to_owned()),
        ];
        for (name, value) in headers {
            let value = HeaderValue::from_str(&value).map_err(broken)?;
            ask.headers.insert(HeaderName::from_static(name), value);
        }
        let xml = Bytes::from(xml);
        let body = || {
            let full = Full::new(xml.clone()).map_err(|never| match never {});
            Ok(full.boxed_unsync())
        };
        let reply = self.send_with(&method, &ask, body).await?;
        if reply.response.status() != 207 {
            return Err(refused(reply.response.status().as_u16()));
        }
        let kind = text(reply.response.headers(), &CONTENT_TYPE).to_owned();
        let answer = Answer::new(207).with("Content-Type", kind);
        Ok(answer.content(Content::Flow(flow_of(reply))))
    }
}

/// Sends the body of a client on, but for its last piece, until the checksum is compared.
async fn pump(
    counts: &Counts,
    body: &mut Body<'_>,
    stated: &Stated,
    pieces: mpsc::Sender<io::Result<Bytes>>,
) -> Result<Sums, PutError> {
    let mut summing = Summing::new(KINDS);
    let mut held: Option<Vec<u8>> = None;
    loop {
        let mut piece = Vec::with_capacity(WRITE_BYTES);
        let got = body.fill(&mut piece, WRITE_BYTES).await;
        if got.map_err(PutError::Body)? == 0 {
            break;
        }
        counts.received.add(piece.len() as u64);
        summing.update(&piece);
        if let Some(before) = held.replace(piece) {
            let sent = pieces.send(Ok(Bytes::from(before))).await;
            sent.map_err(|_| PutError::Store)?;
        }
    }
    let sums = summing.sums();
    if let Some((name, found, stated)) = stated.first_difference(&sums) {
        return Err(PutError::Differs(format!(
            "{name} of what came is {found:08x}, expected {stated:08x}"
        )));
    }
    if let Some(last) = held {
        let sent = pieces.send(Ok(Bytes::from(last))).await;
        sent.map_err(|_| PutError::Store)?;
    }
    Ok(sums)
}

/// Makes a body of pieces as they come. Where they end early it is too short, and the store refuses it.
fn body_of(pieces: mpsc::Receiver<io::Result<Bytes>>) -> SentBody {
    let frames = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((piece.map(Frame::data), pieces))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Makes a flow of the body of an answer.
fn flow_of(reply: Reply) -> Flow {
    let bytes = stream::unfold(reply, |mut reply| async move {
        loop {
            let frame = tokio::time::timeout(STALL, reply.response.body_mut().frame()).await;
            let frame = match frame {
                Err(_) => return Some((Err(io::ErrorKind::TimedOut.into()), reply)),
                Ok(frame) => frame?,
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(bytes)) => return Some((Ok(bytes), reply)),
                // Trailers.
                Ok(Err(_)) => {}
                Err(error) => return Some((Err(io::Error::other(error)), reply)),
            }
        }
    });
    Flow::paced(bytes)
}

/// Makes the answer for a status of the store.
fn refused(status: u16) -> Answer {
    match status {
        404 | 410 => refusal(TreeError::NotFound),
        409 => Answer::refusal(409, "there is no folder for it"),
        412 => Answer::refusal(412, "the file is another version"),
        405 => Answer::refusal(405, "the store has something else with this name"),
        413 => Answer::refusal(413, "the store takes no file of this size"),
        507 => Answer::refusal(507, "the store is full"),
        429 | 503 => Answer::refusal(503, "the store is busy").with("Retry-After", 1),
        401 | 403 => Answer::refusal(
            502,
            format!("the store refuses this server: status {status}"),
        ),
        status => Answer::refusal(502, format!("the store answers with status {status}")),
    }
}

fn broken(error: impl std::fmt::Display) -> Answer {
    warn!(%error, "The store cannot be asked");
    Answer::refusal(502, "the store behind this server cannot be asked")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    let value = headers.get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}

fn write_response(text: &mut String, target: &str, entry: &Entry) {
    let kind = match entry.is_folder {
        true => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
        false => format!(
            "<D:resourcetype/><D:getcontentlength>{}</D:getcontentlength>",
            entry.bytes
        ),
    };
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "<D:response><D:href>{}</D:href><D:propstat><D:prop>{kind}",
        escaped(target)
    );
    if let Some(modified) = entry.modified {
        let modified = HttpDate::from(modified);
        let _ = write!(text, "<D:getlastmodified>{modified}</D:getlastmodified>");
    }
    if let Some(etag) = &entry.etag {
        let _ = write!(text, "<D:getetag>{}</D:getetag>", escaped(etag));
    }
    text.push_str("</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n");
}

fn multi_status(responses: &str) -> Answer {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n{responses}</D:multistatus>\n"
    );
    Answer::new(207)
        .with("Content-Type", "application/xml; charset=utf-8")
        .content(Content::Bytes(text.into_bytes()))
}
