//! Fits of the rate and of failures over the number of clients, and whether the decline above 3,000 is the clients'.

use super::{At, all};
use crate::experiment::published;
use crate::results::Results;
use sheaf_figures::peak::{self, Fit, Peak};
use sheaf_sim::serving::Serving;
use std::fmt;

/// Number of clients from which on the published rate falls.
pub(super) const FROM: f64 = 3000.0;
/// Least fall that counts as a decline, in percent: what is published falls by 18.
const DECLINE_PERCENT: f64 = 5.0;

/// Values with its interval of 95 %.
pub(super) type Interval = (f64, [f64; 2]);

/// One plane with one kind of client hosts, over all numbers of clients.
pub(super) struct Series<'a> {
    pub(super) asked: &'a Serving,
    /// Rates of the runs by the number of clients.
    rates: Vec<peak::At>,
    /// Failed transfers of the runs in percent, by the number of clients in thousands.
    failures: Vec<peak::At>,
    seed: u64,
}

impl Series<'_> {
    pub(super) fn fit(&self) -> Option<Fit> {
        Fit::of(&self.rates, self.seed)
    }

    /// Most clients.
    pub(super) fn last(&self) -> f64 {
        self.rates
            .iter()
            .map(|(clients, _)| *clients)
            .fold(0.0, f64::max)
    }

    /// Change of the rate from [`FROM`] to the most clients, in percent.
    pub(super) fn change(&self) -> Option<Interval> {
        let last = Some(self.last()).filter(|last| *last > FROM)?;
        peak::change_percent(&self.rates, FROM, last)
    }

    /// Growth of the share of failed transfers for 1,000 more clients, in percentage points.
    pub(super) fn failures(&self) -> Option<Interval> {
        peak::slope_ci95(&self.failures)
    }

    fn course(&self) -> Course {
        let at = |place: f64| {
            let found = self.rates.iter().find(|(clients, _)| *clients == place);
            found.map_or(0, |(_, rates)| rates.len())
        };
        let runs = at(FROM).min(at(self.last()));
        match self.change() {
            None => Course::Unknown,
            Some(_) if runs < 2 => Course::Unknown,
            Some((change, [_, most])) if change <= -DECLINE_PERCENT && most < 0.0 => Course::Falls,
            Some((_, [least, _])) if least > -DECLINE_PERCENT => Course::Holds,
            Some(_) => Course::Unclear,
        }
    }
}

/// Course of a rate above 3,000 clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Falls,
    Holds,
    /// The interval allows both.
    Unclear,
    /// There are no two runs at both ends.
    Unknown,
}

/// Series of downloads, in the order of the file. What was not run is left out.
pub(super) fn series(results: &Results) -> Vec<Series<'_>> {
    let mut series: Vec<Series<'_>> = Vec::new();
    for at in all(results).filter(|at| at.is_plain() && at.served.skipped.is_none()) {
        let clients = f64::from(at.served.asked.clients);
        let known = series.iter().position(|it| is_same(it.asked, &at));
        let place = known.unwrap_or_else(|| {
            series.push(Series {
                asked: &at.served.asked,
                rates: Vec::new(),
                failures: Vec::new(),
                seed: 1,
            });
            series.len() - 1
        });
        series[place].rates.push((clients, at.rates()));
        series[place]
            .failures
            .push((clients / 1e3, at.failed_percents()));
    }
    series
}

fn is_same(asked: &Serving, at: &At<'_>) -> bool {
    let alike = Serving {
        clients: asked.clients,
        ..at.served.asked.clone()
    };
    alike == *asked
}

/// Peak of the published rates.
pub(super) fn of_published() -> Option<Peak> {
    Peak::of(&published::points())
}

/// Change of the published rate from 3,000 to 5,000 clients, in percent.
pub(super) fn published_change() -> Option<f64> {
    let points = published::points().map(|(clients, rate)| (clients, vec![rate]));
    let (change, _) = peak::change_percent(&points, FROM, 5000.0)?;
    Some(change)
}

/// Answer of one plane: with cables of the client hosts, and without.
pub(super) struct Answer {
    plane: String,
    hosts: String,
    with: (Course, Option<Interval>),
    without: (Course, Option<Interval>),
}

/// Answers of all planes that were asked both ways.
pub(super) fn answers(series: &[Series<'_>]) -> Vec<Answer> {
    let mut answers = Vec::new();
    for with in series.iter().filter(|it| it.asked.client_mbit > 0.0) {
        let without = series.iter().find(|it| {
            it.asked.client_mbit == 0.0
                && (&it.asked.plane, &it.asked.engine) == (&with.asked.plane, &with.asked.engine)
        });
        answers.extend(without.map(|without| Answer {
            plane: with.asked.plane.clone(),
            hosts: with.asked.hosts(),
            with: (with.course(), with.change()),
            without: (without.course(), without.change()),
        }));
    }
    answers
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Course::{Falls, Holds, Unclear, Unknown};
        let told = |change: Option<Interval>| match change {
            Some((change, [least, most])) => {
                format!("{change:+.1} % [{least:+.1}, {most:+.1}]")
            }
            None => "not measured".to_owned(),
        };
        let words = match (self.with.0, self.without.0) {
            (Falls, Holds) => "the decline is that of the clients' cables",
            (Holds, Holds) => "no decline, with the clients' cables or without",
            (Falls, Falls) => {
                "it declines without the clients' cables as well: they are not the cause"
            }
            (Holds, Falls) => {
                "it declines without the clients' cables alone: the bound is elsewhere"
            }
            (Unknown, _) | (_, Unknown) => {
                "not answered: two runs and more at 3,000 clients and above are needed"
            }
            (Unclear, _) | (_, Unclear) => "not answered: the intervals allow both",
        };
        write!(
            f,
            "{}, hosts {}: above 3,000 clients the rate changes by {}, and without cables by {}: {words}",
            self.plane,
            self.hosts,
            told(self.with.1),
            told(self.without.1)
        )
    }
}
