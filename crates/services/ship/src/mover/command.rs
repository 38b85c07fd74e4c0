//! Programs of others that copy: xrdcp, gfal-copy, globus-url-copy.

use super::folder::copy_all;
use super::{DestinationError, Made, MoveError, Mover, Stored};
use crate::pace::{Pace, PacedFile};
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
            &["gfal-copy", "gfal-sum", "gfal-stat"],
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

fn checked(words: &[&str], pace: &Pace) -> Result<Output, MoveError> {
    let output = run(words, pace)?;
    if output.status.success() {
        return Ok(output);
    }
    Err(MoveError::Destination(format!(
        "{} {}",
        words[0],
        said(&output)
    )))
}

/// Reads a checksum at the end of what a program prints, such as `adler32 0a1b2c3d`.
fn adler32_in(output: &Output) -> Option<u32> {
    let text = String::from_utf8_lossy(&output.stdout);
    u32::from_str_radix(text.split_whitespace().last()?, 16).ok()
}

fn no_checksum(output: &Output) -> MoveError {
    MoveError::Destination(format!("found no Adler-32 in the answer {}", said(output)))
}

/// Sums a file of this disk.
fn sum(path: &Path) -> Result<Stored, MoveError> {
    let free = Pace::default();
    let opened = PacedFile::open(path, &free);
    let mut file = opened.map_err(|error| MoveError::Source(error.to_string()))?;
    copy_all(&mut file, &mut io::sink())?;
    let sums = file.sums();
    Ok(Stored {
        bytes: sums.bytes,
        adler32: sums.adler32,
    })
}

impl Mover for Command {
    fn copy(&self, source: &Path, name: &str, pace: &Pace) -> Result<Stored, MoveError> {
        let (url, path) = (self.url(name), source.display().to_string());
        let local = format!("file://{path}");
        match self.kind {
            // Over what a former attempt has left; `posc`: a file that does not come whole is removed by the server.
            Kind::Xrootd => checked(
                &["xrdcp", "--nopbar", "--force", "--posc", &path, &url],
                pace,
            )?,
            Kind::Gfal => checked(&["gfal-copy", "--force", "--parent", &local, &url], pace)?,
            Kind::Globus => checked(&["globus-url-copy", "-create-dest", &local, &url], pace)?,
        };
        // Read by another program: what this disk has now is what it read.
        sum(source)
    }

    fn remove(&self, name: &str, pace: &Pace) -> Result<(), MoveError> {
        match self.kind {
            Kind::Xrootd => {
                let (server, path) = self.server_and_path(name);
                checked(&["xrdfs", &server, "rm", &path], pace).map(drop)
            }
            Kind::Gfal => checked(&["gfal-rm", &self.url(name)], pace).map(drop),
            Kind::Globus => Err(MoveError::Destination(
                "globus-url-copy removes no files".to_owned(),
            )),
        }
    }

    fn stored(&self, name: &str, pace: &Pace) -> Result<Option<Stored>, MoveError> {
        let url = self.url(name);
        match self.kind {
            Kind::Xrootd => {
                let (server, path) = self.server_and_path(name);
                let stat = run(&["xrdfs", &server, "stat", &path], pace)?;
                if !stat.status.success() {
                    let text = said(&stat);
                    let is_absent = text.contains("3011") || text.contains("No such file");
                    return if is_absent {
                        Ok(None)
                    } else {
                        Err(MoveError::Destination(format!("xrdfs {text}")))
                    };
                }
                let text = String::from_utf8_lossy(&stat.stdout);
                let size = text
                    .lines()
                    .find_map(|line| line.trim().strip_prefix("Size:"));
                let bytes = size.and_then(|size| size.trim().parse().ok());
                let bytes = bytes.ok_or_else(|| {
                    MoveError::Destination(format!("found no size in the answer {}", said(&stat)))
                })?;
                let query = ["xrdfs", &server, "query", "checksum", &path];
                let output = checked(&query, pace)?;
                let adler32 = adler32_in(&output).ok_or_else(|| no_checksum(&output))?;
                Ok(Some(Stored { bytes, adler32 }))
            }
            Kind::Gfal => {
                let stat = run(&["gfal-stat", &url], pace)?;
                if !stat.status.success() {
                    let text = said(&stat);
                    let is_absent = stat.status.code() == Some(2) || text.contains("No such file");
                    return if is_absent {
                        Ok(None)
                    } else {
                        Err(MoveError::Destination(format!("gfal-stat {text}")))
                    };
                }
                let text = String::from_utf8_lossy(&stat.stdout);
                let size = text
                    .split("Size:")
                    .nth(1)
                    .and_then(|rest| rest.split_whitespace().next());
                let bytes = size.and_then(|size| size.parse().ok());
                let bytes = bytes.ok_or_else(|| {
                    MoveError::Destination(format!("found no size in the answer {}", said(&stat)))
                })?;
                let output = checked(&["gfal-sum", &url, "ADLER32"], pace)?;
                let adler32 = adler32_in(&output).ok_or_else(|| no_checksum(&output))?;
                Ok(Some(Stored { bytes, adler32 }))
            }
            Kind::Globus => {
                let back =
                    std::env::temp_dir().join(format!(".sheaf-ship-{}-{name}", std::process::id()));
                let local = format!("file://{}", back.display());
                let output = run(&["globus-url-copy", &url, &local], pace)?;
                let found = if output.status.success() {
                    sum(&back).map(Some)
                } else {
                    let text = said(&output);
                    let is_absent = text.contains("No such file");
                    if is_absent {
                        Ok(None)
                    } else {
                        Err(MoveError::Destination(format!("globus-url-copy {text}")))
                    }
                };
                // Not there if nothing came.
                let _ = std::fs::remove_file(&back);
                found
            }
        }
    }
}
