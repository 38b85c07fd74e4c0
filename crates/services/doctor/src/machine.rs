//! Facts of this machine: limits, memory, settings of the kernel, cards, clock. Nothing here judges.

use rustix::process::{Resource, getrlimit};
use sheaf_gateway::Facts;
use std::collections::BTreeMap;
use std::process::Command;

/// Facts of a machine. Those that it does not have, or does not tell, are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Machine {
    /// Processors that this process may use.
    pub(crate) processors: usize,
    /// Processors that a control group allows, if it limits them.
    pub(crate) quota: Option<f64>,
    /// Clock governors of the processors, such as `powersave`.
    pub(crate) governors: Vec<String>,
    /// Memory that is there and memory that is free, in bytes.
    pub(crate) memory: Option<(u64, u64)>,
    /// Descriptors that a process may have at most.
    pub(crate) files_max: Option<u64>,
    /// When the kernel gives huge pages: `always`, `madvise` or `never`.
    pub(crate) huge_pages: Option<String>,
    /// Largest buffers of sockets that a process may ask for, in bytes: received, sent.
    pub(crate) buffers_max: (Option<u64>, Option<u64>),
    /// Names of congestion control that the kernel knows.
    pub(crate) congestion: Vec<String>,
    /// Ports that the kernel takes for outgoing connections.
    pub(crate) port_range: Option<(u16, u16)>,
    /// Ports that it leaves out, as the kernel writes them.
    pub(crate) reserved_ports: String,
    /// Whether a service holds the clock, and what it says.
    pub(crate) clock: Option<(bool, String)>,
    /// Real network cards.
    pub(crate) cards: Vec<Card>,
}

/// A network card with hardware behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Card {
    pub(crate) name: String,
    /// Queues, the processors that they interrupt, memory node.
    pub(crate) place: sheaf_node::cards::Card,
    /// Offloads by name, as `ethtool -k` says.
    pub(crate) offloads: BTreeMap<String, bool>,
    /// Slots of the receive ring: in use, at most.
    pub(crate) ring: Option<(u64, u64)>,
    /// Interrupts of the card by processor.
    pub(crate) interrupts: Vec<u64>,
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<u64> {
    read(path)?.parse().ok()
}

