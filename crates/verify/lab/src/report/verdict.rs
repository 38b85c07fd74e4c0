//! Verdict on a point, in plain words.

use crate::results::offered_mbit_s;
use sheaf_figures::stat;
use sheaf_sim::summary::Point;

/// Runs from which on a published loss counts as reproduced or not: fewer say nothing of their spread.
const RUNS_MIN: u32 = 3;

/// How a point compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is what was hoped for: nothing lost in mode sheaf, the published loss in a legacy one.
    pub is_good: bool,
    /// In a sentence.
    pub words: String,
}

/// The verdict on `point`.
#[must_use]
pub fn of(point: &Point) -> Verdict {
    if point.n == 0 {
        let words = format!("no run counts: all {} were rejected", point.n_rejected);
        return Verdict {
            is_good: false,
            words,
        };
    }
    let mut verdict = if point.mode == "sheaf" {
        of_sheaf(point)
    } else {
        of_legacy(point)
    };
    if point.n_rejected > 0 {
        verdict.words += &format!("; {} rejected", runs(point.n_rejected));
    }
    if point.n < 3 {
        verdict.words += &format!(
            "; {} only, so nothing is known of the spread",
            runs(point.n)
        );
    }
    verdict
}

fn runs(count: u32) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} run{s}")
}

fn of_sheaf(point: &Point) -> Verdict {
    let published = match point.published_loss_percent {
        Some(loss) if loss > 0.0 => format!(", where {loss:.2} % were published"),
        Some(_) => ", as published".to_owned(),
        None => String::new(),
    };
    if point.lost_mean == 0.0 && point.out_of_order == 0.0 {
        return Verdict {
            is_good: true,
            words: format!("nothing lost, nothing out of order{published}"),
        };
    }
    let causes: Vec<String> = point
        .lost_by
        .iter()
        .map(|(cause, lost)| format!("{lost:.1} {cause}"))
        .collect();
    let offered = offered_mbit_s(point);
    let is_overload = point.goodput_mbit_s < 0.999 * offered && point.out_of_order == 0.0;
    let why = if is_overload {
        format!(
            "; {offered:.1} Mbit/s were offered and {:.2} went through",
            point.goodput_mbit_s
        )
    } else {
        String::new()
    };
    Verdict {
        is_good: false,
        words: format!(
            "{:.1} TFs ({:.2} %) lost, all accounted for: {}{why}{published}",
            point.lost_mean,
            point.loss_percent,
            causes.join(", ")
        ),
    }
}

fn of_legacy(point: &Point) -> Verdict {
    let main = point.lost_by.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let why = match main {
        Some((cause, _)) if point.lost_mean > 0.0 => format!(", mostly {cause}"),
        _ => String::new(),
    };
    let Some((published, of_both)) = point.published_loss_percent.zip(compared(point)) else {
        return Verdict {
            is_good: true,
            words: format!(
                "{:.1} TFs ({:.2} %) lost{why}",
                point.lost_mean, point.loss_percent
            ),
        };
    };
    let published_tfs = match of_both.published {
        few if few < 10.0 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    };
    let reproduced = of_both.reproduces;
    let compared = match reproduced {
        Some(true) => "reproduces",
        Some(false) => "differs from",
        None => "too few runs to compare with",
    };
    let note = match point.published_note.as_str() {
        "" => String::new(),
        note => format!("; {note}"),
    };
    Verdict {
        is_good: reproduced == Some(true),
        words: format!(
            "{:.1} TFs ({:.2} %) lost{why}: {compared} the published {published_tfs} ({published:.2} %){note}",
            point.lost_mean, point.loss_percent
        ),
    }
}

/// Loss of a point beside the published one, in TFs of a run, each with its interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compared {
    pub(crate) published: f64,
    pub(crate) published_interval: [f64; 2],
    pub(crate) lost: f64,
    pub(crate) interval: [f64; 2],
    /// Whether the intervals overlap; `None` with too few runs.
    pub(crate) reproduces: Option<bool>,
}

