//! Client that fetches a file from one or several servers: by ranges, on several connections, with its checksum.
//!
//! This module answers one question: *how does a whole and correct file get here although servers break off, hang, or
//! have wrong bytes?* A range that breaks off goes on at another server from the byte where it ended. The checksum of
//! the whole is put together from those of the parts; where it is not the one stated, all parts are taken from one
//! server after the other, until it is, and so it shows which server has wrong bytes. What is there of a file is noted
//! beside it, and a further call goes on from there.

mod config;
mod crew;
mod error;
mod origin;
mod target;

use crate::digest::Stated;
pub use config::FetchConfig;
use crew::{Crew, Done, Source, troubles};
pub use error::FetchError;
use origin::{Client, Facts, Trouble};
use sheaf_write::Sums;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use target::{Identity, Target};
use url::Url;

/// Shape of an address of a file.
const SHAPE: &str = "http://HOST/PATH or https://HOST/PATH without a user's name";
/// Servers that are asked at once, and at most for one file.
const SOURCES_MAX: usize = 64;
/// Pause before servers are asked again of which none has answered.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// File that was fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Checksums of the file.
    pub sums: Sums,
    /// Checksums that they were compared with, such as `adler32=03da0195`; none if no server states any.
    pub compared: Vec<String>,
    /// Bytes that a former call had fetched.
    pub kept_bytes: u64,
    /// Bytes that were fetched again, since the whole had another checksum.
    pub again_bytes: u64,
    /// Servers, in the order in which they were named.
    pub sources: Vec<SourceReport>,
}

/// Server and what came from it.
#[derive(Clone, Debug)]
pub struct SourceReport {
    /// Address of the file there.
    pub url: String,
    /// Bytes that came from there.
    pub bytes: u64,
    /// Requests that broke off or were refused.
    pub failures: u32,
    /// Reason why no more was fetched there.
    pub set_aside: Option<String>,
}

/// Fetches a file. `on_bytes` is called with the bytes that came and those of the whole file; `is_ending` ends it.
///
/// # Errors
///
/// [`FetchError`]; what is there of the file is kept, but for one whose checksum is wrong at all servers.
pub fn fetch(
    config: &FetchConfig,
    is_ending: &AtomicBool,
    on_bytes: &(dyn Fn(u64, u64) + Sync),
) -> Result<Fetched, FetchError> {
    let urls = config.urls.iter().map(|url| address(url));
    let urls: Vec<Url> = urls.collect::<Result<_, _>>()?;
    let stated = config.checksum.as_deref().map(stated).transpose()?;
    if !config.may_replace && config.to.exists() {
        return Err(FetchError::Exists(config.to.clone()));
    }
    let client = Client::new(config, &urls)?;
    let found = find(&client, config, &urls, stated, is_ending)?;
    if found.stated.is_empty() && config.must_verify {
        return Err(FetchError::NoChecksum);
    }
    let checksums = found.stated.texts();
    let compared = checksums.iter().cloned().collect();
    let etag = found.sources.iter().find_map(|source| source.etag.clone());
    let identity = Identity::new(found.bytes, config.part_bytes, checksums, etag);
    let (target, there) = Target::open(&config.to, &identity)?;
    let kept_bytes = there.iter().map(|(_, sums)| sums.bytes).sum();
    on_bytes(kept_bytes, found.bytes);
    let crew = Crew {
        client: &client,
        target: &target,
        bytes: found.bytes,
        streams: config.streams,
        give_up: config.give_up,
        is_ending,
        on_bytes: &|bytes| on_bytes(bytes, found.bytes),
    };
    let mut work = Work {
        crew: &crew,
        identity: &identity,
        sources: found.sources,
        stated: found.stated,
        parts: BTreeMap::new(),
        again_bytes: 0,
    };
    for (part, sums) in there {
        let by = BTreeSet::new();
        work.parts.insert(part, Done { part, sums, by });
    }
    let sums = work.run();
    let (sources, again_bytes) = (work.sources, work.again_bytes);
    let sums = sums?;
    target.finish()?;
    Ok(Fetched {
        sums,
        compared,
        kept_bytes,
        again_bytes,
        sources: sources
            .into_iter()
            .map(|source| SourceReport {
                url: source.url.into(),
                bytes: source.bytes,
                failures: source.failures,
                set_aside: source.set_aside,
            })
            .collect(),
    })
}

