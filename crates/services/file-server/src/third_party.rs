//! Third-party copies: a client has this server pull a file from another one, or push one there, and follows it by
//! markers in the body of the answer (HTTP-TPC of WLCG).

use crate::answer::{Answer, Content, Flow};
use crate::digest::Stated;
use crate::head::Head;
use crate::metrics::Active;
use crate::path::TreePath;
use crate::peer::{Peers, Reply, SentBody};
use crate::site::Site;
use crate::sums::KINDS;
use crate::tree::TreeError;
use crate::upload::Upload;
use crate::writing::{WRITE_BYTES, Writing};
use bytes::Bytes;
use futures_util::{TryStreamExt as _, stream};
use http::Method;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Frame;
use sheaf_write::{Summing, Sums};
use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Time between two markers. Clients give up after some minutes without one.
const MARKER_EVERY: Duration = Duration::from_secs(5);
/// Longest time without a byte from or to the other server.
const STALL: Duration = Duration::from_secs(60);
/// Bytes that are read of a file at once.
const READ_BYTES: usize = 256 << 10;
/// Beginning of headers that go to the other server without it.
const PREFIX: &str = "transferheader";
/// Headers that the client of this server sets by itself.
const OWN: [&str; 5] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "te",
];

/// Transfer, as its request describes it.
struct Job {
    site: Arc<Site>,
    peers: Peers,
    path: TreePath,
    url: String,
    headers: HeaderMap,
    /// Whether a copy whose checksum the other server does not tell is a failure.
    must_verify: bool,
    may_replace: bool,
    moved: Arc<AtomicU64>,
    _place: OwnedSemaphorePermit,
    _active: Active,
}

/// Copies a file from the server in `Source` to `path`.
pub(crate) fn pull(site: &Arc<Site>, head: &Head, path: &TreePath, source: &str) -> Answer {
    let job = match job(site, head, path, source) {
        Ok(job) => job,
        Err(answer) => return answer,
    };
    match site.tree.stat_name(path) {
        Ok(stat) if crate::tree::is_folder(&stat) => {
            return Answer::refusal(405, "there is a folder with this name");
        }
        Ok(_) if !job.may_replace => {
            return Answer::refusal(412, "there is something at the destination");
        }
        Ok(_) | Err(TreeError::NotFound) => {}
        Err(error) => return crate::get::refusal(error),
    }
    match Upload::begin(&site.tree, path) {
        Err(TreeError::NotFound) => Answer::refusal(409, "there is no folder for it"),
        Err(error) => crate::get::refusal(error),
        Ok(upload) => {
            let moved = job.moved.clone();
            followed(moved, async move { fetch(&job, upload).await })
        }
    }
}

/// Copies the file at `path` to the server in `Destination`.
pub(crate) fn push(site: &Arc<Site>, head: &Head, path: &TreePath, destination: &str) -> Answer {
    let job = match job(site, head, path, destination) {
        Ok(job) => job,
        Err(answer) => return answer,
    };
    match site.tree.read(path) {
        Err(error) => crate::get::refusal(error),
        Ok(found) if found.is_folder() => Answer::refusal(403, "this is a folder"),
        Ok(found) => {
            let moved = job.moved.clone();
            let size = found.size();
            followed(moved, async move { deliver(&job, found.file, size).await })
        }
    }
}

fn job(site: &Arc<Site>, head: &Head, path: &TreePath, url: &str) -> Result<Job, Answer> {
    let Some(peers) = &site.peers else {
        return Err(Answer::refusal(
            501,
            "copies from and to other servers are not offered here",
        ));
    };
    let uri = peers
        .check(url)
        .map_err(|error| Answer::refusal(400, error))?;
    let host = uri.authority().map_or("", |authority| authority.as_str());
    if head
        .get("host")
        .is_some_and(|own| own.eq_ignore_ascii_case(host))
    {
        return Err(Answer::refusal(
            400,
            "source and destination are this server",
        ));
    }
    let place = peers.place().ok_or_else(|| {
        Answer::refusal(503, "there are too many copies at once").with("Retry-After", 10)
    })?;
    let is = |name: &str, value: &str| {
        head.get(name)
            .is_some_and(|is| is.trim().eq_ignore_ascii_case(value))
    };
    Ok(Job {
        site: site.clone(),
        peers: peers.clone(),
        path: path.clone(),
        url: url.to_owned(),
        headers: passed(head),
        must_verify: is("requirechecksumverification", "true"),
        may_replace: !is("overwrite", "F"),
        moved: Arc::default(),
        _place: place,
        _active: site.counts.transfer(),
    })
}

