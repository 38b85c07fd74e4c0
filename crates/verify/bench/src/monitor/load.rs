//! The generator: a process that sends points as fast as asked, or as it can.
//!
//! Names and labels of all series are written once; a point copies them and appends a value out of a table and the
//! time. Datagrams leave in batches by one system call; requests of HTTP leave on several connections.

use anyhow::{Context as _, bail};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::{Deserialize, Serialize};
use sheaf_samples::wire::remote_write;
use sheaf_samples::{Labels, Sample};
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Datagrams of one system call.
const BATCH: usize = 16;
/// Values that a point takes one of.
const TABLE: usize = 4096;
const SEED: u64 = 0x5EAF;

/// Where points go, such as `udp:127.0.0.1:8089`, `lines:127.0.0.1:9470/write` or `remote:127.0.0.1:9090/api/v1/write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Line protocol in datagrams.
    Udp(SocketAddr),
    /// Line protocol over HTTP, at a path.
    Lines(SocketAddr, String),
    /// Remote write, at a path.
    Remote(SocketAddr, String),
}

/// Values of the points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// A third each of real numbers with five decimals, integers up to 100, and on/off.
    #[default]
    Mix,
    /// Gauges that drift, with two decimals.
    Walk,
}

/// Order to the generator.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// Where points go.
    pub to: Target,
    /// Series, in turn.
    pub series: u32,
    /// Names of metrics; a name has a series for each host.
    pub names: u32,
    /// Points of a datagram or request.
    pub points: u32,
    /// Points a second; 0: as many as can be sent.
    pub points_per_s: u64,
    /// Points at most; 0: no bound.
    pub points_max: u64,
    /// Time at most, in s.
    pub seconds: f64,
    /// Connections of HTTP.
    pub connections: u32,
    /// Points begin so long ago, and each round of all series is a second later; 0: points have the time of now.
    pub history_s: u32,
    /// Values.
    pub shape: Shape,
}

/// Report of the generator, one line of JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Points sent; over HTTP, those whose request was answered with a success.
    pub points: u64,
    /// Time from the first to the last.
    pub seconds: f64,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("found `{text}`, expected udp:ADDR, lines:ADDR/PATH or remote:ADDR/PATH");
        let (kind, rest) = text.split_once(':').ok_or_else(expected)?;
        let (address, path) = match rest.split_once('/') {
            Some((address, path)) => (address, format!("/{path}")),
            None => (rest, String::new()),
        };
        let address = address.parse().map_err(|_| expected())?;
        match (kind, path.is_empty()) {
            ("udp", true) => Ok(Self::Udp(address)),
            ("lines", false) => Ok(Self::Lines(address, path)),
            ("remote", false) => Ok(Self::Remote(address, path)),
            _ => Err(expected()),
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Lines(address, path) => write!(f, "lines:{address}{path}"),
            Self::Remote(address, path) => write!(f, "remote:{address}{path}"),
        }
    }
}

impl Shape {
    /// Name in the rows of the history.
    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Mix => "history-mix",
            Self::Walk => "history-walk",
        }
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mix" => Ok(Self::Mix),
            "walk" => Ok(Self::Walk),
            _ => Err(format!("found `{text}`, expected mix or walk")),
        }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            to: Target::Udp(SocketAddr::from(([127, 0, 0, 1], 0))),
            series: 1,
            names: 100,
            points: 1,
            points_per_s: 0,
            points_max: 0,
            seconds: 1.0,
            connections: 1,
            history_s: 0,
            shape: Shape::Mix,
        }
    }
}

impl LoadOptions {
    /// Returns the arguments of the process that does this.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let shape = if self.shape == Shape::Mix {
            "mix"
        } else {
            "walk"
        };
        let pairs = [
            ("--to", self.to.to_string()),
            ("--series", self.series.to_string()),
            ("--names", self.names.to_string()),
            ("--points", self.points.to_string()),
            ("--points-per-s", self.points_per_s.to_string()),
            ("--points-max", self.points_max.to_string()),
            ("--seconds", self.seconds.to_string()),
            ("--connections", self.connections.to_string()),
            ("--history-s", self.history_s.to_string()),
            ("--shape", shape.to_owned()),
        ];
        let pairs = pairs.into_iter();
        pairs
            .flat_map(|(name, value)| [name.to_owned(), value])
            .collect()
    }
}

