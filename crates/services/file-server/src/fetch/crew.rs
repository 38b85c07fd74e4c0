//! Threads that fetch the parts of a file, each from the server that has the least to do; a part that breaks off
//! goes on at another.

use super::error::FetchError;
use super::origin::{Asked, Client, Trouble};
use super::target::Target;
use crate::sums::KINDS;
use sheaf_write::{Summing, Sums};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// Rest of a server after its first trouble, which doubles, and its longest one.
const REST: Duration = Duration::from_millis(200);
const REST_MAX: Duration = Duration::from_secs(5);
/// Bytes of a request that broke off and was yet worth it.
const WORTH_BYTES: u64 = 64 << 10;
/// How often a thread that waits looks whether all shall end.
const LOOK: Duration = Duration::from_millis(100);

/// Server that has the file.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) url: Url,
    /// Version that it must still have; `None` where a checksum decides.
    pub(super) etag: Option<String>,
    pub(super) bytes: u64,
    pub(super) failures: u32,
    /// Reason why nothing more is fetched there.
    pub(super) set_aside: Option<String>,
    pub(super) last_trouble: Option<String>,
    active: usize,
    in_row: u32,
    rests_until: Option<Instant>,
}

impl Source {
    pub(super) fn new(url: Url, etag: Option<String>) -> Self {
        Self {
            url,
            etag,
            bytes: 0,
            failures: 0,
            set_aside: None,
            last_trouble: None,
            active: 0,
            in_row: 0,
            rests_until: None,
        }
    }

    fn trouble(&mut self, trouble: Trouble, got: u64, now: Instant) {
        let is_for_good = matches!(trouble, Trouble::ForGood(_));
        let text = trouble.text();
        self.failures += 1;
        self.last_trouble = Some(text.clone());
        if is_for_good {
            self.set_aside = Some(text);
            return;
        }
        self.in_row = if got >= WORTH_BYTES {
            1
        } else {
            self.in_row + 1
        };
        let rest = REST
            .saturating_mul(1 << (self.in_row - 1).min(8))
            .min(REST_MAX);
        self.rests_until = Some(now + rest);
    }
}

/// Part that was fetched.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) part: usize,
    pub(super) sums: Sums,
    /// Servers that its bytes came from.
    pub(super) by: BTreeSet<usize>,
}

/// Work that the threads share.
pub(super) struct Crew<'a> {
    pub(super) client: &'a Client,
    pub(super) target: &'a Target,
    /// Bytes of the whole file.
    pub(super) bytes: u64,
    pub(super) streams: usize,
    pub(super) give_up: Duration,
    pub(super) is_ending: &'a AtomicBool,
    /// Called with the bytes that came.
    pub(super) on_bytes: &'a (dyn Fn(u64) + Sync),
}

struct State<'s> {
    sources: &'s mut [Source],
    queue: VecDeque<(usize, Range<u64>)>,
    done: Vec<Done>,
    failure: Option<FetchError>,
    /// When the last byte came.
    moved_at: Instant,
}

struct Round<'a, 's> {
    crew: &'a Crew<'a>,
    /// Server that all has to come from, if not from any.
    only: Option<usize>,
    state: Mutex<State<'s>>,
    changed: Condvar,
}

impl Crew<'_> {
    /// Fetches parts from all servers, or from one. Returns those that are there, and the reason if it is not all.
    pub(super) fn fetch(
        &self,
        parts: Vec<(usize, Range<u64>)>,
        sources: &mut [Source],
        only: Option<usize>,
    ) -> (Vec<Done>, Option<FetchError>) {
        let threads = self.streams.clamp(1, parts.len().max(1));
        let round = Round {
            crew: self,
            only,
            state: Mutex::new(State {
                sources,
                queue: parts.into(),
                done: Vec::new(),
                failure: None,
                moved_at: Instant::now(),
            }),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| round.work());
            }
        });
        let state = round.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        (state.done, state.failure)
    }
}

