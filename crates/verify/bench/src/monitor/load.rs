//! The generator: a process that sends points as fast as asked, or as it can.
//!
//! Names and labels of all series are written once; a point copies them and appends a value out of a table and the
//! time. Datagrams leave in batches by one system call; requests of HTTP leave on several connections.

mod source;

use anyhow::{Context as _, bail};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use serde::{Deserialize, Serialize};
use sheaf_samples::wire::remote_write;
use source::Source;
pub(crate) use source::values_of;
use std::io::{BufRead as _, BufReader, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Datagrams of one system call.
const BATCH: usize = 16;
/// Longest time after which points that are late have the time at which they were due. Shorter than a window of
/// averages waits for them.
pub(crate) const LAG_MAX: Duration = Duration::from_millis(400);

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
    /// Connections of HTTP, or sockets of datagrams; each has series of its own.
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
    /// Longest time that datagrams left after they were due, in s.
    pub behind_s: f64,
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
    let behind = AtomicU64::new(0);
    let points = match &options.to {
        Target::Udp(address) => on_each(options, |at, count, points_max| {
            datagrams(options, *address, [at, count], points_max, &behind)
        })?,
        _ => on_each(options, |at, count, points_max| {
            connection(options, at, count, points_max)
        })?,
    };
    Ok(Sent {
        points,
        seconds: begun.elapsed().as_secs_f64(),
        behind_s: Duration::from_nanos(behind.into_inner()).as_secs_f64(),
    })
}

/// Sends the datagrams of one of `count` sockets in batches, each at its time. `behind` is the longest time that one
/// was late, in ns.
fn datagrams(
    options: &LoadOptions,
    to: SocketAddr,
    [at, count]: [u32; 2],
    points_max: u64,
    behind: &AtomicU64,
) -> anyhow::Result<u64> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).context("cannot open a socket")?;
    socket
        .connect(to)
        .with_context(|| format!("cannot reach {to}"))?;
    let mut source = Source::new(options, at, count);
    let points_per_s = options.points_per_s as f64 / f64::from(count);
    let batch_points = u64::from(options.points) * BATCH as u64;
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(options.seconds);
    let mut buffers: Vec<Vec<u8>> = vec![Vec::new(); BATCH];
    let mut sent = 0;
    while Instant::now() < end && (points_max == 0 || sent < points_max) {
        let mut lag = Duration::ZERO;
        if options.points_per_s > 0 {
            let due = begun + Duration::from_secs_f64(sent as f64 / points_per_s);
            wait_until(due);
            lag = due.elapsed();
            let lag_ns = u64::try_from(lag.as_nanos()).unwrap_or(u64::MAX);
            behind.fetch_max(lag_ns, Ordering::Relaxed);
        }
        // Points have the time at which they were due, so that those of a series are apart after a stall, too. One
        // that lasts is that of a load which is too much.
        source.look(if lag <= LAG_MAX { lag } else { Duration::ZERO });
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

/// Sends on all connections at once, each by `send` with its number, the number of all, and its share of the points.
fn on_each(
    options: &LoadOptions,
    send: impl Fn(u32, u32, u64) -> anyhow::Result<u64> + Sync,
) -> anyhow::Result<u64> {
    let send = &send;
    let connections = options.connections.clamp(1, options.series);
    let share = |at: u32| {
        // Every connection has series of its own, and so keeps their order.
        options.points_max / u64::from(connections)
            + u64::from(u64::from(at) < options.points_max % u64::from(connections))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|at| scope.spawn(move || send(at, connections, share(at))))
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
        source.look(Duration::ZERO);
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
    use std::collections::BTreeMap;

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
    fn sockets_share_series_and_points() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let options = LoadOptions {
            to: Target::Udp(server.local_addr().unwrap()),
            series: 4,
            points: 2,
            points_max: 64,
            connections: 2,
            seconds: 60.0,
            ..LoadOptions::default()
        };
        assert_eq!(generate(&options).unwrap().points, 64);
        let mut by_sender: BTreeMap<SocketAddr, Vec<String>> = BTreeMap::new();
        let mut buffer = [0; 2000];
        for _ in 0..2 * BATCH {
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            let names = text.lines().map(|line| line.split(',').next().unwrap());
            let names = names.map(str::to_owned);
            by_sender.entry(from).or_default().extend(names);
        }
        let mut names: Vec<Vec<String>> = by_sender.into_values().collect();
        for of_one in &mut names {
            assert_eq!(of_one.len(), 32);
            of_one.sort_unstable();
            of_one.dedup();
        }
        names.sort_unstable();
        assert_eq!(names, [["m0", "m2"], ["m1", "m3"]]);
    }

    #[test]
    fn what_is_sent_can_be_computed_again() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let options = LoadOptions {
            to: Target::Udp(server.local_addr().unwrap()),
            series: 7,
            points_max: 32,
            seconds: 60.0,
            ..LoadOptions::default()
        };
        let sent = generate(&options).unwrap().points;
        let mut found: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
        let mut buffer = [0; 2000];
        for _ in 0..sent {
            let length = server.recv(&mut buffer).unwrap();
            let text = std::str::from_utf8(&buffer[..length]).unwrap();
            let (series, rest) = text.split_once(" value=").unwrap();
            let (name, host) = series.split_once(",host=").unwrap();
            let value = rest.split(' ').next().unwrap().parse().unwrap();
            found
                .entry((name.to_owned(), host.to_owned()))
                .or_default()
                .push(value);
        }
        assert_eq!(found, values_of(&options, sent));
    }
}