/// Headers for the other server.
fn passed(head: &Head) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in head.headers() {
        let prefix = name.get(..PREFIX.len());
        if !prefix.is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX)) {
            continue;
        }
        let name = name[PREFIX.len()..].to_ascii_lowercase();
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value))
            && !OWN.contains(&name.as_str())
        {
            headers.append(name, value);
        }
    }
    headers
}

/// Headers of a request for a file with its checksum.
fn asking(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    headers.insert("want-digest", HeaderValue::from_static("adler32"));
    headers.insert(
        "want-repr-digest",
        HeaderValue::from_static("adler=10, crc32c=1"),
    );
    headers
}

/// Reads the checksums that the other server tells.
fn told(reply: &Reply) -> Stated {
    let list = |name: &str| {
        let values = reply.response.headers().get_all(name).into_iter();
        let texts: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        texts.join(", ")
    };
    // Whether it is a failure that there is none the client has said.
    Stated::of_answer(&list("digest"), &list("repr-digest"))
}

/// Reads the length that the other server states.
fn length(reply: &Reply) -> Option<u64> {
    let length = reply.response.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

fn verified(job: &Job, stated: &Stated, sums: &Sums) -> Result<(), String> {
    if let Some((name, found, stated)) = stated.first_difference(sums) {
        return Err(format!("{name} is {found:08x} here and {stated:08x} there"));
    }
    if job.must_verify && stated.is_empty() {
        return Err(format!("{} tells no checksum", job.url));
    }
    Ok(())
}

/// Pulls the file into `upload`.
async fn fetch(job: &Job, upload: Upload) -> Result<(), String> {
    let none = || Ok(Empty::new().map_err(|never| match never {}).boxed_unsync());
    let headers = asking(&job.headers);
    let mut reply = job
        .peers
        .send(&Method::GET, &job.url, &headers, none)
        .await?;
    let status = reply.response.status();
    if status != 200 {
        return Err(format!("{}: status {status}", reply.url));
    }
    let stated = told(&reply);
    let length = length(&reply);
    if length.is_some_and(|length| !upload.has_room(length)) {
        return Err(TreeError::Full.to_string());
    }
    let failed = |error: TreeError| error.to_string();
    let mut writing = Writing::new(upload);
    let mut filling = Vec::with_capacity(WRITE_BYTES);
    loop {
        let frame = tokio::time::timeout(STALL, reply.response.body_mut().frame()).await;
        let frame = frame.map_err(|_| format!("{}: no bytes for {STALL:?}", reply.url))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| format!("{}: {error}", reply.url))?;
        let Ok(bytes) = frame.into_data() else {
            continue;
        };
        job.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        job.site.counts.received.add(bytes.len() as u64);
        filling.extend_from_slice(&bytes);
        if filling.len() >= WRITE_BYTES {
            filling = writing.write(filling).await.map_err(failed)?;
        }
    }
    if !filling.is_empty() {
        writing.write(filling).await.map_err(failed)?;
    }
    let sums = writing.sums().await.map_err(failed)?;
    if let Some(length) = length.filter(|length| *length != sums.bytes) {
        return Err(format!("found {} bytes, expected {length}", sums.bytes));
    }
    verified(job, &stated, &sums)?;
    let is_new = !job.may_replace;
    writing
        .finish(job.site.is_synced, is_new)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Pushes the file, and asks for its checksum there.
async fn deliver(job: &Job, file: File, size: u64) -> Result<(), String> {
    let known = job.site.sums.known(&job.site.tree, &job.path, &file);
    let file = Arc::new(file);
    let mut headers = job.headers.clone();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size));
    let summed = RefCell::new(Summed::new(Mutex::new(Summing::new(KINDS))));
    let body = || {
        // Sent again behind a redirection, it is summed again.
        let sending = Arc::new(Mutex::new(Summing::new(KINDS)));
        *summed.borrow_mut() = sending.clone();
        job.moved.store(0, Ordering::Relaxed);
        Ok(sent(file.clone(), size, sending, job))
    };
    let put = job.peers.send(&Method::PUT, &job.url, &headers, body);
    let reply = watched(&job.moved, put).await?;
    let status = reply.response.status();
    if !status.is_success() {
        return Err(format!("{}: status {status}", reply.url));
    }
    let sums: Summed = summed.borrow().clone();
    let sums = sums.lock().unwrap_or_else(PoisonError::into_inner).sums();
    if sums.bytes != size {
        return Err(format!("sent {} bytes, expected {size}", sums.bytes));
    }
    if let Some(known) = known {
        known
            .compare(&sums)
            .map_err(|error| format!("the file here is damaged: {error}"))?;
    }
    let none = || Ok(Empty::new().map_err(|never| match never {}).boxed_unsync());
    let headers = asking(&job.headers);
    let reply = job
        .peers
        .send(&Method::HEAD, &job.url, &headers, none)
        .await?;
    if let Some(length) = length(&reply).filter(|length| *length != size) {
        return Err(format!("{} has {length} bytes, expected {size}", job.url));
    }
    verified(job, &told(&reply), &sums)
}

