//! Whether the values of a farm file make sense, each by itself and all together.

use super::FarmConfig;
use super::address::{for_index, is_address};
use super::epn::SinkConfig;
use super::error::ConfigError;
use super::flp::SourceConfig;
use sheaf_acquire::{GeneratorConfig, GeneratorError, SizeModel};
use sheaf_balance::{Incomplete, Mode, policy};
use sheaf_frame::{FlpId, Limits};
use std::path::Path;

/// Linux has no longer names of congestion control (`TCP_CA_NAME_MAX`, 16 with the final zero).
const CONGESTION_BYTES_MAX: usize = 15;
/// A Unix socket address has 108 bytes for the path (`sockaddr_un`), the last of which is zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Weights are told in thousandths.
const WEIGHT_MIN: f64 = 0.001;
/// A weight beyond leaves the others nothing, and is a mistake.
const WEIGHT_MAX: f64 = 1000.0;
/// Faster no clock of a node ticks.
const RATE_HZ_MAX: f64 = 1e6;

impl FarmConfig {
    /// All that is wrong with the values, whatever the machine.
    #[must_use]
    pub fn check(&self) -> Vec<ConfigError> {
        let mut check = Check::default();
        self.check_run(&mut check);
        self.check_icn(&mut check);
        self.check_times(&mut check);
        self.check_flp(&mut check);
        self.check_source(&mut check);
        self.check_epn(&mut check);
        self.check_sizes(&mut check);
        self.check_transport(&mut check);
        check.errors
    }

    fn check_run(&self, check: &mut Check) {
        let run = &self.run;
        let nodes = 1..=u32::from(u16::MAX);
        let expected = "1 to 65535";
        check.that(nodes.contains(&run.flps), "run.flps", run.flps, expected);
        check.that(nodes.contains(&run.epns), "run.epns", run.epns, expected);
        check.that(
            (0.0..=1e9).contains(&run.duration_s),
            "run.duration_s",
            run.duration_s,
            "seconds from 0 (no end) to 1e9",
        );
    }

    fn check_icn(&self, check: &mut Check) {
        check.address("icn.address", &self.icn.address);
        check.that(
            !self.icn.address.ends_with(":0"),
            "icn.address",
            format!("\"{}\"", self.icn.address),
            "a port other than 0: nodes look for the ICN there",
        );
        check.optional_address("icn.metrics", self.icn.metrics.as_deref());
        let scheduler = &self.icn.scheduler;
        if let Err(unknown) = policy::by_name(&scheduler.policy, scheduler.seed) {
            let message = unknown.to_string();
            let expected = message
                .split_once("expected ")
                .map_or("a policy", |(_, names)| names);
            check.fail(
                "icn.scheduler.policy",
                format!("\"{}\"", unknown.name),
                expected,
            );
        }
        if scheduler.incomplete == Incomplete::Allow {
            check.both(
                (1..=self.run.flps).contains(&scheduler.quorum_stfs_min),
                "icn.scheduler.quorum_stfs_min",
                "run.flps",
                scheduler.quorum_stfs_min,
                format!("1 to run.flps, which is {}", self.run.flps),
            );
        }
        check.that(
            scheduler.queue_tfs_max >= 1,
            "icn.scheduler.queue_tfs_max",
            scheduler.queue_tfs_max,
            "at least 1 TF",
        );
        if scheduler.mode == Mode::Paced {
            check.that(
                scheduler.paced_rate_hz > 0.0 && scheduler.paced_rate_hz <= RATE_HZ_MAX,
                "icn.scheduler.paced_rate_hz",
                scheduler.paced_rate_hz,
                "a rate above 0, up to 1e6 Hz",
            );
        }
    }