/// Compares the loss of `point` with the published one, if there is one.
///
/// Our interval is by Student's t over the runs, and by the rule of three where nothing was lost at all. The published
/// one is by Student's t as well where its standard deviation is known; else it is that of a count, the narrowest that
/// it can have.
pub(crate) fn compared(point: &Point) -> Option<Compared> {
    let published = point.published_loss_percent? / 100.0 * point.announced;
    let runs = f64::from(point.published_runs.unwrap_or(1));
    let published_interval = match point.published_sd {
        Some(sd) if runs > 1.0 => {
            let half = stat::t_quantile(runs - 1.0, 0.95) * sd / runs.sqrt();
            [published - half, published + half]
        }
        _ => stat::count_interval((published * runs).round(), runs),
    };
    let interval = match point.lost_mean > 0.0 {
        true => point
            .loss_percent_ci95
            .map(|percent| percent / 100.0 * point.announced),
        false if point.n == 0 => [0.0, f64::INFINITY],
        false => [0.0, stat::most_of_none(f64::from(point.n))],
    };
    let does_overlap = interval[0] <= published_interval[1] && published_interval[0] <= interval[1];
    Some(Compared {
        published,
        published_interval,
        lost: point.lost_mean,
        interval,
        reproduces: (point.n >= RUNS_MIN).then_some(does_overlap),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::point;

    #[test]
    fn verdicts_are_plain() {
        for (mode, lost, published, is_good, words) in [
            (
                "sheaf",
                0.0,
                Some(0.7),
                true,
                "nothing lost, nothing out of order, where 0.70 % were published",
            ),
            (
                "sheaf",
                60.0,
                None,
                false,
                "60.0 TFs (1.00 %) lost, all accounted for: 60.0 late-at-run-end; 94.0 Mbit/s were offered and 93.25 \
                 went through",
            ),
            (
                "legacy",
                43.0,
                Some(0.7),
                true,
                "43.0 TFs (0.72 %) lost, mostly late-at-run-end: reproduces the published 42 (0.70 %)",
            ),
            (
                "legacy",
                60.0,
                Some(0.7),
                false,
                "60.0 TFs (1.00 %) lost, mostly late-at-run-end: differs from the published 42 (0.70 %)",
            ),
        ] {
            let verdict = of(&point(mode, lost, published));
            assert_eq!((verdict.is_good, verdict.words.as_str()), (is_good, words));
        }
    }

    #[test]
    fn no_loss_reproduces_no_published_one() {
        // Losses of tables 13 and 17 of the founding report, in percent of 6,000 TFs; all were reproduced by zeros when
        // ten TFs were no difference.
        for published in [0.03, 0.12, 0.09, 0.19, 0.51, 0.7, 1.39, 7.35] {
            let verdict = of(&point("legacy", 0.0, Some(published)));
            assert!(!verdict.is_good, "{published}: {}", verdict.words);
        }
        assert!(of(&point("legacy", 0.0, Some(0.0))).is_good);
        assert!(!of(&point("legacy", 12.0, Some(0.0))).is_good);
    }

    #[test]
    fn a_published_spread_makes_the_published_interval() {
        // 30.6 ± 29.3 of 9 runs: 8.1 to 53.1; a count would be 27.1 to 34.4.
        let mut wide = point("legacy", 45.0, Some(0.51));
        assert!(!of(&wide).is_good);
        wide.published_sd = Some(29.3);
        assert!(of(&wide).is_good, "{}", of(&wide).words);
        wide.lost_mean = 60.0;
        wide.loss_percent_ci95 = [1.0; 2];
        assert!(!of(&wide).is_good, "{}", of(&wide).words);
    }

    #[test]
    fn one_run_reproduces_nothing_and_a_note_is_told() {
        let mut one = point("legacy", 43.0, Some(0.7));
        one.published_note = "printed: 0.71 %".to_owned();
        assert!(
            of(&one)
                .words
                .ends_with("the published 42 (0.70 %); printed: 0.71 %")
        );
        one.n = 1;
        let verdict = of(&one);
        assert!(
            !verdict.is_good && verdict.words.contains("too few runs"),
            "{}",
            verdict.words
        );
    }

    #[test]
    fn few_runs_and_rejected_ones_are_told() {
        let mut few = point("sheaf", 0.0, None);
        (few.n, few.n_rejected) = (1, 2);
        let words = of(&few).words;
        assert!(
            words.ends_with("; 2 runs rejected; 1 run only, so nothing is known of the spread"),
            "{words}"
        );
        few.n = 0;
        assert_eq!(of(&few).words, "no run counts: all 2 were rejected");
    }
}
