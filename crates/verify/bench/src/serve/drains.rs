//! Drains under load: servers are taken out and in again by orders to the director, in turn.

use anyhow::{Context as _, ensure};
use sheaf_testbed::site::Site;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Orders of one run, as they are given when its window opens.
pub(super) struct Drains {
    /// Orders, each with its server.
    commands: Vec<Command>,
    /// Time from one to the next.
    step: Duration,
    window: Duration,
}

/// Orders that are being given.
pub(super) struct Running(JoinHandle<anyhow::Result<u32>>);

impl Drains {
    /// Returns orders for `count` drains over `window`, each followed by that to add the server again.
    pub(super) fn new(site: &Site, program: &PathBuf, count: u32, window: Duration) -> Self {
        let director = site.director(0);
        let listen = format!("{}:7400", director.v4);
        let servers = site.servers().iter().cycle().take(count as usize);
        let orders = servers.flat_map(|server| ["drain", "add"].map(|order| (order, server)));
        let commands = orders.map(|(order, server)| {
            let mut command = site.command(director, program);
            command.args(["serve", order, &format!("files/{}", server.name)]);
            command.args(["--director", &listen]);
            command.stdout(Stdio::null());
            command
        });
        Self {
            commands: commands.collect(),
            step: window / (2 * count + 1),
            window,
        }
    }

    /// Begins to give the orders.
    pub(super) fn start(self) -> Running {
        Running(std::thread::spawn(move || self.run()))
    }

    fn run(mut self) -> anyhow::Result<u32> {
        let opened = Instant::now();
        let mut done = 0;
        for (index, command) in (1..).zip(&mut self.commands) {
            wait_until(opened + self.step * index);
            // What is ordered after the window is not under load.
            if opened.elapsed() >= self.window {
                break;
            }
            let output = command.output().context("an order cannot be given")?;
            let told = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{command:?}: {}", told.trim());
            done += 1;
        }
        // A drain and the order that undoes it.
        Ok(done / 2)
    }
}

impl Running {
    /// Waits for the last order. Returns how many servers were drained and added again.
    pub(super) fn finish(self) -> anyhow::Result<u32> {
        self.0.join().expect("giving orders does not panic")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pacer: orders come at times that the window sets"
)]
fn wait_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}