/// Sends points as `options` says.
///
/// # Errors
///
/// If the server cannot be reached, or refuses a request for good.
pub fn generate(options: &LoadOptions) -> anyhow::Result<Sent> {
    let begun = Instant::now();
    let points = match &options.to {
        Target::Udp(address) => datagrams(options, *address)?,
        _ => requests(options)?,
    };
    Ok(Sent {
        points,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// Makes the points of every `step`-th series from `first` on, round after round.
struct Source {
    prefixes: Vec<Vec<u8>>,
    labels: Vec<Labels>,
    values: Vec<[String; TABLE]>,
    walks: Vec<i64>,
    rng: Xoshiro256PlusPlus,
    shape: Shape,
    at: usize,
    turn: usize,
    round: i64,
    history_ms: Option<i64>,
    now_ns: i64,
}

impl Source {
    fn new(options: &LoadOptions, first: u32, step: u32) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(SEED + u64::from(first));
        let numbers = || (first..options.series).step_by(step as usize);
        let name = |number: u32| {
            (
                format!("m{}", number % options.names),
                format!("h{}", number / options.names),
            )
        };
        let prefix = |number| {
            let (name, host) = name(number);
            format!("{name},host={host} value=").into_bytes()
        };
        let labels = |number| {
            let (name, host) = name(number);
            Labels::new([("__name__", name), ("host", host)]).expect("two short labels")
        };
        let mut table = |make: &dyn Fn(&mut Xoshiro256PlusPlus) -> String| {
            std::array::from_fn(|_| make(&mut rng))
        };
        let values = vec![
            table(&|rng| format!("{:.5}", rng.random::<f64>() * 100.0)),
            table(&|rng| rng.random_range(1..=100).to_string()),
            table(&|rng| rng.random_range(0..=1).to_string()),
        ];
        let is_remote = matches!(options.to, Target::Remote(..));
        Self {
            prefixes: numbers().map(prefix).collect(),
            labels: if is_remote {
                numbers().map(labels).collect()
            } else {
                Vec::new()
            },
            values,
            walks: vec![5000; numbers().count()],
            rng,
            shape: options.shape,
            at: 0,
            turn: 0,
            round: 0,
            history_ms: (options.history_s > 0)
                .then(|| now_ns() / 1_000_000 - i64::from(options.history_s) * 1000),
            now_ns: now_ns(),
        }
    }

    /// Takes the time of the next points.
    fn look(&mut self) {
        self.now_ns = now_ns();
    }

    /// Returns the place of the next series, its value and its time in ms.
    fn step(&mut self) -> (usize, String, i64) {
        let at = self.at;
        let value = match self.shape {
            Shape::Mix => {
                self.turn += 1;
                self.values[at % 3][(self.turn * 7) % TABLE].clone()
            }
            Shape::Walk => {
                self.walks[at] += self.rng.random_range(-5..=5);
                format!("{:.2}", self.walks[at] as f64 / 100.0)
            }
        };
        let at_ms = match self.history_ms {
            Some(begin) => begin + self.round * 1000 + self.rng.random_range(0..=1),
            None => self.now_ns / 1_000_000,
        };
        self.at += 1;
        if self.at == self.prefixes.len() {
            self.at = 0;
            self.round += 1;
        }
        (at, value, at_ms)
    }

    /// Appends a line.
    fn line(&mut self, out: &mut Vec<u8>) {
        if self.history_ms.is_none() && self.shape == Shape::Mix {
            // The path of a load: nothing is allocated.
            let at = self.at;
            self.turn += 1;
            out.extend_from_slice(&self.prefixes[at]);
            out.extend_from_slice(self.values[at % 3][(self.turn * 7) % TABLE].as_bytes());
            out.push(b' ');
            push_number(out, self.now_ns);
            out.push(b'\n');
            self.at = (at + 1) % self.prefixes.len();
            return;
        }
        let (at, value, at_ms) = self.step();
        out.extend_from_slice(&self.prefixes[at]);
        out.extend_from_slice(value.as_bytes());
        out.push(b' ');
        push_number(out, at_ms * 1_000_000);
        out.push(b'\n');
    }

    /// Returns a request of remote write with `points`.
    fn remote(&mut self, points: usize) -> Vec<u8> {
        let points: Vec<(usize, [Sample; 1])> = (0..points)
            .map(|_| {
                let (at, value, at_ms) = self.step();
                let value = value.parse().expect("a value of the table is a number");
                (at, [Sample { at_ms, value }])
            })
            .collect();
        let series = points
            .iter()
            .map(|(at, samples)| (&self.labels[*at], &samples[..]));
        remote_write::encode(series, &[])
    }
}

fn push_number(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Sends datagrams in batches, each at its time.
fn datagrams(options: &LoadOptions, to: SocketAddr) -> anyhow::Result<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("cannot open a socket")?;
    socket
        .connect(to)
        .with_context(|| format!("cannot reach {to}"))?;
    let mut source = Source::new(options, 0, 1);
    let batch_points = u64::from(options.points) * BATCH as u64;
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(options.seconds);
    let mut buffers: Vec<Vec<u8>> = vec![Vec::new(); BATCH];
    let mut sent = 0;
    while Instant::now() < end && (options.points_max == 0 || sent < options.points_max) {
        if options.points_per_s > 0 {
            let due = begun + Duration::from_secs_f64(sent as f64 / options.points_per_s as f64);
            wait_until(due);
        }
        source.look();
        for buffer in &mut buffers {
            buffer.clear();
            for _ in 0..options.points {
                source.line(buffer);
            }
        }
        send(&socket, &buffers)?;
        sent += batch_points;
    }
    Ok(sent)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pacer waits for an absolute deadline"
)]
fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    // Shorter than this the kernel cannot be exact; the next batch makes up for it.
    if left > Duration::from_micros(60) {
        std::thread::sleep(left);
    }
}

