//! Samples of before the start, from the store: windows of online rules are filled, and series that said nothing since
//! are known to rules about missing data.

use sheaf_alarms::SeriesSelection;
use sheaf_query::{Data, Selection};
use sheaf_sample_store::{SeriesId, Store};
use sheaf_samples::{Labels, Matcher, Matches, NAME, Sample};
use std::sync::Arc;
use tracing::warn;

/// One series of before.
pub(super) struct Past {
    pub(super) id: SeriesId,
    pub(super) labels: Arc<Labels>,
    pub(super) samples: Vec<Sample>,
}

/// Returns what `selection` reads, of the `back_ms` before `now_ms`.
pub(super) fn read(
    store: &dyn Store,
    selection: &SeriesSelection,
    now_ms: i64,
    back_ms: i64,
) -> Vec<Past> {
    let mut found = Vec::new();
    for (name, matchers) in selection.selectors() {
        let Ok(named) = Matcher::new(NAME, Matches::Equal, name) else {
            continue;
        };
        let matchers: Vec<Matcher> = [named]
            .into_iter()
            .chain(matchers.iter().cloned())
            .collect();
        let selected = store.select(&Selection {
            matchers: &matchers,
            from_ms: now_ms.saturating_sub(back_ms),
            to_ms: now_ms,
            bucket_ms: None,
        });
        let series = match selected {
            Ok(series) => series,
            Err(error) => {
                warn!(metric = name, %error, "Windows of rules begin empty");
                continue;
            }
        };
        for one in series {
            // By samples, as asked.
            let Data::Samples(samples) = one.data else {
                continue;
            };
            if let (Ok(id), false) = (store.intern(&one.labels), samples.is_empty()) {
                found.push(Past {
                    id,
                    labels: one.labels,
                    samples,
                });
            }
        }
    }
    found
}
