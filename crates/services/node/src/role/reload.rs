//! The farm file, read again while a node runs: keys that may change do, others are named, an invalid file is refused.

use crate::config::FarmConfig;
use crate::config::keys::{Key, TABLES};
use toml::Value;
use tracing::{info, warn};

/// Reads the farm file again. `None` if it is refused, which the callee has logged.
pub type Reader = Box<dyn FnMut() -> Option<FarmConfig>>;

/// Configuration in force, and the way to another one.
pub(super) struct Reload {
    reader: Reader,
    /// Values in force: a key that needs a restart keeps its own.
    current: Value,
}

/// Difference between the configuration in force and a file.
#[derive(Debug, PartialEq)]
struct Change {
    /// Name of the key with its table.
    key: String,
    from: Option<Value>,
    to: Option<Value>,
    /// Whether it takes effect while the node runs.
    is_live: bool,
}

impl Reload {
    pub(super) fn new(config: &FarmConfig, reader: Reader) -> Self {
        Self {
            reader,
            current: to_value(config),
        }
    }

    /// Reads the farm file. Returns the configuration that the node has to follow in the keys that may change.
    pub(super) fn read(&mut self) -> Option<FarmConfig> {
        let config = (self.reader)()?;
        let changes = changes(&self.current, &to_value(&config));
        for Change {
            key,
            from,
            to,
            is_live,
        } in &changes
        {
            let text =
                |value: &Option<Value>| value.as_ref().map_or("none".to_owned(), Value::to_string);
            let (from, to) = (text(from), text(to));
            if *is_live {
                info!(key, from, to, "Changed");
            } else if key == "epn.weight" {
                warn!(
                    key,
                    from,
                    to,
                    "Needs a restart; `sheaf ctl set` changes the weight of a running EPN"
                );
            } else {
                warn!(
                    key,
                    from,
                    to,
                    "Needs a restart of the nodes that use it; the value before stays in force"
                );
            }
        }
        if changes.is_empty() {
            info!("The farm file has not changed");
        }
        for change in changes.into_iter().filter(|change| change.is_live) {
            if let Some(to) = change.to {
                set(&mut self.current, &change.key, to);
            }
        }
        Some(config)
    }
}

fn to_value(config: &FarmConfig) -> Value {
    Value::try_from(config).unwrap_or_else(|_| Value::Table(toml::Table::new()))
}

/// Returns all differences, by key.
fn changes(from: &Value, to: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", Some(from), Some(to), &mut found);
    found
}

fn compare(path: &str, from: Option<&Value>, to: Option<&Value>, found: &mut Vec<Change>) {
    if from == to {
        return;
    }
    let table = |value: Option<&Value>| value.and_then(Value::as_table).cloned();
    match (table(from), table(to)) {
        (None, None) => found.push(Change {
            key: path.to_owned(),
            from: from.cloned(),
            to: to.cloned(),
            is_live: key(path).is_some_and(|key| key.live.is_some()),
        }),
        (from, to) => {
            let (from, to) = (from.unwrap_or_default(), to.unwrap_or_default());
            let added = to.keys().filter(|name| !from.contains_key(*name));
            for name in from.keys().chain(added) {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                compare(&path, from.get(name), to.get(name), found);
            }
        }
    }
}

fn key(path: &str) -> Option<&'static Key> {
    let mut keys = TABLES.iter().flat_map(|table| table.keys);
    keys.find(|key| key.path == path)
}

fn set(value: &mut Value, path: &str, to: Value) {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    let Some(table) = value.as_table_mut() else {
        return;
    };
    if rest.is_empty() {
        table.insert(name.to_owned(), to);
    } else if let Some(inner) = table.get_mut(name) {
        set(inner, rest, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_keys_change_and_others_are_named_until_they_are_back() {
        let before = FarmConfig::default();
        let mut file = before.clone();
        file.icn.scheduler.tf_deadline_ms = 900;
        file.log.level = "debug".to_owned();
        file.icn.liveness.pulse_ms = 30;
        file.flp.metrics = Some("127.0.0.1:9101".to_owned());
        let found = |current: &Value| {
            let found = changes(current, &to_value(&file)).into_iter();
            let mut found: Vec<_> = found.map(|change| (change.key, change.is_live)).collect();
            found.sort();
            found
        };
        let expected = [
            ("flp.metrics", false),
            ("icn.liveness.pulse_ms", false),
            ("icn.scheduler.tf_deadline_ms", true),
            ("log.level", true),
        ];
        let expected = expected.map(|(key, is_live)| (key.to_owned(), is_live));
        assert_eq!(found(&to_value(&before)), expected);
        let again = file.clone();
        let mut reload = Reload::new(&before, Box::new(move || Some(again.clone())));
        assert_eq!(reload.read(), Some(file.clone()));
        assert_eq!(
            found(&reload.current),
            expected[..2],
            "those in force are named no more"
        );
    }

    #[test]
    fn a_file_that_is_refused_changes_nothing() {
        let before = FarmConfig::default();
        let mut reload = Reload::new(&before, Box::new(|| None));
        assert_eq!(reload.read(), None);
        assert_eq!(reload.current, to_value(&before));
    }

    #[test]
    fn every_live_key_stands_in_the_file() {
        let mut defaults = to_value(&FarmConfig::default());
        let keys = TABLES.iter().flat_map(|table| table.keys);
        for key in keys.filter(|key| key.live.is_some()) {
            let before = defaults.clone();
            set(&mut defaults, key.path, Value::from("another"));
            assert_ne!(defaults, before, "{}", key.path);
        }
    }
}
