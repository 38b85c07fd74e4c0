//! Whether the values of a farm file make sense, each by itself and all together.

use super::FarmConfig;
use super::icn::LedgerBackend;
use super::keys::{self, RATE_HZ_MAX};
use super::security::{BulkConfig, PageConfig};
use crate::check::{Check, ConfigError, for_index};
use crate::sink::Ack;
use sheaf_placement::{Reaction, policy};
use sheaf_protocol::EpnId;
use sheaf_scheduler::{Delivery, Incomplete, Mode};

/// Linux has no longer names of congestion control (`TCP_CA_NAME_MAX`, 16 with the final zero).
const CONGESTION_BYTES_MAX: usize = 15;

impl FarmConfig {
    /// All that is wrong with the values, whatever the machine.
    #[must_use]
    pub fn check(&self) -> Vec<ConfigError> {
        let mut check = Check::default();
        keys::check_ranges(self, &mut check);
        self.check_icn(&mut check);
        self.check_times(&mut check);
        self.check_flp(&mut check);
        self.check_source(&mut check);
        self.check_epn(&mut check);
        self.check_writers(&mut check);
        self.check_sizes(&mut check);
        self.check_transport(&mut check);
        self.check_security(&mut check);
        self.check_membership(&mut check);
        self.log.check(&mut check);
        self.metrics.check(&mut check);
        check.errors
    }

    /// Returns what is wrong with the name of the policy. For an ICN only: its program may have brought a policy along
    /// that those of other nodes and tools do not know.
    #[must_use]
    pub(super) fn check_policy(&self) -> Vec<ConfigError> {
        let scheduler = &self.icn.scheduler;
        let Err(unknown) = policy::by_name(&scheduler.policy, scheduler.seed) else {
            return Vec::new();
        };
        let message = unknown.to_string();
        let expected = message
            .split_once("expected ")
            .map_or("a policy", |(_, names)| names);
        vec![ConfigError::new(
            "icn.scheduler.policy",
            format!("\"{}\"", unknown.name),
            expected,
        )]
    }

    fn check_icn(&self, check: &mut Check) {
        check.node_address("icn.address", &self.icn.address);
        check.that(
            !self.icn.address.ends_with(":0"),
            "icn.address",
            format!("\"{}\"", self.icn.address),
            "a port other than 0: nodes look for the ICN there",
        );
        check.optional_address("icn.metrics", self.icn.metrics.as_deref());
        self.check_ledger(check);
        let scheduler = &self.icn.scheduler;
        if scheduler.incomplete == Incomplete::Allow {
            check.both(
                (1..=self.run.flps).contains(&scheduler.quorum_stfs_min),
                "icn.scheduler.quorum_stfs_min",
                "run.flps",
                scheduler.quorum_stfs_min,
                format!("1 to run.flps, which is {}", self.run.flps),
            );
        }
        if scheduler.mode == Mode::Paced {
            check.that(
                scheduler.paced_rate_hz > 0.0 && scheduler.paced_rate_hz <= RATE_HZ_MAX,
                "icn.scheduler.paced_rate_hz",
                scheduler.paced_rate_hz,
                "a rate above 0, up to 1e6 Hz",
            );
        }
    }

    fn check_ledger(&self, check: &mut Check) {
        let (icns, backend) = (self.icn.addresses.len(), self.icn.ledger.backend);
        for (index, address) in self.icn.addresses.iter().enumerate() {
            let key = format!("icn.addresses[{index}]");
            check.node_address(&key, address);
            check.that(
                !address.ends_with(":0"),
                &key,
                format!("\"{address}\""),
                "a port other than 0: nodes look for the ICN there",
            );
            let is_new = !self.icn.addresses[..index].contains(address);
            check.that(
                is_new,
                &key,
                format!("\"{address}\" twice"),
                "one address an ICN",
            );
        }
        let found = format!("\"{}\"", backend.name());
        match backend {
            LedgerBackend::Memory | LedgerBackend::File => check.both(
                icns <= 1,
                "icn.ledger.backend",
                "icn.addresses",
                found,
                format!("\"majority\" or \"zookeeper\" for {icns} ICNs"),
            ),
            LedgerBackend::Majority => check.both(
                icns >= 3 && icns % 2 == 1,
                "icn.addresses",
                "icn.ledger.backend",
                format!("{icns} ICNs"),
                "an odd number from 3 on: most of them have to agree".to_owned(),
            ),
            LedgerBackend::Zookeeper => {}
        }
        if backend.has_files() {
            check.that(
                !self.icn.ledger.directory.as_os_str().is_empty(),
                "icn.ledger.directory",
                "none",
                "a folder for the files of the verdict log",
            );
        }
    }

