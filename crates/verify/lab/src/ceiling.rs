//! TCP throughput of every link of a topology: the synthetic benchmark of the founding report, section 2.
//!
//! A sender in one node fills one connection to another; the receiver counts bytes in windows of equal length after a
//! warm-up. Congestion control is cubic: the machine's own may pace.

use serde::Serialize;
use sheaf_figures::plot::{self, Mark};
use sheaf_figures::stat;
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted};
use sheaf_testbed::net::{Link, Net, NetError, Place, Topology, inside};
use sheaf_testbed::tool::{self, ToolError};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Throughput of a link of 100 Mbit/s in the report: mean of 50 samples with iperf3 (figure of section 2).
const REPORT_MBIT_S: f64 = 94.0;
/// Congestion control of both ends.
const CONGESTION: &[u8] = b"cubic";
/// Where a receiver listens.
const PORT: u16 = 5201;
/// How long a connection runs before its first window.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a receiver waits for its sender.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reasons why links are not measured.
#[derive(Debug, Error)]
pub enum CeilingError {
    /// There is no network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A socket, a thread or a process.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `iperf3` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The report of `iperf3` cannot be read.
    #[error("iperf3 does not answer in JSON: {0}")]
    Iperf3(String),
    /// A bug of the generator.
    #[error("a thread of the generator panicked")]
    Panicked,
}

/// Options of the measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Windows of each link.
    pub samples: u32,
    /// Length of a window.
    pub window: Duration,
    /// Every node, and not only one link of each kind.
    pub all: bool,
    /// Measure with iperf3, too, if it is installed.
    pub iperf3: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            samples: 50,
            window: Duration::from_millis(200),
            all: false,
            iperf3: true,
        }
    }
}

/// Throughput of one link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Sender.
    pub from: String,
    /// Receiver.
    pub to: String,
    /// `own`, or `iperf3`.
    pub generator: String,
    /// Whether frames pass more than one switch.
    pub crosses_uplink: bool,
    /// Expected throughput by the topology file, in Mbit/s of TCP payload.
    pub expected_mbit_s: f64,
    /// Each window, in Mbit/s of TCP payload.
    pub samples_mbit_s: Vec<f64>,
    /// Mean of the samples.
    pub mean_mbit_s: f64,
    /// Standard deviation of the samples.
    pub sd_mbit_s: f64,
    /// An interval of 95 % for the mean.
    pub ci95_mbit_s: [f64; 2],
    /// Of all windows the median.
    pub median_mbit_s: f64,
}

/// Throughput of all links.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// Version of this schema: 1.
    pub version: u32,
    /// The topology.
    pub topology: String,
    /// Length of a window, in s.
    pub window_s: f64,
    /// A row a link.
    pub links: Vec<Row>,
}

/// Makes the network of `topology`, measures, and removes it. `tell` is called with each link.
///
/// # Errors
///
/// All of [`CeilingError`].
pub fn run(
    topology: &Topology,
    options: &Options,
    mut tell: impl FnMut(&Row),
) -> Result<Ceiling, CeilingError> {
    clock::end_on_signals()?;
    let net = Net::make(topology)?;
    let mut links = Vec::new();
    for (from, to) in pairs(topology, options.all) {
        let [from, to] = [&net.places()[from], &net.places()[to]];
        let own = measure(from, to, options)?;
        links.push(row(topology, from, to, "own", own));
        tell(&links[links.len() - 1]);
        if options.iperf3 && tool::find("iperf3").is_some() {
            let theirs = iperf3(from, to, options)?;
            links.push(row(topology, from, to, "iperf3", theirs));
            tell(&links[links.len() - 1]);
        }
    }
    Ok(Ceiling {
        version: 1,
        topology: topology.name.clone(),
        window_s: options.window.as_secs_f64(),
        links,
    })
}

/// Returns the pairs of sender and receiver: each node to the next one, so that every cable is used both ways; or the
/// first of these within a switch and the first across an uplink.
fn pairs(topology: &Topology, all: bool) -> Vec<(usize, usize)> {
    let nodes = topology.nodes();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let ring: Vec<(usize, usize)> = (0..nodes.len())
        .map(|at| (at, (at + 1) % nodes.len()))
        .collect();
    if all {
        return ring;
    }
    let crosses = |(a, b): &(usize, usize)| nodes[*a].switch != nodes[*b].switch;
    let near = ring.iter().find(|pair| !crosses(pair));
    let far = ring.iter().find(|pair| crosses(pair));
    near.into_iter().chain(far).copied().collect()
}