    /// The chain of deadlines: each has to leave time for the one before.
    fn check_times(&self, check: &mut Check) {
        let (scheduler, liveness, build) =
            (&self.icn.scheduler, &self.icn.liveness, &self.epn.build);
        for (key, ms) in [
            ("icn.liveness.pulse_ms", liveness.pulse_ms),
            ("icn.liveness.grace_ms", liveness.grace_ms),
            (
                "icn.scheduler.announce_deadline_ms",
                scheduler.announce_deadline_ms,
            ),
            ("icn.scheduler.repeat_ms", scheduler.repeat_ms),
            ("icn.scheduler.drain_ms", scheduler.drain_ms),
            ("epn.build.repeat_ms", build.repeat_ms),
        ] {
            check.that(ms >= 1, key, ms, "at least 1 ms");
        }
        for (key, ms, than, least_ms) in [
            (
                "icn.liveness.suspect_ms",
                liveness.suspect_ms,
                "icn.liveness.pulse_ms",
                liveness.pulse_ms,
            ),
            (
                "icn.liveness.dead_ms",
                liveness.dead_ms,
                "icn.liveness.suspect_ms",
                liveness.suspect_ms,
            ),
            (
                "icn.liveness.cut_ms",
                liveness.cut_ms,
                "icn.liveness.suspect_ms",
                liveness.suspect_ms,
            ),
            (
                "icn.scheduler.tf_deadline_ms",
                scheduler.tf_deadline_ms,
                "icn.scheduler.announce_deadline_ms",
                scheduler.announce_deadline_ms,
            ),
            (
                "epn.build.stale_ms",
                build.stale_ms,
                "icn.scheduler.tf_deadline_ms",
                scheduler.tf_deadline_ms,
            ),
        ] {
            check.both(
                ms > least_ms,
                key,
                than,
                format!("{ms} ms"),
                format!("more than {than}, which is {least_ms} ms"),
            );
        }
    }

    fn check_flp(&self, check: &mut Check) {
        let flp = &self.flp;
        check.optional_address("flp.metrics", flp.metrics.as_deref());
        check.that(
            (0.0..=RATE_HZ_MAX).contains(&flp.rate_hz),
            "flp.rate_hz",
            flp.rate_hz,
            "a rate above 0, up to 1e6 Hz, or 0 for as fast as possible",
        );
        check.that(
            flp.hold_stfs_max >= 1,
            "flp.hold_stfs_max",
            flp.hold_stfs_max,
            "at least 1 STF",
        );
        check.both(
            flp.hold_bytes >= flp.stf_bytes_max,
            "flp.hold_bytes",
            "flp.stf_bytes_max",
            flp.hold_bytes,
            format!(
                "room for one STF, flp.stf_bytes_max of {} bytes",
                flp.stf_bytes_max
            ),
        );
        self.check_hold(check);
    }

    /// The hold has to outlast the failure of an EPN: the time until it is noticed, and that of a second try.
    fn check_hold(&self, check: &mut Check) {
        let flp = &self.flp;
        let (rate_key, rate_hz) = match self.icn.scheduler.mode {
            Mode::Paced => (
                "icn.scheduler.paced_rate_hz",
                self.icn.scheduler.paced_rate_hz,
            ),
            Mode::DataDriven => ("flp.rate_hz", flp.rate_hz),
        };
        let failover_ms = self
            .icn
            .liveness
            .suspect_ms
            .saturating_add(self.icn.scheduler.tf_deadline_ms);
        if flp.source.is_fed() || !rate_hz.is_finite() || rate_hz <= 0.0 {
            return;
        }
        let stfs = rate_hz * failover_ms as f64 / 1000.0;
        let why = format!(
            "the STFs of {failover_ms} ms (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms) at \
             {rate_hz} Hz"
        );
        check.both(
            f64::from(flp.hold_stfs_max) >= stfs,
            "flp.hold_stfs_max",
            rate_key,
            flp.hold_stfs_max,
            format!("at least {}, {why}", stfs.ceil()),
        );
        if let Some(stf_bytes) = known_stf_bytes(&flp.source) {
            let bytes = stfs * stf_bytes as f64;
            check.both(
                flp.hold_bytes as f64 >= bytes,
                "flp.hold_bytes",
                rate_key,
                flp.hold_bytes,
                format!("at least {}, {why}, {stf_bytes} bytes each", bytes.ceil()),
            );
        }
    }

