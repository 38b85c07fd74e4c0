//! Both sides together: the plan of a run, the two processes, and the report.

use crate::frame::Header;
use crate::link::Certificate;
use crate::process::{self, Pin};
use crate::socket;
use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};

/// Arguments of `run`, the same for every message size.
#[derive(Clone, Debug, Args)]
pub(crate) struct Plan {
    /// Length of the measured window, in s
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Length of the window by messages instead of time
    #[arg(long, conflicts_with = "seconds")]
    messages: Option<u64>,
    /// Length of the warm-up, in s
    #[arg(long, default_value_t = 0.3)]
    warm_up_seconds: f64,
    /// Congestion control of the sending socket
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Bytes that the sender collects for one system call; a longer message goes alone
    #[arg(long, default_value_t = 256 << 10)]
    batch_bytes: usize,
    /// Most bytes that the receiver takes with one system call
    #[arg(long, default_value_t = 1 << 20)]
    read_bytes: usize,
    /// Bytes of the sender's pool and of the receiver's arena, each
    #[arg(long, default_value_t = 256 << 20)]
    pool_bytes: usize,
    /// Bytes asked for as send and as receive buffer of the sockets
    #[arg(long, default_value_t = 4 << 20)]
    socket_buffer_bytes: usize,
    /// Protect the connection by TLS 1.3: rustls with ring, AES-128-GCM, as in a farm
    #[arg(long)]
    tls: bool,
}

impl Plan {
    /// Refuses what cannot be run, before anything is started.
    pub(crate) fn check(&self, payload_bytes: &[usize]) -> Result<()> {
        let window_s = 0.0..=3600.0;
        for (name, seconds) in [
            ("--seconds", self.seconds),
            ("--warm-up-seconds", self.warm_up_seconds),
        ] {
            ensure!(
                window_s.contains(&seconds),
                "{name} is {seconds}, expected 0 to 3600"
            );
        }
        ensure!(
            self.batch_bytes > 0,
            "--batch-bytes is 0, expected at least 1"
        );
        ensure!(
            self.read_bytes > 0,
            "--read-bytes is 0, expected at least 1"
        );
        for &bytes in payload_bytes {
            ensure!(
                bytes
                    .checked_add(Header::SIZE)
                    .is_some_and(|frame| frame <= self.pool_bytes),
                "--bytes is {bytes}, which with a header of {} bytes does not fit --pool-bytes {}",
                Header::SIZE,
                self.pool_bytes
            );
        }
        Ok(())
    }

    fn side(&self, payload_bytes: usize, cpu: Option<usize>, tls: Option<Certificate>) -> Side {
        Side {
            payload_bytes,
            measured: self
                .messages
                .map_or(Span::Seconds(self.seconds), Span::Messages),
            warm_up: Span::Seconds(self.warm_up_seconds),
            cpu,
            batch_bytes: self.batch_bytes,
            read_bytes: self.read_bytes,
            pool_bytes: self.pool_bytes,
            tls,
        }
    }
}

/// Command line of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Side {
    /// Payload bytes of every message.
    pub(crate) payload_bytes: usize,
    /// How long the measured window is.
    pub(crate) measured: Span,
    /// How long the warm-up is.
    pub(crate) warm_up: Span,
    /// The CPU to stay on.
    pub(crate) cpu: Option<usize>,
    /// Bytes that the sender collects for one system call.
    pub(crate) batch_bytes: usize,
    /// Most bytes that the receiver takes with one system call.
    pub(crate) read_bytes: usize,
    /// Bytes of the pool or arena.
    pub(crate) pool_bytes: usize,
    /// Certificate of the session, if there is one.
    pub(crate) tls: Option<Certificate>,
}

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Span {
    /// By the sender's clock, in s; the last batch is sent whole.
    Seconds(f64),
    /// By count.
    Messages(u64),
}

/// Report of one side at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideReport {
    /// Messages of the measured window.
    pub(crate) messages: u64,
    /// User and system time in the measured window, in s.
    pub(crate) cpu_s: f64,
    /// Highest resident memory, pool included.
    pub(crate) rss_bytes_max: u64,
    /// Bytes on huge pages, if the kernel tells.
    pub(crate) huge_page_bytes: Option<u64>,
    /// The receiver's measurement of the window.
    pub(crate) window: Option<Window>,
}

/// The measured window as the receiver saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Window {
    /// From the first byte of the first frame to the end of the last.
    pub(crate) seconds: f64,
    /// Time that all CPUs of the machine were busy meanwhile, with whatever.
    pub(crate) machine_busy_s: f64,
}

