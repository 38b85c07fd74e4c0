//! Live values: server-sent events with the newest value of each series that was asked for.

use super::answer::Refused;
use super::params::Params;
use crate::shared::Shared;
use crate::wall;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::{Extension, response};
use futures_util::{Stream, stream};
use serde_json::{Value as Json, json};
use sheaf_query::{Options, Query, Value};
use sheaf_samples::Labels;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior};

/// Expressions of one stream at most.
const QUERIES_MAX: usize = 64;
/// Series of one expression at most: a screen shows no more.
const SERIES_MAX: usize = 4096;

/// One stream and what it has sent.
struct Live {
    shared: Arc<Shared>,
    queries: Arc<Vec<Query>>,
    every: Interval,
    /// Labels of each expression, in the order in which frames have their values.
    known: Vec<Vec<Arc<Labels>>>,
    waiting: VecDeque<Event>,
    number: u64,
    /// Place among the streams; given back when the client is gone.
    _place: OwnedSemaphorePermit,
}

/// `/api/live?q=EXPR&hz=5`
pub(super) async fn live(
    State(shared): State<Arc<Shared>>,
    Extension(places): Extension<Arc<Semaphore>>,
    RawQuery(query): RawQuery,
) -> Result<response::Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let texts: Vec<&str> = params.all("q").collect();
    if texts.is_empty() || texts.len() > QUERIES_MAX {
        return Err(Refused::bad(format!(
            "found {} parameters \"q\", expected 1 to {QUERIES_MAX} expressions",
            texts.len()
        )));
    }
    let options = Options::default();
    let parse = |text: &&str| Query::parse(text, &options).map_err(|error| Refused::query(&error));
    let queries: Vec<Query> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    let hz = params.get("hz").unwrap_or("5");
    let hz: f64 = hz
        .parse()
        .ok()
        .filter(|hz| (0.1..=10.0).contains(hz))
        .ok_or_else(|| {
            Refused::bad(format!(
                "parameter \"hz\": found {hz:?}, expected 0.1 to 10"
            ))
        })?;
    let Ok(place) = places.try_acquire_owned() else {
        let most = shared.config.live_max;
        return Err(Refused::of(
            StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            format!("{most} live streams are open, expected fewer (monitor.live_max)"),
        ));
    };
    let mut every = tokio::time::interval(Duration::from_secs_f64(1.0 / hz));
    // A slow reader gets the newest frame, not those that it missed.
    every.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let live = Live {
        known: vec![Vec::new(); queries.len()],
        shared,
        queries: Arc::new(queries),
        every,
        waiting: VecDeque::new(),
        number: 0,
        _place: place,
    };
    let stream = Sse::new(live.into_stream()).keep_alive(KeepAlive::default());
    Ok(response::IntoResponse::into_response(stream))
}

impl Live {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut live| async move {
            loop {
                if let Some(event) = live.waiting.pop_front() {
                    return Some((Ok(event), live));
                }
                tokio::select! {
                    () = live.shared.stop.wait() => return None,
                    _ = live.every.tick() => {}
                }
                live.look().await;
            }
        })
    }

    /// Evaluates all expressions, and queues what has changed and the frame.
    async fn look(&mut self) {
        let (shared, queries) = (self.shared.clone(), self.queries.clone());
        let at_ms = wall::now_ms();
        let evaluated = tokio::task::spawn_blocking(move || {
            let evaluate = |query| values(&shared, query, at_ms);
            queries.iter().map(evaluate).collect::<Vec<_>>()
        });
        let Ok(evaluated) = evaluated.await else {
            return;
        };
        let mut frame: Vec<Json> = Vec::new();
        for (number, outcome) in evaluated.into_iter().enumerate() {
            let values = match outcome {
                Ok(values) => values,
                Err(error) => {
                    let text = json!({ "q": number, "error": error }).to_string();
                    self.waiting
                        .push_back(Event::default().event("failed").data(text));
                    frame.push(json!([]));
                    continue;
                }
            };
            let is_same = self.known[number].len() == values.len()
                && self.known[number]
                    .iter()
                    .zip(&values)
                    .all(|(known, (labels, _))| known == labels);
            if !is_same {
                self.known[number] = values.iter().map(|(labels, _)| labels.clone()).collect();
                let labels: Vec<Json> = self.known[number].iter().map(|one| object(one)).collect();
                let text = json!({ "q": number, "labels": labels }).to_string();
                self.waiting
                    .push_back(Event::default().event("series").data(text));
            }
            // JSON has no NaN and no infinity: they are null.
            frame.push(values.iter().map(|(_, value)| json!(value)).collect());
        }
        self.number += 1;
        let text = json!({ "at_ms": at_ms, "n": self.number, "v": frame }).to_string();
        self.waiting
            .push_back(Event::default().event("frame").data(text));
    }
}

fn values(shared: &Shared, query: &Query, at_ms: i64) -> Result<Vec<(Arc<Labels>, f64)>, String> {
    let answer = query
        .instant(&shared.source(), at_ms, &Options::default())
        .map_err(|error| error.to_string())?;
    let mut values: Vec<(Arc<Labels>, f64)> = match answer.value {
        Value::Scalar(sample) => vec![(Arc::default(), sample.value)],
        Value::Vector(points) => points
            .into_iter()
            .map(|point| (point.labels, point.sample.value))
            .collect(),
        other => {
            return Err(format!(
                "found a {}, expected a vector or scalar",
                other.kind()
            ));
        }
    };
    values.sort_by(|left, right| left.0.cmp(&right.0));
    values.truncate(SERIES_MAX);
    Ok(values)
}

fn object(labels: &Labels) -> Json {
    let pairs = labels.iter();
    Json::Object(
        pairs
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect(),
    )
}
