//! Metrics of the pure brains and of the transport, a line each. Meaning for operators: `docs/reference/metrics.md`.

use bytes::Bytes;
use sheaf_metrics::{Registry, Row};
use sheaf_stf_builder::flp::Flp;
use sheaf_tf_builder::{RefusedStf, TfBuilder};
use sheaf_transport::{Arena, Stats};

type Epn = TfBuilder<Bytes>;

/// Metrics of an FLP.
const OF_FLP: &[Row<Flp>] = &[
    Row::counter(
        "acquire_stf_made_total",
        "STFs that this FLP has made and announced.",
        |flp| flp.stats().made_stfs,
    ),
    Row::counter(
        "acquire_stf_made_bytes_total",
        "Payload bytes of the STFs that this FLP has made.",
        |flp| flp.stats().made_bytes,
    ),
    Row::counter(
        "acquire_stf_skipped_total",
        "TFs for which this FLP has announced that it has no STF.",
        |flp| flp.stats().skipped_stfs,
    ),
    Row::counter(
        "acquire_stf_refused_total",
        "STFs of the source that came twice, out of order or outside of a run.",
        |flp| flp.stats().refused_stfs,
    ),
    Row::counter(
        "acquire_stf_late_total",
        "STFs that were made after the verdict of their TF.",
        |flp| flp.stats().late_stfs,
    ),
    Row::counter(
        "acquire_stf_offered_total",
        "STFs offered to an EPN, repeated offers included.",
        |flp| flp.stats().offered_stfs,
    ),
    Row::counter(
        "acquire_stf_sent_total",
        "STFs sent to EPNs, retransmissions included.",
        |flp| flp.stats().sent_stfs,
    ),
    Row::counter(
        "acquire_stf_sent_bytes_total",
        "Payload bytes sent to EPNs, retransmissions included.",
        |flp| flp.stats().sent_bytes,
    ),
    Row::counter(
        "acquire_stf_reassigned_total",
        "STFs sent to a further EPN after a reassignment of their TF.",
        |flp| flp.stats().reassigned_stfs,
    ),
    Row::counter(
        "acquire_stf_released_total",
        "STFs released from the hold after the verdict of their TF.",
        |flp| flp.stats().released_stfs,
    ),
    Row::counter(
        "acquire_announces_repeated_total",
        "Announcements retransmitted to the ICN for want of an answer.",
        |flp| flp.stats().repeated_announces,
    ),
    Row::gauge(
        "acquire_held_stfs",
        "STFs held until the verdict of their TF.",
        |flp| flp.held_stfs() as u64,
    ),
    Row::gauge(
        "acquire_held_bytes",
        "Payload bytes held until the verdict of their TF.",
        Flp::held_bytes,
    ),
];

