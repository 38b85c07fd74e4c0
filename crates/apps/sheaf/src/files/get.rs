//! `sheaf files get`: a file from one or several servers, by ranges, with its checksum.

use crate::json_file::{JsonFlag, print_either};
use crate::progress::{Amount, Bar};
use crate::{duration, fail};
use anyhow::Context as _;
use serde_json::json;
use sheaf_file_server::{FetchConfig, FetchError, Fetched, fetch};
use sheaf_node::shutdown::Shutdown;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Fetch a file over HTTP from one or several servers, and compare its checksum.
///
/// All addresses are of copies of one file. Ranges of it come over several connections; one that breaks off goes on at
/// another server, or at the same address again, behind which there may be another. Copies that servers name themselves
/// are used as well. The checksum that the servers state, or --checksum, decides what is right: a server with other
/// bytes is found out and set aside. A call that ends early is taken up by the next one. Exit status: 0 if the file is
/// there, 1 if not, 2 if the call is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf files get http://10.80.0.100/sheaf.00000042.main.b00000.epn-0.0000.tf
  sheaf files get http://s1:8080/a.tf http://s2:8080/a.tf --to /tmp/a.tf --streams 8
  sheaf files get https://s1:8443/a.tf --ca ca.pem --token-file token --checksum adler32=03da0195")]
pub(crate) struct Args {
    /// Fetch the file from these addresses.
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
    /// Write to this file or into this folder; without it, by its name in the present one.
    #[arg(long, value_name = "PATH")]
    to: Option<PathBuf>,
    /// Replace a file that is there.
    #[arg(long)]
    replace: bool,
    /// Fetch so many ranges at once.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    streams: u16,
    /// Fetch ranges of so many MiB.
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    part_mib: u64,
    /// Expect this checksum, such as adler32=03da0195, whatever servers state.
    #[arg(long, value_name = "SUM")]
    checksum: Option<String>,
    /// Refuse a file that no server states a checksum of.
    #[arg(long)]
    verify: bool,
    /// Use only the addresses named here, not those of copies that servers name.
    #[arg(long)]
    no_links: bool,
    /// Send the token in this file to the servers named here, and to no others.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Check servers by the authorities in this PEM file; without it by those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Ask for what is left of a range again when a request lasts so long.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration::parse)]
    stall: Duration,
    /// Give up when no byte came from any server for so long.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    give_up: Duration,
    #[command(flatten)]
    flag: JsonFlag,
}

impl Args {
    /// Returns the file that is written: the last name of the first address, if no other is stated.
    fn target(&self) -> anyhow::Result<PathBuf> {
        let first = &self.urls[0];
        let path = first.split(['?', '#']).next().unwrap_or_default();
        let named = path.split_once("://").map_or("", |(_, rest)| rest);
        let name = named
            .split_once('/')
            .and_then(|(_, path)| path.rsplit('/').next());
        let name = name.filter(|name| !name.is_empty() && !name.contains('%') && *name != "..");
        match (&self.to, name) {
            (Some(to), Some(name)) if to.is_dir() => Ok(to.join(name)),
            (Some(to), _) if !to.is_dir() => Ok(to.clone()),
            (None, Some(name)) => Ok(PathBuf::from(name)),
            _ => Err(fail::bad_use(format!(
                "found no plain name of a file at the end of {first}, expected --to FILE then"
            ))),
        }
    }

    fn config(&self) -> anyhow::Result<FetchConfig> {
        Ok(FetchConfig {
            may_replace: self.replace,
            streams: self.streams.into(),
            part_bytes: self.part_mib << 20,
            checksum: self.checksum.clone(),
            must_verify: self.verify,
            follows_links: !self.no_links,
            token_file: self.token_file.clone(),
            ca: self.ca.clone(),
            stall: self.stall,
            give_up: self.give_up,
            ..FetchConfig::new(self.urls.clone(), self.target()?)
        })
    }
}

/// Fetches the file.
///
/// # Errors
///
/// The reason why the file is not there.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = args.config()?;
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let is_ending = Arc::new(AtomicBool::new(false));
    let ending = is_ending.clone();
    shutdown.set_waker(move || ending.store(true, Ordering::Relaxed));
    let bar = Mutex::new(Bar::new("fetched", !args.flag.json));
    let (begun, there) = (Instant::now(), AtomicU64::new(0));
    let fetched = fetch(&config, &is_ending, &|came, bytes| {
        let there = there.fetch_add(came, Ordering::Relaxed) + came;
        let done = Amount {
            files: 0,
            bytes: there,
        };
        let mut bar = bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.tell(done, Amount { files: 1, bytes }, there);
    });
    let bar = bar.into_inner().unwrap_or_else(PoisonError::into_inner);
    bar.end();
    let fetched = fetched.map_err(|error| match error {
        FetchError::Address { .. }
        | FetchError::Checksum(_)
        | FetchError::Access(_)
        | FetchError::Exists(_) => fail::bad_use(error),
        error => error.into(),
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let sources = fetched.sources.iter().map(|source| {
        json!({
            "url": source.url,
            "bytes": source.bytes,
            "failures": source.failures,
            "set_aside": source.set_aside,
        })
    });
    let object = json!({
        "file": config.to,
        "bytes": fetched.sums.bytes,
        "seconds": seconds,
        "adler32": format!("{:08x}", fetched.sums.adler32),
        "compared": fetched.compared,
        "kept_bytes": fetched.kept_bytes,
        "again_bytes": fetched.again_bytes,
        "sources": sources.collect::<Vec<_>>(),
    });
    print_either(
        args.flag.json,
        &object,
        &text_of(&config, &fetched, seconds),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn text_of(config: &FetchConfig, fetched: &Fetched, seconds: f64) -> String {
    let mut text = format!(
        "{}: {} bytes in {seconds:.1} s",
        config.to.display(),
        fetched.sums.bytes
    );
    // Writing to a string cannot fail.
    let _ = match fetched.compared.is_empty() {
        true => writeln!(
            text,
            "; no server states a checksum, adler32={:08x} is not compared",
            fetched.sums.adler32
        ),
        false => writeln!(text, "; {} is right", fetched.compared.join(" ")),
    };
    if fetched.kept_bytes > 0 {
        let _ = writeln!(text, "  {:>14} bytes were there", fetched.kept_bytes);
    }
    for source in &fetched.sources {
        let _ = write!(text, "  {:>14} bytes from {}", source.bytes, source.url);
        if source.failures > 0 {
            let _ = write!(text, ", which failed {} times", source.failures);
        }
        let _ = match &source.set_aside {
            Some(why) => writeln!(text, ", set aside: {why}"),
            None => writeln!(text),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn target(words: &[&str]) -> Result<PathBuf, String> {
        let words = ["get"].iter().chain(words);
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.args.target().map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_the_last_name_of_its_address() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let to = folder.to_str().expect("UTF-8");
        assert_eq!(target(&["http://h/x/a.tf?q=/b"]), Ok("a.tf".into()));
        assert_eq!(
            target(&["http://h/a.tf", "--to", to]),
            Ok(folder.join("a.tf"))
        );
        let new = folder.join("new");
        let to = new.to_str().expect("UTF-8");
        assert_eq!(target(&["http://h/", "--to", to]), Ok(new.clone()));
        for url in [
            "http://h",
            "http://h/",
            "http://h/..",
            "http://h/%2e%2e",
            "h",
        ] {
            let error = target(&[url]).expect_err(url);
            assert!(error.contains("expected --to FILE"), "{error}");
        }
    }
}