/// One line of the result. Field by field: the `README.md` beside this crate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) bytes: usize,
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) cpu_load_sender: f64,
    pub(crate) cpu_load_receiver: f64,
    pub(crate) rss_bytes_max: u64,
    pub(crate) rss_bytes_max_sender: u64,
    pub(crate) rss_bytes_max_receiver: u64,
    pub(crate) huge_page_bytes: Option<u64>,
    pub(crate) machine_busy_ratio: f64,
    pub(crate) congestion: String,
    pub(crate) congestion_refused: Option<String>,
    pub(crate) pinned: Option<[usize; 2]>,
    pub(crate) batch_bytes: usize,
    pub(crate) read_bytes: usize,
    pub(crate) pool_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) security: &'static str,
}

impl Report {
    pub(crate) const TABLE_HEAD: &str =
        "     bytes    messages  seconds      MB/s  CPU s/GB  RSS MB  busy ratio  congestion";

    pub(crate) fn table_line(&self) -> String {
        format!(
            "{:>10} {:>11} {:>8.3} {:>9.0} {:>9.3} {:>7} {:>11.2}  {}",
            self.bytes,
            self.messages,
            self.seconds,
            self.mb_per_s,
            self.cpu_s_per_gb,
            self.rss_bytes_max / 1_000_000,
            self.machine_busy_ratio,
            self.congestion
        )
    }
}

/// Starts both sides for messages of `payload_bytes`, waits for them, and puts their reports together.
///
/// # Errors
///
/// If a side cannot be started, or dies; its own words then stand on stderr before this error.
pub(crate) fn run(plan: &Plan, payload_bytes: usize, pin: Pin) -> Result<Report> {
    let connection = socket::connect(&plan.congestion, plan.socket_buffer_bytes)?;
    let tls = plan.tls.then(Certificate::new).transpose()?;
    let side = |index: usize| plan.side(payload_bytes, pin.0.map(|cpus| cpus[index]), tls.clone());
    // Each process owns its end alone, so that the death of one ends the stream of the other.
    let sender = spawn("send", &side(0), connection.sender)?;
    let receiver = spawn("receive", &side(1), connection.receiver)?;
    let sent = wait("sender", sender);
    let received = wait("receiver", receiver);
    // The receiver's end first: when both die, it is usually the one that found the fault.
    let (received, sent) = (received?, sent?);
    ensure!(
        received.messages == sent.messages,
        "{} messages came, {} were sent",
        received.messages,
        sent.messages
    );
    let window = received.window.context("the receiver reports no window")?;
    let payload_total = received.messages as f64 * payload_bytes as f64;
    let cpu_s = sent.cpu_s + received.cpu_s;
    Ok(Report {
        bytes: payload_bytes,
        messages: received.messages,
        seconds: window.seconds,
        mb_per_s: ratio(payload_total / 1e6, window.seconds),
        cpu_s_per_gb: ratio(cpu_s, payload_total / 1e9),
        cpu_load_sender: ratio(sent.cpu_s, window.seconds),
        cpu_load_receiver: ratio(received.cpu_s, window.seconds),
        rss_bytes_max: sent.rss_bytes_max + received.rss_bytes_max,
        rss_bytes_max_sender: sent.rss_bytes_max,
        rss_bytes_max_receiver: received.rss_bytes_max,
        huge_page_bytes: sent
            .huge_page_bytes
            .zip(received.huge_page_bytes)
            .map(|(a, b)| a + b),
        machine_busy_ratio: ratio(window.machine_busy_s, cpu_s),
        congestion: connection.congestion,
        congestion_refused: connection.congestion_refused,
        pinned: pin.0,
        batch_bytes: plan.batch_bytes,
        read_bytes: plan.read_bytes,
        pool_bytes: plan.pool_bytes,
        send_buffer_bytes: connection.send_buffer_bytes,
        receive_buffer_bytes: connection.receive_buffer_bytes,
        security: if plan.tls { "tls" } else { "plain" },
    })
}

/// Zero instead of a quotient that JSON cannot hold.
fn ratio(value: f64, by: f64) -> f64 {
    if by > 0.0 { value / by } else { 0.0 }
}

fn spawn(subcommand: &str, side: &Side, stream: TcpStream) -> Result<Child> {
    let program = std::env::current_exe().context("cannot find this program")?;
    Command::new(program)
        .arg(subcommand)
        .arg(serde_json::to_string(side)?)
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start the process `plain_tcp {subcommand}`"))
}

fn wait(name: &str, child: Child) -> Result<SideReport> {
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for the {name}"))?;
    ensure!(
        output.status.success(),
        "the {name} failed ({})",
        output.status
    );
    parse(&output.stdout).with_context(|| format!("the report of the {name} is not readable"))
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    Ok(serde_json::from_slice(json)?)
}

