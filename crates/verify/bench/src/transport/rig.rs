//! One run: processes on both sides, the orders that they get, and what comes of it.

use super::kinds::Found;
use super::options::{Options, Shape, Side};
use super::serve::{self, Request};
use super::stage::Stage;
use crate::cpus::Cpus;
use anyhow::{Context as _, bail, ensure};
use peer_harness::{Latency, Mark, PeerReport};
use sheaf_figures::stat;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How long a process may take for an order.
const PATIENCE: Duration = Duration::from_secs(60);
/// A process has at least so much memory for payloads, and a pool at least so many messages.
const POOL_BYTES_MIN: usize = 4 << 20;

/// Lines that may wait; a process that says more waits.
const LINES_MAX: usize = 64;

/// Measurement of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    /// How many processes.
    pub(crate) shape: Shape,
    /// Of a message.
    pub(crate) bytes: usize,
    /// Messages that may be queued for a connection.
    pub(crate) queue: usize,
    /// Which side binds.
    pub(crate) binds: Side,
    /// Of all senders together.
    pub(crate) pool_bytes: usize,
    /// Memory into which all receivers together receive.
    pub(crate) receive_bytes: usize,
}

impl Case {
    /// Pool of a sender.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.at_least_a_queue(self.pool_bytes / self.shape.senders)
    }

    /// Memory into which a receiver receives.
    pub(crate) fn receive_bytes(&self) -> usize {
        self.at_least_a_queue(self.receive_bytes / self.shape.receivers)
    }

    /// `bytes`, or as many as hold what is queued, and some messages more.
    fn at_least_a_queue(&self, bytes: usize) -> usize {
        let needed = self.bytes * (self.queue() + 3).min(8);
        bytes.max(needed).max(POOL_BYTES_MIN)
    }

    /// Returns the requested queue, or as many messages as take half of the pool, but 1 at least.
    pub(crate) fn queue(&self) -> usize {
        let room = self.pool_bytes / 2 / self.bytes / self.shape.peers();
        self.queue.min(room.max(1))
    }
}

/// Result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RunFigures {
    /// Payload in 10^6 bytes a second.
    pub(crate) mb_per_s: f64,
    /// CPU time of both sides, in s for 10^9 bytes of payload.
    pub(crate) cpu_s_per_gb: f64,
    /// Of the senders.
    pub(crate) cpu_s_per_gb_senders: f64,
    /// Of the receivers.
    pub(crate) cpu_s_per_gb_receivers: f64,
    /// Peak resident memory of all processes.
    pub(crate) rss_bytes_max: u64,
    /// Of the receivers.
    pub(crate) rss_bytes_max_receivers: u64,
    /// Jain's index of the messages by process of the larger side.
    pub(crate) jain: f64,
    /// The least of them ÷ the most.
    pub(crate) share_min_max: f64,
    /// Messages of the process that had the least.
    pub(crate) messages_least: u64,
    /// From one side to the other.
    pub(crate) latency_us: Option<Latency>,
    /// Busy time of the machine ÷ CPU time of the processes; of two machines the larger.
    pub(crate) busy_ratio: f64,
    /// Messages that were sent and never came.
    pub(crate) lost: u64,
    /// Congestion control, where the library tells.
    pub(crate) congestion: Option<String>,
    /// The library.
    pub(crate) version: String,
}

/// How runs are done.
#[derive(Debug)]
pub(crate) struct Rig<'a> {
    pub(crate) options: &'a Options,
    pub(crate) stage: &'a Stage,
    pub(crate) cpus: &'a Cpus,
    /// Where receivers are started, if not here.
    pub(crate) remote: Option<(SocketAddr, String)>,
}

