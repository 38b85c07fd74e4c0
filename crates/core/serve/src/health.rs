//! Health of a server: what single checks say, made calm.

use crate::config::HealthConfig;
use serde::Serialize;
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Changes of health within [`HealthConfig::flap_s`] from which on a server is held down.
const FLAPS: usize = 6;

/// Change of a server's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealthNews {
    /// The server is well.
    Up,
    /// The server is not well.
    Down,
}

/// Health of one server.
///
/// A server that is up goes down after `fall` failed checks in a row, and comes up after `rise` good ones. One that
/// changes too often is held down until it has been well for the whole of `flap_s`.
#[derive(Clone, Debug, Default)]
pub struct Health {
    is_up: bool,
    /// Checks in a row that speak against the state.
    against: u32,
    /// When the server came up; it begins slowly from there.
    up_since: Option<Timestamp>,
    changes: VecDeque<Timestamp>,
    /// First good check of an unbroken row.
    good_since: Option<Timestamp>,
    last_error: Option<String>,
}

impl Health {
    /// Whether the server gets connections.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the server has been checked at all.
    #[must_use]
    pub fn is_checked(&self) -> bool {
        self.is_up || self.last_error.is_some() || !self.changes.is_empty()
    }

    /// Reason of the last failed check, unless a good one followed.
    #[must_use]
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether the server is well but held down because it changed too often.
    #[must_use]
    pub fn is_held(&self, now: Timestamp, config: &HealthConfig) -> bool {
        !self.is_up && self.flaps(now, config) >= FLAPS
    }

    fn flaps(&self, now: Timestamp, config: &HealthConfig) -> usize {
        let span = Duration::from_secs(config.flap_s);
        let recent = |at: &&Timestamp| now.since(**at) < span;
        self.changes.iter().filter(recent).count()
    }

    /// Takes the result of a check. Returns the change that follows from it.
    pub fn handle_check(
        &mut self,
        now: Timestamp,
        result: Result<(), String>,
        config: &HealthConfig,
    ) -> Option<HealthNews> {
        let is_good = result.is_ok();
        self.last_error = result.err();
        self.good_since = match self.good_since {
            _ if !is_good => None,
            None => Some(now),
            since => since,
        };
        if is_good == self.is_up {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.is_up { config.fall } else { config.rise };
        // The first check of all decides at once: a director that begins has no time to lose.
        let is_first = self.changes.is_empty() && is_good;
        if self.against < needed && !is_first {
            return None;
        }
        if is_good && self.is_held(now, config) {
            let well = self
                .good_since
                .map_or(Duration::ZERO, |since| now.since(since));
            if well < Duration::from_secs(config.flap_s) {
                return None;
            }
        }
        self.against = 0;
        self.is_up = is_good;
        self.up_since = is_good.then_some(now).filter(|_| !is_first);
        self.changes.push_back(now);
        if self.changes.len() > FLAPS {
            self.changes.pop_front();
        }
        Some(if is_good {
            HealthNews::Up
        } else {
            HealthNews::Down
        })
    }

    /// Returns the share of its weight that a server gets while it begins, in steps of a quarter: caches are cold.
    #[must_use]
    pub fn share(&self, now: Timestamp, config: &HealthConfig) -> f64 {
        let Some(since) = self.up_since.filter(|_| config.slow_start_s > 0) else {
            return 1.0;
        };
        let part = now.since(since).as_secs_f64() / config.slow_start_s as f64;
        ((part * 4.0).floor() + 1.0).min(4.0) / 4.0
    }

    /// Returns when the share grows next.
    #[must_use]
    pub fn next_share(&self, now: Timestamp, config: &HealthConfig) -> Option<Timestamp> {
        let since = self.up_since.filter(|_| config.slow_start_s > 0)?;
        let quarter = Duration::from_secs(config.slow_start_s) / 4;
        (1..4)
            .map(|step| since + quarter * step)
            .find(|at| *at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Timestamp {
        Timestamp(0) + Duration::from_secs(s)
    }

    fn config() -> HealthConfig {
        HealthConfig {
            rise: 2,
            fall: 3,
            slow_start_s: 8,
            flap_s: 60,
            ..HealthConfig::default()
        }
    }

    #[test]
    fn one_failed_check_takes_no_server_out() {
        let (config, mut health) = (config(), Health::default());
        assert_eq!(
            health.handle_check(at(0), Ok(()), &config),
            Some(HealthNews::Up)
        );
        for s in 1..3 {
            assert_eq!(
                health.handle_check(at(s), Err("refused".into()), &config),
                None
            );
        }
        assert_eq!(health.handle_check(at(3), Ok(()), &config), None);
        for s in 4..6 {
            assert_eq!(
                health.handle_check(at(s), Err("refused".into()), &config),
                None
            );
        }
        assert_eq!(
            health.handle_check(at(6), Err("refused".into()), &config),
            Some(HealthNews::Down)
        );
        assert_eq!(health.last_error(), Some("refused"));
        assert_eq!(health.handle_check(at(7), Ok(()), &config), None);
        assert_eq!(
            health.handle_check(at(8), Ok(()), &config),
            Some(HealthNews::Up)
        );
        let shares = [8, 10, 12, 14, 20].map(|s| health.share(at(s), &config));
        assert_eq!(shares, [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!(health.next_share(at(9), &config), Some(at(10)));
        assert_eq!(health.next_share(at(14), &config), None);
    }

    #[test]
    fn a_server_that_changes_too_often_is_held_until_it_is_steady() {
        let config = HealthConfig {
            rise: 1,
            fall: 1,
            ..config()
        };
        let mut health = Health::default();
        let mut ups = 0;
        for s in 0..40 {
            let result = if s % 2 == 0 {
                Ok(())
            } else {
                Err("reset".into())
            };
            if health.handle_check(at(s), result, &config) == Some(HealthNews::Up) {
                ups += 1;
            }
        }
        assert_eq!(ups, 3, "the fourth time it is held");
        let first_good = 40;
        let up = (first_good..200).find(|s| health.handle_check(at(*s), Ok(()), &config).is_some());
        assert!(up.is_some_and(|s| s <= first_good + 60), "{up:?}");
    }
}
