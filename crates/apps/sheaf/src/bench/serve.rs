//! The command line of `sheaf bench serve`.

use crate::{duration, fail, json_file, progress};
use anyhow::Context as _;
use sheaf_bench::serve::{
    Options, Placement, ServiceOptions, engine_names, measure, measure_faults, measure_service,
    plane_names,
};
use sheaf_load::{Load, Method, Tls, run_words};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Load servers behind one address with thousands of clients.
///
/// With --url: loads a service that runs. Without: builds servers, a director and clients in network namespaces and
/// measures, in turn, clients that go to the servers directly, HAProxy, and the planes of Sheaf; needs root. Each
/// client fetches one object after the other over connections of their own, bodies are discarded in the kernel, and
/// every transfer has one fate. See docs/how-to/bench.md.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench serve --json serve.json
  sheaf bench serve --planes direct,nft --clients 1000 --duration 60s
  sheaf bench serve --planes direct,nft --clients 1000 --duration 60s --drains 100
  sheaf bench serve --faults --planes haproxy,nft --clients 60 --json faults.json
  sheaf bench serve --url http://store/a --url http://store/b --clients 1000 --duration 60s
  sheaf bench serve --url http://store/a --keep-alive --range-bytes 100000 --think 200ms
  sheaf bench serve --url https://store/up --put 10000000 --header 'Authorization: Bearer TOKEN'")]
pub(super) struct ServeArgs {
    /// Load the service with this object; several: in turn.
    #[arg(long = "url", value_name = "URL")]
    urls: Vec<String>,
    /// Take these numbers of clients, one after the other.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "60,1000,3000,5000",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clients: Vec<u32>,
    /// Measure a window of this length in each run.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    duration: Duration,
    /// Begin the window so long after the first client; clients begin in its first half.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse)]
    warm_up: Duration,
    /// Take so many rounds.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Keep connections for further transfers.
    #[arg(long)]
    keep_alive: bool,
    /// Pause after a transfer, on average.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration::parse)]
    think: Duration,
    /// Let each client move at most so many bytes a second.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    client_rate: Option<u64>,
    /// Begin with this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    site: SiteArgs,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of a load on a service that runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With --url")]
struct ServiceArgs {
    /// Fetch heads only.
    #[arg(long, requires = "urls", conflicts_with_all = ["put", "range_bytes"])]
    head: bool,
    /// Put so many bytes to URL.CLIENT instead of fetching.
    #[arg(
        long,
        value_name = "BYTES",
        requires = "urls",
        conflicts_with = "range_bytes"
    )]
    put: Option<u64>,
    /// Fetch ranges of so many bytes at random places.
    #[arg(long, value_name = "BYTES", requires = "urls", value_parser = clap::value_parser!(u64).range(1..))]
    range_bytes: Option<u64>,
    /// Add this field to each request, such as `Name: value`.
    #[arg(
        long = "header",
        value_name = "FIELD",
        requires = "urls",
        value_parser = parse_field
    )]
    headers: Vec<String>,
    /// Trust servers of https that an authority in this PEM file signed; else those of the system.
    #[arg(
        long,
        value_name = "FILE",
        requires = "urls",
        conflicts_with = "insecure"
    )]
    ca: Option<PathBuf>,
    /// Trust any server of https.
    #[arg(long, requires = "urls")]
    insecure: bool,
    /// Name servers by this field of answers.
    #[arg(long, value_name = "NAME", default_value = "X-Served-By")]
    server_header: String,
    /// Give up after so long without a connection.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    connect_timeout: Duration,
    /// Give up after so long without a byte.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    idle_timeout: Duration,
    /// Spread clients over so many processes at least.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    processes: u32,
}

/// Options of a site of namespaces.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Without --url")]
struct SiteArgs {
    /// Measure these planes; by default all that are there.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "urls",
        value_parser = clap::builder::PossibleValuesParser::new(plane_names()))]
    planes: Vec<String>,
    /// Start servers of these kinds.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "nginx", conflicts_with = "urls",
        value_parser = clap::builder::PossibleValuesParser::new(engine_names()))]
    engines: Vec<String>,
    /// Start so many servers.
    #[arg(long, value_name = "N", default_value_t = 6, conflicts_with = "urls", value_parser = clap::value_parser!(u8).range(1..=80))]
    servers: u8,
    /// Spread clients over so many hosts.
    #[arg(long, value_name = "N", default_value = "1",
        conflicts_with = "urls", value_parser = clap::value_parser!(u8).range(1..=250))]
    client_hosts: u8,
    /// Serve objects of so many bytes.
    #[arg(long, value_name = "BYTES", default_value = "10000000",
        conflicts_with = "urls", value_parser = clap::value_parser!(u64).range(1..))]
    object_bytes: u64,
    /// Measure new connections with so many clients and 1 kB; 0: not.
    #[arg(long, value_name = "N", default_value = "60", conflicts_with = "urls")]
    connection_clients: u32,
    /// Give each server a cable of so many Mbit/s; 0: none.
    #[arg(long, value_name = "MBIT/S", default_value = "0",
        conflicts_with = "urls", value_parser = parse_rate)]
    server_mbit: f64,
    /// Give client hosts cables of so many Mbit/s, each measured; 0: none.
    #[arg(long, value_name = "MBIT/S,…", value_delimiter = ',', default_value = "0",
        conflicts_with = "urls", value_parser = parse_rate)]
    client_mbit: Vec<f64>,
    /// Place clients on their hosts evenly, by lot, or in turn both ways; it matters with cables only.
    #[arg(long, value_name = "HOW,…", value_delimiter = ',', default_value = "even", conflicts_with = "urls",
        value_parser = clap::builder::PossibleValuesParser::new(Placement::ALL.map(|(name, _)| name)))]
    placement: Vec<String>,
    /// Drain a server so many times in each window and add it again, with planes of Sheaf.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "urls", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    drains: u32,
    /// Kill a server, cut one off, kill the director, change tables; tell how long each is felt.
    #[arg(long, conflicts_with_all = ["urls", "drains", "engines"])]
    faults: bool,
    /// Let clients use IPv6.
    #[arg(long, conflicts_with = "urls")]
    ipv6: bool,
}