/// One process, here or elsewhere.
struct Process {
    input: Option<Box<dyn Write + Send>>,
    child: Option<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        if let Some(child) = &mut self.child {
            // It ends with its input, or it hangs; by now nothing is wanted of it.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Output of a process: its number, and a line; `None` at its end.
type Said = (usize, Option<String>);

impl Rig<'_> {
    /// Runs `case` with the transport `found`, whose programs speak the language of `tools/peers`.
    ///
    /// # Errors
    ///
    /// If a process fails, or does not follow an order in time.
    pub(crate) fn run(&self, found: &Found, case: &Case) -> anyhow::Result<RunFigures> {
        let (said, says) = sync_channel(LINES_MAX);
        let mut processes = Vec::new();
        let (first, second) = match case.binds {
            Side::Receiver => (Side::Receiver, Side::Sender),
            Side::Sender => (Side::Sender, Side::Receiver),
        };
        let addresses = self.addresses(first, count(case.shape, first))?;
        let index = |side: Side, number: usize| match side {
            Side::Sender => number,
            Side::Receiver => case.shape.senders + number,
        };
        for (number, address) in addresses.iter().enumerate() {
            let words = self.words(case, first, number, &Ends::Bind(*address));
            let process = self.start(found, first, number, words, (index(first, number), &said))?;
            processes.push((index(first, number), process));
        }
        await_all(&says, addresses.len())?;
        let seconds = count(case.shape, second);
        for number in 0..seconds {
            let words = self.words(case, second, number, &Ends::Connect(&addresses));
            let process =
                self.start(found, second, number, words, (index(second, number), &said))?;
            processes.push((index(second, number), process));
        }
        await_all(&says, seconds)?;
        drop(said);
        processes.sort_by_key(|(index, _)| *index);
        let mut processes: Vec<Process> =
            processes.into_iter().map(|(_, process)| process).collect();
        // Receivers first, so that nothing waits for them.
        tell(processes.iter_mut().rev(), "go")?;
        let warm_up_s = self.options.warm_up_seconds
            + 0.01 * (case.shape.senders * case.shape.receivers) as f64;
        self.go_on(&says, warm_up_s)?;
        tell(processes.iter_mut(), "mark")?;
        self.go_on(&says, self.options.seconds)?;
        tell(processes.iter_mut(), "mark")?;
        tell(processes.iter_mut().take(case.shape.senders), "stop")?;
        let mut reports = vec![None; processes.len()];
        let mut ended = vec![false; processes.len()];
        await_reports(&says, &mut reports, &mut ended, 0..case.shape.senders)?;
        let receivers_from = case.shape.senders;
        for process in processes.iter_mut().skip(receivers_from) {
            // One whose streams have ended has reported and ended already.
            let _ = tell(std::iter::once(process), "stop");
        }
        let all = receivers_from..processes.len();
        await_reports(&says, &mut reports, &mut ended, all)?;
        let reports: Vec<PeerReport> = reports.into_iter().flatten().collect();
        let (senders, receivers) = reports
            .split_at_checked(case.shape.senders)
            .context("a process gave no report")?;
        figures(case, senders, receivers, self.remote.is_some())
    }

    /// Lets the processes work; one that ends meanwhile has failed.
    fn go_on(&self, says: &Receiver<Said>, seconds: f64) -> anyhow::Result<()> {
        match says.recv_timeout(Duration::from_secs_f64(seconds)) {
            Ok((index, said)) => bail!("process {index} ended early: {}", said.unwrap_or_default()),
            Err(_) => Ok(()),
        }
    }

    /// Where the processes of the side that binds listen.
    fn addresses(&self, side: Side, count: usize) -> anyhow::Result<Vec<SocketAddr>> {
        if let Some((control, _)) = &self.remote {
            let ip = match side {
                Side::Receiver => control.ip(),
                Side::Sender => serve::own_ip(*control)?,
            };
            return Ok((23_000..)
                .take(count)
                .map(|port| (ip, port).into())
                .collect());
        }
        let place = self.place(side);
        let ports = place.free_ports(count)?;
        Ok(ports
            .into_iter()
            .map(|port| (place.address, port).into())
            .collect())
    }

    fn place(&self, side: Side) -> &super::stage::Place {
        match side {
            Side::Sender => &self.stage.sender,
            Side::Receiver => self.stage.receiver(),
        }
    }

    /// The command line of a process.
    fn words(&self, case: &Case, side: Side, number: usize, ends: &Ends<'_>) -> Vec<String> {
        let (role, others) = match side {
            Side::Sender => ("send", case.shape.receivers),
            Side::Receiver => ("receive", case.shape.senders),
        };
        let mut words = vec![role.to_owned()];
        match ends {
            Ends::Bind(address) => words.extend(["--bind".to_owned(), address.to_string()]),
            Ends::Connect(addresses) => {
                let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                words.extend(["--connect".to_owned(), all.join(",")]);
            }
        }
        for (name, value) in [
            ("--peers", others),
            ("--bytes", case.bytes),
            ("--queue", case.queue()),
            ("--pool-bytes", case.pool_bytes()),
            ("--memory-bytes", case.receive_bytes()),
            ("--id", number),
        ] {
            words.extend([name.to_owned(), value.to_string()]);
        }
        words.extend(["--congestion".to_owned(), self.options.congestion.clone()]);
        words
    }

    fn start(
        &self,
        found: &Found,
        side: Side,
        number: usize,
        words: Vec<String>,
        (index, said): (usize, &SyncSender<Said>),
    ) -> anyhow::Result<Process> {
        if let (Side::Receiver, Some((address, token))) = (side, &self.remote) {
            let request = Request {
                token: token.clone(),
                transport: found.kind.name.to_owned(),
                words,
                pin: self.cpus.pair().is_some().then_some(number),
            };
            let stream = serve::ask(*address, &request)?;
            listen(stream.try_clone()?, index, said.clone());
            return Ok(Process {
                input: Some(Box::new(stream)),
                child: None,
            });
        }
        let mut command = found.command();
        command.args(words);
        self.spawn(command, side, number, (index, said.clone()))
    }

    fn spawn(
        &self,
        mut command: Command,
        side: Side,
        number: usize,
        (index, said): (usize, SyncSender<Said>),
    ) -> anyhow::Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let cpu = self.cpu(side, number);
        let child = self.place(side).run(cpu, move || command.spawn())?;
        let mut child = child.context("cannot start a process")?;
        if let Some(output) = child.stdout.take() {
            listen(output, index, said);
        }
        let input = child
            .stdin
            .take()
            .map(|input| Box::new(input) as Box<dyn Write + Send>);
        Ok(Process {
            input,
            child: Some(child),
        })
    }