type Summed = Arc<Mutex<Summing>>;

/// Makes a body of a file, which is summed as it is sent.
fn sent(file: Arc<File>, size: u64, summing: Summed, job: &Job) -> SentBody {
    let (moved, site) = (job.moved.clone(), job.site.clone());
    let frames = stream::try_unfold((file, summing, 0_u64), move |(file, summing, at)| {
        let left = size - at;
        let reader = file.clone();
        let summed = summing.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
            let mut bytes = vec![0; most];
            reader.read_exact_at(&mut bytes, at)?;
            summed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .update(&bytes);
            Ok::<_, io::Error>(bytes)
        });
        async move {
            let bytes = reading.await.map_err(io::Error::other)??;
            if bytes.is_empty() {
                return Ok(None);
            }
            let next = at + bytes.len() as u64;
            Ok(Some((
                Frame::data(Bytes::from(bytes)),
                (file, summing, next),
            )))
        }
    });
    let counted = frames.inspect_ok(move |frame: &Frame<Bytes>| {
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        moved.fetch_add(bytes, Ordering::Relaxed);
        site.counts.sent.add(bytes);
    });
    StreamBody::new(counted).boxed_unsync()
}

/// Waits for `work`, as long as bytes move.
async fn watched<T>(
    moved: &AtomicU64,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut work = std::pin::pin!(work);
    let now = || (moved.load(Ordering::Relaxed), Instant::now());
    let mut before = now();
    loop {
        match tokio::time::timeout(Duration::from_secs(1), work.as_mut()).await {
            Ok(done) => return done,
            Err(_) if now().0 != before.0 => before = now(),
            Err(_) if before.1.elapsed() > STALL * 2 => {
                return Err(format!("no bytes taken for {:?}", STALL * 2));
            }
            Err(_) => {}
        }
    }
}

/// Answers with markers while `work` goes on, and with how it ended. It ends as well if the client goes.
fn followed(
    moved: Arc<AtomicU64>,
    work: impl Future<Output = Result<(), String>> + 'static,
) -> Answer {
    let following = Following {
        work: Some(tokio::task::spawn_local(work)),
        moved,
        next: None,
    };
    let lines = stream::unfold(following, |mut following| async move {
        let text = following.next().await?;
        Some((Ok(Bytes::from(text)), following))
    });
    Answer::new(202)
        .with("Content-Type", "text/perf-marker-stream")
        .content(Content::Flow(Flow::paced(lines)))
}

struct Following {
    work: Option<JoinHandle<Result<(), String>>>,
    moved: Arc<AtomicU64>,
    /// When the next marker is due; the first one at once, so that the client knows that the copy has begun.
    next: Option<Instant>,
}

impl Following {
    async fn next(&mut self) -> Option<String> {
        let work = self.work.as_mut()?;
        let Some(next) = self.next else {
            self.next = Some(Instant::now() + MARKER_EVERY);
            return Some(marker(0));
        };
        tokio::select! {
            biased;
            ended = work => {
                self.work = None;
                Some(match ended {
                    Ok(Ok(())) => "success: Created\n".to_owned(),
                    // One line, whatever the other server has said.
                    Ok(Err(error)) => format!("failure: {}\n", error.replace(['\r', '\n'], " ")),
                    Err(_) => "failure: the server is about to end\n".to_owned(),
                })
            }
            () = tokio::time::sleep_until(next) => {
                self.next = Some(Instant::now() + MARKER_EVERY);
                Some(marker(self.moved.load(Ordering::Relaxed)))
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(work) = &self.work {
            work.abort();
        }
    }
}

fn marker(bytes: u64) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    format!(
        "Perf Marker\nTimestamp: {seconds}\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\n\
         Total Stripe Count: 1\nEnd\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadLimits;

    #[test]
    fn headers_for_the_other_server_lose_their_beginning() {
        let text = "COPY / HTTP/1.1\r\nHost: h\r\nAuthorization: own\r\nTransferHeaderAuthorization: Bearer x\r\n\
                    transferheaderX-A: 1\r\nTransferHeaderHost: evil\r\nTransferHeaderContent-Length: 1\r\n\
                    TransferHeader: y\r\n\r\n";
        let limits = HeadLimits {
            bytes: 1000,
            headers: 10,
        };
        let (head, _) = Head::parse(text.as_bytes(), limits).unwrap().unwrap();
        let headers = passed(&head);
        let mut all: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        all.sort();
        assert_eq!(all, ["authorization=Bearer x", "x-a=1"]);
    }
}
