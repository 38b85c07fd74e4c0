//! Alarms of every source without a rule: that it is heard of, that nothing it sends is lost, and its clock.
//!
//! A source is whatever sends samples: an agent, a node, a program. Each gets three alarms by itself, `SourceSilent`,
//! `SourceLoss` and `SourceClockOffset`, with the label `source`; their thresholds are configuration.

use crate::rule::{AlertRule, Condition, NoData, NoDataState};
use crate::template::Template;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Thresholds of the alarms that every source has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Most sources that are watched; further ones are counted. Default: 200,000.
    pub sources_max: usize,
    /// How long a source has to be heard, without a gap of `silent_ms`, before its silence is an alarm, in ms: one
    /// value sent by hand is no source that has to go on. Default: 5 s.
    pub settle_ms: i64,
    /// How long a source is silent before `SourceSilent` fires, in ms. Default: 30 s.
    pub silent_ms: i64,
    /// How long a silent source is remembered, in ms; then its alarm resolves. Default: 1 day.
    pub forgotten_ms: i64,
    /// Share of samples lost on the way above which `SourceLoss` fires. Default: 0.001.
    pub loss_ratio_max: f64,
    /// How long the share of lost samples is counted over, in ms. Default: 10 s.
    pub loss_window_ms: i64,
    /// Difference of clocks above which `SourceClockOffset` fires, in ms. Default: 500.
    pub clock_offset_ms_max: i64,
    /// How long loss or offset have to last, in ms. Default: 10 s.
    pub for_ms: i64,
    /// Label `severity` of the three alarms. Default: `ticket`.
    pub severity: String,
}

impl Default for SourceConfig {
    fn default() -> Self {
        Self {
            sources_max: 200_000,
            settle_ms: 5_000,
            silent_ms: 30_000,
            forgotten_ms: 86_400_000,
            loss_ratio_max: 0.001,
            loss_window_ms: 10_000,
            clock_offset_ms_max: 500,
            for_ms: 10_000,
            severity: "ticket".to_owned(),
        }
    }
}

/// Which of the alarms of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    Silent,
    Loss,
    ClockOffset,
}

impl Watch {
    pub(crate) const ALL: [Self; 3] = [Self::Silent, Self::Loss, Self::ClockOffset];

    /// Rule of the alarm. The address of the operator's page is in the annotation of every rule.
    pub(crate) fn rule(self, config: &SourceConfig) -> AlertRule {
        let (name, summary, action) = match self {
            Self::Silent => (
                "SourceSilent",
                "Source {{ $labels.source }} sends nothing",
                "Look at the process and the machine of the source, then at the path between it and the collector",
            ),
            Self::Loss => (
                "SourceLoss",
                "{{ $value | humanizePercentage }} of the samples of source {{ $labels.source }} are lost on the way",
                "Look at drops of the kernel at the collector, then at the network; values of this source have gaps",
            ),
            Self::ClockOffset => (
                "SourceClockOffset",
                "The clock of source {{ $labels.source }} is off by {{ $value | humanizeDuration }}",
                "Look at the time synchronisation of the machine; its samples stand at wrong times",
            ),
        };
        let is_silent = self == Self::Silent;
        let template = |text: &str| {
            Template::parse(text).expect("templates of this table, which a test parses")
        };
        AlertRule {
            name: name.to_owned(),
            expr: String::new(),
            for_ms: if is_silent { 0 } else { config.for_ms },
            keep_firing_ms: 0,
            labels: vec![(
                "severity".to_owned(),
                template(&config.severity.replace('{', "")),
            )],
            annotations: vec![
                ("summary".to_owned(), template(summary)),
                ("action".to_owned(), template(action)),
            ],
            nodata: is_silent.then_some(NoData {
                for_ms: config.silent_ms.max(1),
                state: NoDataState::Firing,
            }),
            action: None,
            line: 0,
            condition: Condition::BuiltIn,
        }
    }
}

/// Counts of one source at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    at_ms: i64,
    sent: u64,
    received: u64,
}

/// State of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Source {
    /// Begin of the time in which it was heard without a gap.
    since_ms: i64,
    seen_ms: i64,
    /// Whether it was heard for long enough once.
    is_settled: bool,
    /// Counts at the begin of the window of loss.
    counts: Option<Counts>,
}

/// All sources.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sources {
    sources: BTreeMap<String, Source>,
    /// Reports on sources beyond the bound.
    pub(crate) refused: u64,
    /// When sources were last looked through for those to forget.
    swept_ms: Option<i64>,
}

impl Sources {
    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Takes in that `source` was heard of; returns whether its silence
    /// would be an alarm.
    pub(crate) fn handle_seen(&mut self, now_ms: i64, source: &str, config: &SourceConfig) -> bool {
        if let Some(known) = self.sources.get_mut(source) {
            if now_ms - known.seen_ms >= config.silent_ms {
                known.since_ms = now_ms;
            }
            known.seen_ms = known.seen_ms.max(now_ms);
            known.is_settled |= now_ms - known.since_ms >= config.settle_ms;
            return known.is_settled;
        }
        if self.sources.len() >= config.sources_max {
            self.refused += 1;
            return false;
        }
        self.sources.insert(
            source.to_owned(),
            Source {
                since_ms: now_ms,
                seen_ms: now_ms,
                is_settled: config.settle_ms <= 0,
                counts: None,
            },
        );
        config.settle_ms <= 0
    }

