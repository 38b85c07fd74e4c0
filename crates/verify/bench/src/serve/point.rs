//! One run: a plane, its servers and a load on a site of its own. What rounds of the benchmark and points of an
//! experiment are made of.

use super::case::Sample;
use super::injection::{Fault, Injection};
use super::plane::Plane;
use super::stage::{Engine, Objects, Stage};
use super::{Options, Placement};
use anyhow::Context as _;
use sheaf_load::{Load, Method, raise_descriptor_limit};
use sheaf_testbed::interference::Interference;
use sheaf_testbed::net::needs;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Part of the window before a fault: 1 ÷ this.
const BEFORE_FAULT: u32 = 3;

/// Plane, servers and load of one run.
#[derive(Clone, Debug)]
pub struct Point {
    /// Plane, by name.
    pub plane: String,
    /// Kind of the servers, by name.
    pub engine: String,
    /// Servers.
    pub servers: usize,
    /// Clients.
    pub clients: u32,
    /// Client hosts.
    pub client_hosts: usize,
    /// Spread of the clients over their hosts.
    pub placement: Placement,
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Whether clients put objects in place of fetching them.
    pub is_upload: bool,
    /// Rate of the cable of each server in Mbit/s; `None`: as fast as the machine.
    pub server_mbit: Option<f64>,
    /// Rate of the cable of each client host in Mbit/s; `None`: as fast as the machine.
    pub client_mbit: Option<f64>,
    /// Servers taken out and in again in the window of a plane of Sheaf, in turn.
    pub drains: u32,
    /// Fault after a third of the window.
    pub fault: Option<Fault>,
    /// Length of the window.
    pub window: Duration,
    /// Time before it, in which clients begin too.
    pub warm_up: Duration,
    /// Seed of the places of clients.
    pub seed: u64,
    /// Program that runs clients, and Sheaf's planes and servers.
    pub program: PathBuf,
}

/// Reasons why a point was not measured.
#[derive(Debug, Error)]
pub enum PointError {
    /// The machine lacks something. Nothing was started.
    #[error("{0}")]
    Missing(String),
    /// The run did not come to its end in order. Nothing of it is left.
    #[error("{0}")]
    Failed(String),
}

impl Point {
    /// Returns what this machine lacks to measure it.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let options = self.options();
        let missing = || {
            needs().map_err(|missing| missing.to_string())?;
            let (plane, engine) = self.found()?;
            match (plane.missing)(&options).or_else(|| engine.missing(&options)) {
                Some(why) => Err(why),
                None => Ok(()),
            }
        };
        missing().err()
    }

    /// Whether transfers have to fail by its fault: those of a server that dies, and all that pass a director which
    /// carries bytes. A row without failures is wrong then.
    #[must_use]
    pub fn must_fail(&self) -> bool {
        match self.fault {
            None => false,
            Some(fault) if fault.takes_a_server() => true,
            Some(_) => self.found().is_ok_and(|(plane, _)| plane.carries_bytes),
        }
    }

    /// Measures it once, on a site of its own.
    ///
    /// # Errors
    ///
    /// All of [`PointError`].
    pub fn measure(&self) -> Result<Sample, PointError> {
        if let Some(why) = self.missing() {
            return Err(PointError::Missing(why));
        }
        let (plane, engine) = self.found().map_err(PointError::Missing)?;
        let run = || {
            raise_descriptor_limit().context("the limit of descriptors cannot be raised")?;
            let objects = Objects::make(&[self.object_bytes])?;
            Run {
                plane,
                engine,
                clients: self.clients,
                object_bytes: self.object_bytes,
                client_mbit: self.client_mbit,
                placement: self.placement,
                fault: self.fault,
            }
            .measure(&self.options(), &objects)
        };
        run().map_err(|error: anyhow::Error| PointError::Failed(format!("{error:#}")))
    }

    fn found(&self) -> Result<(&'static Plane, Engine), String> {
        let plane = Plane::ALL.iter().find(|plane| plane.name == self.plane);
        let engine = Engine::ALL.iter().find(|it| it.name() == self.engine);
        Ok((
            plane.ok_or_else(|| format!("found plane {:?}", self.plane))?,
            *engine.ok_or_else(|| format!("found servers {:?}", self.engine))?,
        ))
    }

    fn options(&self) -> Options {
        Options {
            planes: vec![self.plane.clone()],
            engines: vec![self.engine.clone()],
            clients: vec![self.clients],
            connection_clients: 0,
            object_bytes: self.object_bytes,
            servers: self.servers,
            client_hosts: self.client_hosts,
            is_ipv6: false,
            is_upload: self.is_upload,
            server_mbit: self.server_mbit,
            client_mbit: vec![self.client_mbit],
            placements: vec![self.placement],
            think: Duration::ZERO,
            rate_bytes_per_s: None,
            keeps_alive: false,
            drains: self.drains,
            injects_faults: self.fault.is_some(),
            rounds: 1,
            window: self.window,
            warm_up: self.warm_up,
            seed: self.seed,
            program: self.program.clone(),
        }
    }
}

