//! Checks of a point that asks servers behind one address, in place of a farm.

use super::{Mode, Scenario, ScenarioError};
use crate::serving::Serving;
use crate::summary::Kind;

/// Most clients of an experiment.
const CLIENTS_MAX: u32 = 100_000;
/// Most servers and client hosts of a site.
const HOSTS_MAX: [(&str, f64); 2] = [("servers", 80.0), ("client_hosts", 250.0)];
/// Largest object.
const OBJECT_BYTES_MAX: f64 = 1e12;

/// Checks every value of a point with servers, also those that are not in this table.
///
/// # Errors
///
/// A [`ScenarioError`] that names the first wrong key and the accepted values.
pub(super) fn check(serving: &Serving, scenario: &Scenario) -> Result<(), ScenarioError> {
    let in_range = |key: &str, found: f64, least: f64, most: f64| {
        let expected = format!("{least} to {most}");
        (least..=most)
            .contains(&found)
            .then_some(())
            .ok_or_else(|| ScenarioError::value(&format!("serving.{key}"), found, &expected))
    };
    for ((key, most), found) in HOSTS_MAX
        .into_iter()
        .zip([serving.servers, serving.client_hosts])
    {
        in_range(key, found.into(), 1.0, most)?;
    }
    in_range("clients", serving.clients.into(), 1.0, CLIENTS_MAX.into())?;
    in_range(
        "object_bytes",
        serving.object_bytes as f64,
        1.0,
        OBJECT_BYTES_MAX,
    )?;
    in_range("scale", serving.scale, 1.0, 1e6)?;
    in_range("server_mbit", serving.server_mbit, 0.0, 1e6)?;
    in_range("client_mbit", serving.client_mbit, 0.0, 1e6)?;
    in_range("warm_up", serving.warm_up, 0.0, 10.0)?;
    in_range("drains", serving.drains.into(), 0.0, 10_000.0)?;
    let least = "0.5 to 3600 in points with [serving]";
    if !(0.5..=3600.0).contains(&scenario.duration_s) {
        return Err(ScenarioError::value(
            "duration_s",
            scenario.duration_s,
            least,
        ));
    }
    let none = "none in points with [serving]";
    if scenario.source == Some(Kind::Sim) {
        let expected = "\"live\" in points with [serving]";
        return Err(ScenarioError::value("source", "\"sim\"", expected));
    }
    if scenario.mode != Mode::Sheaf {
        let expected = "sheaf in points with [serving]";
        return Err(ScenarioError::value("mode", "legacy", expected));
    }
    if !scenario.faults.is_empty() {
        let expected = format!("{none}; `fault` of that table is one");
        let found = scenario.faults.len();
        return Err(ScenarioError::value("faults", found, &expected));
    }
    if let Some(topology) = &scenario.topology {
        return Err(ScenarioError::value("topology", topology, none));
    }
    if scenario.writing.is_some() {
        return Err(ScenarioError::value("writing", "a table", none));
    }
    Ok(())
}
