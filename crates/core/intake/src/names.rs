//! Names of metrics: which became equal when they were made legal, and what is said of them.

use sheaf_samples::wire::Metadata;
use std::collections::BTreeMap;

/// Two names that became equal when they were made legal: their samples are in one series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Name of the metric.
    pub name: String,
    /// Measurement and field that had the name first.
    pub first: (String, String),
    /// Measurement and field that got the same name later.
    pub second: (String, String),
}

/// Names that are watched for collisions, and collisions that are kept, at most.
const NAMES_MAX: usize = 100_000;
const COLLISIONS_MAX: usize = 100;

/// Names of an intake.
#[derive(Debug, Default)]
pub(crate) struct Names {
    origins: BTreeMap<String, (String, String)>,
    pub(crate) collisions: Vec<Collision>,
    pub(crate) metadata: BTreeMap<String, Metadata>,
}

impl Names {
    /// Remembers which measurement and field a name is of, and a second one that has it.
    pub(crate) fn watch(&mut self, name: String, origin: (&str, &str)) {
        match self.origins.get(&name) {
            Some(first) if (first.0.as_str(), first.1.as_str()) == origin => {}
            Some(first) if self.collisions.len() < COLLISIONS_MAX => {
                let second = (origin.0.to_owned(), origin.1.to_owned());
                let is_known = |known: &Collision| known.name == name && known.second == second;
                if !self.collisions.iter().any(is_known) {
                    let first = first.clone();
                    self.collisions.push(Collision {
                        name,
                        first,
                        second,
                    });
                }
            }
            None if self.origins.len() < NAMES_MAX => {
                let origin = (origin.0.to_owned(), origin.1.to_owned());
                self.origins.insert(name, origin);
            }
            _ => {}
        }
    }

    /// Keeps the description of a metric.
    pub(crate) fn describe(&mut self, metadata: Metadata) {
        let has_room = self.metadata.len() < NAMES_MAX;
        if has_room || self.metadata.contains_key(&metadata.family) {
            self.metadata.insert(metadata.family.clone(), metadata);
        }
    }
}