/// Run with what differs from one run of the same options to the next.
pub(super) struct Run {
    pub(super) plane: &'static Plane,
    pub(super) engine: Engine,
    pub(super) clients: u32,
    pub(super) object_bytes: u64,
    pub(super) client_mbit: Option<f64>,
    pub(super) placement: Placement,
    pub(super) fault: Option<Fault>,
}

impl Run {
    /// Measures it on a site of its own, so that nothing of one plane is left for another.
    pub(super) fn measure(&self, options: &Options, objects: &Objects) -> anyhow::Result<Sample> {
        let interference = Interference::begin()?;
        let mut sample = self.on_stage(options, objects)?;
        // All processes of the stage have ended and count as own.
        sample.others_share = interference.user_share()?;
        Ok(sample)
    }

    fn on_stage(&self, options: &Options, objects: &Objects) -> anyhow::Result<Sample> {
        let mut stage = Stage::build(options, self.engine, self.client_mbit, objects)?;
        let targets = self.plane.start(&mut stage, options, self.object_bytes)?;
        let load = Load {
            targets,
            clients: self.clients,
            method: match options.is_upload {
                true => Method::Put,
                false => Method::Get,
            },
            object_bytes: Some(self.object_bytes),
            ramp: options.warm_up / 2,
            warm_up: options.warm_up - options.warm_up / 2,
            window: options.window,
            think: options.think,
            rate_bytes_per_s: options.rate_bytes_per_s,
            keeps_alive: options.keeps_alive,
            seed: options.seed,
            ..Load::default()
        };
        let before = options.window / BEFORE_FAULT;
        let injection = self
            .fault
            .map(|fault| Injection::new(&stage, fault, before, None));
        let (mut injection, mut injected) = (injection.transpose()?, None);
        let takes_orders = self.plane.takes_orders;
        let sample = stage.load(options, &load, self.placement, takes_orders, &mut || {
            let injection = injection.take();
            injected = injection.map(|injection| std::thread::spawn(move || injection.run()));
        })?;
        if let Some(injected) = injected {
            injected.join().expect("injecting does not panic")?;
        }
        if self.fault != Some(Fault::DirectorKilled) {
            stage.check_director()?;
        }
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(plane: &str, fault: Option<Fault>) -> Point {
        Point {
            plane: plane.to_owned(),
            engine: "nginx".to_owned(),
            servers: 6,
            clients: 60,
            client_hosts: 1,
            placement: Placement::Even,
            object_bytes: 1000,
            is_upload: false,
            server_mbit: None,
            client_mbit: None,
            drains: 0,
            fault,
            window: Duration::from_secs(1),
            warm_up: Duration::ZERO,
            seed: 1,
            program: PathBuf::from("/nonexistent/sheaf"),
        }
    }

    #[test]
    fn a_dead_server_shows_with_every_plane_and_a_dead_director_where_it_carries_bytes() {
        for plane in Plane::ALL {
            assert!(!point(plane.name, None).must_fail());
            assert!(point(plane.name, Some(Fault::ServerKilled)).must_fail());
        }
        let shows = |plane| point(plane, Some(Fault::DirectorKilled)).must_fail();
        assert!(shows("userspace") && shows("haproxy"));
        assert!(!shows("nft") && !shows("sheaf-haproxy") && !shows("ipvs"));
    }

    #[test]
    fn a_point_that_cannot_be_measured_says_why_before_anything_starts() {
        let error = point("moon", None).measure().unwrap_err().to_string();
        assert!(
            error.contains("found plane \"moon\"") || needs().is_err(),
            "{error}"
        );
        let error = point("nft", None).measure().unwrap_err().to_string();
        assert!(
            error.contains("is no command") || needs().is_err(),
            "{error}"
        );
    }
}