    /// Where a process stays.
    pub(crate) fn cpu(&self, side: Side, number: usize) -> Option<usize> {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        self.cpus.of(match side {
            Side::Sender => sheaf_protocol::FlpId(number).into(),
            Side::Receiver => sheaf_protocol::EpnId(number).into(),
        })
    }
}

enum Ends<'a> {
    Bind(SocketAddr),
    Connect(&'a [SocketAddr]),
}

fn count(shape: Shape, side: Side) -> usize {
    match side {
        Side::Sender => shape.senders,
        Side::Receiver => shape.receivers,
    }
}

/// Forwards the lines that are written to `output`.
fn listen(output: impl Read + Send + 'static, index: usize, said: SyncSender<Said>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if said.send((index, Some(line))).is_err() {
                return;
            }
        }
        // The receiver is gone: the rest is not needed.
        let _ = said.send((index, None));
    });
}

fn tell<'a>(processes: impl Iterator<Item = &'a mut Process>, word: &str) -> anyhow::Result<()> {
    for process in processes {
        let input = process
            .input
            .as_mut()
            .context("the input of a process is closed")?;
        let told = input.write_all(format!("{word}\n").as_bytes());
        told.and_then(|()| input.flush())
            .context("a process has ended")?;
    }
    Ok(())
}

fn await_all(says: &Receiver<Said>, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    for _ in 0..count {
        let left = deadline.saturating_duration_since(Instant::now());
        let (index, said) = says
            .recv_timeout(left)
            .context("a process is not ready in time")?;
        ensure!(
            said.as_deref() == Some("ready"),
            "process {index} is not ready: {}",
            said.as_deref().unwrap_or("it ended")
        );
    }
    Ok(())
}