fn row(topology: &Topology, from: &Place, to: &Place, generator: &str, samples: Vec<f64>) -> Row {
    let nodes = topology.nodes();
    let find = |place: &Place| nodes.iter().find(|node| node.name == place.node);
    let ends = [find(from), find(to)];
    let crosses_uplink = ends[0].map(|node| &node.switch) != ends[1].map(|node| &node.switch);
    let uplinks = topology.uplink.iter().filter(|_| crosses_uplink).map(|up| {
        let rate_mbit = up.rate_mbit.unwrap_or(topology.link.rate_mbit);
        Link {
            rate_mbit,
            ..topology.link
        }
    });
    let on_the_way = ends
        .into_iter()
        .flatten()
        .map(|node| node.link)
        .chain(uplinks);
    let expected = on_the_way
        .map(|link| link.goodput_mbit())
        .fold(f64::INFINITY, f64::min);
    Row {
        from: from.node.clone(),
        to: to.node.clone(),
        generator: generator.to_owned(),
        crosses_uplink,
        expected_mbit_s: expected,
        mean_mbit_s: stat::mean(&samples).unwrap_or(0.0),
        sd_mbit_s: stat::standard_deviation(&samples),
        ci95_mbit_s: stat::ci95(&samples),
        median_mbit_s: stat::quantile(&samples, 0.5).unwrap_or(0.0),
        samples_mbit_s: samples,
    }
}

fn socket() -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_congestion(CONGESTION)?;
    Ok(socket)
}

/// Windows of one connection, in Mbit/s.
fn measure(from: &Place, to: &Place, options: &Options) -> Result<Vec<f64>, CeilingError> {
    let address = SocketAddr::from((to.primary, PORT));
    let (ready_in, ready) = mpsc::sync_channel(1);
    let (samples, window) = (options.samples, options.window);
    let receiver = inside(&to.namespace, move || {
        receive(address, samples, window, &ready_in)
    })?;
    // It is not sent if there is no socket; the receiver says why.
    let is_ready = ready.recv_timeout(PATIENCE).is_ok();
    let sender = inside(&from.namespace, move || {
        if is_ready { send(address) } else { Ok(()) }
    })?;
    let received = join(receiver)?.map_err(IoError::of("receive"))?;
    join(sender)?.map_err(IoError::of(format!("send to {address}")))?;
    Ok(received)
}

fn join<T>(thread: std::thread::JoinHandle<Result<T, IoError>>) -> Result<T, CeilingError> {
    Ok(thread.join().map_err(|_| CeilingError::Panicked)??)
}