/// Returns what a program prints; `None` if it is not there or fails.
fn told(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let is_done = output.status.success();
    is_done.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Machine {
    /// Reads this machine.
    pub(crate) fn read(links: Option<&Facts>) -> Self {
        let range = read("/proc/sys/net/ipv4/ip_local_port_range");
        let cards = links.map(|facts| &facts.links[..]).unwrap_or_default();
        let mut places = sheaf_node::cards::Card::all();
        let interrupts = read("/proc/interrupts").unwrap_or_default();
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            quota: read("/sys/fs/cgroup/cpu.max").and_then(|text| quota(&text)),
            governors: governors(),
            memory: read("/proc/meminfo").and_then(|text| memory(&text)),
            files_max: getrlimit(Resource::Nofile).maximum,
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            buffers_max: (
                number("/proc/sys/net/core/rmem_max"),
                number("/proc/sys/net/core/wmem_max"),
            ),
            congestion: words(read("/proc/sys/net/ipv4/tcp_available_congestion_control")),
            port_range: range.and_then(|text| pair(&text)),
            reserved_ports: read("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default(),
            clock: clock(),
            cards: cards
                .iter()
                .filter(|link| link.is_up)
                .filter_map(|link| {
                    let at = places.iter().position(|place| place.name == link.name)?;
                    Some(Card::read(places.swap_remove(at), &interrupts))
                })
                .collect(),
        }
    }
}

impl Card {
    fn read(place: sheaf_node::cards::Card, interrupts: &str) -> Self {
        let name = &place.name;
        Self {
            name: name.clone(),
            offloads: offloads(&told("ethtool", &["-k", name]).unwrap_or_default()),
            ring: told("ethtool", &["-g", name]).and_then(|text| ring(&text)),
            interrupts: interrupts_of(name, interrupts),
            place,
        }
    }
}

fn words(text: Option<String>) -> Vec<String> {
    let text = text.unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

fn pair(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Returns the word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Returns the processors of a line such as `150000 100000`, a time within another one; `None` for `max`.
fn quota(text: &str) -> Option<f64> {
    let (time, period) = text.split_once(' ')?;
    let (time, period): (f64, f64) = (time.parse().ok()?, period.parse().ok()?);
    Some(time / period)
}

fn memory(text: &str) -> Option<(u64, u64)> {
    let of = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line
            .trim_start_matches(':')
            .trim()
            .strip_suffix(" kB")?
            .parse()
            .ok()?;
        Some(kib << 10)
    };
    Some((of("MemTotal")?, of("MemAvailable")?))
}

fn governors() -> Vec<String> {
    let folder = std::fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
        .flatten();
    let files = folder.map(|entry| entry.path().join("cpufreq/scaling_governor"));
    let mut all: Vec<String> = files
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .map(|text| text.trim().to_owned())
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Returns whether a service holds the clock: that of systemd, or chrony.
fn clock() -> Option<(bool, String)> {
    if let Some(text) = told("chronyc", &["-c", "tracking"]) {
        // Reference, name, stratum, time of the reference, offset, …; stratum 0 has none.
        let fields: Vec<&str> = text.trim().split(',').collect();
        let stratum = fields.get(2)?;
        let offset = fields.get(4)?;
        return Some((
            *stratum != "0",
            format!("chrony: stratum {stratum}, {offset} s away"),
        ));
    }
    let text = told(
        "timedatectl",
        &["show", "--property=NTPSynchronized", "--value"],
    )?;
    let is_held = text.trim() == "yes";
    Some((
        is_held,
        format!("timedatectl: NTPSynchronized={}", text.trim()),
    ))
}

/// Reads lines such as `tcp-segmentation-offload: on [fixed]`.
fn offloads(text: &str) -> BTreeMap<String, bool> {
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let known = lines.filter_map(|(name, state)| {
        let is_on = match state.split(' ').next()? {
            "on" => true,
            "off" => false,
            _ => return None,
        };
        // What is fixed cannot be changed: nothing is to be said of it.
        (!state.contains("[fixed]")).then(|| (name.to_owned(), is_on))
    });
    known.collect()
}

/// Reads the lines `RX:` of `ethtool -g`: the largest ring, then that of now.
fn ring(text: &str) -> Option<(u64, u64)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("RX:"));
    let mut sizes = lines.map(|size| size.trim().parse().ok());
    let most = sizes.next()??;
    Some((sizes.next()??, most))
}

/// Returns the interrupts of a card by processor, of a text as in `/proc/interrupts`.
fn interrupts_of(card: &str, text: &str) -> Vec<u64> {
    let mut lines = text.lines();
    let processors = lines.next().unwrap_or_default().split_whitespace().count();
    let mut sums = vec![0; processors];
    let is_of = |word: &str| {
        let rest = word.strip_prefix(card);
        rest.is_some_and(|rest| {
            rest.is_empty() || !rest.starts_with(|next: char| next.is_alphanumeric())
        })
    };
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.iter().any(|word| is_of(word)) {
            continue;
        }
        for (sum, word) in sums.iter_mut().zip(words.iter().skip(1)) {
            *sum += word.parse::<u64>().unwrap_or(0);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel_are_read() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(quota("150000 100000"), Some(1.5));
        assert_eq!(quota("max 100000"), None);
        assert_eq!(pair("32768\t60999"), Some((32768, 60999)));
        let text = "MemTotal:        1024 kB\nMemFree: 1 kB\nMemAvailable:     512 kB\n";
        assert_eq!(memory(text), Some((1 << 20, 512 << 10)));
    }

    #[test]
    fn outputs_of_ethtool_are_read() {
        let text = "Features for eth0:\nrx-checksumming: on [fixed]\ntcp-segmentation-offload: off\n\
                    \ttx-tcp-segmentation: off\ngeneric-receive-offload: on\n";
        let found: Vec<_> = offloads(text).into_iter().collect();
        let expected = [
            ("generic-receive-offload", true),
            ("tcp-segmentation-offload", false),
            ("tx-tcp-segmentation", false),
        ];
        assert_eq!(
            found,
            expected.map(|(name, is_on)| (name.to_owned(), is_on))
        );
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\n\
                    Current hardware settings:\nRX:\t\t512\nTX:\t\t512\n";
        assert_eq!(ring(text), Some((512, 4096)));
        assert_eq!(ring("RX:\t\tn/a\n"), None);
    }

    #[test]
    fn interrupts_of_a_card_are_counted_by_processor() {
        let text = "           CPU0       CPU1\n 24:   10   0  PCI-MSI 1-edge  eth0-rx-0\n\
                    25:  5  7  PCI-MSI 2-edge  eth0\n26:  100 100  PCI-MSI 3-edge  eth01\nERR:  0\n";
        assert_eq!(interrupts_of("eth0", text), [15, 7]);
        assert_eq!(interrupts_of("eth1", text), [0, 0]);
    }

    #[test]
    fn this_machine_is_read() {
        let machine = Machine::read(None);
        assert!(
            machine.processors > 0 && machine.memory.is_some(),
            "{machine:?}"
        );
    }
}
