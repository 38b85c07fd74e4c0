//! Texts of `sheaf serve` for people.

use sheaf_gateway::Status;
use sheaf_serve::{Explained, Reason, ServerStatus, Trial};
use std::fmt::Write as _;

fn rate(bytes_per_s: Option<f64>) -> String {
    bytes_per_s.map_or("-".to_owned(), |rate| format!("{:.1}", rate / 1e6))
}

fn state(server: &ServerStatus) -> &'static str {
    match (server.is_up, server.is_draining, server.is_drained) {
        (_, true, true) => "drained",
        (_, true, false) => "draining",
        (true, ..) => "up",
        (false, ..) if server.is_held => "held",
        (false, ..) => "down",
    }
}

/// Returns a table for each service.
pub(super) fn status(all: &[Status]) -> String {
    let mut text = String::new();
    for status in all {
        for service in &status.services {
            let addresses: Vec<String> =
                service.addresses.iter().map(ToString::to_string).collect();
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} at {} port {}, by {} with {}: {} slots, {} moving, {} connections pinned, {} given up",
                service.name,
                addresses.join(" and "),
                service.port,
                status.director,
                status.plane,
                service.slots,
                service.moving,
                service.pins,
                service.given_up
            );
            if let Some(error) = &service.plane_error {
                let _ = writeln!(text, "  the plane does not follow: {error}");
            }
            let _ = writeln!(
                text,
                "  {:<16} {:<9} {:>7} {:>6} {:>7} {:>6} {:>11} {:>7} {:>6}",
                "SERVER",
                "STATE",
                "WEIGHT",
                "SLOTS",
                "LEAVING",
                "PINNED",
                "CONNECTIONS",
                "MB/s",
                "USED %"
            );
            for server in &service.servers {
                let used = server
                    .used
                    .map_or("-".to_owned(), |used| format!("{:.0}", used * 100.0));
                let connections = server
                    .connections
                    .map_or("-".to_owned(), |count| count.to_string());
                let _ = writeln!(
                    text,
                    "  {:<16} {:<9} {:>7.2} {:>6} {:>7} {:>6} {:>11} {:>7} {:>6}",
                    server.name,
                    state(server),
                    server.weight * server.factor,
                    server.slots,
                    server.leaving,
                    server.pins,
                    connections,
                    rate(server.bytes_per_s),
                    used
                );
                if let Some(error) = server.error.as_ref().filter(|_| !server.is_up) {
                    let _ = writeln!(text, "  {:<16} {error}", "");
                }
            }
        }
    }
    text
}

/// Returns what an order moves, or would move.
pub(super) fn trial(trial: &Trial, is_dry: bool) -> String {
    let would = if is_dry { "would move" } else { "move" };
    let mut text = format!(
        "{} of {} slots {would}, of which {} have to\n",
        trial.moved, trial.slots, trial.needed
    );
    for (name, [before, after]) in &trial.servers {
        let _ = writeln!(text, "  {name:<16} {before:>6} -> {after:>6}");
    }
    text
}

/// Returns where a client goes.
pub(super) fn explained(explained: &Explained) -> String {
    let Explained {
        client,
        hash,
        slot,
        slots,
        server,
        ..
    } = explained;
    let client = std::net::SocketAddr::new(client.address, client.port);
    let why = match (explained.reason, &explained.before) {
        (Reason::Slot, _) => "the slot is the server's".to_owned(),
        (Reason::Pin, _) => "the connection is pinned there until it ends".to_owned(),
        (Reason::Plane, _) => "the plane has a hash of its own, and chose it".to_owned(),
        (Reason::Moving, Some(before)) => {
            format!("the slot is on the move; a connection from before the move stays at {before}")
        }
        (Reason::Moving, None) => "the slot is on the move".to_owned(),
    };
    format!("{client} -> {server}: hash {hash:#010x}, slot {slot} of {slots}; {why}\n")
}