    fn check_source(&self, check: &mut Check) {
        let source = &self.flp.source;
        if let Some(files) = source.files() {
            check.that(
                !files.is_empty(),
                "flp.source.files",
                "no file",
                "at least one file",
            );
            let is_one_a_flp = matches!(source, SourceConfig::Km3net(_) | SourceConfig::Xtc2(_));
            if is_one_a_flp && !files.is_empty() {
                check.both(
                    files.len() >= self.run.flps as usize,
                    "flp.source.files",
                    "run.flps",
                    format!("{} files", files.len()),
                    format!("at least one for each of {} FLPs (run.flps)", self.run.flps),
                );
            }
        }
        match source {
            SourceConfig::Generator(generator) => {
                if let Err(error) = generator.check() {
                    let (key, found, expected) = explain(&error);
                    check.fail(&format!("flp.source.{key}"), found, expected);
                }
            }
            SourceConfig::Unix(unix) => check.socket_path("flp.source.path", &unix.path),
            SourceConfig::Tcp(tcp) => {
                let first = for_index(&tcp.listen, FlpId(0).into());
                check.that(
                    is_address(&first),
                    "flp.source.listen",
                    format!("\"{}\"", tcp.listen),
                    ADDRESS,
                );
            }
            _ => {}
        }
    }

    fn check_epn(&self, check: &mut Check) {
        let epn = &self.epn;
        check.address("epn.listen", &epn.listen);
        check.optional_address("epn.advertise", epn.advertise.as_deref());
        check.optional_address("epn.metrics", epn.metrics.as_deref());
        check.that(
            (WEIGHT_MIN..=WEIGHT_MAX).contains(&epn.weight),
            "epn.weight",
            epn.weight,
            "a weight from 0.001 to 1000",
        );
        check.that(
            epn.queue_tfs >= 1,
            "epn.queue_tfs",
            epn.queue_tfs,
            "at least 1 TF",
        );
        check.that(
            epn.build.tfs_in_building_max >= 1,
            "epn.build.tfs_in_building_max",
            epn.build.tfs_in_building_max,
            "at least 1 TF",
        );
        match &epn.sink {
            SinkConfig::Discard(_) | SinkConfig::Verify(_) => {}
            SinkConfig::File(file) => check.that(
                !file.directory.as_os_str().is_empty(),
                "epn.sink.directory",
                "none",
                "a directory that is there",
            ),
            SinkConfig::Unix(unix) => check.socket_path("epn.sink.path", &unix.path),
        }
    }

    /// STF, TF and memory, from source to builder.
    fn check_sizes(&self, check: &mut Check) {
        let (flp, scheduler, build) = (&self.flp, &self.icn.scheduler, &self.epn.build);
        check.that(
            (1..=Limits::default().body_bytes_max).contains(&scheduler.stf_bytes_max),
            "icn.scheduler.stf_bytes_max",
            scheduler.stf_bytes_max,
            format!(
                "1 to {} bytes, the largest body of a frame",
                Limits::default().body_bytes_max
            ),
        );
        check.both(
            (1..=scheduler.stf_bytes_max).contains(&flp.stf_bytes_max),
            "flp.stf_bytes_max",
            "icn.scheduler.stf_bytes_max",
            flp.stf_bytes_max,
            format!(
                "1 to icn.scheduler.stf_bytes_max, which is {} bytes",
                scheduler.stf_bytes_max
            ),
        );
        check.both(
            build.capacity_bytes >= flp.stf_bytes_max,
            "epn.build.capacity_bytes",
            "flp.stf_bytes_max",
            build.capacity_bytes,
            format!(
                "room for one STF, flp.stf_bytes_max of {} bytes",
                flp.stf_bytes_max
            ),
        );
        if scheduler.mode == Mode::Paced {
            check.both(
                build.capacity_bytes >= scheduler.tf_bytes_max,
                "epn.build.capacity_bytes",
                "icn.scheduler.tf_bytes_max",
                build.capacity_bytes,
                format!(
                    "room for one TF, icn.scheduler.tf_bytes_max of {} bytes",
                    scheduler.tf_bytes_max
                ),
            );
        }
        let Some(stf_bytes) = known_stf_bytes(&flp.source) else {
            return;
        };
        check.that(
            stf_bytes <= flp.stf_bytes_max,
            "flp.source",
            format!("STFs of {stf_bytes} bytes"),
            format!("at most flp.stf_bytes_max, which is {}", flp.stf_bytes_max),
        );
        let tf_bytes = stf_bytes.saturating_mul(self.run.flps.into());
        check.both(
            build.capacity_bytes >= tf_bytes,
            "epn.build.capacity_bytes",
            "run.flps",
            build.capacity_bytes,
            format!(
                "room for one TF, {} STFs of {stf_bytes} bytes",
                self.run.flps
            ),
        );
    }