fn address(text: &str) -> Result<Url, FetchError> {
    let url = Url::parse(text).ok().filter(origin::is_web);
    url.ok_or_else(|| FetchError::Address {
        found: text.to_owned(),
        expected: SHAPE,
    })
}

/// Reads a checksum that a user states.
fn stated(text: &str) -> Result<Stated, FetchError> {
    let mut stated = Stated::default();
    match stated.add_digest(text) {
        Ok(()) if !stated.is_empty() => Ok(stated),
        _ => Err(FetchError::Checksum(text.to_owned())),
    }
}

/// Servers that have one version of the file.
struct Found {
    bytes: u64,
    stated: Stated,
    sources: Vec<Source>,
}

/// Asks all servers, and those that they name, for what they know of the file.
fn find(
    client: &Client,
    config: &FetchConfig,
    urls: &[Url],
    stated: Option<Stated>,
    is_ending: &AtomicBool,
) -> Result<Found, FetchError> {
    let due = std::time::Instant::now() + config.give_up;
    let mut asked = loop {
        let asked = ask(client, urls);
        let may_answer = |(_, facts): &(Url, Result<Facts, Trouble>)| {
            matches!(facts, Ok(_) | Err(Trouble::ForNow(_)))
        };
        let has_any = asked.iter().any(|(_, facts)| facts.is_ok());
        let is_hopeless = !asked.iter().any(may_answer) || std::time::Instant::now() > due;
        if has_any || is_hopeless || is_ending.load(std::sync::atomic::Ordering::Relaxed) {
            break asked;
        }
        std::thread::park_timeout(ASK_AGAIN);
    };
    if config.follows_links {
        let links = asked.iter().filter_map(|(_, facts)| facts.as_ref().ok());
        let links: Vec<Url> = links.flat_map(|facts| facts.links.clone()).collect();
        let mut further = Vec::new();
        for link in links {
            let is_known = urls.contains(&link) || further.contains(&link);
            if !is_known && urls.len() + further.len() < SOURCES_MAX {
                further.push(link);
            }
        }
        asked.extend(ask(client, &further));
    }
    let mut bytes = None;
    let mut all = stated.unwrap_or_default();
    let mut sources = Vec::new();
    for (url, facts) in asked {
        let mut source = Source::new(url, None);
        match facts {
            Err(trouble) => source.set_aside = Some(trouble.text()),
            Ok(facts) => {
                let wanted = *bytes.get_or_insert(facts.bytes);
                if let Some((name, found, stated)) = all.contradiction(&facts.stated) {
                    source.set_aside =
                        Some(format!("states {name} {found:08x}, expected {stated:08x}"));
                    // Its length is none to hold others to.
                    if sources.iter().all(|it: &Source| it.set_aside.is_some()) {
                        bytes = None;
                    }
                } else if facts.bytes != wanted {
                    let found = facts.bytes;
                    source.set_aside = Some(format!("has {found} bytes, expected {wanted}"));
                } else {
                    if !facts.has_ranges {
                        tracing::debug!(url = %source.url, "The server does not say that it has ranges");
                    }
                    source.etag = facts.etag;
                    all.merge(&facts.stated);
                }
            }
        }
        sources.push(source);
    }
    // A checksum decides; without one, all bytes must be of one version.
    if all.is_empty() {
        let first = sources.iter().find(|source| source.set_aside.is_none());
        let first = first.and_then(|source| source.etag.clone());
        for source in &mut sources {
            if source.set_aside.is_none() && source.etag != first {
                source.set_aside = Some("has another ETag, and there is no checksum".to_owned());
            }
        }
    } else {
        for source in &mut sources {
            source.etag = None;
        }
    }
    match bytes {
        Some(bytes) if sources.iter().any(|it| it.set_aside.is_none()) => Ok(Found {
            bytes,
            stated: all,
            sources,
        }),
        _ => Err(FetchError::NoSource(troubles(&sources))),
    }
}

