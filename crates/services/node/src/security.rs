//! How the connections of a process are guarded: the settings of the farm file, and what it then refuses.
//!
//! On loopback nothing is needed. Anywhere else a process needs certificates, or a setting that it may do
//! without; then its status and log report so, too.

use crate::config::{BulkConfig, FarmConfig, PageConfig, for_index};
use sheaf_auth::{Credentials, IdentityError, Moment, Tls};
use sheaf_metrics::{Metric, Registry};
use sheaf_protocol::{Control, NodeId, Role};
use sheaf_transport::{Bulk, Security};
use std::time::Duration;
use thiserror::Error;
use tracing::{info, warn};

/// From this long before its end on, a certificate is worth a warning at every start.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 86_400);

/// Why a process does not begin.
#[derive(Debug, Error)]
pub enum SecurityError {
    /// Plain connection off loopback.
    #[error(
        "{node} {does} {address}, which is not loopback, and has no certificates. Add to the farm file:\n\n\
         [security]\n\
         directory = \"certs\"\n\n\
         and make them: sheaf cert init --farm NAME --dir certs; sheaf cert issue {node} --dir certs\n\
         To run without encryption and without authentication instead, add:\n\n\
         [security]\n\
         insecure = true"
    )]
    NoCertificates {
        /// The process.
        node: NodeId,
        /// Intended action.
        does: &'static str,
        /// Where.
        address: String,
    },
    /// Invalid certificates.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The names of all levels, as they stand in status views and in the label of the metric.
pub const LEVELS: [&str; 4] = ["tls", "crc-only", "loopback", "insecure"];

/// The name of a level: `tls` (all is encrypted), `crc-only` (all but STFs), `loopback` (plain, and no other machine
/// can listen) or `insecure` (plain, and others may).
#[must_use]
pub fn level(security: &Security) -> &'static str {
    match security {
        Security::Tls {
            bulk: Bulk::Encrypted,
            ..
        } => "tls",
        Security::Tls {
            bulk: Bulk::CrcOnly,
            ..
        } => "crc-only",
        Security::Loopback => "loopback",
        Security::Insecure => "insecure",
    }
}

/// Returns how the page of a process is served: TLS if the farm file wants it.
pub(crate) fn of_page(config: &FarmConfig, security: &Security) -> Option<Tls> {
    match security {
        Security::Tls { tls, .. } if config.security.page == PageConfig::Tls => Some(tls.clone()),
        _ => None,
    }
}

/// How the connections of `node` are guarded. `listen` is where it listens if that is not what the farm file says, and
/// `metrics` where it serves metrics, if it does.
///
/// # Errors
///
/// [`SecurityError`] if it would talk in the clear off loopback and is not allowed to, or if its certificates
/// are not in order.
pub fn open(
    config: &FarmConfig,
    node: NodeId,
    listen: Option<&str>,
    metrics: Option<&str>,
) -> Result<Security, SecurityError> {
    let outside = outside(config, node, listen, metrics);
    let Some(files) = config.security.files(node) else {
        if config.security.insecure {
            warn!(
                "insecure = true: any host that reaches this network can read, change and send everything"
            );
            return Ok(Security::Insecure);
        }
        if let Some((does, address)) = outside.into_iter().next() {
            return Err(SecurityError::NoCertificates {
                node,
                does,
                address,
            });
        }
        return Ok(Security::Loopback);
    };
    let now = Moment::now();
    let credentials = Credentials::load(&files, node, now)?;
    let certificate = credentials.certificate();
    let not_after = certificate.validity.not_after;
    info!(identity = %credentials.identity(), %not_after, fingerprint = certificate.fingerprint, "Certificate");
    if now.until(not_after) < EXPIRES_SOON {
        let file = certificate.path.display();
        warn!(%file, subject = certificate.subject, %not_after, "The certificate expires soon");
    }
    let has_sealed_page = config.security.page == PageConfig::Tls;
    let is_plain =
        |does: &str| !(is_farm_stream(does) || does == SERVES_METRICS && has_sealed_page);
    for (does, address) in outside.iter().filter(|(does, _)| is_plain(does)) {
        warn!(
            address,
            "{node} {does} this address in the clear: it is no stream of the farm"
        );
    }
    let bulk = match config.security.bulk {
        BulkConfig::Encrypted => Bulk::Encrypted,
        BulkConfig::CrcOnly => {
            warn!(
                "bulk = \"crc-only\": STFs travel in the clear, and an FLP on a data stream proves nothing"
            );
            Bulk::CrcOnly
        }
    };
    let tls = Tls::new(&credentials)?;
    Ok(Security::Tls { tls, bulk })
}