fn send(socket: &UdpSocket, buffers: &[Vec<u8>]) -> anyhow::Result<()> {
    let slices: Vec<[IoSlice<'_>; 1]> = buffers
        .iter()
        .map(|buffer| [IoSlice::new(buffer)])
        .collect();
    let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> = buffers
        .iter()
        .map(|_| SendAncillaryBuffer::default())
        .collect();
    let mut messages: Vec<MMsgHdr<'_>> = slices
        .iter()
        .zip(&mut controls)
        .map(|(slice, control)| MMsgHdr::new(slice, control))
        .collect();
    let mut done = 0;
    while done < messages.len() {
        match sendmmsg(socket, &mut messages[done..], SendFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::NOBUFS | rustix::io::Errno::AGAIN) => {
            }
            Err(error) => return Err(error).context("cannot send datagrams"),
        }
    }
    Ok(())
}

/// Sends requests on all connections at once.
fn requests(options: &LoadOptions) -> anyhow::Result<u64> {
    let connections = options.connections.clamp(1, options.series);
    let share = |at: u32| {
        // Every connection has series of its own, and so keeps their order.
        options.points_max / u64::from(connections)
            + u64::from(u64::from(at) < options.points_max % u64::from(connections))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|at| scope.spawn(move || connection(options, at, connections, share(at))))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("its panic was printed"));
        joined.sum()
    })
}