/// Asks servers at once. Returns what each knows, in their order.
fn ask(client: &Client, urls: &[Url]) -> Vec<(Url, Result<Facts, Trouble>)> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = urls
            .iter()
            .take(SOURCES_MAX)
            .map(|url| (url, scope.spawn(|| client.facts(url))))
            .collect();
        asked
            .into_iter()
            .map(|(url, asked)| {
                let lost = |_| Err(Trouble::Here("the question was lost".to_owned()));
                (url.clone(), asked.join().unwrap_or_else(lost))
            })
            .collect()
    })
}

/// Parts of a file, until they are the whole.
struct Work<'a> {
    crew: &'a Crew<'a>,
    identity: &'a Identity,
    sources: Vec<Source>,
    stated: Stated,
    parts: BTreeMap<usize, Done>,
    again_bytes: u64,
}

impl Work<'_> {
    fn run(&mut self) -> Result<Sums, FetchError> {
        let missing = (0..self.identity.parts()).filter(|part| !self.parts.contains_key(part));
        let missing = missing.map(|part| (part, self.identity.range(part)));
        let missing = missing.collect();
        let (done, failure) = self.crew.fetch(missing, &mut self.sources, None);
        self.parts
            .extend(done.into_iter().map(|done| (done.part, done)));
        if let Some(failure) = failure {
            return Err(failure);
        }
        let sums = self.whole();
        match self.stated.first_difference(&sums) {
            None => Ok(sums),
            Some(difference) => self.mend(difference),
        }
    }

    fn whole(&self) -> Sums {
        let parts = self.parts.values();
        parts.fold(Sums::empty(crate::sums::KINDS), |whole, part| {
            whole.then(part.sums)
        })
    }

    /// Takes all parts from one server after the other, until the whole has the checksum.
    fn mend(&mut self, first: (&'static str, u32, u32)) -> Result<Sums, FetchError> {
        let mut wrong = text_of(first);
        let mut order: Vec<usize> = (0..self.sources.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(self.sources[at].bytes));
        for at in order {
            if self.sources[at].set_aside.is_some() {
                continue;
            }
            let is_of_others = |done: &&Done| done.by != BTreeSet::from([at]);
            let others = self.parts.values().filter(is_of_others);
            let others: Vec<_> = others
                .map(|done| (done.part, self.identity.range(done.part)))
                .collect();
            let bytes: u64 = others
                .iter()
                .map(|(_, range)| range.end - range.start)
                .sum();
            self.again_bytes += bytes;
            let (done, failure) = self.crew.fetch(others, &mut self.sources, Some(at));
            let mut replaced = Vec::new();
            for done in done {
                let before = self.parts.insert(done.part, done.clone());
                replaced.extend(before.filter(|before| before.sums != done.sums));
            }
            match failure {
                Some(FetchError::NoSource(_)) => continue,
                Some(FetchError::Stalled { .. }) => {
                    self.sources[at].set_aside = Some("sends nothing".to_owned());
                    continue;
                }
                Some(failure) => return Err(failure),
                None => {}
            }
            let sums = self.whole();
            match self.stated.first_difference(&sums) {
                None => {
                    // Parts of a single server that were others are wrong there.
                    for before in replaced {
                        let Some(&other) = before.by.first().filter(|_| before.by.len() == 1)
                        else {
                            continue;
                        };
                        let source = &mut self.sources[other];
                        source.set_aside.get_or_insert_with(|| {
                            format!("has wrong bytes in {:?}", self.identity.range(before.part))
                        });
                    }
                    return Ok(sums);
                }
                Some(difference) => {
                    wrong = text_of(difference);
                    self.sources[at].set_aside = Some(format!("has wrong bytes: {wrong}"));
                }
            }
        }
        self.crew.target.forget()?;
        Err(FetchError::Differs(format!(
            "{wrong}; {}",
            troubles(&self.sources)
        )))
    }
}

fn text_of((name, found, stated): (&'static str, u32, u32)) -> String {
    format!("{name} is {found:08x}, expected {stated:08x}")
}
