//! Memory of nodes against the budget that they log at their start, with every hold full since no consumer is there.

use crate::harness::{PATIENCE, Running, farm_turn, free_address, sheaf, write};
use rustix::process::Signal;
use serde_json::Value;
use sheaf_zmtp::{Message, SendError, Socket, SocketConfig, SocketType};
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HOLD_BYTES: u64 = 128 << 20;
/// No whole number of blocks.
const STF_BYTES: usize = 700_001;
/// Status lines without an STF more, after which a producer is stopped by the FLP.
const STILL_LINES: u32 = 5;

/// A program that gives STFs as fast as they are taken.
struct Producer {
    given: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    /// Starts one that calls `give` with the id of each TF until it returns `false`.
    fn start(open: impl FnOnce(&AtomicBool) -> Option<Give> + Send + 'static) -> Self {
        let (given, is_over) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (count, over) = (given.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            let Some(mut give) = open(&over) else { return };
            while !over.load(Ordering::Relaxed) && give(count.load(Ordering::Relaxed), &over) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let thread = Some(thread);
        Self {
            given,
            is_over,
            thread,
        }
    }

    /// Starts one that writes records to the stream that `connect` gives.
    fn of_stream<W: Write + 'static>(
        connect: impl Fn() -> std::io::Result<W> + Send + 'static,
    ) -> Self {
        Self::start(move |over| {
            let since = Instant::now();
            let mut stream = loop {
                match connect() {
                    Ok(stream) => break stream,
                    Err(error) => assert!(since.elapsed() < PATIENCE, "{error}"),
                }
                if over.load(Ordering::Relaxed) {
                    return None;
                }
                std::thread::yield_now();
            };
            // The FLP is killed at the end.
            Some(Box::new(move |tf, _| stream.write_all(&record(tf)).is_ok()))
        })
    }

    fn of_zmq(endpoint: String) -> Self {
        Self::start(move |_| {
            let mut push = Socket::new(SocketType::Push, SocketConfig::default()).unwrap();
            push.connect(&endpoint.parse().unwrap()).unwrap();
            Some(Box::new(move |tf, over| {
                let mut message = Message::from(bytes::Bytes::from(record(tf)));
                while let Err(SendError::Full(back)) = push.try_send(message) {
                    message = back;
                    push.wait(Duration::from_millis(10)).unwrap();
                    if over.load(Ordering::Relaxed) {
                        return false;
                    }
                }
                true
            }))
        })
    }
}

/// Gives the STF of a TF; `false` at the end.
type Give = Box<dyn FnMut(u64, &AtomicBool) -> bool>;

impl Drop for Producer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn record(tf: u64) -> Vec<u8> {
    let mut bytes = b"STFF\x01\0\0\0".to_vec();
    bytes.extend(tf.to_le_bytes());
    bytes.extend((STF_BYTES as u64).to_le_bytes());
    bytes.resize(bytes.len() + STF_BYTES, tf as u8);
    bytes
}

/// Returns a field of `/proc/PID/status` in bytes.
fn kernel_says(node: &Running, field: &str) -> u64 {
    let path = format!("/proc/{}/status", node.pid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim_start_matches(':').trim().strip_suffix("kB"));
    kib.unwrap().trim().parse::<u64>().unwrap() * 1024
}

