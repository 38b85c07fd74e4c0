//! Open panes of one group, sorted by their end.

use crate::pane::Pane;

/// A count with a bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) count: usize,
    pub(crate) max: usize,
}

impl Counted {
    /// Counts one more, if there is room.
    pub(crate) fn take(&mut self) -> bool {
        let has_room = self.count < self.max;
        self.count += usize::from(has_room);
        has_room
    }
}

/// Which windows close, and under which time their results go out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// Watermark before; windows that end there or earlier are closed already.
    pub(crate) from_ms: Option<i64>,
    /// Watermark from now on.
    pub(crate) to_ms: i64,
    /// Set if the operator ends at this time: all windows close, none later than this but those of samples ahead of it.
    pub(crate) early_ms: Option<i64>,
    pub(crate) length_ms: i64,
    pub(crate) step_ms: i64,
}

impl Closing {
    /// Time of the result of the window that ends at `end_ms`.
    fn time_of(&self, end_ms: i64) -> i64 {
        match self.early_ms {
            Some(now_ms) if end_ms - self.step_ms < now_ms => end_ms.min(now_ms),
            _ => end_ms,
        }
    }
}

/// End of the interval of `step_ms` that `at_ms` lies in; the end belongs to it.
fn end_of(at_ms: i64, step_ms: i64) -> i64 {
    at_ms.saturating_add(step_ms - 1).div_euclid(step_ms) * step_ms
}

/// First end of an interval after `at_ms`.
pub(crate) fn end_after(at_ms: i64, step_ms: i64) -> i64 {
    end_of(at_ms.saturating_add(1), step_ms)
}

/// Panes of a group. Most of the time there is one, so the latest stands beside the list of the others.
#[derive(Debug, Default)]
pub(crate) struct Panes {
    latest: Option<Pane>,
    older: Vec<Pane>,
}

impl Panes {
    pub(crate) fn is_empty(&self) -> bool {
        self.latest.is_none()
    }

    pub(crate) fn first_end_ms(&self) -> Option<i64> {
        let first = self.older.first().or(self.latest.as_ref());
        first.map(|pane| pane.end_ms)
    }

    /// End of the pane of a sample; most of the time that of the latest pane, which saves a division.
    #[inline]
    pub(crate) fn end_of(&self, at_ms: i64, step_ms: i64) -> i64 {
        match &self.latest {
            Some(latest) if at_ms <= latest.end_ms && at_ms > latest.end_ms - step_ms => {
                latest.end_ms
            }
            _ => end_of(at_ms, step_ms),
        }
    }

    #[inline]
    pub(crate) fn find(&mut self, end_ms: i64) -> Option<&mut Pane> {
        match &mut self.latest {
            Some(latest) if latest.end_ms == end_ms => Some(latest),
            _ => {
                let at = self.older.binary_search_by_key(&end_ms, |pane| pane.end_ms);
                at.ok().map(|at| &mut self.older[at])
            }
        }
    }

    /// Adds a pane whose interval has none yet.
    pub(crate) fn insert(&mut self, mut pane: Pane) {
        if let Some(latest) = &mut self.latest {
            if pane.end_ms > latest.end_ms {
                std::mem::swap(latest, &mut pane);
            }
            let at = self
                .older
                .partition_point(|older| older.end_ms < pane.end_ms);
            self.older.insert(at, pane);
        } else {
            self.latest = Some(pane);
        }
    }

    /// Passes every pane that ends at `to_ms` or before to `take`, in order, and removes it.
    pub(crate) fn drain(&mut self, to_ms: i64, mut take: impl FnMut(Pane)) {
        let due = self.older.partition_point(|pane| pane.end_ms <= to_ms);
        self.older.drain(..due).for_each(&mut take);
        if let Some(pane) = self.latest.take_if(|pane| pane.end_ms <= to_ms) {
            take(pane);
        }
    }

    /// Passes the content of every window that closes to `result`, with its time, and removes panes that no later
    /// window needs. Returns the number of panes removed.
    pub(crate) fn close(
        &mut self,
        closing: &Closing,
        bins_max: usize,
        mut result: impl FnMut(i64, &Pane),
    ) -> usize {
        let mut removed = 0;
        if closing.length_ms == closing.step_ms {
            let to_ms = closing.early_ms.map_or(closing.to_ms, |_| i64::MAX);
            self.drain(to_ms, |pane| {
                result(closing.time_of(pane.end_ms), &pane);
                removed += 1;
            });
            return removed;
        }
        let all = || self.older.iter().chain(&self.latest);
        for end_ms in self.ends(closing) {
            let is_in =
                |pane: &&Pane| pane.end_ms <= end_ms && pane.end_ms > end_ms - closing.length_ms;
            let mut panes = all().filter(is_in);
            if let Some(first) = panes.next() {
                let mut whole = first.clone();
                panes.for_each(|pane| whole.merge(pane, bins_max));
                result(closing.time_of(end_ms), &whole);
            }
        }
        let kept_ms = closing.length_ms - closing.step_ms;
        let to_ms = closing
            .early_ms
            .map_or(closing.to_ms.saturating_sub(kept_ms), |_| i64::MAX);
        self.drain(to_ms, |_| removed += 1);
        removed
    }

