//! Programs of others that copy: xrdcp, gfal-copy, globus-url-copy.

use super::{Checksum, DestinationError, Made, MoveError, Mover, Stored, sum};
use crate::pace::Pace;
use sheaf_write::Sums;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

/// Time between two looks at a program that copies.
const LOOK: Duration = Duration::from_millis(100);
/// Longest piece of what a program says that an error shows.
const SAID_MAX: usize = 300;

/// Programs of one kind of storage.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Xrootd,
    Gfal,
    Globus,
}

#[derive(Debug)]
pub(super) struct Command {
    kind: Kind,
    address: String,
}

impl Command {
    pub(super) fn xrootd(address: &str) -> Made {
        Self::make(Kind::Xrootd, address, address, &["xrdcp", "xrdfs"])
    }

    pub(super) fn gfal(address: &str) -> Made {
        let url = address.strip_prefix("gfal+").unwrap_or(address);
        Self::make(
            Kind::Gfal,
            address,
            url,
            &["gfal-copy", "gfal-sum", "gfal-stat", "gfal-rm"],
        )
    }

    pub(super) fn globus(address: &str) -> Made {
        Self::make(Kind::Globus, address, address, &["globus-url-copy"])
    }

    fn make(kind: Kind, destination: &str, url: &str, programs: &[&'static str]) -> Made {
        for program in programs {
            if !is_installed(program) {
                return Err(DestinationError::Program {
                    destination: destination.to_owned(),
                    program,
                });
            }
        }
        let address = url.to_owned();
        Ok(Box::new(Self { kind, address }))
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Server and path of an address `root://server//path`.
    fn server_and_path(&self, name: &str) -> (String, String) {
        let rest = self.address.trim_start_matches("root://");
        let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
        (
            format!("root://{server}"),
            format!("/{}/{name}", path.trim_matches('/')),
        )
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a program to its end, or until all shall end.
fn run(words: &[&str], pace: &Pace) -> Result<Output, MoveError> {
    let failed = |error: io::Error| MoveError::Destination(format!("{}: {error}", words[0]));
    let mut child = std::process::Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // What these programs say is short: their pipes do not fill.
    while child.try_wait().map_err(failed)?.is_none() {
        if pace.is_ending() {
            end(&mut child);
            return Err(MoveError::Destination("the shipper ends".to_owned()));
        }
        std::thread::park_timeout(LOOK);
    }
    child.wait_with_output().map_err(failed)
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

fn said(output: &Output) -> String {
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let line: String = line.unwrap_or("no word").chars().take(SAID_MAX).collect();
    format!("{}: {line}", output.status)
}

fn succeeded(program: &str, output: Output) -> Result<Output, MoveError> {
    if output.status.success() {
        return Ok(output);
    }
    Err(MoveError::Destination(format!(
        "{program} {}",
        said(&output)
    )))
}

fn checked(words: &[&str], pace: &Pace) -> Result<Output, MoveError> {
    succeeded(words[0], run(words, pace)?)
}

/// Reads a checksum at the end of what a program prints, such as `adler32 0a1b2c3d`.
fn adler32_in(output: &Output) -> Result<u32, MoveError> {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.split_whitespace().last();
    last.and_then(|last| u32::from_str_radix(last, 16).ok())
        .ok_or_else(|| unreadable("Adler-32", output))
}

/// Reads the number behind `Size:`.
fn size_in(output: &Output) -> Result<u64, MoveError> {
    let text = String::from_utf8_lossy(&output.stdout);
    let behind = text.split("Size:").nth(1);
    behind
        .and_then(|behind| behind.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| unreadable("size", output))
}

fn unreadable(what: &str, output: &Output) -> MoveError {
    MoveError::Destination(format!("found no {what} in the answer {}", said(output)))
}

/// Whether a program has failed because the file is not there.
fn is_absent(program: &str, output: &Output) -> bool {
    let text = said(output);
    // XRootD's number for it, and the number that gfal's programs end with.
    let is_number =
        text.contains("3011") || (program.starts_with("gfal-") && output.status.code() == Some(2));
    text.contains("No such file") || is_number
}

/// Runs a program that shows a file; none if the file is not there.
fn shown(words: &[&str], pace: &Pace) -> Result<Option<Output>, MoveError> {
    let output = run(words, pace)?;
    if !output.status.success() && is_absent(words[0], &output) {
        return Ok(None);
    }
    succeeded(words[0], output).map(Some)
}

impl Mover for Command {
    fn copy(&self, source: &Path, name: &str, _: &Sums, pace: &Pace) -> Result<Sums, MoveError> {
        let (url, path) = (self.url(name), source.display().to_string());
        let local = format!("file://{path}");
        match self.kind {
            // Over what a former attempt has left; `posc`: a file that does not come whole is removed by the server.
            Kind::Xrootd => {
                let words = ["xrdcp", "--nopbar", "--force", "--posc", &path, &url];
                checked(&words, pace)?
            }
            Kind::Gfal => checked(&["gfal-copy", "--force", "--parent", &local, &url], pace)?,
            Kind::Globus => checked(&["globus-url-copy", "-create-dest", &local, &url], pace)?,
        };
        // Read by another program: what this disk has now is what it read.
        let read = File::open(source).and_then(sum);
        read.map_err(MoveError::Source)
    }

    fn remove(&self, name: &str, pace: &Pace) -> Result<(), MoveError> {
        let url = self.url(name);
        match self.kind {
            Kind::Xrootd => {
                let (server, path) = self.server_and_path(name);
                shown(&["xrdfs", &server, "rm", &path], pace).map(drop)
            }
            Kind::Gfal => shown(&["gfal-rm", &url], pace).map(drop),
            Kind::Globus => Err(MoveError::Destination(
                "globus-url-copy removes no files".to_owned(),
            )),
        }
    }

    fn stored(&self, name: &str, _: &Sums, pace: &Pace) -> Result<Option<Stored>, MoveError> {
        let url = self.url(name);
        let (server, path) = self.server_and_path(name);
        let (stat, query) = match self.kind {
            Kind::Xrootd => (
                vec!["xrdfs", &server, "stat", &path],
                vec!["xrdfs", &server, "query", "checksum", &path],
            ),
            Kind::Gfal => (vec!["gfal-stat", &url], vec!["gfal-sum", &url, "ADLER32"]),
            Kind::Globus => return read_back(&url, name, pace),
        };
        let Some(stat) = shown(&stat, pace)? else {
            return Ok(None);
        };
        Ok(Some(Stored {
            bytes: size_in(&stat)?,
            checksum: Checksum::Adler32(adler32_in(&checked(&query, pace)?)?),
        }))
    }
}

/// Copies a file back, for a program that knows no checksums.
fn read_back(url: &str, name: &str, pace: &Pace) -> Result<Option<Stored>, MoveError> {
    let back = std::env::temp_dir().join(format!(".sheaf-ship-{}-{name}", std::process::id()));
    let local = format!("file://{}", back.display());
    let copied = shown(&["globus-url-copy", url, &local], pace);
    let stored = copied.and_then(|copied| {
        let stored = copied.map(|_| File::open(&back).and_then(sum)).transpose();
        stored.map_err(MoveError::at_destination)
    });
    // Not there if nothing came.
    let _ = std::fs::remove_file(&back);
    Ok(stored?.map(Stored::from))
}
