//! Lost heartbeats by cause.

use std::collections::BTreeMap;

/// Divides `lost` heartbeats among `causes`: each explains at most as many as stand beside it, in their order, and
/// `rest` the others. Causes that explain none are left out.
#[must_use]
pub fn attribute(lost: u64, causes: &[(&str, u64)], rest: &str) -> BTreeMap<String, u64> {
    let mut left = lost;
    let mut lost_by = BTreeMap::new();
    for (cause, most) in causes.iter().copied().chain([(rest, u64::MAX)]) {
        let count = most.min(left);
        left -= count;
        if count > 0 {
            *lost_by.entry(cause.to_owned()).or_default() += count;
        }
    }
    lost_by
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_add_up_to_what_is_lost_and_the_first_ones_count_first() {
        let causes = [("a", 3), ("b", 0), ("c", 4)];
        for (lost, expected) in [
            (0, &[][..]),
            (2, &[("a", 2)]),
            (5, &[("a", 3), ("c", 2)]),
            (9, &[("a", 3), ("c", 4), ("rest", 2)]),
        ] {
            let found = attribute(lost, &causes, "rest");
            let found: Vec<(&str, u64)> = found
                .iter()
                .map(|(cause, count)| (cause.as_str(), *count))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