    /// Ends of the windows that close and may have content, in order.
    fn ends(&self, closing: &Closing) -> Vec<i64> {
        let (length_ms, step_ms) = (closing.length_ms, closing.step_ms);
        let mut ends = Vec::new();
        let mut next_ms = closing.from_ms.map(|from_ms| end_after(from_ms, step_ms));
        for pane in self.older.iter().chain(&self.latest) {
            // The last window that holds the pane; where all windows close early, the first that had not closed.
            let last_ms = match closing.early_ms {
                None => (pane.end_ms + length_ms - step_ms).min(closing.to_ms),
                Some(now_ms) => pane
                    .end_ms
                    .max(end_of(now_ms, step_ms).min(pane.end_ms + length_ms - step_ms)),
            };
            let mut end_ms = next_ms.map_or(pane.end_ms, |next_ms| next_ms.max(pane.end_ms));
            while end_ms <= last_ms {
                ends.push(end_ms);
                end_ms += step_ms;
                next_ms = Some(end_ms);
            }
        }
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::Sample;

    fn panes(times: &[i64], step_ms: i64) -> Panes {
        let mut panes = Panes::default();
        for at_ms in times {
            let end_ms = panes.end_of(*at_ms, step_ms);
            let sample = Sample {
                at_ms: *at_ms,
                value: 1.0,
            };
            match panes.find(end_ms) {
                Some(pane) => pane.add(sample, 0.0, 16),
                None => panes.insert(Pane::of(end_ms, sample, 0.0, None)),
            }
        }
        panes
    }

    /// Windows that close, as `time:count`.
    fn check(panes: &mut Panes, closing: Closing, expected: &str) {
        let mut found = Vec::new();
        panes.close(&closing, 16, |at_ms, pane| {
            found.push(format!("{at_ms}:{}", pane.bucket.count));
        });
        assert_eq!(found.join(" "), expected);
    }

    const SLIDING: Closing = Closing {
        from_ms: None,
        to_ms: 40,
        early_ms: None,
        length_ms: 30,
        step_ms: 10,
    };

    #[test]
    fn the_end_belongs_to_an_interval_and_the_begin_does_not() {
        let found = [-11, -10, -9, 0, 1, 10, 11].map(|at_ms| end_of(at_ms, 10));
        assert_eq!(found, [-10, -10, 0, 0, 10, 10, 20]);
        assert_eq!([9, 10].map(|at_ms| end_after(at_ms, 10)), [10, 20]);
        assert!(end_of(i64::MAX, 1000) > 0 && end_of(i64::MIN, 1000) < 0);
    }

    #[test]
    fn tumbling_windows_close_in_order() {
        let mut panes = panes(&[11, 1, 25, 10, 12, 41], 10);
        let closing = Closing {
            length_ms: 10,
            to_ms: 29,
            ..SLIDING
        };
        check(&mut panes, closing, "10:2 20:2");
        check(
            &mut panes,
            Closing {
                from_ms: Some(29),
                to_ms: 50,
                ..closing
            },
            "30:1 50:1",
        );
        assert!(panes.is_empty());
    }

    #[test]
    fn sliding_windows_overlap() {
        let mut panes = panes(&[5, 15, 16, 75], 10);
        check(
            &mut panes,
            Closing {
                to_ms: 29,
                ..SLIDING
            },
            "10:1 20:3",
        );
        check(
            &mut panes,
            Closing {
                from_ms: Some(29),
                to_ms: 69,
                ..SLIDING
            },
            "30:3 40:2",
        );
        check(
            &mut panes,
            Closing {
                from_ms: Some(69),
                to_ms: 200,
                ..SLIDING
            },
            "80:1 90:1 100:1",
        );
        assert!(panes.is_empty());
    }

    #[test]
    fn windows_close_early_without_a_time_twice() {
        let early = Closing {
            early_ms: Some(17),
            ..SLIDING
        };
        check(&mut panes(&[5, 15, 16], 10), early, "10:1 17:3");
        let tumbling = Closing {
            length_ms: 10,
            ..early
        };
        check(&mut panes(&[5, 15, 16, 35], 10), tumbling, "10:1 17:2 40:1");
        let after = Closing {
            from_ms: Some(10),
            ..early
        };
        check(&mut panes(&[5, 15, 16, 35], 10), after, "17:3 40:3");
    }
}