/// Metrics of an EPN.
const OF_EPN: &[Row<Epn>] = &[
    Row::counter(
        "build_stf_accepted_total",
        "STFs accepted into a TF.",
        |epn| epn.stats().accepted_stfs,
    ),
    Row::counter(
        "build_stf_accepted_bytes_total",
        "Payload bytes of the STFs accepted into a TF.",
        |epn| epn.stats().accepted_bytes,
    ),
    Row::counters(
        "build_stf_refused_total",
        "STFs refused, by reason.",
        "reason",
        |epn| {
            let refused = |reason: RefusedStf| (reason.name(), epn.stats().refused(reason));
            RefusedStf::ALL.into_iter().map(refused).collect()
        },
    ),
    Row::counter(
        "build_stf_granted_total",
        "STFs requested from FLPs that offered them, repeated requests included.",
        |epn| epn.stats().grants,
    ),
    Row::counter(
        "build_tf_complete_total",
        "TFs delivered to the consumer with all STFs.",
        |epn| epn.stats().delivered_complete,
    ),
    Row::counter(
        "build_tf_incomplete_total",
        "TFs delivered to the consumer with STFs missing.",
        |epn| epn.stats().delivered_incomplete,
    ),
    Row::counter(
        "build_tf_bytes_total",
        "Payload bytes of TFs delivered to the consumer.",
        |epn| epn.stats().delivered_bytes,
    ),
    Row::counter(
        "build_tf_discarded_total",
        "TFs discarded because another EPN has them or they were dropped.",
        |epn| epn.stats().discarded_tfs,
    ),
    Row::counter(
        "build_tf_stale_total",
        "TFs reported with STFs missing after stf_timeout_ms.",
        |epn| epn.stats().stale_tfs,
    ),
    Row::counter(
        "build_reports_repeated_total",
        "Reports of built TFs retransmitted to the ICN for want of an answer.",
        |epn| epn.stats().repeated_reports,
    ),
    Row::counter(
        "build_commits_impossible_total",
        "Commits of TFs that this EPN does not hold as the verdict says.",
        |epn| epn.stats().impossible_commits,
    ),
    Row::gauge("build_open_tfs", "TFs in building.", |epn| {
        epn.open_tfs() as u64
    }),
    Row::gauge(
        "build_open_bytes",
        "Payload bytes of TFs in building.",
        TfBuilder::open_bytes,
    ),
    Row::counter(
        "build_tf_stored_total",
        "TFs stored on disk before they were reported.",
        |epn| epn.stats().stored_tfs,
    ),
    Row::counter(
        "build_tf_recovered_total",
        "TFs published that a former life of the EPN had stored.",
        |epn| epn.stats().recovered_tfs,
    ),
    Row::counter(
        "build_tf_not_stored_total",
        "TFs of a former life of the EPN that are not on its disk.",
        |epn| epn.stats().not_stored_tfs,
    ),
    Row::gauge(
        "build_former_tfs",
        "TFs that former lives of the EPN have stored and that are not published.",
        |epn| epn.former_tfs() as u64,
    ),
    Row::gauge(
        "build_storage_full",
        "1 while the storage of the EPN takes nothing, else 0.",
        |epn| u64::from(epn.is_storage_full()),
    ),
    Row::gauge(
        "build_sink_bytes",
        "Payload bytes of TFs that are with the consumer.",
        TfBuilder::sink_bytes,
    ),
];

/// Metrics of a transport.
const OF_TRANSPORT: &[Row<Stats>] = &[
    Row::counter(
        "transport_frames_in_total",
        "Frames received from peers.",
        |stats| stats.frames_in,
    ),
    Row::counter(
        "transport_bytes_in_total",
        "Bytes received from peers.",
        |stats| stats.bytes_in,
    ),
    Row::counter(
        "transport_frames_out_total",
        "Frames sent to peers.",
        |stats| stats.frames_out,
    ),
    Row::counter(
        "transport_bytes_out_total",
        "Bytes sent to peers.",
        |stats| stats.bytes_out,
    ),
    Row::counter(
        "transport_zero_copy_sends_total",
        "Large sends that the kernel was asked not to copy.",
        |stats| stats.zero_copy_sends,
    ),
    Row::counter(
        "transport_zero_copy_copied_total",
        "Large sends that the kernel copied although it was asked not to.",
        |stats| stats.zero_copy_copied,
    ),
    Row::counter(
        "transport_lanes_total",
        "Streams with a lane of shared memory beside them.",
        |stats| stats.lanes,
    ),
    Row::counter(
        "transport_lanes_failed_total",
        "Lanes of shared memory that could not be set up.",
        |stats| stats.lanes_failed,
    ),
    Row::counter(
        "transport_lent_bytes_in_total",
        "Payload bytes received over lanes of shared memory.",
        |stats| stats.lent_bytes_in,
    ),
    Row::counter(
        "transport_lent_bytes_out_total",
        "Payload bytes sent over lanes of shared memory.",
        |stats| stats.lent_bytes_out,
    ),
    Row::counter(
        "transport_reads_total",
        "System calls that read from sockets.",
        |stats| stats.reads,
    ),
    Row::counter(
        "transport_writes_total",
        "System calls that write to sockets.",
        |stats| stats.writes,
    ),
    Row::counter(
        "transport_accepted_total",
        "Connections accepted from peers.",
        |stats| stats.accepted,
    ),
    Row::counter(
        "transport_connected_total",
        "Connections made to peers.",
        |stats| stats.connected,
    ),
    Row::counter(
        "transport_redials_total",
        "Connection attempts repeated because the first was not answered.",
        |stats| stats.connect_retries,
    ),
    Row::counter("transport_closed_total", "Connections ended.", |stats| {
        stats.closed
    }),
    Row::counter(
        "transport_handshakes_total",
        "TLS handshakes completed.",
        |stats| stats.handshakes,
    ),
    Row::counter(
        "transport_handshakes_resumed_total",
        "TLS handshakes that resumed an earlier session.",
        |stats| stats.handshakes_resumed,
    ),
    Row::counter(
        "transport_heap_fallbacks_total",
        "Payloads placed on the heap because the arena was full or fragmented.",
        |stats| stats.heap_fallbacks,
    ),
    Row::counter(
        "transport_waits_total",
        "Times that a stream was not read for want of arena space.",
        |stats| stats.waits_for_space,
    ),
    Row::counters(
        "transport_refused_total",
        "Connections ended because of the peer, by reason.",
        "reason",
        |stats| {
            let refused = &stats.refused;
            vec![
                ("magic", refused.magic),
                ("version", refused.version),
                ("kind", refused.kind),
                ("head_too_large", refused.head_too_large),
                ("body_too_large", refused.body_too_large),
                ("digest", refused.digest),
                ("cut", refused.cut),
                ("shm", refused.shm),
                ("silent", refused.silent),
                ("stalled", refused.stalled),
                ("too_many", refused.too_many),
                ("tls_plain", refused.tls_plain),
                ("tls_no_certificate", refused.tls_no_certificate),
                ("tls_certificate", refused.tls_certificate),
                ("tls_alert", refused.tls_alert),
                ("tls_protocol", refused.tls_protocol),
                ("tls_slow", refused.tls_slow),
                ("tls_crowded", refused.tls_crowded),
            ]
        },
    ),
];