impl<'s> Round<'_, 's> {
    fn state(&self) -> MutexGuard<'_, State<'s>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let next = {
                let mut state = self.state();
                let may_go_on = state.failure.is_none();
                state.queue.pop_front().filter(|_| may_go_on)
            };
            let Some((part, range)) = next else {
                return;
            };
            match self.carry(part, range) {
                Ok(Some(done)) => self.state().done.push(done),
                Ok(None) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    fn fail(&self, error: FetchError) {
        self.state().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Fetches one part, from several servers if it has to be. Returns `None` if all shall end.
    fn carry(&self, part: usize, range: Range<u64>) -> Result<Option<Done>, FetchError> {
        let mut summing = Summing::new(KINDS);
        let mut by = BTreeSet::new();
        let mut at = range.start;
        while at < range.end {
            let Some((source, url, etag)) = self.choose()? else {
                return Ok(None);
            };
            let asked = Asked {
                url: &url,
                range: at..range.end,
                bytes: self.crew.bytes,
                etag: etag.as_deref(),
            };
            let before = at;
            let mut disk = None;
            let fetched = self.crew.client.range(&asked, |bytes| {
                if let Err(error) = self.crew.target.write(bytes, at) {
                    disk = Some(error);
                    return Err(Trouble::Here(String::new()));
                }
                summing.update(bytes);
                at += bytes.len() as u64;
                by.insert(source);
                Ok(self.took(source, bytes.len() as u64))
            });
            if let Some(error) = disk {
                return Err(error);
            }
            let mut state = self.state();
            let now = Instant::now();
            let one = &mut state.sources[source];
            one.active -= 1;
            match fetched {
                Ok(()) => one.in_row = 0,
                Err(trouble) => {
                    tracing::debug!(%url, ?trouble, "A range broke off");
                    one.trouble(trouble, at - before, now);
                }
            }
            drop(state);
            self.changed.notify_all();
        }
        let sums = summing.sums();
        self.crew.target.note(part, &sums)?;
        Ok(Some(Done { part, sums, by }))
    }

    /// Counts bytes that came. Returns whether to go on.
    fn took(&self, source: usize, bytes: u64) -> bool {
        (self.crew.on_bytes)(bytes);
        let mut state = self.state();
        state.sources[source].bytes += bytes;
        state.moved_at = Instant::now();
        state.failure.is_none() && !self.crew.is_ending.load(Ordering::Relaxed)
    }

    /// Picks the server with the fewest requests under way, of equal ones that with the fewest failures. Waits while
    /// all rest. Returns `None` if all shall end.
    fn choose(&self) -> Result<Option<(usize, Url, Option<String>)>, FetchError> {
        let mut state = self.state();
        loop {
            if state.failure.is_some() {
                return Ok(None);
            }
            if self.crew.is_ending.load(Ordering::Relaxed) {
                return Err(FetchError::Ended);
            }
            let now = Instant::now();
            let is_here = |at: usize| self.only.is_none_or(|only| only == at);
            let mut left = state.sources.iter().enumerate();
            if !left.any(|(at, source)| is_here(at) && source.set_aside.is_none()) {
                return Err(FetchError::NoSource(troubles(state.sources)));
            }
            let ready = state.sources.iter().enumerate().filter(|(at, source)| {
                let rests = source.rests_until.is_some_and(|until| until > now);
                is_here(*at) && source.set_aside.is_none() && !rests
            });
            let best = ready.min_by_key(|(_, source)| (source.active, source.in_row));
            if let Some((at, _)) = best {
                let source = &mut state.sources[at];
                source.active += 1;
                return Ok(Some((at, source.url.clone(), source.etag.clone())));
            }
            if now.saturating_duration_since(state.moved_at) > self.crew.give_up {
                return Err(FetchError::Stalled {
                    within: self.crew.give_up,
                    troubles: troubles(state.sources),
                });
            }
            let waited = self.changed.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Names the last trouble of each server.
pub(super) fn troubles(sources: &[Source]) -> String {
    let texts: Vec<String> = sources
        .iter()
        .filter_map(|source| {
            let why = source.set_aside.as_ref().or(source.last_trouble.as_ref())?;
            Some(format!("{}: {why}", source.url))
        })
        .collect();
    texts.join("; ")
}