/// The life of one side's process: its part in JSON, its end of the connection as standard input, its
/// report on standard output.
pub(crate) fn serve(
    side: &str,
    part: impl FnOnce(&Side, TcpStream) -> Result<SideReport>,
) -> Result<()> {
    let side: Side = parse(side.as_bytes()).context("the description of this side")?;
    if let Some(cpu) = side.cpu {
        process::pin(cpu)?;
    }
    let stream = TcpStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let report = part(&side, stream)?;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{receive::receive, send::send};

    fn side(payload_bytes: usize, messages: u64) -> Side {
        Side {
            payload_bytes,
            measured: Span::Messages(messages),
            warm_up: Span::Messages(3),
            cpu: None,
            batch_bytes: 4096,
            read_bytes: 1000,
            pool_bytes: 20_000,
            tls: None,
        }
    }

    fn both(send_as: &Side, receive_as: &Side) -> (Result<SideReport>, Result<SideReport>) {
        let connection = socket::connect("reno", 1 << 16).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(send_as, connection.sender));
            let received = receive(receive_as, connection.receiver);
            (sender.join().unwrap(), received)
        })
    }

    #[test]
    fn every_message_of_every_size_arrives() {
        for (payload_bytes, messages) in [
            (0, 2000),
            (1, 1000),
            (7, 0),
            (8, 1),
            (977, 500),
            (4097, 99),
            (9999, 51),
            (19_984, 21),
        ] {
            let side = side(payload_bytes, messages);
            let (sent, received) = both(&side, &side);
            assert_eq!(sent.unwrap().messages, messages, "{payload_bytes}");
            let received = received.unwrap();
            assert_eq!(received.messages, messages, "{payload_bytes}");
            assert!(received.window.unwrap().seconds >= 0.0);
        }
    }

    #[test]
    fn every_message_of_every_size_arrives_under_tls() {
        for (payload_bytes, messages) in [(0, 2000), (7, 0), (977, 500), (19_984, 2100)] {
            let side = Side {
                tls: Some(Certificate::new().unwrap()),
                batch_bytes: 100_000,
                read_bytes: 70_000,
                ..side(payload_bytes, messages)
            };
            let (sent, received) = both(&side, &side);
            assert_eq!(sent.unwrap().messages, messages, "{payload_bytes}");
            assert_eq!(received.unwrap().messages, messages, "{payload_bytes}");
        }
    }

    #[test]
    fn a_certificate_of_another_run_is_refused() {
        let made = || Side {
            tls: Some(Certificate::new().unwrap()),
            ..side(500, 100)
        };
        let (sent, received) = both(&made(), &made());
        assert!(sent.is_err() && received.is_err());
    }

    #[test]
    fn a_window_by_time_ends() {
        let side = Side {
            measured: Span::Seconds(0.01),
            ..side(500, 0)
        };
        let (sent, received) = both(&side, &side);
        assert_eq!(sent.unwrap().messages, received.unwrap().messages);
    }

    #[test]
    fn a_message_of_another_length_is_refused() {
        check_refused(
            &side(101, 9),
            &side(100, 9),
            "warm-up: message 0 of 101 bytes came, message 0 of 100 bytes was expected",
        );
    }

    #[test]
    fn a_message_with_another_last_byte_is_refused() {
        // Another pool has another layout: message 40 starts a second lap in one, not in the other.
        let other = Side {
            pool_bytes: 40_000,
            ..side(500, 100)
        };
        check_refused(&other, &side(500, 100), "message 40 ends with byte");
    }

    fn check_refused(send_as: &Side, receive_as: &Side, message: &str) {
        let (sent, received) = both(send_as, receive_as);
        let error = format!("{:#}", received.unwrap_err());
        assert!(error.starts_with(message), "{error}");
        assert!(
            sent.is_err(),
            "the sender must notice that the receiver is gone"
        );
    }

    #[test]
    fn wrong_sequence_wrong_count_and_cut_streams_are_refused() {
        let header = |bytes, sequence| Header { bytes, sequence }.encode().to_vec();
        let end = |count| header(Header::END, count);
        for (stream, message) in [
            (
                header(0, 1),
                "message 1 of 0 bytes came, message 0 of 0 bytes was expected",
            ),
            (
                [header(0, 0), end(2)].concat(),
                "1 messages came, 2 were sent",
            ),
            (
                [end(0), end(0)].concat(),
                "16 bytes follow the end of a window",
            ),
            (
                header(0, 0),
                "the stream ends after 1 messages, in a window",
            ),
            (
                end(0)[..9].to_vec(),
                "the stream ends after 0 messages, in a window",
            ),
        ] {
            let mut connection = socket::connect("reno", 1 << 16).unwrap();
            connection.sender.write_all(&stream).unwrap();
            connection
                .sender
                .shutdown(std::net::Shutdown::Write)
                .unwrap();
            let error = receive(&side(0, 0), connection.receiver).unwrap_err();
            assert_eq!(format!("{error:#}"), format!("warm-up: {message}"));
        }
    }

    #[test]
    fn what_one_side_is_told_survives_the_command_line() {
        let side = Side {
            cpu: Some(1),
            measured: Span::Seconds(1.5),
            tls: Some(Certificate::new().unwrap()),
            ..side(7, 0)
        };
        assert_eq!(
            parse::<Side>(serde_json::to_string(&side).unwrap().as_bytes()).unwrap(),
            side
        );
    }
}
