//! `iperf3`, which speaks its own language: one stream, one hot buffer, nothing checked.

use super::kinds::Found;
use super::options::Side;
use super::rig::{Case, Rig, RunFigures};
use anyhow::{Context as _, ensure};
use peer_harness::machine_busy_s;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// Runs a server for one test, and a client that sends.
pub(crate) fn run(rig: &Rig<'_>, found: &Found, case: &Case) -> anyhow::Result<RunFigures> {
    ensure!(rig.remote.is_none(), "it is not started at other hosts");
    let place = rig.stage.receiver();
    let port = place
        .free_ports(1)?
        .first()
        .copied()
        .unwrap_or_default()
        .to_string();
    let address = place.address.to_string();
    let mut server = found.command();
    server.args(["-s", "-1", "-p", &port, "--forceflush"]);
    server
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let server = place.run(rig.cpu(Side::Receiver, 0), move || server.spawn())?;
    let mut server = Server(server.context("cannot start `iperf3`")?);
    if let Some(output) = server.0.stdout.take() {
        // The second line says that it listens.
        let said = BufReader::new(output).lines().map_while(Result::ok);
        said.take(2).for_each(drop);
    }
    let mut client = found.command();
    // Whole seconds of warm-up are all that it knows.
    let (seconds, bytes) = (
        rig.options.seconds.ceil().to_string(),
        case.bytes.to_string(),
    );
    client.args([
        "-c", &address, "-p", &port, "-J", "-t", &seconds, "-l", &bytes,
    ]);
    client.args(["-C", &rig.options.congestion]);
    client.stdin(Stdio::null());
    let busy = machine_busy_s()?;
    let output = rig
        .stage
        .sender
        .run(rig.cpu(Side::Sender, 0), move || client.output())?;
    let busy = machine_busy_s()? - busy;
    let told: Value = serde_json::from_slice(&output?.stdout).context("iperf3 tells no JSON")?;
    figures(&told, busy)
}

struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        // After one test it ends by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn figures(told: &Value, busy_s: f64) -> anyhow::Result<RunFigures> {
    if let Some(error) = told.get("error") {
        anyhow::bail!("it says {error}");
    }
    let number = |path: &str| {
        let found = told.pointer(path).and_then(Value::as_f64);
        found.with_context(|| format!("iperf3 tells no {path}"))
    };
    let bytes = number("/end/sum_received/bytes")?;
    let seconds = number("/end/sum_received/seconds")?;
    ensure!(bytes > 0.0 && seconds > 0.0, "no byte came");
    let cpu = |side: &str| {
        number(&format!("/end/cpu_utilization_percent/{side}_total"))
            .map(|percent| percent / 100.0 * seconds)
    };
    let (senders, receivers) = (cpu("host")?, cpu("remote")?);
    let text = |path: &str| {
        told.pointer(path)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    Ok(RunFigures {
        mb_per_s: bytes / 1e6 / seconds,
        cpu_s_per_gb: (senders + receivers) / (bytes / 1e9),
        cpu_s_per_gb_senders: senders / (bytes / 1e9),
        cpu_s_per_gb_receivers: receivers / (bytes / 1e9),
        jain: 1.0,
        share_min_max: 1.0,
        busy_ratio: busy_s / (senders + receivers).max(1e-3),
        congestion: text("/end/sender_tcp_congestion"),
        version: text("/start/version").unwrap_or_default(),
        ..RunFigures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_iperf3_tells_is_read() {
        let told = json!({
            "start": {"version": "iperf 3.12"},
            "end": {
                "sum_received": {"bytes": 4e9, "seconds": 2.0},
                "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 30.0},
                "sender_tcp_congestion": "cubic"
            }
        });
        let found = figures(&told, 1.6).unwrap();
        assert_eq!(
            (found.mb_per_s, found.cpu_s_per_gb, found.busy_ratio),
            (2000.0, 0.4, 1.0)
        );
        assert_eq!(
            (found.congestion.as_deref(), found.version.as_str()),
            (Some("cubic"), "iperf 3.12")
        );
        assert!(figures(&json!({"error": "busy"}), 1.0).is_err());
        assert!(figures(&json!({}), 1.0).is_err());
    }
}