/// Metrics of payload memory.
const OF_ARENA: &[Row<Arena>] = &[
    Row::gauge(
        "transport_arena_used_bytes",
        "Bytes of payload memory in use.",
        Arena::used_bytes,
    ),
    Row::gauge(
        "transport_arena_capacity_bytes",
        "Bytes of payload memory.",
        Arena::capacity_bytes,
    ),
];

/// Brings the metrics of an FLP up to date.
pub(crate) fn export_flp(registry: &Registry, brain: &Flp) {
    registry.export(OF_FLP, brain);
}

/// Brings the metrics of an EPN up to date.
pub(crate) fn export_epn(registry: &Registry, brain: &Epn) {
    registry.export(OF_EPN, brain);
}

/// Brings the metrics of a transport and its arena up to date.
pub(crate) fn export_transport(registry: &Registry, stats: &Stats, arena: &Arena) {
    registry.export(OF_TRANSPORT, stats);
    registry.export(OF_ARENA, arena);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{icn, reject, security, sink, zmq};
    use sheaf_metrics::{Kind, Metric};
    use std::collections::BTreeMap;

    const PAGE: &str = include_str!("../../../../docs/reference/metrics.md");

    fn of<S>(rows: &[Row<S>]) -> impl Iterator<Item = Metric> + '_ {
        rows.iter().map(|row| row.metric)
    }

    fn all() -> Vec<Metric> {
        let brains = of(OF_FLP).chain(of(OF_EPN)).chain(icn::metrics());
        let bytes = of(OF_TRANSPORT).chain(of(OF_ARENA)).chain(sink::metrics());
        let beside = [security::LEVEL, reject::REJECTED]
            .into_iter()
            .chain(zmq::METRICS);
        brains.chain(bytes).chain(beside).collect()
    }

    #[test]
    fn the_reference_page_has_every_metric_with_its_kind() {
        let tables = PAGE.split_once("\n## All metrics\n").expect("a section").1;
        let mut found = BTreeMap::new();
        for row in tables.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            for name in cells[1].split('`').skip(1).step_by(2) {
                found.insert(name, cells[2].to_owned());
            }
        }
        let kind = |kind: Kind| format!("{kind:?}").to_lowercase();
        let expected = all()
            .into_iter()
            .map(|metric| (metric.name, kind(metric.kind)));
        assert_eq!(found, expected.collect());
    }

    #[test]
    fn every_help_is_a_sentence_of_its_own() {
        for Metric { name, help, .. } in all() {
            let is_sentence = help.ends_with('.') && help.len() > 10;
            let refers = ["of them", "Those ", "They ", "said again"];
            assert!(
                is_sentence && !refers.iter().any(|word| help.contains(word)),
                "{name}: {help}"
            );
        }
    }
}
