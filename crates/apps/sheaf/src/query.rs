//! `sheaf query`: asks a collector in PromQL, and shows the answer as a table, JSON, CSV or a plot.

mod show;

use crate::{duration, fail};
use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Query a collector in PromQL.
///
/// Without --last, the value now; with it, the values of that time until now. Exit status: 0 if there is an answer, an
/// empty one too, 1 if the collector does not answer, 2 if the expression is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf query 'rate(balance_tf_complete_total[10s])'
  sheaf query --last 1h 'avg by (host) (load)'        a plot on a terminal, else a table
  sheaf query --last 10m --step 10s --csv load > load.csv
  sheaf query --at http://10.0.0.1:9470 --json 'up'")]
pub(crate) struct Args {
    /// Expression of PromQL.
    #[arg(value_name = "EXPR")]
    expression: String,
    /// Ask the collector at this address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9470")]
    at: String,
    /// Ask for the values of this time until now, such as 1h.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    last: Option<Duration>,
    /// Time between two values; without it, a hundredth of --last.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, requires = "last")]
    step: Option<Duration>,
    /// Print the answer of the HTTP API.
    #[arg(long, conflicts_with_all = ["csv", "plot"])]
    json: bool,
    /// Print comma-separated values: time in ms, value, and a column for each label.
    #[arg(long, conflicts_with = "plot")]
    csv: bool,
    /// Draw a plot; the default for --last on a terminal.
    #[arg(long, requires = "last")]
    plot: bool,
}

/// Answer of the HTTP API.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    data: Data,
    #[serde(default)]
    error: String,
    #[serde(default, rename = "errorType")]
    kind: String,
    #[serde(default)]
    warnings: Vec<String>,
}

/// Result of a query, of any kind.
#[derive(Debug, Default, Deserialize)]
struct Data {
    #[serde(default, rename = "resultType")]
    kind: String,
    #[serde(default)]
    result: serde_json::Value,
}

/// Series of an answer.
#[derive(Debug, Default, PartialEq, Deserialize)]
struct Series {
    /// Labels by name.
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Values over a time, or one.
    #[serde(default, alias = "value")]
    values: Values,
}

/// Pairs of seconds and the text of a value.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Values {
    One((f64, String)),
    Many(Vec<(f64, String)>),
}

impl Default for Values {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Values {
    fn all(&self) -> &[(f64, String)] {
        match self {
            Self::One(pair) => std::slice::from_ref(pair),
            Self::Many(pairs) => pairs,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// The reason why there is no answer.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (status, body) = ask(args)?;
    let answer: Answer = serde_json::from_str(&body).with_context(|| {
        format!(
            "{} does not answer as a collector does (status {status})",
            args.at
        )
    })?;
    if !answer.error.is_empty() {
        if answer.kind == "bad_data" {
            return Err(fail::bad_use(answer.error));
        }
        bail!("{}: {}", answer.kind, answer.error);
    }
    for warning in &answer.warnings {
        tracing::warn!("{warning}");
    }
    let series = series(answer.data)?;
    let mut out = std::io::stdout().lock();
    let text = if args.json {
        body + "\n"
    } else if args.csv {
        show::csv(&series)
    } else if args.plot || (args.last.is_some() && out.is_terminal()) {
        show::plot(&series)
    } else {
        show::table(&series)
    };
    out.write_all(text.as_bytes())
        .context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Sends the question; returns status and body.
fn ask(args: &Args) -> anyhow::Result<(u16, String)> {
    let base = args.at.trim_end_matches('/');
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(5)))
        .timeout_global(Some(Duration::from_secs(120)))
        .build()
        .into();
    let mut fields = vec![("query", args.expression.clone())];
    let path = match args.last {
        None => "query",
        Some(last) => {
            let now = std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .context("the clock is before 1970")?;
            let step = args
                .step
                .unwrap_or(last / 100)
                .max(Duration::from_millis(1));
            fields.push(("start", now.saturating_sub(last).as_secs_f64().to_string()));
            fields.push(("end", now.as_secs_f64().to_string()));
            fields.push(("step", step.as_secs_f64().to_string()));
            "query_range"
        }
    };
    let mut request = agent.get(format!("{base}/api/v1/{path}"));
    for (name, value) in fields {
        request = request.query(name, value);
    }
    let mut response = request.call().with_context(|| {
        format!("no answer from {base}: does a collector run there (sheaf monitor)?")
    })?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    let body = body.read_to_string().context("the answer broke off")?;
    Ok((status, body))
}

/// Series of an answer of any kind: a scalar is a series without labels.
fn series(data: Data) -> anyhow::Result<Vec<Series>> {
    match data.kind.as_str() {
        "vector" | "matrix" => {
            serde_json::from_value(data.result).context("the answer has another form")
        }
        "scalar" | "string" => {
            let pair =
                serde_json::from_value(data.result).context("the answer has another form")?;
            Ok(vec![Series {
                metric: BTreeMap::new(),
                values: Values::One(pair),
            }])
        }
        other => {
            bail!("found an answer of kind {other:?}, expected vector, matrix, scalar or string")
        }
    }
}
