//! Table of the keys of `gateway.toml`, out of the schema that its types derive.

use super::marked::{Table, markdown};
use serde_json::Value;
use sheaf_gateway::GatewayConfig;

/// Returns the tables of the page.
pub(super) fn tables() -> Vec<Table> {
    let schema = schemars::schema_for!(GatewayConfig).to_value();
    let mut keys = Keys {
        schema: &schema,
        rows: Vec::new(),
    };
    keys.walk("", &schema, None);
    vec![Table {
        name: "keys",
        text: markdown(["key", "default", "values", "what it is"], keys.rows),
    }]
}

struct Keys<'a> {
    schema: &'a Value,
    rows: Vec<[String; 4]>,
}

impl<'a> Keys<'a> {
    /// Adds the keys of a table, whose defaults are those of `defaults` where it has its own.
    fn walk(&mut self, path: &str, table: &'a Value, defaults: Option<&'a Value>) {
        let required = &table["required"];
        let is_required = |name: &str| {
            let all = required.as_array();
            all.is_some_and(|all| all.iter().any(|one| one == name))
        };
        let properties = table["properties"].as_object();
        for (name, property) in properties.into_iter().flatten() {
            let of_table = defaults.and_then(|defaults| defaults.get(name));
            let default = of_table.or_else(|| property.get("default"));
            let inner = self.resolve(property);
            let items = inner.get("items").map(|items| self.resolve(items));
            match items.filter(|items| items.get("properties").is_some()) {
                Some(items) => self.walk(&format!("{path}{name}[]."), items, None),
                None if inner.get("properties").is_some() => {
                    self.walk(&format!("{path}{name}."), inner, default);
                }
                None => {
                    let default = match default {
                        Some(Value::Null) | None if is_required(name) => "required".to_owned(),
                        Some(Value::Null) | None => "none".to_owned(),
                        Some(default) => format!("`{default}`"),
                    };
                    let what = property["description"].as_str();
                    let what = what.or_else(|| inner["description"].as_str());
                    self.rows.push([
                        format!("`{path}{name}`"),
                        default,
                        self.values(inner),
                        what.unwrap_or_default().trim_end_matches('.').to_owned(),
                    ]);
                }
            }
        }
    }

    /// Follows a reference to a type, also that of a value that may be absent.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        let alternatives = schema.get("anyOf").or_else(|| schema.get("allOf"));
        let first = alternatives.and_then(|all| all.get(0));
        let reference = schema.get("$ref").or_else(|| first?.get("$ref"));
        let pointer = reference.and_then(|reference| reference.as_str()?.strip_prefix('#'));
        pointer
            .and_then(|pointer| self.schema.pointer(pointer))
            .unwrap_or(schema)
    }

    /// Says which values a key can have.
    fn values(&self, schema: &'a Value) -> String {
        let alternatives = schema.get("oneOf").and_then(Value::as_array);
        if let Some(alternatives) = alternatives {
            let words = alternatives.iter().flat_map(|one| self.alternative(one));
            return words.collect::<Vec<_>>().join(", ");
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.first().and_then(Value::as_str),
            kind => kind.as_str(),
        };
        let word = match (kind, schema["format"].as_str()) {
            (Some("array"), _) => {
                let items = schema
                    .get("items")
                    .map(|items| self.values(self.resolve(items)));
                return format!("list of: {}", items.unwrap_or_default());
            }
            (_, Some("ip")) => "address",
            (Some("integer"), _) => "whole number",
            (Some("number"), _) => "number",
            (Some("boolean"), _) => "`true`, `false`",
            _ => "text",
        };
        word.to_owned()
    }

    /// Says the values of one alternative: names, or a table with one key.
    fn alternative(&self, schema: &'a Value) -> Vec<String> {
        let quoted = |name: &Value| format!("`{name}`");
        if let Some(names) = schema["enum"].as_array() {
            return names.iter().map(quoted).collect();
        }
        if let Some(name) = schema.get("const") {
            return vec![quoted(name)];
        }
        let tables = schema["properties"].as_object().into_iter().flatten();
        let table = |(name, table): (&String, &'a Value)| {
            let keys = self.resolve(table)["properties"].as_object();
            let keys: Vec<String> = keys
                .into_iter()
                .flatten()
                .map(|(key, _)| format!("{key} = …"))
                .collect();
            format!("`{{ {name} = {{ {} }} }}`", keys.join(", "))
        };
        tables.map(table).collect()
    }
}