/// Waits until the processes `of` have reported and ended.
fn await_reports(
    says: &Receiver<Said>,
    reports: &mut [Option<PeerReport>],
    ended: &mut [bool],
    of: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    // Some may have ended before they were waited for.
    while of
        .clone()
        .any(|index| !ended.get(index).copied().unwrap_or(true))
    {
        let rest = deadline.saturating_duration_since(Instant::now());
        let (index, said) = says
            .recv_timeout(rest)
            .context("a process gives no report in time")?;
        let Some(line) = said else {
            let has_reported = reports.get(index).is_some_and(Option::is_some);
            ensure!(has_reported, "process {index} failed");
            if let Some(ended) = ended.get_mut(index) {
                *ended = true;
            }
            continue;
        };
        let report = serde_json::from_str(&line);
        let report = report.with_context(|| format!("process {index} says {line:?}"))?;
        if let Some(place) = reports.get_mut(index) {
            *place = Some(report);
        }
    }
    Ok(())
}

/// The figures of a run from what its processes reported.
fn figures(
    case: &Case,
    senders: &[PeerReport],
    receivers: &[PeerReport],
    is_remote: bool,
) -> anyhow::Result<RunFigures> {
    let mut messages_per_s = 0.0;
    let mut window_s: f64 = 0.0;
    for report in receivers {
        let (from, to) = marks(report)?;
        let messages = to.messages.saturating_sub(from.messages);
        let seconds = to.last_t_s - from.last_t_s;
        if messages > 0 && seconds > 0.0 {
            messages_per_s += messages as f64 / seconds;
        }
        window_s = window_s.max(to.t_s - from.t_s);
    }
    let gb = messages_per_s * window_s * case.bytes as f64 / 1e9;
    ensure!(gb > 0.0, "no message came in {window_s:.1} s");
    let cpu = |reports: &[PeerReport]| -> anyhow::Result<f64> {
        let spent = reports
            .iter()
            .map(|report| Ok(marks(report)?.1.cpu_s - marks(report)?.0.cpu_s));
        spent.sum()
    };
    let (cpu_senders, cpu_receivers) = (cpu(senders)?, cpu(receivers)?);
    // That of the machine, as one process saw it that was marked over a similar time.
    let busy = |reports: &[PeerReport]| -> anyhow::Result<f64> {
        let report = reports.first().context("no process on one side")?;
        let (from, to) = marks(report)?;
        Ok((to.busy_s - from.busy_s) / (to.t_s - from.t_s) * window_s)
    };
    let busy_ratio = if is_remote {
        (busy(senders)? / cpu_senders.max(1e-3)).max(busy(receivers)? / cpu_receivers.max(1e-3))
    } else {
        busy(receivers)? / (cpu_senders + cpu_receivers).max(1e-3)
    };
    let shares = shares(case.shape, receivers)?;
    let rss = |reports: &[PeerReport]| {
        reports
            .iter()
            .map(|report| report.rss_bytes_max)
            .sum::<u64>()
    };
    let sum = |reports: &[PeerReport]| reports.iter().map(|report| report.messages).sum::<u64>();
    let slowest = receivers.iter().filter_map(|report| report.latency_us);
    let all = senders.iter().chain(receivers);
    let congestion = all.clone().find_map(|report| report.congestion.clone());
    Ok(RunFigures {
        mb_per_s: messages_per_s * case.bytes as f64 / 1e6,
        cpu_s_per_gb: (cpu_senders + cpu_receivers) / gb,
        cpu_s_per_gb_senders: cpu_senders / gb,
        cpu_s_per_gb_receivers: cpu_receivers / gb,
        rss_bytes_max: rss(senders) + rss(receivers),
        rss_bytes_max_receivers: rss(receivers),
        jain: stat::jain(&shares),
        share_min_max: stat::min_max(&shares),
        messages_least: shares.iter().copied().min().unwrap_or(0),
        latency_us: slowest.max_by(|a, b| a.p50.total_cmp(&b.p50)),
        busy_ratio,
        lost: sum(senders).saturating_sub(sum(receivers)),
        congestion,
        version: receivers
            .first()
            .map(|report| report.version.clone())
            .unwrap_or_default(),
    })
}

