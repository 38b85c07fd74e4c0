//! Load on a service that runs already.

use super::Placement;
use super::case::Case;
use super::report::{self, Report};
use super::stage::watch;
use crate::Missing;
use crate::cpus::Cpus;
use crate::report::Head;
use sheaf_load::{Crew, Load, Method, Target, probe};
use sheaf_testbed::interference::Interference;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Longest time for the first answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of a load on a service that runs.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// URLs of objects, asked for in turn.
    pub urls: Vec<String>,
    /// Numbers of clients, one after the other.
    pub clients: Vec<u32>,
    /// Rounds.
    pub rounds: u32,
    /// The load, without targets and clients; `object_bytes` is for uploads.
    pub load: Load,
    /// Least number of processes.
    pub processes: u32,
    /// Program that runs clients: this one.
    pub program: PathBuf,
}

/// Loads the service with each number of clients; `progress` gets a line for each run.
///
/// # Errors
///
/// [`Missing`] if a URL is none or its object is not there, or why a run did not come to its end in order.
pub fn measure_service(
    options: &ServiceOptions,
    progress: &mut impl FnMut(String),
) -> anyhow::Result<Report> {
    let targets = options.urls.iter().map(|url| {
        let target = Target::parse(url);
        target.map_err(|error| Missing(error.to_string()))
    });
    let targets = targets.collect::<Result<Vec<Target>, Missing>>()?;
    let object_bytes = match options.load.method {
        Method::Put => options.load.object_bytes,
        Method::Get | Method::Head => same_length(&targets, options)?,
    };
    if options.load.range_bytes.is_some() && object_bytes.is_none() {
        let text = "found no length of the objects that is the same, expected one for ranges";
        return Err(Missing(text.to_owned()).into());
    }
    let case = |clients: &u32| Case {
        plane: "service".to_owned(),
        engine: None,
        clients: *clients,
        object_bytes: object_bytes.unwrap_or(0),
        client_mbit: None,
        placement: Placement::Even,
        samples: Vec::new(),
    };
    let mut cases: Vec<Case> = options.clients.iter().map(case).collect();
    for round in 1..=options.rounds {
        for case in &mut cases {
            let load = Load {
                targets: targets.clone(),
                clients: case.clients,
                object_bytes,
                ..options.load.clone()
            };
            let processes = Crew::parts(case.clients).max(options.processes);
            let parts = load.split(processes).into_iter().map(|part| {
                let mut command = Command::new(&options.program);
                command.args(["bench", "serve-load"]);
                (command, part)
            });
            let interference = Interference::begin()?;
            let mut sample = watch(Crew::start(parts.collect())?, &mut || {})?;
            sample.others_share = interference.user_share()?;
            progress(format!("round {round}: {} clients: {sample}", case.clients));
            case.samples.push(sample);
        }
    }
    Ok(Report {
        head: Head::new(
            &Cpus::allowed(false)?,
            options.load.window.as_secs_f64(),
            (options.load.ramp + options.load.warm_up).as_secs_f64(),
        ),
        urls: options.urls.clone(),
        servers: 0,
        client_hosts: 0,
        is_ipv6: targets.iter().any(|target| target.address.is_ipv6()),
        server_mbit: None,
        rows: report::rows(&cases),
        skipped: Vec::new(),
    })
}

/// Asks for the head of each object before thousands of clients do. Returns the length that all have, if they have one.
fn same_length(targets: &[Target], options: &ServiceOptions) -> anyhow::Result<Option<u64>> {
    let mut lengths = Vec::new();
    for (target, url) in targets.iter().zip(&options.urls) {
        let found = probe(target, &options.load.fields, &options.load.tls, PATIENCE);
        let found = found.map_err(|error| Missing(format!("{url} does not answer: {error}")))?;
        let status = found.status;
        // Some services have no HEAD; what GET gives is seen by the clients.
        let is_refused = matches!(status, 405 | 501);
        if !(200..300).contains(&status) && !is_refused {
            let text = format!("{url} answers {status}, expected success");
            return Err(Missing(text).into());
        }
        lengths.push(found.length.filter(|_| !is_refused));
    }
    let first = lengths.first().copied().flatten();
    Ok(first.filter(|first| lengths.iter().all(|length| *length == Some(*first))))
}
