//! `route`: where samples go.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use crate::output::Destinations;
use sheaf_samples::LabelsError;

pub(super) const OPERATOR: Registration = Registration {
    name: "route",
    help: "Sends the selected series to some destinations alone; the last route that selects a series counts. Without a route a series goes to all.",
    keys: &[Key {
        name: "to",
        form: "list of texts",
        default: "required",
        help: "Destinations, from the list `destinations`.",
    }],
    changes_labels: false,
    read: |keys, names| {
        let to = keys.texts("to")?;
        if to.is_empty() {
            keys.wrong(
                "to",
                "an empty list",
                "at least one destination; `discard` ends series",
            );
        }
        let mut set = 0;
        for one in &to {
            match names.destinations.iter().position(|name| name == one) {
                Some(place) => set |= 1 << place,
                None => {
                    let known = names.destinations.join(", ");
                    keys.wrong("to", format!("{one:?}"), format!("names of [{known}]"));
                }
            }
        }
        Some(Box::new(Route(Destinations(set))))
    },
};

#[derive(Debug)]
struct Route(Destinations);

impl Operator for Route {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        series.destinations = self.0;
        Ok(Flow::Pass)
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::{draft, read};

    #[test]
    fn destinations_are_a_set() {
        let mut series = draft(&[("a", "1")]);
        let route = read("route", "to = ['alarms', 'raw']").unwrap();
        route.apply(&mut series).unwrap();
        let to = (0..4).map(|place| series.destinations.contains(place));
        assert_eq!(to.collect::<Vec<_>>(), [true, false, true, false]);
    }

    #[test]
    fn unknown_destinations_are_all_named() {
        let errors = read("route", "to = ['disk', 'tape']").unwrap_err();
        assert_eq!(
            errors[1],
            r#"operator[0].to: "tape", expected names of [raw, live, alarms]"#
        );
        assert!(read("route", "to = []").is_err());
    }
}