/// Messages in the window by process of the larger side: by sender if there are more of them, else by receiver.
fn shares(shape: Shape, receivers: &[PeerReport]) -> anyhow::Result<Vec<u64>> {
    if shape.senders <= shape.receivers {
        let count =
            |report| marks(report).map(|(from, to)| to.messages.saturating_sub(from.messages));
        return receivers.iter().map(count).collect();
    }
    let mut shares = vec![0; shape.senders];
    for report in receivers {
        let (from, to) = marks(report)?;
        let counts = from.by_sender.iter().zip(&to.by_sender);
        for (share, (from, to)) in shares.iter_mut().zip(counts) {
            *share += to.saturating_sub(*from);
        }
    }
    Ok(shares)
}

fn marks(report: &PeerReport) -> anyhow::Result<(&Mark, &Mark)> {
    match report.marks.as_slice() {
        [from, to, ..] => Ok((from, to)),
        found => bail!("{} marks, expected 2", found.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(cpu_s: f64, messages: u64, by_sender: &[u64]) -> PeerReport {
        let mark = |t_s: f64, share: f64| Mark {
            t_s,
            cpu_s: cpu_s * share,
            busy_s: 100.0 + 2.0 * share,
            messages: (messages as f64 * share) as u64,
            last_t_s: t_s - 0.25,
            by_sender: by_sender
                .iter()
                .map(|n| (*n as f64 * share) as u64)
                .collect(),
        };
        PeerReport {
            version: "one".to_owned(),
            messages,
            marks: vec![mark(10.0, 0.0), mark(12.0, 1.0)],
            rss_bytes_max: 7,
            congestion: None,
            latency_us: None,
        }
    }

    fn case(shape: &str) -> Case {
        Case {
            shape: shape.parse().unwrap(),
            bytes: 1_000_000,
            queue: 1000,
            binds: Side::Receiver,
            pool_bytes: 256 << 20,
            receive_bytes: 256 << 20,
        }
    }

    #[test]
    fn the_figures_are_those_of_the_window() {
        let senders = [report(1.0, 3003, &[]), report(0.5, 1000, &[])];
        let receivers = [report(0.5, 4000, &[3000, 1000])];
        let found = figures(&case("2-1"), &senders, &receivers, false).unwrap();
        assert_eq!((found.mb_per_s, found.cpu_s_per_gb), (2000.0, 0.5));
        assert_eq!(
            (found.busy_ratio, found.lost, found.rss_bytes_max),
            (1.0, 3, 21)
        );
        assert_eq!((found.jain, found.share_min_max), (0.8, 1.0 / 3.0));
        assert_eq!(found.messages_least, 1000);
    }

    #[test]
    fn a_window_without_a_message_is_no_result() {
        let [sender, receiver] = [report(1.0, 5, &[]), report(0.5, 0, &[0])];
        let error = figures(&case("1-1"), &[sender], &[receiver], false).unwrap_err();
        assert!(error.to_string().contains("no message came"), "{error}");
    }

    #[test]
    fn a_queue_takes_no_more_than_half_of_the_pool() {
        assert_eq!(case("1-1").queue(), 134);
        assert_eq!(case("240-1").queue(), 1);
        let small = Case {
            bytes: 4096,
            ..case("1-1")
        };
        assert_eq!((small.queue(), small.pool_bytes()), (1000, 256 << 20));
        let large = Case {
            bytes: 100_000_000,
            queue: 5,
            ..case("1-1")
        };
        assert_eq!((large.queue(), large.pool_bytes()), (1, 400_000_000));
    }

    #[test]
    fn the_memory_of_a_side_is_shared_among_its_processes() {
        let many = case("4-2");
        assert_eq!(
            (many.pool_bytes(), many.receive_bytes()),
            (64 << 20, 128 << 20)
        );
        let warm = Case {
            receive_bytes: 1,
            ..case("1-1")
        };
        assert_eq!(
            (warm.pool_bytes(), warm.receive_bytes()),
            (256 << 20, 8_000_000)
        );
    }
}