const SERVES_METRICS: &str = "serves metrics at";
const TAKES_STFS: &str = "takes STFs at";
const HANDS_TFS_ON: &str = "hands TFs on at";

/// Metrics (but for `security.page`), the input of an FLP and the output of an EPN are not TLS, whatever certificates
/// there are.
fn is_farm_stream(does: &str) -> bool {
    ![SERVES_METRICS, TAKES_STFS, HANDS_TFS_ON].contains(&does)
}

/// Returns what `node` would do in the clear off loopback by its farm file.
pub(crate) fn in_the_clear(config: &FarmConfig, node: NodeId) -> Vec<(&'static str, String)> {
    let metrics = match node.role {
        Role::Flp => &config.flp.metrics,
        Role::Epn => &config.epn.metrics,
        Role::Writer => &config.writer.metrics,
        Role::Icn | Role::Operator => &config.icn.metrics,
    };
    outside(config, node, None, metrics.as_deref())
}

/// Returns whether all streams of `node` stay on this machine, as far as the farm file names their ends.
pub(crate) fn is_local(config: &FarmConfig, node: NodeId, listen: Option<&str>) -> bool {
    outside(config, node, listen, None).is_empty()
}

/// Returns the connections of `node` that are not on loopback.
fn outside(
    config: &FarmConfig,
    node: NodeId,
    listen: Option<&str>,
    metrics: Option<&str>,
) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let given = listen.map(str::to_owned);
    let mut icns = config.icn.all_addresses();
    match node.role {
        Role::Icn => {
            let index = usize::from(node.index);
            let own = (index < icns.len()).then(|| icns.remove(index));
            all.extend(given.or(own).map(|own| ("listens at", own)));
        }
        Role::Flp => {
            let found = config.flp.source.table().address(node);
            all.extend(found.map(|address| (TAKES_STFS, address)));
        }
        Role::Epn => {
            let own = given.unwrap_or_else(|| config.epn.listen.clone());
            all.push(("listens at", for_index(&own, node)));
            let found = config.epn.sink.table().address(node);
            all.extend(found.map(|address| (HANDS_TFS_ON, address)));
            if config.epn.sink.table().needs_writers() {
                let writers = config.writer.addresses.iter().cloned();
                all.extend(writers.map(|writer| ("connects to", writer)));
            }
        }
        Role::Writer => {
            // It knows no ICN.
            icns.clear();
            let own = config.writer.addresses.get(usize::from(node.index));
            all.extend(given.or(own.cloned()).map(|own| ("listens at", own)));
        }
        Role::Operator => {}
    }
    all.extend(icns.into_iter().map(|icn| ("connects to", icn)));
    all.extend(metrics.map(|address| (SERVES_METRICS, address.to_owned())));
    all.retain(|(_, address)| is_outside(address));
    all
}

/// Whether others than this machine can be at `address`. What has no address yet is named as such later.
pub(crate) fn is_outside(address: &str) -> bool {
    sheaf_transport::tcp::resolve(address).is_ok_and(|found| !found.is_of_this_machine())
}

pub(crate) const LEVEL: Metric = Metric::gauge(
    "node_security_level",
    "1 for the level of security in force, 0 for the others.",
)
    .labels(&["level"])
    .advice("levels: `tls`, `crc-only`, `loopback`, `insecure` ([security.md](../how-to/security.md)). Anything \
         but `tls` off loopback was configured");

/// Brings the metric up to date: 1 for the level in force, 0 for the others.
pub(crate) fn export(registry: &Registry, in_force: &str) {
    for level in LEVELS {
        registry.set(&LEVEL, &[("level", level)], u64::from(level == in_force));
    }
}

