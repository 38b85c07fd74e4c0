//! Tables of the farm file: all keys, and the kinds of sources and sinks with theirs.

use super::marked::{Table, markdown};
use sheaf_node::config::keys::{KindKey, TABLES, keys_of_kind};
use sheaf_node::config::{Kind, SinkConfig, SourceConfig};

/// Returns the tables of the page.
pub(super) fn tables() -> Vec<Table> {
    vec![
        Table {
            name: "keys",
            text: keys(),
        },
        kinds("flp.source", SourceConfig::KINDS),
        kinds("epn.sink", SinkConfig::KINDS),
    ]
}

fn keys() -> String {
    let keys = TABLES.iter().flat_map(|table| table.keys);
    let rows = keys.map(|key| {
        let default = key.default_value();
        [
            format!("`{}`", key.path),
            key.unit.to_owned(),
            default
                .map(|value| format!("`{value}`"))
                .unwrap_or_default(),
            key.range().unwrap_or_else(|| names(&key.names())),
            key.description(),
        ]
    });
    markdown(["key", "unit", "default", "values", "what it is"], rows)
}

/// Returns the table of the kinds of source or sink.
fn kinds(name: &'static str, kinds: &[Kind]) -> Table {
    let rows = kinds.iter().map(|kind| {
        let keys = keys_of_kind(name, kind.name, &(kind.defaults)());
        let keys: Vec<String> = keys.iter().map(key).collect();
        [
            format!("`{}`", kind.name),
            keys.join(", "),
            match kind.page {
                Some(page) => format!("{}, see {}", kind.help, link(page)),
                None => kind.help.to_owned(),
            },
        ]
    });
    let text = markdown(["`kind`", "keys (default)", "what it is"], rows);
    Table { name, text }
}

/// Returns a key with its default and its other names, if it has them.
fn key(key: &KindKey) -> String {
    let mut words = format!("`{}`", key.name);
    if let Some(default) = &key.default {
        let others = key.names.iter();
        let others: Vec<String> = others
            .filter(|name| default.as_str() != Some(name.as_str()))
            .cloned()
            .collect();
        let also = match others.as_slice() {
            [] => String::new(),
            others => format!("; also {}", names(others)),
        };
        words += &format!(" (`{default}`{also})");
    }
    words
}

fn names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// Returns a link from the page to a file of `docs`.
fn link(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    match file.strip_prefix("docs/reference/") {
        Some(beside) => format!("[{name}]({beside})"),
        None => format!("[{name}](../{})", file.trim_start_matches("docs/")),
    }
}
