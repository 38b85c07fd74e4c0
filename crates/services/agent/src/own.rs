//! Metrics of the agent about itself.

use rustix::time::{ClockId, clock_gettime};
use sheaf_metrics::{Counter, Gauge, Metric, Registry, reporter_metrics};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

const CPU: Metric = Metric::counter(
    "agent_cpu_seconds_total",
    "Processor time of the agent, all its threads, in seconds.",
)
.advice("its rate is the share of a core; the agent holds it below `agent.cpu_share_max`");
const READ: Metric = Metric::gauge(
    "agent_read_seconds",
    "Time that the last reading of all sensors took, in seconds.",
);
pub(crate) const SENSOR_UP: Metric = Metric::gauge(
    "agent_sensor_up",
    "1 if the sensor could be read, 0 if it failed or is not on this machine.",
)
.labels(&["sensor"])
.advice("0 for a sensor that the machine should have: the log of the agent says why");
pub(crate) const FAILED: Metric = Metric::counter(
    "agent_reads_failed_total",
    "Readings of a sensor that failed.",
)
.labels(&["sensor"])
.advice("the log of the agent says why");
const REFUSED: Metric = Metric::counter(
    "agent_series_refused_total",
    "Values that found no room in the table of series.",
)
.advice("the machine has devices or groups without end; leave the sensor out");
/// Metric of the client library with the time between two samples, in ns.
const INTERVAL: &str = "monitor_client_interval_seconds";

/// Lists these metrics, for the reference page.
pub fn metrics() -> impl Iterator<Item = Metric> {
    [CPU, READ, SENSOR_UP, FAILED, REFUSED].into_iter()
}

/// Handles of these metrics.
#[derive(Debug)]
pub(crate) struct Own {
    cpu: Arc<Counter>,
    read: Arc<Gauge>,
    refused: Arc<Counter>,
    interval: Arc<Gauge>,
    pace: Pace,
}

impl Own {
    pub(crate) fn new(registry: &Registry, interval: Duration) -> Self {
        let help = reporter_metrics()
            .into_iter()
            .find(|metric| metric.name == INTERVAL);
        let help = help.map_or("", |metric| metric.help);
        let gauge = registry.gauge(INTERVAL, help, &[]);
        gauge.set_u64(ns(interval));
        Self {
            cpu: registry.counter(CPU.name, CPU.help, &[]),
            read: registry.gauge(READ.name, READ.help, &[]),
            refused: registry.counter(REFUSED.name, REFUSED.help, &[]),
            interval: gauge,
            pace: Pace::new(ns(interval)),
        }
    }

    /// Notes a reading that took `time`, and says so if the interval is another one than before.
    pub(crate) fn note(&mut self, time: Duration, refused: u64, cpu_share_max: f64) {
        self.read.set_u64(ns(time));
        self.refused.raise_to(refused);
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = Duration::new(
            cpu.tv_sec.unsigned_abs(),
            u32::try_from(cpu.tv_nsec).unwrap_or(0),
        );
        self.cpu.raise_to(ns(cpu));
        let now = self.interval.value().unsigned_abs();
        let interval_ms = now / 1_000_000;
        match self.pace.note(now) {
            None => {}
            Some(Turn::Stretched) => {
                warn!(
                    interval_ms,
                    cpu_share_max, "Reads sensors less often, to stay within its share of a core"
                );
            }
            Some(Turn::Restored) => info!(
                interval_ms,
                "Reads sensors at the configured interval again"
            ),
            Some(Turn::Shortened) => info!(interval_ms, "Reads sensors more often again"),
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Change of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Stretched,
    Shortened,
    Restored,
}

/// Follows the interval, which the client library stretches.
#[derive(Debug)]
struct Pace {
    configured: u64,
    last: u64,
}

impl Pace {
    fn new(configured: u64) -> Self {
        Self {
            configured,
            last: configured,
        }
    }

    fn note(&mut self, interval: u64) -> Option<Turn> {
        let last = std::mem::replace(&mut self.last, interval);
        match interval.cmp(&last) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Turn::Stretched),
            std::cmp::Ordering::Less if interval == self.configured => Some(Turn::Restored),
            std::cmp::Ordering::Less => Some(Turn::Shortened),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_the_interval_is_said_once() {
        let mut pace = Pace::new(1);
        let found = [1, 2, 2, 4, 2, 1, 1].map(|interval| pace.note(interval));
        let (stretched, shortened, restored) = (
            Some(Turn::Stretched),
            Some(Turn::Shortened),
            Some(Turn::Restored),
        );
        assert_eq!(
            found,
            [None, stretched, None, stretched, shortened, restored, None]
        );
    }
}