fn receive(
    address: SocketAddr,
    samples: u32,
    window: Duration,
    ready: &mpsc::SyncSender<()>,
) -> std::io::Result<Vec<f64>> {
    let listener = socket()?;
    listener.set_reuse_address(true)?;
    listener.bind(&address.into())?;
    listener.listen(1)?;
    // The receiver no longer waits, so no client connects.
    let _ = ready.send(());
    listener.set_read_timeout(Some(PATIENCE))?;
    let (connection, _) = listener.accept()?;
    let mut connection = TcpStream::from(connection);
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = vec![0_u8; 256 << 10];
    let warm = Instant::now() + WARM_UP;
    while Instant::now() < warm {
        if connection.read(&mut buffer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let mut found = Vec::new();
    let (mut since, mut bytes) = (Instant::now(), 0_usize);
    while (found.len() as u32) < samples && clock::check_quit().is_ok() {
        let got = connection.read(&mut buffer)?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes += got;
        let passed = since.elapsed();
        if passed >= window {
            found.push(bytes as f64 * 8.0 / 1e6 / passed.as_secs_f64());
            (since, bytes) = (Instant::now(), 0);
        }
    }
    Ok(found)
}

/// Sends until the other end has had enough.
fn send(address: SocketAddr) -> std::io::Result<()> {
    let connection = socket()?;
    connection.connect_timeout(&address.into(), PATIENCE)?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut connection = TcpStream::from(connection);
    let block = vec![b'a'; 64 << 10];
    loop {
        match connection.write_all(&block) {
            Ok(()) => {}
            Err(error) if is_over(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn is_over(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

/// The same by iperf3: its intervals, in Mbit/s.
fn iperf3(from: &Place, to: &Place, options: &Options) -> Result<Vec<f64>, CeilingError> {
    let mut server = tool::command("ip");
    server.args(["netns", "exec", &to.namespace, "iperf3", "-s", "-1", "-J"]);
    server
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut server = server.spawn().map_err(IoError::of("start iperf3"))?;
    let address = to.primary.to_string();
    let interval = options.window.as_secs_f64().max(0.1);
    let seconds = interval * f64::from(options.samples);
    let (seconds, interval) = (format!("{:.0}", seconds.ceil()), interval.to_string());
    let words = [
        "netns",
        "exec",
        &from.namespace,
        "iperf3",
        "-c",
        &address,
        "-C",
        "cubic",
        "-O",
        "1",
    ];
    let times = ["-t", &seconds, "-i", &interval, "-J"];
    // The server prints nothing until it has ended: a client that connects too early tries again.
    let mut answer = tool::run("ip", words.into_iter().chain(times));
    for _ in 0..20 {
        if answer.is_ok() {
            break;
        }
        clock::let_pass(Duration::from_millis(100))?;
        answer = tool::run("ip", words.into_iter().chain(times));
    }
    let _ = server.kill();
    let _ = server.wait();
    let report: serde_json::Value =
        serde_json::from_str(&answer?).map_err(|error| CeilingError::Iperf3(error.to_string()))?;
    let intervals = report["intervals"].as_array().into_iter().flatten();
    let rates = intervals.filter_map(|one| one["sum"]["bits_per_second"].as_f64());
    Ok(rates.map(|rate| rate / 1e6).collect())
}

impl Ceiling {
    /// For people: a line a link, and where its windows lie.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<18} {:<7} {:>3} {:>9} {:>9} {:>6} {:>19} {:>9}\n",
            "link", "by", "n", "expected", "mean", "sd", "95 % of the mean", "median"
        );
        for row in &self.links {
            let [low, high] = row.ci95_mbit_s;
            let _ = writeln!(
                text,
                "{:<18} {:<7} {:>3} {:>9.2} {:>9.2} {:>6.2} {:>9.2} - {:>7.2} {:>9.2}",
                format!("{} -> {}", row.from, row.to),
                row.generator,
                row.samples_mbit_s.len(),
                row.expected_mbit_s,
                row.mean_mbit_s,
                row.sd_mbit_s,
                low,
                high,
                row.median_mbit_s
            );
        }
        text.push_str("in Mbit/s of TCP payload\n");
        for row in &self.links {
            let _ = writeln!(text, "\n{} -> {} ({})", row.from, row.to, row.generator);
            text.push_str(&bars_of_text(&row.samples_mbit_s));
        }
        text
    }

    /// The windows of all links in one figure.
    ///
    /// # Errors
    ///
    /// [`PlotError`](plot::PlotError).
    pub fn svg(&self) -> Result<String, plot::PlotError> {
        let all: Vec<f64> = self
            .links
            .iter()
            .flat_map(|row| row.samples_mbit_s.iter().copied())
            .collect();
        let of_100 = |row: &Row| (row.expected_mbit_s - REPORT_MBIT_S).abs() < 1.0;
        let mark = Mark {
            at: REPORT_MBIT_S,
            label: "iperf3 in the report: 94".to_owned(),
        };
        let marks: Vec<Mark> = self
            .links
            .iter()
            .any(of_100)
            .then_some(mark)
            .into_iter()
            .collect();
        let title = format!(
            "TCP goodput of {}: {} windows of {} s",
            self.topology,
            all.len(),
            self.window_s
        );
        plot::histogram(&title, "Mbit/s", &all, &marks)
    }
}

/// A histogram of ten lines.
fn bars_of_text(values: &[f64]) -> String {
    const LINES: usize = 10;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return String::new();
    }
    let width = ((high - low) / LINES as f64).max(0.01);
    let mut counts = [0_usize; LINES];
    for value in values {
        counts[(((value - low) / width) as usize).min(LINES - 1)] += 1;
    }
    let mut text = String::new();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let from = low + index as f64 * width;
        let _ = writeln!(text, "{from:>9.2} {count:>4} {}", "#".repeat(*count));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_link_of_each_kind_is_measured_or_every_cable_both_ways() {
        let cluster = Topology::find("pi-cluster").unwrap();
        assert_eq!(pairs(&cluster, false), [(0, 1), (3, 4)]);
        assert_eq!(pairs(&cluster, true).len(), 8);
        let single = Topology::find("pi-single").unwrap();
        assert_eq!(pairs(&single, false), [(0, 1)]);
    }

    #[test]
    fn the_text_has_a_line_a_link_and_a_histogram() {
        let topology = Topology::find("pi-cluster").unwrap();
        let place = |index: usize| Place {
            node: topology.nodes()[index].name.clone(),
            namespace: String::new(),
            can: Vec::new(),
            primary: std::net::Ipv4Addr::LOCALHOST,
            auxiliary: None,
            port: String::new(),
        };
        let samples = vec![94.1, 94.1, 93.0];
        let ceiling = Ceiling {
            version: 1,
            topology: "pi-cluster".to_owned(),
            window_s: 0.2,
            links: vec![row(&topology, &place(3), &place(4), "own", samples)],
        };
        let text = ceiling.text();
        assert!(
            text.contains("pi4 -> pi5         own       3     94.15     93.73"),
            "{text}"
        );
        assert!(
            text.contains("    93.00    1 #\n") && text.contains("   2 ##\n"),
            "{text}"
        );
        assert!(ceiling.links[0].crosses_uplink);
        assert!(ceiling.svg().unwrap().contains("iperf3 in the report"));
    }

    #[test]
    fn a_shaped_link_gives_what_its_topology_promises() {
        if let Err(why) = sheaf_testbed::net::needs() {
            eprintln!("a_shaped_link_gives_what_its_topology_promises skipped: {why}");
            return;
        }
        let topology = Topology::find("pi-single").unwrap();
        let options = Options {
            samples: 4,
            window: Duration::from_millis(100),
            iperf3: false,
            ..Options::default()
        };
        let ceiling = run(&topology, &options, |_| {}).unwrap();
        let row = &ceiling.links[0];
        assert_eq!(row.samples_mbit_s.len(), 4);
        // Never more than the link; how much less depends on who shares the processors.
        assert!(row.mean_mbit_s > 1.0 && row.mean_mbit_s < 97.0, "{row:?}");
    }
}