fn connection(
    options: &LoadOptions,
    first: u32,
    step: u32,
    points_max: u64,
) -> anyhow::Result<u64> {
    let (address, path, kind) = match &options.to {
        Target::Lines(address, path) => (address, path, "text/plain"),
        Target::Remote(address, path) => (address, path, remote_write::CONTENT_TYPE),
        Target::Udp(_) => bail!("UDP has no requests"),
    };
    let is_remote = matches!(options.to, Target::Remote(..));
    let headers = if is_remote {
        format!(
            "Content-Encoding: {}\r\nX-Prometheus-Remote-Write-Version: {}\r\n",
            remote_write::CONTENT_ENCODING,
            remote_write::VERSION
        )
    } else {
        String::new()
    };
    let mut source = Source::new(options, first, step);
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    let (mut sent, mut body) = (0, Vec::new());
    while Instant::now() < end && (points_max == 0 || sent < points_max) {
        let left = if points_max == 0 {
            u64::MAX
        } else {
            points_max - sent
        };
        let points = u64::from(options.points).min(left);
        source.look();
        body.clear();
        if is_remote {
            body = source.remote(usize::try_from(points).unwrap_or(usize::MAX));
        } else {
            (0..points).for_each(|_| source.line(&mut body));
        }
        loop {
            write!(
                stream,
                "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {kind}\r\n{headers}Content-Length: {}\r\n\r\n",
                body.len()
            )?;
            stream.write_all(&body)?;
            match answer(&mut answers)? {
                200..=299 => break,
                // The server is busy: the same points again, as a client would.
                429 | 503 if Instant::now() < end => {}
                status => bail!("{address}{path} answers {status}"),
            }
        }
        sent += points;
    }
    Ok(sent)
}

/// Reads an answer, and returns its status.
fn answer(answers: &mut BufReader<TcpStream>) -> anyhow::Result<u16> {
    let mut line = String::new();
    answers.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
    let status =
        status.with_context(|| format!("found {line:?}, expected the status of an answer"))?;
    let (mut length, mut is_chunked) = (0, false);
    loop {
        line.clear();
        if answers.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let head = line.to_ascii_lowercase();
        if let Some(value) = head.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        is_chunked |= head.starts_with("transfer-encoding:") && head.contains("chunked");
    }
    if !is_chunked {
        std::io::copy(&mut answers.take(length), &mut std::io::sink())?;
        return Ok(status);
    }
    loop {
        line.clear();
        answers.read_line(&mut line)?;
        let bytes = u64::from_str_radix(line.trim(), 16).context("a chunk without its length")?;
        std::io::copy(&mut answers.take(bytes + 2), &mut std::io::sink())?;
        if bytes == 0 {
            return Ok(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_written() {
        for text in [
            "udp:127.0.0.1:8089",
            "lines:127.0.0.1:1/write?db=a",
            "remote:[::1]:2/api/v1/write",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        for text in [
            "udp:127.0.0.1:1/x",
            "lines:127.0.0.1:1",
            "tcp:127.0.0.1:1",
            "udp:h",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn datagrams_have_all_series_in_turn_and_as_many_lines_as_asked() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let options = LoadOptions {
            to: Target::Udp(server.local_addr().unwrap()),
            series: 250,
            points: 3,
            points_max: 48,
            seconds: 60.0,
            ..LoadOptions::default()
        };
        let sent = generate(&options).unwrap();
        assert_eq!(sent.points, 48);
        let mut names = Vec::new();
        let mut buffer = [0; 2000];
        for _ in 0..BATCH {
            let length = server.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            assert_eq!(text.lines().count(), 3, "{text}");
            names.extend(
                text.lines()
                    .map(|line| line.split(' ').next().unwrap().to_owned()),
            );
        }
        let expected = (0..48).map(|number| format!("m{number},host=h0"));
        assert!(names.into_iter().eq(expected));
    }

    #[test]
    fn a_history_has_one_point_a_second_of_each_series() {
        let options = LoadOptions {
            series: 2,
            history_s: 10,
            shape: Shape::Walk,
            ..LoadOptions::default()
        };
        let mut source = Source::new(&options, 0, 1);
        let mut out = Vec::new();
        (0..4).for_each(|_| source.line(&mut out));
        let text = String::from_utf8(out).unwrap();
        let times: Vec<i64> = text
            .lines()
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        let apart_ms = (times[2] - times[0]) / 1_000_000;
        assert!((999..=1001).contains(&apart_ms), "{text}");
    }
}