/// Whether a node of `role` may say this to an ICN. What an ICN says to a node needs no such list: the node looks at
/// who is at the other end when it connects.
pub(crate) fn may_send(role: Role, control: &Control) -> bool {
    match control {
        Control::Hello(_) | Control::Fenced | Control::Rejected { .. } => true,
        Control::Leaving => matches!(role, Role::Flp | Role::Epn),
        Control::Log(_) => matches!(role, Role::Flp | Role::Epn | Role::Icn),
        Control::Announce(_)
        | Control::Skipped(_)
        | Control::Stopped { .. }
        | Control::Ended { .. }
        | Control::FlpPulse(_)
        | Control::Position(_)
        | Control::Released(_)
        | Control::Unreachable { .. } => role == Role::Flp,
        Control::Built(_)
        | Control::CommitAck { .. }
        | Control::Corrupt { .. }
        | Control::EpnPulse(_)
        | Control::Stored(_)
        | Control::NotStored(_)
        | Control::Undelivered(_)
        | Control::Slots(_)
        | Control::Sources(_)
        | Control::Freed(_) => role == Role::Epn,
        Control::Order(_) => role == Role::Operator,
        Control::Ledger(_)
        | Control::Standby
        | Control::Challenge { .. }
        | Control::Answer { .. }
        | Control::Status { .. }
        | Control::Welcome(_)
        | Control::Refused { .. }
        | Control::Release(_)
        | Control::IcnPulse { .. }
        | Control::Dismissed
        | Control::Start(_)
        | Control::Pace(_)
        | Control::Stop
        | Control::StopAt { .. }
        | Control::Epns(_)
        | Control::Roster { .. }
        | Control::SourceGone { .. }
        | Control::SourceBack { .. }
        | Control::Commit(_)
        | Control::Recall(_)
        | Control::Absent(_)
        | Control::Recover(_)
        | Control::Discard(_)
        | Control::Assign(_) => role == Role::Icn,
        // For data streams and the streams of writers only.
        Control::Offer(_)
        | Control::Withdrawn(_)
        | Control::Grant(_)
        | Control::WriterHello(_)
        | Control::Record(_)
        | Control::Void(_)
        | Control::Settled(_)
        | Control::Publish(_)
        | Control::WriterWelcome(_)
        | Control::WriterPulse(_)
        | Control::Written(_)
        | Control::Voided(_)
        | Control::Moves(_)
        | Control::Held(_)
        | Control::Published(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    fn config(text: &str) -> FarmConfig {
        FarmConfig::parse_for(text, std::path::Path::new("f"), &[])
            .unwrap_or_else(|e| panic!("{e}"))
    }

    fn opened(text: &str, node: NodeId, metrics: Option<&str>) -> Result<&'static str, String> {
        let security = open(&config(text), node, None, metrics);
        security
            .map(|found| level(&found))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn loopback_needs_nothing() {
        for node in [NodeId::ICN, FlpId(0).into(), EpnId(0).into()] {
            let text = "[icn]\naddress = \"localhost:7000\"\n[epn]\nlisten = \"[::1]:0\"\n";
            assert_eq!(opened(text, node, Some("127.0.0.2:9100")), Ok("loopback"));
            let text = "[icn]\naddress = \"unix:/run/icn\"\n[epn]\nlisten = \"unix:/run/{epn}\"\n";
            assert_eq!(opened(text, node, None), Ok("loopback"));
        }
    }

    #[track_caller]
    fn check_refused(text: &str, node: NodeId, metrics: Option<&str>, expected: &str) {
        let refused = opened(text, node, metrics).unwrap_err();
        assert!(refused.starts_with(expected), "{refused}");
        assert!(
            refused.contains("[security]\ndirectory = \"certs\"\n"),
            "{refused}"
        );
        let allowed = format!("{text}\n[security]\ninsecure = true\n");
        assert_eq!(opened(&allowed, node, metrics), Ok("insecure"));
    }

    #[test]
    fn off_loopback_a_process_needs_certificates_or_a_word() {
        let icn = "[icn]\naddress = \"10.0.0.1:7000\"\n";
        check_refused(
            icn,
            NodeId::ICN,
            None,
            "icn:0 listens at 10.0.0.1:7000, which is not",
        );
        check_refused(
            icn,
            FlpId(3).into(),
            None,
            "flp:3 connects to 10.0.0.1:7000, which is not",
        );
        check_refused(
            icn,
            EpnId(3).into(),
            None,
            "epn:3 connects to 10.0.0.1:7000, which is not",
        );
        let epn = "[epn]\nlisten = \"0.0.0.0:7100\"\n";
        check_refused(
            epn,
            EpnId(1).into(),
            None,
            "epn:1 listens at 0.0.0.0:7100, which is not",
        );
        assert_eq!(opened(epn, FlpId(1).into(), None), Ok("loopback"));
        let metrics = Some("0.0.0.0:9100");
        check_refused(
            "",
            NodeId::ICN,
            metrics,
            "icn:0 serves metrics at 0.0.0.0:9100",
        );
        let source = "[flp.source]\nkind = \"tcp\"\nlisten = \"0.0.0.0:71{flp}\"\n";
        check_refused(
            source,
            FlpId(3).into(),
            None,
            "flp:3 takes STFs at 0.0.0.0:713",
        );
    }
}