/// Fills the holds of a farm whose FLP has `source`, fed by what `feed` starts, and holds its nodes against their
/// budgets.
fn check(source: &str, feed: impl FnOnce(&Path) -> Option<Producer>) {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let source = source.replace("AT", at.to_str().unwrap());
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n\
         [icn]\naddress = \"{}\"\n\
         [icn.ledger]\nbackend = \"memory\"\n\
         [icn.scheduler]\nstf_bytes_max = 4194304\ntf_bytes_max = 4194304\n\
         [flp]\nhold_bytes = {HOLD_BYTES}\nstf_bytes_max = 4194304\nrate_hz = 0\n\
         [flp.source]\n{source}\n\
         [epn.sink]\nkind = \"unix\"\npath = \"{}/tfs.sock\"\n\
         [epn.build]\ncapacity_bytes = 67108864\n",
        free_address(),
        at.display()
    );
    let config = write(at, "farm.toml", &text);
    let checked = sheaf(&["config", "check", "--json", &config]);
    let checked: Value = serde_json::from_str(&checked.ok(&["config", "check"])).unwrap();
    let icn = Running::start(&["run", "icn", "--config", &config, "--status-ms", "100"]);
    let epn = Running::start(&["run", "epn", "--config", &config, "--index", "0"]);
    let mut command = Command::new("sh");
    let program = crate::harness::PROGRAM;
    // A program reads its standard input from the first byte on: sh gives it the pipe and its own process.
    let input = if source.contains("stdin") {
        format!("< '{}/pipe'", at.display())
    } else {
        String::new()
    };
    if !input.is_empty() {
        let made = Command::new("mkfifo").arg(at.join("pipe")).status();
        assert!(made.unwrap().success());
    }
    let line = format!("exec '{program}' run flp --config '{config}' --index 0 {input}");
    command.args(["-c", &line]);
    let flp = Running::of(command);
    let producer = feed(at);
    let count = || {
        producer
            .as_ref()
            .map_or(0, |one| one.given.load(Ordering::Relaxed))
    };
    let (since, mut still, mut known) = (Instant::now(), 0, 0);
    while still < STILL_LINES {
        let status: Value = serde_json::from_str(&icn.await_line("\"books\"")).unwrap();
        let held = status["flps"][0]["held_bytes"].as_u64().unwrap_or(0);
        let is_full = held + 4 * STF_BYTES as u64 > HOLD_BYTES;
        let given = count();
        still = if is_full && given == known {
            still + 1
        } else {
            0
        };
        known = given;
        assert!(since.elapsed() < PATIENCE, "{source}: {status:#}");
    }
    // Of shared memory an EPN has the pages of FLPs alone.
    let of_epn = kernel_says(&epn, "RssAnon") + kernel_says(&epn, "RssFile");
    let of_flp = kernel_says(&flp, "VmHWM");
    let found = [
        ("icn", kernel_says(&icn, "VmHWM")),
        ("flp", of_flp),
        ("epn", of_epn),
    ];
    if producer.is_some() {
        assert!(
            of_flp > HOLD_BYTES,
            "{source}: the hold is full of {of_flp} bytes"
        );
    }
    for node in [&icn, &epn, &flp] {
        node.signal(Signal::KILL);
    }
    drop(producer);
    for ((role, bytes), node) in found.into_iter().zip([icn, flp, epn]) {
        let budget = checked["memory"][role]["budget_bytes"].as_u64().unwrap();
        let log = node.end().stderr;
        let logged = format!("Memory budget budget_bytes={budget} ");
        assert!(
            log.contains(&logged),
            "{source}: {role}: no {logged} in\n{log}"
        );
        println!("{role} of {source:?}: {bytes} of {budget} bytes");
        assert!(
            bytes <= budget,
            "{source}: {role} has {bytes} of {budget} bytes\n{log}"
        );
    }
}

#[test]
fn nodes_keep_their_memory_budgets_with_producers_over_tcp() {
    let address = free_address();
    let source = format!("kind = \"tcp\"\nlisten = \"{address}\"");
    check(&source, |_| {
        Some(Producer::of_stream(move || TcpStream::connect(&address)))
    });
}

#[test]
fn nodes_keep_their_memory_budgets_with_producers_at_a_unix_socket() {
    check("kind = \"unix\"\npath = \"AT/stfs.sock\"", |at| {
        let path = at.join("stfs.sock");
        Some(Producer::of_stream(move || UnixStream::connect(&path)))
    });
}

#[test]
fn nodes_keep_their_memory_budgets_with_a_producer_at_the_standard_input() {
    check("kind = \"stdin\"", |at| {
        let path = at.join("pipe");
        Some(Producer::of_stream(move || {
            File::options().write(true).open(&path)
        }))
    });
}

#[test]
fn nodes_keep_their_memory_budgets_with_producers_of_zeromq() {
    let endpoint = format!("tcp://{}", free_address());
    let source = format!("kind = \"zmq\"\nendpoint = \"{endpoint}\"");
    check(&source, |_| Some(Producer::of_zmq(endpoint)));
}

#[test]
fn nodes_keep_their_memory_budgets_with_sources_that_make_stfs() {
    let generator =
        format!("kind = \"generator\"\nbytes_mean = {STF_BYTES}\npool_bytes = 33554432");
    check(&generator, |_| None);
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testdata/alice-its-rdh7"
    );
    let replay =
        format!("kind = \"replay\"\nfiles = [\"{recorded}/12_links_2hbf.raw\"]\norbits_per_tf = 8");
    check(&replay, |_| None);
}
