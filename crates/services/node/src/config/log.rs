//! The `[log]` table.

use crate::check::Check;
use serde::{Deserialize, Serialize};
use std::time::Duration;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// Smallest limit of an event log, in bytes: a file of it holds a few turns of a loop at least.
const EVENTS_BYTES_LEAST: u64 = 4096;

/// The `[log]` table of a farm file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Level of log lines, or levels by module.
    pub level: String,
    /// Bytes after which an event log goes on in a new file; 0 for no limit.
    pub events_bytes_max: u64,
    /// Age in seconds after which an event log goes on in a new file; 0 for no limit.
    pub events_age_s: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            events_bytes_max: 1 << 30,
            events_age_s: 0,
        }
    }
}

impl LogConfig {
    /// Returns the limits of an event log.
    #[must_use]
    pub fn rotation(&self) -> Rotation {
        Rotation {
            bytes_max: (self.events_bytes_max > 0).then_some(self.events_bytes_max),
            age_max: (self.events_age_s > 0).then(|| Duration::from_secs(self.events_age_s)),
        }
    }

    pub(super) fn check(&self, check: &mut Check) {
        check.that(
            is_level(&self.level),
            "log.level",
            format!("\"{}\"", self.level),
            "off, error, warn, info, debug or trace, or such by module: info,sheaf_node=debug",
        );
        check.that(
            self.events_bytes_max == 0 || self.events_bytes_max >= EVENTS_BYTES_LEAST,
            "log.events_bytes_max",
            self.events_bytes_max,
            format!("at least {EVENTS_BYTES_LEAST} bytes, or 0 for no limit"),
        );
    }
}

/// Limits of a file of an event log; behind one of them the log goes on in the next file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a file; `None` for any number.
    pub bytes_max: Option<u64>,
    /// Age of a file; `None` for any.
    pub age_max: Option<Duration>,
}

/// Returns whether `text` is a level, or a list of levels by module.
fn is_level(text: &str) -> bool {
    let is_part = |part: &str| {
        let (module, level) = part.split_once('=').unwrap_or(("all", part));
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
        !module.is_empty() && module.bytes().all(is_path) && LEVELS.contains(&level)
    };
    text.split(',').all(|part| is_part(part.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_ones_for_all_or_by_module() {
        for good in [
            "info",
            "off",
            "warn, sheaf_node=debug",
            "sheaf_node::icn=trace",
        ] {
            assert!(is_level(good), "{good}");
        }
        for bad in [
            "",
            "loud",
            "info,",
            "=info",
            "[run]=debug",
            "sheaf_node=loud",
        ] {
            assert!(!is_level(bad), "{bad}");
        }
    }

    #[test]
    fn no_limit_is_0_and_a_tiny_one_is_refused() {
        let found = |log: LogConfig| {
            let mut check = Check::default();
            log.check(&mut check);
            (check.errors.len(), log.rotation())
        };
        let mut log = LogConfig::default();
        let rotation = Rotation {
            bytes_max: Some(1 << 30),
            age_max: None,
        };
        assert_eq!(found(log.clone()), (0, rotation));
        log.events_bytes_max = 0;
        log.events_age_s = 3600;
        let rotation = Rotation {
            bytes_max: None,
            age_max: Some(Duration::from_secs(3600)),
        };
        assert_eq!(found(log.clone()), (0, rotation));
        log.events_bytes_max = 100;
        assert_eq!(found(log).0, 1);
    }
}
