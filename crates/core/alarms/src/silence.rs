//! Silences: alerts that an operator does not want to be notified of, for a time.

use crate::expression;
use serde::{Deserialize, Serialize};
use sheaf_samples::{Labels, Matcher, MatcherError};
use std::collections::BTreeMap;

/// Most silences, those included that are over.
const SILENCES_MAX: usize = 1000;
/// How long a silence is kept after its end, in ms.
const KEPT_MS: i64 = 5 * 86_400_000;

/// Request of an operator to silence alerts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilenceRequest {
    /// Conditions on the labels of an alert that all have to hold; at least one.
    pub matchers: Vec<Matcher>,
    /// Begin, in ms since 1970-01-01 UTC.
    pub from_ms: i64,
    /// End.
    pub to_ms: i64,
    /// Operator.
    pub author: String,
    /// Why.
    pub comment: String,
}

/// A silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Number, by which it is ended early.
    pub id: u64,
    /// Request as it holds; after an early end, with that end.
    pub request: SilenceRequest,
}

/// Reason why a silence is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SilenceError {
    /// No condition, or only conditions that hold for an alert without labels: everything would be silenced.
    #[error("a silence of all alerts, expected a matcher that an empty label does not fit")]
    All,
    /// An end that is not after the begin, or has passed.
    #[error("a silence that ends at {to_ms} ms, expected after {after_ms} ms")]
    Over {
        /// End of the silence.
        to_ms: i64,
        /// The later of its begin and now.
        after_ms: i64,
    },
    /// Text that is no matcher.
    #[error("{0}, expected NAME=\"VALUE\", with =, !=, =~ or !~")]
    Matcher(String),
    /// Too many silences.
    #[error("{SILENCES_MAX} silences, expected fewer")]
    TooMany,
    /// No silence with this number, or one that is over.
    #[error("silence {0} is not in force, expected the number of one that is")]
    Unknown(u64),
}

impl From<MatcherError> for SilenceError {
    fn from(error: MatcherError) -> Self {
        Self::Matcher(error.to_string())
    }
}

impl SilenceRequest {
    /// Returns the matchers of texts such as `alertname="EpnGone"`.
    ///
    /// # Errors
    ///
    /// [`SilenceError::Matcher`] for the first text that is none.
    pub fn matchers<S: AsRef<str>>(texts: &[S]) -> Result<Vec<Matcher>, SilenceError> {
        let matcher = |text: &S| expression::matcher(text.as_ref()).map_err(SilenceError::Matcher);
        texts.iter().map(matcher).collect()
    }
}

impl Silence {
    fn is_in_force(&self, now_ms: i64) -> bool {
        (self.request.from_ms..self.request.to_ms).contains(&now_ms)
    }

    fn covers(&self, labels: &Labels) -> bool {
        self.request
            .matchers
            .iter()
            .all(|matcher| matcher.is_match(labels))
    }
}

/// All silences.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Silences {
    next_id: u64,
    silences: BTreeMap<u64, Silence>,
}

impl Silences {
    pub(crate) fn create(
        &mut self,
        now_ms: i64,
        request: SilenceRequest,
    ) -> Result<u64, SilenceError> {
        if request.matchers.iter().all(|matcher| matcher.accepts("")) {
            return Err(SilenceError::All);
        }
        let (to_ms, after_ms) = (request.to_ms, request.from_ms.max(now_ms));
        if to_ms <= after_ms {
            return Err(SilenceError::Over { to_ms, after_ms });
        }
        self.silences
            .retain(|_, silence| silence.request.to_ms + KEPT_MS > now_ms);
        if self.silences.len() >= SILENCES_MAX {
            // Those that are over go first.
            let over = self
                .silences
                .values()
                .filter(|one| one.request.to_ms <= now_ms);
            let oldest = over.min_by_key(|one| one.request.to_ms).map(|one| one.id);
            self.silences.remove(&oldest.ok_or(SilenceError::TooMany)?);
        }
        self.next_id += 1;
        let id = self.next_id;
        self.silences.insert(id, Silence { id, request });
        Ok(id)
    }

