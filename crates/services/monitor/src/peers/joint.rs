//! The own store and those of the peers as one source of samples.

use super::{Answers, Peers};
use sheaf_query::exchange::{About, Found, Question};
use sheaf_query::{Selection, Series, Source, SourceError, merge};
use sheaf_sample_store::Store;
use sheaf_samples::{Labels, Matcher};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Source of one question.
pub(crate) struct Joint {
    store: Arc<dyn Store>,
    peers: Peers,
    missing: Mutex<BTreeSet<String>>,
}

impl Joint {
    pub(super) fn new(store: Arc<dyn Store>, peers: Peers) -> Self {
        let missing = Mutex::default();
        Self {
            store,
            peers,
            missing,
        }
    }

    /// Returns a sentence for each peer whose samples are missing so far.
    pub(crate) fn warnings(&self) -> Vec<String> {
        super::lock(&self.missing).iter().cloned().collect()
    }

    /// Asks the peers and the own store at the same time.
    fn ask(&self, question: &Question<'_>) -> Result<(Found, Vec<Found>), SourceError> {
        let asked = self.peers.begin(question);
        let own = question.ask(&*self.store)?;
        let Answers {
            found,
            missing,
            refused,
        } = self.peers.end(asked);
        super::lock(&self.missing).extend(missing);
        match refused {
            Some(text) => Err(SourceError::Failed(text)),
            None => Ok((own, found)),
        }
    }

    fn words(&self, question: &Question<'_>) -> Result<Vec<String>, SourceError> {
        let (own, others) = self.ask(question)?;
        let mut words: BTreeSet<String> = own.words.into_iter().collect();
        words.extend(others.into_iter().flat_map(|found| found.words));
        Ok(words.into_iter().collect())
    }
}

impl Source for Joint {
    fn select(&self, selection: &Selection<'_>) -> Result<Vec<Series>, SourceError> {
        let (own, others) = self.ask(&Question::Select(*selection))?;
        if others.is_empty() {
            return Ok(own.series);
        }
        let all = [own].into_iter().chain(others);
        Ok(merge(all.map(|found| found.series).collect()))
    }

    fn label_names(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        self.words(&Question::LabelNames(about(matchers, from_ms, to_ms)))
    }

    fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        let about = about(matchers, from_ms, to_ms);
        self.words(&Question::LabelValues(name, about))
    }

    fn series(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError> {
        let question = Question::Series(about(matchers, from_ms, to_ms));
        let (own, others) = self.ask(&question)?;
        let all = [own].into_iter().chain(others);
        let all: BTreeSet<Arc<Labels>> = all
            .flat_map(|found| found.series)
            .map(|series| series.labels)
            .collect();
        Ok(all.into_iter().collect())
    }
}

fn about(matchers: &[Matcher], from_ms: i64, to_ms: i64) -> About<'_> {
    About {
        matchers,
        from_ms,
        to_ms,
    }
}