    fn check_transport(&self, check: &mut Check) {
        let transport = &self.transport;
        let is_name = |name: &str| {
            name.len() <= CONGESTION_BYTES_MAX
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        check.that(
            is_name(&transport.congestion),
            "transport.congestion",
            format!("\"{}\"", transport.congestion),
            "the kernel's name of a congestion control, up to 15 letters, or none",
        );
        check.that(
            (4096..=1 << 30).contains(&transport.socket_buffer_bytes),
            "transport.socket_buffer_bytes",
            transport.socket_buffer_bytes,
            "4096 to 1073741824 bytes",
        );
    }
}

/// Bytes of a usual STF, where they are known before the source is opened.
fn known_stf_bytes(source: &SourceConfig) -> Option<u64> {
    match source {
        SourceConfig::Generator(GeneratorConfig {
            sizes: SizeModel::Trace,
            trace_bytes,
            ..
        }) => trace_bytes.iter().copied().max(),
        SourceConfig::Generator(generator) => Some(generator.bytes_mean),
        _ => None,
    }
}

/// The key, what was found and what was expected.
fn explain(error: &GeneratorError) -> (&'static str, String, String) {
    match error {
        GeneratorError::Pool { needed, pool_bytes } => (
            "pool_bytes",
            pool_bytes.to_string(),
            format!("at least {needed}, the bytes of the largest payload"),
        ),
        GeneratorError::Address { pool_bytes } => (
            "pool_bytes",
            pool_bytes.to_string(),
            "what fits this machine".to_owned(),
        ),
        GeneratorError::TraceEmpty => (
            "trace_bytes",
            "no size".to_owned(),
            "at least one for sizes = \"trace\"".to_owned(),
        ),
        GeneratorError::Period => (
            "sine_period_tfs",
            "0".to_owned(),
            "at least 1 TF".to_owned(),
        ),
        GeneratorError::Amplitude { found } => {
            ("sine_amplitude", found.to_string(), "0 to 1".to_owned())
        }
        GeneratorError::Sigma { found } => {
            ("lognormal_sigma", found.to_string(), "0 to 3".to_owned())
        }
    }
}

const ADDRESS: &str = "HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100";

/// Collects what is wrong.
#[derive(Default)]
struct Check {
    errors: Vec<ConfigError>,
}

impl Check {
    fn that(
        &mut self,
        is_good: bool,
        key: &str,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) {
        if !is_good {
            self.fail(key, found, expected);
        }
    }

    /// A rule about `key` and `other_key`.
    fn both(
        &mut self,
        is_good: bool,
        key: &str,
        other_key: &'static str,
        found: impl std::fmt::Display,
        expected: impl Into<String>,
    ) {
        if !is_good {
            let mut error = ConfigError::new(key, found, expected);
            error.other_key = Some(other_key);
            self.errors.push(error);
        }
    }

    fn fail(&mut self, key: &str, found: impl std::fmt::Display, expected: impl Into<String>) {
        self.errors.push(ConfigError::new(key, found, expected));
    }

    fn address(&mut self, key: &str, text: &str) {
        self.that(is_address(text), key, format!("\"{text}\""), ADDRESS);
    }

    fn optional_address(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.address(key, text);
        }
    }