    /// The chain of deadlines: each has to leave time for the one before.
    fn check_times(&self, check: &mut Check) {
        let (scheduler, liveness, build) =
            (&self.icn.scheduler, &self.icn.liveness, &self.epn.build);
        for (key, ms, than, least_ms) in [
            (
                "icn.liveness.suspect_ms",
                liveness.suspect_ms,
                "icn.liveness.pulse_ms",
                liveness.pulse_ms,
            ),
            (
                "icn.liveness.epn_grace_ms",
                liveness.epn_grace_ms,
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
                "icn.scheduler.unreachable_timeout_ms",
                scheduler.unreachable_timeout_ms,
                "icn.scheduler.tf_deadline_ms",
                scheduler.tf_deadline_ms,
            ),
            (
                "epn.build.stf_timeout_ms",
                build.stf_timeout_ms,
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
        let scheduler = &self.icn.scheduler;
        let (reset_ms, and_reset) = match scheduler.reaction {
            Reaction::Reinitialise => (scheduler.reset_ms, ", and icn.scheduler.reset_ms"),
            Reaction::Whitelist | Reaction::Blacklist | Reaction::None => (0, ""),
        };
        let failover_ms = self.icn.liveness.suspect_ms;
        let failover_ms = failover_ms.saturating_add(scheduler.tf_deadline_ms);
        let failover_ms = failover_ms.saturating_add(reset_ms);
        if flp.source.is_fed() || !rate_hz.is_finite() || rate_hz <= 0.0 {
            return;
        }
        let stfs = rate_hz * failover_ms as f64 / 1000.0;
        let why = format!(
            "the STFs of {failover_ms} ms (icn.liveness.suspect_ms and icn.scheduler.tf_deadline_ms\
             {and_reset}) at {rate_hz} Hz"
        );
        check.both(
            f64::from(flp.hold_stfs_max) >= stfs,
            "flp.hold_stfs_max",
            rate_key,
            flp.hold_stfs_max,
            format!("at least {}, {why}", stfs.ceil()),
        );
        if let Some(stf_bytes) = flp.source.table().stf_bytes() {
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
            if source.table().is_one_file_a_flp() && !files.is_empty() {
                check.both(
                    files.len() >= self.run.flps as usize,
                    "flp.source.files",
                    "run.flps",
                    format!("{} files", files.len()),
                    format!("at least one for each of {} FLPs (run.flps)", self.run.flps),
                );
            }
        }
        source.table().check(check);
    }

    fn check_security(&self, check: &mut Check) {
        let security = &self.security;
        let missing = security.missing_key();
        check.that(
            missing.is_none(),
            &format!("security.{}", missing.unwrap_or_default()),
            "none",
            "all of certificate, key and ca, or a directory",
        );
        check.that(
            !(security.insecure && security.has_certificates()),
            "security.insecure",
            true,
            "false where there are certificates: all is encrypted then",
        );
        check.that(
            security.bulk == BulkConfig::Encrypted || security.has_certificates(),
            "security.bulk",
            "\"crc-only\"",
            "certificates: without them nothing is encrypted at all",
        );
        check.that(
            security.page == PageConfig::Plain || security.has_certificates(),
            "security.page",
            "\"tls\"",
            "certificates: without them there is no TLS",
        );
    }

    fn check_epn(&self, check: &mut Check) {
        let epn = &self.epn;
        let first = |text: &str| for_index(text, EpnId(0).into());
        check.node_address("epn.listen", &first(&epn.listen));
        if let Some(address) = &epn.advertise {
            check.node_address("epn.advertise", &first(address));
        }
        for address in &epn.listen_also {
            check.node_address("epn.listen_also", &first(address));
        }
        check.optional_address("epn.metrics", epn.metrics.as_deref());
        epn.sink.table().check(check);
        if epn.ack == Ack::Stored {
            check.both(
                epn.sink.table().stores(),
                "epn.ack",
                "epn.sink.kind",
                "\"stored\"",
                format!(
                    "\"built\" for epn.sink.kind = \"{}\": the sinks file and writers store",
                    epn.sink.kind()
                ),
            );
            check.both(
                self.icn.delivery == Delivery::AtMostOnce,
                "icn.delivery",
                "epn.ack",
                "\"at-least-once\"",
                "\"at-most-once\" with epn.ack = \"stored\": the next life of an EPN publishes its TFs, and none is built \
                 again"
                    .to_owned(),
            );
        }
        if epn.ack == Ack::Processed {
            check.both(
                epn.sink.table().sees_the_end(),
                "epn.ack",
                "epn.sink.kind",
                "\"processed\"",
                format!(
                    "\"built\" for epn.sink.kind = \"{}\": the sink shm alone knows when a consumer has finished",
                    epn.sink.kind()
                ),
            );
            check.both(
                self.icn.delivery == Delivery::AtLeastOnce,
                "icn.delivery",
                "epn.ack",
                "\"at-most-once\"",
                "\"at-least-once\" with epn.ack = \"processed\": a TF whose EPN dies is built again".to_owned(),
            );
        }
    }

    fn check_writers(&self, check: &mut Check) {
        let writer = &self.writer;
        for (index, address) in writer.addresses.iter().enumerate() {
            let key = format!("writer.addresses[{index}]");
            check.node_address(&key, address);
            check.that(
                !address.ends_with(":0"),
                &key,
                format!("\"{address}\""),
                "a port other than 0: EPNs look for the writer there",
            );
            check.that(
                !writer.addresses[..index].contains(address),
                &key,
                format!("\"{address}\" twice"),
                "one address a writer",
            );
        }
        let count = writer.addresses.len();
        check.that(
            count <= 256,
            "writer.addresses",
            count,
            "at most 256 writers",
        );
        check.both(
            count > 0 || !self.epn.sink.table().needs_writers(),
            "writer.addresses",
            "epn.sink.kind",
            "none",
            "addresses of writers with the sink writers".to_owned(),
        );
        check.optional_address("writer.metrics", writer.metrics.as_deref());
        if let Some(files) = &writer.files {
            files.check_at("writer.files", false, check);
            files.check_of_writer("writer.files", check);
        }
        let stf_bytes = self.flp.source.table().stf_bytes().unwrap_or(0);
        let tf_bytes = stf_bytes.saturating_mul(self.run.flps.into());
        let window = writer.window_bytes(self.run.epns);
        check.both(
            !self.epn.sink.table().needs_writers() || window >= tf_bytes,
            "writer.capacity_bytes",
            "run.epns",
            writer.capacity_bytes,
            format!(
                "room for a TF of {tf_bytes} bytes of each of {} EPNs",
                self.run.epns
            ),
        );
    }

    /// STF, TF and memory, from source to builder.
    fn check_sizes(&self, check: &mut Check) {
        let (flp, scheduler, build) = (&self.flp, &self.icn.scheduler, &self.epn.build);
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
        let Some(stf_bytes) = flp.source.table().stf_bytes() else {
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
        let nodes = self
            .run
            .flps
            .max(self.run.epns)
            .saturating_add(self.run.flps);
        check.both(
            transport.connections_max >= nodes,
            "transport.connections_max",
            "run.flps",
            transport.connections_max,
            format!("at least {nodes}, the nodes that connect to one"),
        );
        check.that(
            (1..=transport.connections_max).contains(&transport.connections_per_address_max),
            "transport.connections_per_address_max",
            transport.connections_per_address_max,
            "1 to transport.connections_max",
        );
    }
}

#[cfg(test)]
mod tests;
