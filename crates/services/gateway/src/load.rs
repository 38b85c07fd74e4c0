//! Load of this machine between two looks, from `/proc` and `/sys`.

use sheaf_sensors::{CPU_STATES, interfaces, stat};
use sheaf_serve::LoadReport;
use std::fs;
use std::time::Instant;

/// Meter of the load of the machine from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    last: Option<Look>,
}

/// Counters of the kernel at one time.
#[derive(Clone, Debug)]
struct Look {
    at: Instant,
    busy_ns: u64,
    wait_ns: u64,
    all_ns: u64,
    bytes: u64,
    /// Bytes per second that the cards can carry, 0 if no card says so.
    speed: f64,
}

impl Meter {
    /// Returns the load since the look before; of a first look, zeros.
    pub(crate) fn look(&mut self, transfers: u64) -> LoadReport {
        let look = Look::now();
        let before = self.last.replace(look.clone());
        let idle = LoadReport {
            transfers,
            ..LoadReport::default()
        };
        let Some(before) = before else {
            return idle;
        };
        let seconds = look.at.duration_since(before.at).as_secs_f64();
        let all = look.all_ns.saturating_sub(before.all_ns) as f64;
        if seconds <= 0.0 || all <= 0.0 {
            return idle;
        }
        let bytes_per_s = look.bytes.saturating_sub(before.bytes) as f64 / seconds;
        LoadReport {
            bytes_per_s,
            cpu: look.busy_ns.saturating_sub(before.busy_ns) as f64 / all,
            disk_wait: look.wait_ns.saturating_sub(before.wait_ns) as f64 / all,
            network: if look.speed > 0.0 {
                bytes_per_s / look.speed
            } else {
                0.0
            },
            ..idle
        }
    }
}

impl Look {
    fn now() -> Self {
        let mut look = Self {
            at: Instant::now(),
            busy_ns: 0,
            wait_ns: 0,
            all_ns: 0,
            bytes: 0,
            speed: 0.0,
        };
        // A file that is not there leaves zeros: its resource weighs nothing.
        if let Ok(text) = fs::read_to_string("/proc/stat")
            && let Ok(found) = stat(&text)
        {
            for core in &found.cores {
                for (state, ns) in CPU_STATES.iter().zip(core.ns) {
                    look.all_ns += ns;
                    match *state {
                        "idle" => {}
                        "iowait" => look.wait_ns += ns,
                        _ => look.busy_ns += ns,
                    }
                }
            }
        }
        if let Ok(text) = fs::read_to_string("/proc/net/dev")
            && let Ok(found) = interfaces(&text)
        {
            for card in found.iter().filter(|card| card.name != "lo") {
                // Cards carry both ways at once; servers mostly send.
                look.bytes += card.bytes[0].max(card.bytes[1]);
                let speed = fs::read_to_string(format!("/sys/class/net/{}/speed", card.name));
                let megabits: f64 = speed
                    .ok()
                    .and_then(|text| text.trim().parse().ok())
                    .unwrap_or(0.0);
                look.speed += megabits.max(0.0) * 1e6 / 8.0;
            }
        }
        look
    }
}