    fn socket_path(&mut self, key: &str, path: &Path) {
        let bytes = path.as_os_str().len();
        self.that(
            (1..=SOCKET_PATH_BYTES_MAX).contains(&bytes),
            key,
            format!("a path of {bytes} bytes"),
            format!("1 to {SOCKET_PATH_BYTES_MAX} bytes, as many as a Unix socket address holds"),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::config::FarmConfig;
    use std::path::Path;

    /// `expected` are the errors of the farm file `text`, one a line; none if it is good.
    fn check(text: &str, expected: &str) {
        let found = match FarmConfig::parse_for(text, Path::new("f"), &[]) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn the_run_needs_nodes_and_an_end_that_is_one() {
        check(
            "[run]\nflps = 0\nepns = 65536\nduration_s = nan\n",
            "f:2: run.flps: found 0, expected 1 to 65535\n\
             f:3: run.epns: found 65536, expected 1 to 65535\n\
             f:4: run.duration_s: found NaN, expected seconds from 0 (no end) to 1e9",
        );
        check("[run]\nduration_s = 10\ntimeframes = 5\n", "");
        check(
            "[run]\nduration_s = -1.5\n",
            "f:2: run.duration_s: found -1.5, expected seconds from 0 (no end) to 1e9",
        );
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        check(
            "[icn]\naddress = \"7000\"\nmetrics = \"a b:1\"\n[epn]\nlisten = \"[::1\"\nadvertise = \"x:99999\"\n",
            "f:2: icn.address: found \"7000\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100\n\
             f:3: icn.metrics: found \"a b:1\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100\n\
             f:5: epn.listen: found \"[::1\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100\n\
             f:6: epn.advertise: found \"x:99999\", expected HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100",
        );
        check(
            "icn.address = \"icn:0\"\n",
            "f:1: icn.address: found \"icn:0\", expected a port other than 0: nodes look for the ICN there",
        );
    }

    #[test]
    fn an_unknown_policy_is_answered_with_the_known_ones() {
        check(
            "[icn.scheduler]\npolicy = \"fastest\"\n",
            "f:2: icn.scheduler.policy: found \"fastest\", expected one of fixed, random, round-robin, modulo, \
             least-loaded, or fixed:TARGET with the number of a target",
        );
    }

    #[test]
    fn a_quorum_is_within_the_run_if_it_counts() {
        let quorum =
            |rule| format!("[icn.scheduler]\nincomplete = \"{rule}\"\nquorum_stfs_min = 4\n");
        check(&quorum("never"), "");
        check(
            &quorum("allow"),
            "f:3: icn.scheduler.quorum_stfs_min: found 4, expected 1 to run.flps, which is 3",
        );
    }

    #[test]
    fn deadlines_leave_time_for_those_before() {
        check(
            "[icn.liveness]\npulse_ms = 100\ndead_ms = 0\n[icn.scheduler]\ntf_deadline_ms = 3000\nrepeat_ms = 0\n",
            "f:2: icn.liveness.suspect_ms: found 100 ms, expected more than icn.liveness.pulse_ms, which is \
             100 ms\n\
             f:3: icn.liveness.dead_ms: found 0 ms, expected more than icn.liveness.suspect_ms, which is 100 ms\n\
             f:5: epn.build.stale_ms: found 2000 ms, expected more than icn.scheduler.tf_deadline_ms, which is \
             3000 ms\n\
             f:6: icn.scheduler.repeat_ms: found 0, expected at least 1 ms",
        );
        check(
            "[icn.scheduler]\ntf_deadline_ms = 3000\n[epn.build]\nstale_ms = 2000\n",
            "f:4: epn.build.stale_ms: found 2000 ms, expected more than icn.scheduler.tf_deadline_ms, which is \
             3000 ms",
        );
    }

    #[test]
    fn rates_and_weights_are_numbers_above_zero() {
        check(
            "[flp]\nrate_hz = -100.0\n[epn]\nweight = 0\nqueue_tfs = 0\n",
            "f:2: flp.rate_hz: found -100, expected a rate above 0, up to 1e6 Hz, or 0 for as fast as possible\n\
             f:4: epn.weight: found 0, expected a weight from 0.001 to 1000\n\
             f:5: epn.queue_tfs: found 0, expected at least 1 TF",
        );
        check(
            "[flp]\nrate_hz = nan\n[epn]\nweight = inf\n",
            "f:2: flp.rate_hz: found NaN, expected a rate above 0, up to 1e6 Hz, or 0 for as fast as possible\n\
             f:4: epn.weight: found inf, expected a weight from 0.001 to 1000",
        );
        let paced = "[icn.scheduler]\nmode = \"paced\"\npaced_rate_hz = 0.0\n";
        check(
            paced,
            "f:3: icn.scheduler.paced_rate_hz: found 0, expected a rate above 0, up to 1e6 Hz",
        );
        check("[flp]\nrate_hz = 0\n", "");
    }

    #[test]
    fn the_hold_outlasts_the_failure_of_an_epn() {
        check(
            "[flp]\nrate_hz = 10000\n",
            "f:2: flp.hold_stfs_max: found 4096, expected at least 5000, the STFs of 500 ms \
             (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms) at 10000 Hz",
        );
        check(
            "[flp]\nhold_bytes = 70000000\n[flp.source]\nkind = \"generator\"\nbytes_mean = 2000000\n",
            "f:2: flp.hold_bytes: found 70000000, expected at least 100000000, the STFs of 500 ms \
             (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms) at 100 Hz, 2000000 bytes each",
        );
        check("[flp]\nrate_hz = 10000\nsource.kind = \"stdin\"\n", "");
        check(
            "[flp]\nrate_hz = 10000\n[icn.scheduler]\nmode = \"paced\"\n",
            "",
        );
    }

    #[test]
    fn memory_holds_what_passes_through_it() {
        check(
            "[flp]\nhold_bytes = 1000\nstf_bytes_max = 1001\n[epn.build]\ncapacity_bytes = 1000\n",
            "f:2: flp.hold_bytes: found 1000, expected room for one STF, flp.stf_bytes_max of 1001 bytes\n\
             f:5: epn.build.capacity_bytes: found 1000, expected room for one STF, flp.stf_bytes_max of 1001 bytes",
        );
        check(
            "[icn.scheduler]\nstf_bytes_max = 1000000\n",
            "f:2: flp.stf_bytes_max: found 67108864, expected 1 to icn.scheduler.stf_bytes_max, which is 1000000 \
             bytes",
        );
        check(
            "[icn.scheduler]\nmode = \"paced\"\ntf_bytes_max = 300000000\n",
            "f:3: epn.build.capacity_bytes: found 268435456, expected room for one TF, \
             icn.scheduler.tf_bytes_max of 300000000 bytes",
        );
        check(
            "run.flps = 300\n[flp.source]\nkind = \"generator\"\n",
            "f:1: epn.build.capacity_bytes: found 268435456, expected room for one TF, 300 STFs of 1048576 bytes",
        );
    }

    #[test]
    fn sources_and_sinks_have_what_they_need() {
        check(
            "[flp.source]\nkind = \"generator\"\npool_bytes = 10\n",
            "f:3: flp.source.pool_bytes: found 10, expected at least 1048576, the bytes of the largest payload",
        );
        check(
            "[flp.source]\nkind = \"file\"\n",
            "f:1: flp.source.files: found no file, expected at least one file",
        );
        check(
            "[flp.source]\nkind = \"xtc2\"\nfiles = [\"a\", \"b\"]\n",
            "f:3: flp.source.files: found 2 files, expected at least one for each of 3 FLPs (run.flps)",
        );
        check(
            "[flp.source]\nkind = \"tcp\"\nlisten = \"localhost\"\n[epn.sink]\nkind = \"unix\"\n",
            "f:3: flp.source.listen: found \"localhost\", expected HOST:PORT, such as 10.0.0.7:7100 or \
             [::1]:7100\n\
             f:4: epn.sink.path: found a path of 0 bytes, expected 1 to 107 bytes, as many as a Unix socket \
             address holds",
        );
        check(
            "[flp.source]\nkind = \"tcp\"\nlisten = \"[::1]:710{flp}\"\n",
            "",
        );
        check(
            "epn.sink.kind = \"file\"\n",
            "f:1: epn.sink.directory: found none, expected a directory that is there",
        );
        check(
            "[transport]\ncongestion = \"a;b\"\nsocket_buffer_bytes = 1\n",
            "f:2: transport.congestion: found \"a;b\", expected the kernel's name of a congestion control, up to \
             15 letters, or none\n\
             f:3: transport.socket_buffer_bytes: found 1, expected 4096 to 1073741824 bytes",
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let errors = FarmConfig::load(Path::new("no/farm.toml")).unwrap_err();
        assert_eq!(
            errors.to_string(),
            "no/farm.toml: found No such file or directory (os error 2), expected a readable farm file"
        );
    }
}