    /// Takes in what `source` says that it has sent, and what has arrived of it, both since it started; returns the
    /// share that was lost since the last answer, once the window is over.
    pub(crate) fn handle_counts(
        &mut self,
        at_ms: i64,
        source: &str,
        (sent, received): (u64, u64),
        config: &SourceConfig,
    ) -> Option<f64> {
        let known = self.sources.get_mut(source)?;
        let new = Counts {
            at_ms,
            sent,
            received,
        };
        let Some(old) = known.counts else {
            known.counts = Some(new);
            return None;
        };
        let is_restart = sent < old.sent || received < old.received;
        if is_restart || at_ms < old.at_ms {
            known.counts = Some(new);
            return None;
        }
        if at_ms - old.at_ms < config.loss_window_ms {
            return None;
        }
        known.counts = Some(new);
        let sent = sent - old.sent;
        let lost = sent.saturating_sub(received - old.received);
        Some(if sent == 0 {
            0.0
        } else {
            lost as f64 / sent as f64
        })
    }

    /// Time at which `source` was heard last.
    pub(crate) fn seen_ms(&self, source: &str) -> Option<i64> {
        self.sources.get(source).map(|known| known.seen_ms)
    }

    /// All sources, and when each was heard last.
    pub(crate) fn heard(&self) -> impl Iterator<Item = (&str, i64)> {
        let all = self.sources.iter();
        all.map(|(name, known)| (name.as_str(), known.seen_ms))
    }

    pub(crate) fn forget(&mut self, source: &str) {
        self.sources.remove(source);
    }

    /// Takes out the sources that have been silent for too long; looks once in 10 s.
    pub(crate) fn take_forgotten(&mut self, now_ms: i64, config: &SourceConfig) -> Vec<String> {
        if self
            .swept_ms
            .is_some_and(|swept_ms| (0..10_000).contains(&(now_ms - swept_ms)))
        {
            return Vec::new();
        }
        self.swept_ms = Some(now_ms);
        let is_old = |one: &(&String, &Source)| now_ms - one.1.seen_ms >= config.forgotten_ms;
        let old: Vec<String> = self
            .sources
            .iter()
            .filter(is_old)
            .map(|one| one.0.clone())
            .collect();
        for source in &old {
            self.sources.remove(source);
        }
        old
    }

    /// Goes on after a pause in which no source could be heard.
    pub(crate) fn resume(&mut self, pause_ms: i64) {
        for source in self.sources.values_mut() {
            source.seen_ms += pause_ms;
            source.since_ms += pause_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_sources_can_be_made() {
        let names: Vec<String> = Watch::ALL
            .map(|watch| watch.rule(&SourceConfig::default()).name)
            .into();
        assert_eq!(names, ["SourceSilent", "SourceLoss", "SourceClockOffset"]);
    }

    #[test]
    fn loss_is_a_share_of_what_was_sent_in_the_window() {
        let (mut sources, config) = (Sources::default(), SourceConfig::default());
        sources.handle_seen(0, "a", &config);
        let mut counts = |at_s: i64, sent, received| {
            sources.handle_counts(at_s * 1000, "a", (sent, received), &config)
        };
        assert_eq!(counts(0, 1000, 990), None);
        assert_eq!(counts(5, 1500, 1490), None);
        assert_eq!(counts(10, 2000, 1980), Some(0.01));
        // The source has restarted: counts begin again.
        assert_eq!(counts(20, 100, 2070), None);
        assert_eq!(counts(30, 300, 2270), Some(0.0));
        // What was on the way arrives late: more than was sent.
        assert_eq!(counts(40, 300, 2280), Some(0.0));
        assert_eq!(sources.handle_counts(0, "b", (1, 1), &config), None);
    }

    #[test]
    fn a_source_is_watched_once_it_was_heard_for_a_while() {
        let (mut sources, config) = (Sources::default(), SourceConfig::default());
        let times = [0, 4_000, 40_000, 44_000, 45_000, 200_000];
        let watched = times.map(|now_ms| sources.handle_seen(now_ms, "a", &config));
        assert_eq!(watched, [false, false, false, false, true, true]);
    }

    #[test]
    fn sources_are_bounded_and_forgotten() {
        let config = SourceConfig {
            sources_max: 2,
            settle_ms: 0,
            ..SourceConfig::default()
        };
        let mut sources = Sources::default();
        let watched: Vec<bool> = ["a", "b", "c", "a"]
            .map(|one| sources.handle_seen(0, one, &config))
            .into();
        assert_eq!(
            (watched, sources.refused),
            (vec![true, true, false, true], 1)
        );
        sources.handle_seen(5, "b", &config);
        let forgotten = sources.take_forgotten(config.forgotten_ms + 1, &config);
        assert_eq!((forgotten, sources.len()), (vec!["a".to_owned()], 1));
    }
}
