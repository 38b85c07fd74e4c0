//! The query API of Prometheus: what Grafana, `promtool` and the pages ask.

use super::answer::{Refused, data, data_with, json};
use super::params::Params;
use crate::shared::Shared;
use crate::wall;
use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use sheaf_query::{Answer, Error, Options, Query, Range, Source, SourceError, success};
use sheaf_samples::{Labels, Matcher};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Time that a question without one looks back for names, in ms: a day and a half, more than a dashboard shows.
const NAMES_BACK_MS: i64 = 36 * 3_600_000;

type Asked = State<Arc<Shared>>;

/// Runs `work` where it may take its time.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, Refused> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(Refused::of(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                error.to_string(),
            ))
        })
}

/// Evaluates an expression over the samples of all collectors.
async fn answer(
    shared: Arc<Shared>,
    text: String,
    evaluate: impl FnOnce(&Query, &dyn Source, &Options) -> Result<Answer, Error> + Send + 'static,
) -> Result<Response, Refused> {
    apart(move || {
        let options = Options::default();
        let query = Query::parse(&text, &options).map_err(|error| Refused::query(&error))?;
        let source = shared.source();
        let answer = evaluate(&query, &source, &options);
        let mut answer = answer.map_err(|error| Refused::query(&error))?;
        answer.warnings.extend(source.warnings());
        Ok(json(StatusCode::OK, success(&answer)))
    })
    .await
}

/// `/api/v1/query`
pub(super) async fn query(
    State(shared): Asked,
    RawQuery(query): RawQuery,
    form: Bytes,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), &form);
    let text = params.need("query")?.to_owned();
    let at_ms = params.time_ms("time", wall::now_ms())?;
    answer(shared, text, move |query, source, options| {
        query.instant(source, at_ms, options)
    })
    .await
}

/// `/api/v1/query_range`
pub(super) async fn query_range(
    State(shared): Asked,
    RawQuery(query): RawQuery,
    form: Bytes,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), &form);
    let text = params.need("query")?.to_owned();
    params.need("start")?;
    params.need("end")?;
    let range = Range {
        from_ms: params.time_ms("start", 0)?,
        to_ms: params.time_ms("end", 0)?,
        step_ms: params.span_ms("step")?,
    };
    answer(shared, text, move |query, source, options| {
        query.range(source, range, options)
    })
    .await
}

/// Selectors and times of a question about names.
struct About {
    selectors: Vec<Vec<Matcher>>,
    from_ms: i64,
    to_ms: i64,
}

impl About {
    fn read(query: Option<&str>, form: &[u8]) -> Result<Self, Refused> {
        let params = Params::new(query, form);
        let now_ms = wall::now_ms();
        Ok(Self {
            selectors: params.selectors()?,
            from_ms: params.time_ms("start", now_ms - NAMES_BACK_MS)?,
            to_ms: params.time_ms("end", now_ms)?,
        })
    }

    /// Joins what each selector gives; without one the question is about all series.
    fn each<T: Ord>(
        &self,
        ask: impl Fn(&[Matcher]) -> Result<Vec<T>, SourceError>,
    ) -> Result<BTreeSet<T>, Refused> {
        let all = [Vec::new()];
        let selectors = if self.selectors.is_empty() {
            &all[..]
        } else {
            &self.selectors
        };
        let mut found = BTreeSet::new();
        for selector in selectors {
            found.extend(ask(selector).map_err(refuse)?);
        }
        Ok(found)
    }
}

fn refuse(error: SourceError) -> Refused {
    Refused::query(&error.into())
}

/// `/api/v1/series`
pub(super) async fn series(
    State(shared): Asked,
    RawQuery(query): RawQuery,
    form: Bytes,
) -> Result<Response, Refused> {
    let about = About::read(query.as_deref(), &form)?;
    if about.selectors.is_empty() {
        return Err(Refused::bad("no match[] parameter provided"));
    }
    apart(move || {
        let source = shared.source();
        let found = about.each(|selector| source.series(selector, about.from_ms, about.to_ms))?;
        let found: Vec<BTreeMap<&str, &str>> = found.iter().map(|one| map_of(one)).collect();
        Ok(data_with(found, &source.warnings()))
    })
    .await
}

fn map_of(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().collect()
}

/// `/api/v1/labels`
pub(super) async fn labels(
    State(shared): Asked,
    RawQuery(query): RawQuery,
    form: Bytes,
) -> Result<Response, Refused> {
    let about = About::read(query.as_deref(), &form)?;
    apart(move || {
        let source = shared.source();
        let ask = |selector: &[Matcher]| source.label_names(selector, about.from_ms, about.to_ms);
        Ok(data_with(about.each(ask)?, &source.warnings()))
    })
    .await
}

/// `/api/v1/label/NAME/values`
pub(super) async fn label_values(
    State(shared): Asked,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let about = About::read(query.as_deref(), b"")?;
    if !sheaf_samples::wire::names::is_label_name(&name) {
        return Err(Refused::bad(format!("invalid label name: {name:?}")));
    }
    apart(move || {
        let source = shared.source();
        let ask =
            |selector: &[Matcher]| source.label_values(&name, selector, about.from_ms, about.to_ms);
        Ok(data_with(about.each(ask)?, &source.warnings()))
    })
    .await
}

/// `/api/v1/metadata`
pub(super) async fn metadata(
    State(shared): Asked,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let params = Params::new(query.as_deref(), b"");
    let metric = params.get("metric").map(str::to_owned);
    apart(move || {
        let all = shared.board.metadata().into_iter();
        let wanted = all.filter(|one| metric.as_ref().is_none_or(|name| *name == one.family));
        let rows = wanted.map(|one| {
            let row = serde_json::json!([{
                "type": one.kind.word(), "help": one.help, "unit": one.unit
            }]);
            (one.family, row)
        });
        Ok(data(rows.collect::<BTreeMap<_, _>>()))
    })
    .await
}

/// `/api/v1/query_exemplars`: none are kept.
pub(super) async fn exemplars() -> Response {
    data([(); 0])
}

/// `/api/v1/status/buildinfo`: Grafana asks what it can expect.
pub(super) async fn build_info() -> Response {
    data(serde_json::json!({
        // The release whose answers are those of this program; see docs/reference/promql.md.
        "version": "2.42.0",
        "revision": "",
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
        "application": format!("sheaf {}", env!("CARGO_PKG_VERSION")),
    }))
}
