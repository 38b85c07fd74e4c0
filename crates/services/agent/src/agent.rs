//! All sensors of a machine, read at once.

use crate::config::AgentConfig;
use crate::own::{FAILED, Own, SENSOR_UP};
use crate::sensor::{Place, SENSORS, Sensor};
use crate::sheet::{Sheet, Value};
use sheaf_metrics::{Counter, Gauge, Registry};
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};

/// The sensors of this machine, open.
#[derive(Debug)]
pub struct Agent {
    sensors: Vec<Open>,
    sheet: Sheet,
    own: Own,
    cpu_share_max: f64,
}

/// A sensor with what is known of its readings.
#[derive(Debug)]
struct Open {
    name: &'static str,
    sensor: Box<dyn Sensor>,
    up: Arc<Gauge>,
    failed: Arc<Counter>,
    is_failing: bool,
}

impl Agent {
    /// Opens the sensors of `config`. One that the machine does not have is named once in the log.
    #[must_use]
    pub fn open(config: &AgentConfig, registry: Arc<Registry>) -> Self {
        let place = Place::new(&config.root);
        let mut sensors = Vec::new();
        for kind in SENSORS.iter().filter(|kind| config.has(kind.name)) {
            let labels = [("sensor", kind.name)];
            let up = registry.gauge(SENSOR_UP.name, SENSOR_UP.help, &labels);
            let failed = registry.counter(FAILED.name, FAILED.help, &labels);
            match (kind.open)(&place, config) {
                Ok(sensor) => sensors.push(Open {
                    name: kind.name,
                    sensor,
                    up,
                    failed,
                    is_failing: false,
                }),
                Err(reason) => {
                    info!(sensor = kind.name, %reason, "This machine does not have the sensor");
                }
            }
        }
        Self {
            sensors,
            own: Own::new(&registry, config.interval()),
            sheet: Sheet::new(registry),
            cpu_share_max: config.cpu_share_max,
        }
    }

    /// Reads all sensors. One that fails has no values, and the others do.
    pub fn read(&mut self) {
        let begun = Instant::now();
        self.sheet.begin();
        for open in &mut self.sensors {
            let outcome = open.sensor.read(&mut self.sheet);
            open.up.set(i64::from(outcome.is_ok()));
            if outcome.is_err() {
                open.failed.increment();
            }
            match &outcome {
                // Once for each time that it begins to fail, not at every reading.
                Err(error) if !open.is_failing => {
                    warn!(sensor = open.name, %error, "The sensor cannot be read");
                }
                Ok(()) if open.is_failing => {
                    info!(sensor = open.name, "The sensor can be read again");
                }
                _ => {}
            }
            open.is_failing = outcome.is_err();
        }
        self.sheet.end();
        self.own
            .note(begun.elapsed(), self.sheet.refused(), self.cpu_share_max);
    }

    /// Returns the values of the last reading, by name and labels.
    #[must_use]
    pub fn values(&self) -> Vec<Value> {
        self.sheet.values()
    }

    /// Returns the names of the sensors that this machine has.
    #[must_use]
    pub fn sensors(&self) -> Vec<&'static str> {
        self.sensors.iter().map(|open| open.name).collect()
    }
}