/// Words of one part of a load.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ServeLoadArgs {
    /// The load as JSON.
    words: String,
}

fn parse_field(text: &str) -> Result<String, String> {
    let is_field = text.split_once(':').is_some_and(|(name, _)| {
        let is_token = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !name.is_empty() && name.chars().all(is_token)
    });
    let has_control = text.chars().any(char::is_control);
    if is_field && !has_control {
        return Ok(text.to_owned());
    }
    Err(format!("found `{text}`, expected `Name: value`"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok();
    let rate = rate.filter(|rate| *rate == 0.0 || (1.0..=1e6).contains(rate));
    rate.ok_or_else(|| format!("found `{text}`, expected 0, or 1 to 1000000 Mbit/s"))
}

fn some_rate(mbit: f64) -> Option<f64> {
    (mbit > 0.0).then_some(mbit)
}

/// Runs the benchmark.
///
/// # Errors
///
/// A machine that lacks what it needs, or why a run did not come to its end in order.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    if args.duration.is_zero() {
        return Err(fail::bad_use(
            "found --duration 0, expected more".to_owned(),
        ));
    }
    let program = sheaf_node::program::path().context("this program has no path")?;
    let mut line = |line| progress::line(line);
    if args.site.faults {
        let report = measure_faults(&site_options(args, program), &mut line)?;
        if let Some(path) = &args.json {
            json_file::write(path, &report.to_json())?;
        }
        json_file::tell(args.json.as_deref(), &report.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = if args.urls.is_empty() {
        measure(&site_options(args, program), &mut line)?
    } else {
        measure_service(&service_options(args, program), &mut line)?
    };
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn site_options(args: &ServeArgs, program: PathBuf) -> Options {
    let site = &args.site;
    Options {
        planes: site.planes.clone(),
        engines: site.engines.clone(),
        clients: args.clients.clone(),
        connection_clients: site.connection_clients,
        object_bytes: site.object_bytes,
        servers: site.servers.into(),
        client_hosts: site.client_hosts.into(),
        is_ipv6: site.ipv6,
        is_upload: false,
        server_mbit: some_rate(site.server_mbit),
        client_mbit: site.client_mbit.iter().copied().map(some_rate).collect(),
        placements: {
            let is_wanted = |name: &str| site.placement.iter().any(|wanted| wanted == name);
            let all = Placement::ALL.into_iter();
            let wanted = all.filter(|(name, _)| is_wanted(name));
            wanted.map(|(_, placement)| placement).collect()
        },
        think: args.think,
        rate_bytes_per_s: args.client_rate,
        keeps_alive: args.keep_alive,
        drains: site.drains,
        injects_faults: site.faults,
        rounds: args.rounds,
        window: args.duration,
        warm_up: args.warm_up,
        seed: args.seed,
        program,
    }
}

fn service_options(args: &ServeArgs, program: PathBuf) -> ServiceOptions {
    let service = &args.service;
    let method = match (service.head, service.put) {
        (true, _) => Method::Head,
        (false, Some(_)) => Method::Put,
        (false, None) => Method::Get,
    };
    let ramp = args.warm_up / 2;
    ServiceOptions {
        urls: args.urls.clone(),
        clients: args.clients.clone(),
        rounds: args.rounds,
        load: Load {
            method,
            fields: service.headers.clone(),
            server_header: service.server_header.clone(),
            object_bytes: service.put,
            range_bytes: service.range_bytes,
            tls: if service.insecure {
                Tls::Any
            } else {
                Tls::Authorities(service.ca.clone())
            },
            keeps_alive: args.keep_alive,
            think: args.think,
            ramp,
            warm_up: args.warm_up - ramp,
            window: args.duration,
            rate_bytes_per_s: args.client_rate,
            connect_timeout: service.connect_timeout,
            idle_timeout: service.idle_timeout,
            seed: args.seed,
            ..Load::default()
        },
        processes: service.processes,
        program,
    }
}

/// Runs one part of a load.
///
/// # Errors
///
/// Why it did not come to its end in order.
pub(super) fn load(args: &ServeLoadArgs) -> anyhow::Result<ExitCode> {
    run_words(&args.words)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_a_name_and_no_end_of_line() {
        assert_eq!(
            parse_field("Authorization: Bearer x").as_deref(),
            Ok("Authorization: Bearer x")
        );
        for text in ["x", ": y", "a b: c", "a: b\r\nc: d"] {
            let error = parse_field(text).unwrap_err();
            assert!(error.contains("expected `Name: value`"), "{error}");
        }
    }
}