    pub(crate) fn expire(&mut self, now_ms: i64, id: u64) -> Result<(), SilenceError> {
        let silence = self
            .silences
            .get_mut(&id)
            .filter(|silence| silence.request.to_ms > now_ms);
        let request = &mut silence.ok_or(SilenceError::Unknown(id))?.request;
        request.to_ms = now_ms;
        request.from_ms = request.from_ms.min(now_ms);
        Ok(())
    }

    /// Number of a silence that covers an alert with `labels` now.
    pub(crate) fn of(&self, now_ms: i64, labels: &Labels) -> Option<u64> {
        let covers = |one: &&Silence| one.is_in_force(now_ms) && one.covers(labels);
        self.silences.values().find(covers).map(|one| one.id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Silence> {
        self.silences.values()
    }

    pub(crate) fn save(&self) -> SavedSilences {
        let save = |one: &Silence| SavedSilence {
            id: one.id,
            matchers: one
                .request
                .matchers
                .iter()
                .map(expression::matcher_text)
                .collect(),
            from_ms: one.request.from_ms,
            to_ms: one.request.to_ms,
            author: one.request.author.clone(),
            comment: one.request.comment.clone(),
        };
        SavedSilences {
            next_id: self.next_id,
            silences: self.silences.values().map(save).collect(),
        }
    }

    pub(crate) fn restore(saved: SavedSilences) -> Result<Self, SilenceError> {
        let mut silences = BTreeMap::new();
        for one in saved.silences.into_iter().take(SILENCES_MAX) {
            let request = SilenceRequest {
                matchers: SilenceRequest::matchers(&one.matchers)?,
                from_ms: one.from_ms,
                to_ms: one.to_ms,
                author: one.author,
                comment: one.comment,
            };
            silences.insert(
                one.id,
                Silence {
                    id: one.id,
                    request,
                },
            );
        }
        Ok(Self {
            next_id: saved.next_id,
            silences,
        })
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct SavedSilences {
    next_id: u64,
    silences: Vec<SavedSilence>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedSilence {
    id: u64,
    matchers: Vec<String>,
    from_ms: i64,
    to_ms: i64,
    author: String,
    comment: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(matcher: &str, from_ms: i64, to_ms: i64) -> SilenceRequest {
        SilenceRequest {
            matchers: SilenceRequest::matchers(&[matcher]).unwrap(),
            from_ms,
            to_ms,
            author: "a".to_owned(),
            comment: "work on the rack".to_owned(),
        }
    }

    #[test]
    fn a_silence_covers_what_it_matches_for_its_time() {
        let mut silences = Silences::default();
        let id = silences
            .create(0, request("rack=~\"a|b\"", 10, 20))
            .unwrap();
        let labels = Labels::new([("rack", "a")]).unwrap();
        let covered = [9, 10, 19, 20].map(|now_ms| silences.of(now_ms, &labels));
        assert_eq!(covered, [None, Some(id), Some(id), None]);
        assert_eq!(silences.of(15, &Labels::default()), None);
        silences.expire(12, id).unwrap();
        assert_eq!(silences.of(13, &labels), None);
        assert_eq!(silences.expire(14, id), Err(SilenceError::Unknown(id)));
    }

    #[test]
    fn silences_of_everything_or_of_the_past_are_refused() {
        let mut silences = Silences::default();
        assert_eq!(
            silences.create(0, request("rack=~\".*\"", 0, 9)),
            Err(SilenceError::All)
        );
        let over = Err(SilenceError::Over {
            to_ms: 9,
            after_ms: 9,
        });
        assert_eq!(silences.create(9, request("rack=a", 0, 9)), over);
    }

    #[test]
    fn silences_are_bounded_and_those_that_are_over_go_first() {
        let mut silences = Silences::default();
        for at_ms in 0..1000 {
            silences.create(at_ms, request("rack=a", 0, 2000)).unwrap();
        }
        assert_eq!(
            silences.create(1000, request("rack=a", 0, 2000)),
            Err(SilenceError::TooMany)
        );
        silences.expire(1001, 5).unwrap();
        assert!(silences.create(1002, request("rack=a", 0, 2000)).is_ok());
    }

    #[test]
    fn silences_are_restored() {
        let mut silences = Silences::default();
        silences
            .create(0, request("a=\"say \\\"b\\\" \u{7f}\"", 0, 9))
            .unwrap();
        assert_eq!(Silences::restore(silences.save()), Ok(silences));
    }
}
