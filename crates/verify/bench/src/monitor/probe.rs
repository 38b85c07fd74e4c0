//! Latencies of single points: from a datagram to the answer of a query, to an alarm, and to a frame of the live
//! stream.

use super::load::Target;
use super::row::Times;
use super::server::{Server, pause};
use anyhow::{Context as _, ensure};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest and longest time between two points, in ms. Drawn for each, so that none stays in step with a period
/// of the server.
const APART_MS: [u64; 2] = [100, 300];
const SEED: u64 = 0x5EAF;

/// Value above which the alert of the server fires.
const LIMIT: u32 = 1_000_000;

/// Sends points of the series `probe`.
struct Probe {
    socket: UdpSocket,
    rng: Xoshiro256PlusPlus,
}

impl Probe {
    fn new(server: &Server) -> anyhow::Result<Self> {
        let Target::Udp(address) = server.udp()? else {
            anyhow::bail!("it takes no datagrams");
        };
        let socket = UdpSocket::bind(("127.0.0.1", 0))?;
        socket.connect(address)?;
        let rng = Xoshiro256PlusPlus::seed_from_u64(SEED);
        Ok(Self { socket, rng })
    }

    /// Waits a while, and sends a point.
    fn send(&mut self, value: u32) -> anyhow::Result<Instant> {
        let [least, most] = APART_MS;
        pause(Duration::from_millis(self.rng.random_range(least..=most)));
        let begun = Instant::now();
        self.socket
            .send(format!("probe value={value}").as_bytes())?;
        Ok(begun)
    }
}

/// Measures the time from a datagram to a query that answers with its value. The first point, which makes the series,
/// is not counted.
pub(crate) fn visible(server: &mut Server, probes: u32) -> anyhow::Result<Option<Times>> {
    let mut probe = Probe::new(server)?;
    let mut times = Vec::new();
    for value in 0..=probes {
        let begun = probe.send(value)?;
        while server.value("probe")? != Some(f64::from(value)) {
            ensure!(
                begun.elapsed() < PATIENCE,
                "a point is not found within {} s",
                PATIENCE.as_secs()
            );
            pause(Duration::from_micros(500));
        }
        if value > 0 {
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(Times::of(&times))
}

/// Measures the time from a datagram to the alert that it fires, as the list of alarms shows it.
pub(crate) fn alarm(server: &mut Server, probes: u32) -> anyhow::Result<Option<Times>> {
    let mut probe = Probe::new(server)?;
    let mut times = Vec::new();
    for _ in 0..probes {
        for (value, fires) in [(LIMIT + 1, true), (0, false)] {
            let begun = probe.send(value)?;
            while server.is_firing()? != fires {
                ensure!(
                    begun.elapsed() < PATIENCE,
                    "an alert does not change within {} s",
                    PATIENCE.as_secs()
                );
                pause(Duration::from_micros(500));
            }
            if fires {
                times.push(begun.elapsed().as_secs_f64() * 1000.0);
            }
        }
    }
    Ok(Times::of(&times))
}

/// Measures the time from a datagram to a frame of the live stream that has its value.
pub(crate) fn display(server: &mut Server, probes: u32) -> anyhow::Result<Option<Times>> {
    let mut probe = Probe::new(server)?;
    let mut stream = TcpStream::connect(server.address())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET /api/live?q=probe&hz=10 HTTP/1.1\r\nHost: bench\r\n\r\n"
    )?;
    let mut lines = BufReader::new(stream).lines();
    let mut times = Vec::new();
    for value in 1_000..=1_000 + probes {
        let begun = probe.send(value)?;
        loop {
            ensure!(
                begun.elapsed() < PATIENCE,
                "a point is not shown within {} s",
                PATIENCE.as_secs()
            );
            let line = lines.next().context("the live stream has ended")??;
            let Some(text) = line.strip_prefix("data:") else {
                continue;
            };
            let frame: Value = serde_json::from_str(text.trim()).unwrap_or(Value::Null);
            if frame["v"][0][0].as_f64() == Some(f64::from(value)) {
                break;
            }
        }
        if value > 1_000 {
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(Times::of(&times))
}
