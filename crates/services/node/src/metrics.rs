//! Metrics of the pure brains and of the transport, a line each. Meaning for operators: `docs/reference/metrics.md`.

use crate::{http, icn, reject, run_queue, security, sink, usage, writer, zmq};
use bytes::Bytes;
pub use sheaf_metrics::{BackendOption, SCHEMES, VERBOSITY};
use sheaf_metrics::{Metric, Registry, Row};
use sheaf_stf_builder::flp::{Flp, StfRefusal};
use sheaf_tf_builder::{RefusedStf, TfBuilder};
use sheaf_transport::{Arena, Stats};

type Epn = TfBuilder<Bytes>;

/// Metrics of an FLP.
const OF_FLP: &[Row<Flp>] = &[
    Row::counter(
        "acquire_stf_made_total",
        "STFs that this FLP has made and announced.",
        "healthy: the rate of the farm. Stands still: hold full, or the source gives nothing",
        |flp| flp.stats().made_stfs,
    ),
    Row::counter(
        "acquire_stf_made_bytes_total",
        "Payload bytes of the STFs that this FLP has made.",
        "",
        |flp| flp.stats().made_bytes,
    ),
    Row::counter(
        "acquire_stf_skipped_total",
        "TFs for which this FLP has announced that it has no STF.",
        "hold full and the source cannot wait, STF too large, or a gap of the source. Each is a TF that is \
         dropped or incomplete; with `acquire_held_bytes` at its bound: EPNs are too slow. A message that is \
         repeated counts once",
        |flp| flp.stats().skipped_stfs,
    ),
    Row::counters(
        "acquire_stf_refused_total",
        "STFs of the source that the FLP refused, by reason.",
        "`before_first`: a producer that began before the others, harmless. `behind`: ids go back: an STF comes twice, \
         or a producer was started again. `ahead`: ids jump by more than 65536: a producer counts wrongly, or all of \
         them have to jump. `not_running`, `after_end`: the run stops",
        &["reason"],
        |flp| {
            let count = |refusal: &StfRefusal| (refusal.name(), flp.refused(*refusal).stfs);
            StfRefusal::ALL.iter().map(count).collect()
        },
    ),
    Row::counter(
        "acquire_stf_late_total",
        "STFs that were made after the verdict of their TF.",
        "this FLP is slower than `epn.build.stf_timeout_ms`: its TFs were decided without it",
        |flp| flp.stats().late_stfs,
    ),
    Row::counter(
        "acquire_stf_offered_total",
        "STFs offered to an EPN, repeated offers included.",
        "0 unless `flp.push` is `granted`",
        |flp| flp.stats().offered_stfs,
    ),
    Row::counter(
        "acquire_stf_sent_total",
        "STFs sent to EPNs, retransmissions included.",
        "",
        |flp| flp.stats().sent_stfs,
    ),
    Row::counter(
        "acquire_stf_sent_bytes_total",
        "Payload bytes sent to EPNs, retransmissions included.",
        "more than made: TFs move, or streams break",
        |flp| flp.stats().sent_bytes,
    ),
    Row::counter(
        "acquire_stf_reassigned_total",
        "STFs sent to a further EPN after a reassignment of their TF.",
        "as `balance_tf_reassigned_total`",
        |flp| flp.stats().reassigned_stfs,
    ),
    Row::counter(
        "acquire_stf_cancelled_total",
        "STFs that waited for room in a stream and were not sent, because their TF was decided meanwhile.",
        "an EPN does not read as fast as TFs move away from it: look at that EPN",
        |flp| flp.stats().cancelled_stfs,
    ),
    Row::counter(
        "acquire_stf_cancelled_bytes_total",
        "Payload bytes of STFs that were not sent, because their TF was decided meanwhile.",
        "counted in `acquire_stf_sent_bytes_total` as well",
        |flp| flp.stats().cancelled_bytes,
    ),
    Row::counter(
        "acquire_stf_released_total",
        "STFs released from the hold after the verdict of their TF.",
        "stands still while STFs are made: nothing is decided; look at the ICN",
        |flp| flp.stats().released_stfs,
    ),
    Row::counter(
        "acquire_announces_repeated_total",
        "Announcements retransmitted to the ICN for want of an answer.",
        "after 100 ms without an assignment, or 300 ms more without a release. The ICN is away, TFs are \
         queued there, or their building takes long",
        |flp| flp.stats().repeated_announces,
    ),
    Row::gauge(
        "acquire_held_stfs",
        "STFs held until the verdict of their TF.",
        "how much an EPN's death can cost: nothing, while below `hold_stfs_max` and `hold_bytes`. At the \
         bound: sources wait or skip",
        |flp| flp.held_stfs() as u64,
    ),
    Row::gauge(
        "acquire_held_bytes",
        "Payload bytes held until the verdict of their TF.",
        "as `acquire_held_stfs`",
        Flp::held_bytes,
    ),
];

/// Metrics of an EPN.
const OF_EPN: &[Row<Epn>] = &[
    Row::counter(
        "build_stf_accepted_total",
        "STFs accepted into a TF.",
        "",
        |epn| epn.stats().accepted_stfs,
    ),
    Row::counter(
        "build_stf_accepted_bytes_total",
        "Payload bytes of the STFs accepted into a TF.",
        "",
        |epn| epn.stats().accepted_bytes,
    ),
    Row::counters(
        "build_stf_refused_total",
        "STFs refused, by reason.",
        "`duplicate`, `decided`: repeats after a fault, harmless. `other_run`: some after an ICN restart. \
         `other_roster`: an FLP came or went. `bad_digest`, `wrong_size`: bytes change on the way: memory, \
         cable, switch. `conflict`: two FLPs have one index, or a source gives two payloads for one TF. \
         `no_room`: the EPN has less room than the ICN believes; report it",
        &["reason"],
        |epn| {
            let refused = |reason: RefusedStf| (reason.name(), epn.stats().refused(reason));
            RefusedStf::ALL.into_iter().map(refused).collect()
        },
    ),
    Row::counter(
        "build_stf_granted_total",
        "STFs requested from FLPs that offered them, repeated requests included.",
        "0 unless `flp.push` is `granted`. Much more than accepted: grants are repeated, paths or FLPs are \
         slow",
        |epn| epn.stats().grants,
    ),
    Row::counter(
        "build_tf_complete_total",
        "TFs delivered to the consumer with all STFs.",
        "",
        |epn| epn.stats().delivered_complete,
    ),
    Row::counter(
        "build_tf_incomplete_total",
        "TFs delivered to the consumer with STFs missing.",
        "",
        |epn| epn.stats().delivered_incomplete,
    ),
    Row::counter(
        "build_tf_bytes_total",
        "Payload bytes of TFs delivered to the consumer.",
        "",
        |epn| epn.stats().delivered_bytes,
    ),
    Row::counter(
        "build_tf_redelivered_total",
        "TFs committed with a mark: an EPN that died may have delivered them before.",
        "`icn.delivery = \"at-least-once\"` only. Consumers drop by TF id what they have",
        |epn| epn.stats().redelivered_tfs,
    ),
    Row::counter(
        "build_tf_discarded_total",
        "TFs discarded because another EPN has them or they were dropped.",
        "TFs move away from this EPN: is it slow?",
        |epn| epn.stats().discarded_tfs,
    ),
    Row::counter(
        "build_tf_stale_total",
        "TFs reported with STFs missing after stf_timeout_ms.",
        "an FLP does not send, or does not reach this EPN: look at its log",
        |epn| epn.stats().stale_tfs,
    ),
    Row::counter(
        "build_reports_repeated_total",
        "Reports of built TFs retransmitted to the ICN for want of an answer.",
        "after 100 ms without an answer. The ICN is busy or away",
        |epn| epn.stats().repeated_reports,
    ),
    Row::counter(
        "build_commits_impossible_total",
        "Commits of TFs that this EPN does not hold as the verdict says.",
        "one or two when streams break; they are repeated together with what the EPN lacks. Steady growth is \
         a bug, report it with the event logs",
        |epn| epn.stats().impossible_commits,
    ),
    Row::gauge(
        "build_open_tfs",
        "TFs in building.",
        "near `tfs_in_building_max` or `capacity_bytes`: this EPN is full",
        |epn| epn.open_tfs() as u64,
    ),
    Row::gauge(
        "build_open_bytes",
        "Payload bytes of TFs in building.",
        "as `build_open_tfs`",
        TfBuilder::open_bytes,
    ),
    Row::counter(
        "build_tf_stored_total",
        "TFs stored on disk before they were reported.",
        "ack level `stored` only",
        |epn| epn.stats().stored_tfs,
    ),
    Row::counter(
        "build_tf_recovered_total",
        "TFs published that a former life of the EPN had stored.",
        "it was killed between verdict and hand-over",
        |epn| epn.stats().recovered_tfs,
    ),
    Row::counter(
        "build_tf_not_stored_total",
        "TFs of a former life of the EPN that are not on its disk.",
        "the EPN came back with another disk: they are abandoned",
        |epn| epn.stats().not_stored_tfs,
    ),
    Row::gauge(
        "build_former_tfs",
        "TFs that former lives of the EPN have stored and that are not published.",
        "staying above 0: they are of another run ([operate.md](../how-to/operate.md))",
        |epn| epn.former_tfs() as u64,
    ),
    Row::gauge(
        "build_storage_full",
        "1 while the storage of the EPN takes nothing, else 0.",
        "**alarm**: the disk is full or fails; the log of the EPN says which",
        |epn| u64::from(epn.is_storage_full()),
    ),
    Row::gauge(
        "build_sink_bytes",
        "Payload bytes of TFs that are with the consumer.",
        "growing: the consumer is too slow or away",
        TfBuilder::sink_bytes,
    ),
];

/// Metrics of a transport.
const OF_TRANSPORT: &[Row<Stats>] = &[
    Row::counter(
        "transport_frames_in_total",
        "Frames received from peers.",
        "",
        |stats| stats.frames_in,
    ),
    Row::counter(
        "transport_bytes_in_total",
        "Bytes received from peers.",
        "",
        |stats| stats.bytes_in,
    ),
    Row::counter(
        "transport_frames_out_total",
        "Frames sent to peers.",
        "",
        |stats| stats.frames_out,
    ),
    Row::counter(
        "transport_bytes_out_total",
        "Bytes sent to peers.",
        "",
        |stats| stats.bytes_out,
    ),
    Row::counter(
        "transport_kernel_tls_sessions_total",
        "TLS sessions whose records the kernel protects.",
        "0 unless `transport.kernel_tls` and the kernel have it so; the log of the start says why",
        |stats| stats.kernel_sessions,
    ),
    Row::counter(
        "transport_zero_copy_sends_total",
        "Large sends that the kernel was asked not to copy.",
        "0 unless `transport.zero_copy` is set and peers are on other machines",
        |stats| stats.zero_copy_sends,
    ),
    Row::counter(
        "transport_zero_copy_copied_total",
        "Large sends that the kernel copied although it was asked not to.",
        "grows by a few for each connection: the card, or what is between, cannot do it, and the connection \
         asks no more",
        |stats| stats.zero_copy_copied,
    ),
    Row::counter(
        "transport_lanes_total",
        "Streams with a lane of shared memory beside them.",
        "[shared memory](protocol.md#lanes) beside a stream",
        |stats| stats.lanes,
    ),
    Row::counter(
        "transport_lanes_failed_total",
        "Lanes of shared memory that could not be set up.",
        "other users, no `/proc`, or no file descriptor; the streams carry all",
        |stats| stats.lanes_failed,
    ),
    Row::counter(
        "transport_lent_bytes_in_total",
        "Payload bytes received over lanes of shared memory.",
        "not among `transport_bytes_in_total`",
        |stats| stats.lent_bytes_in,
    ),
    Row::counter(
        "transport_lent_bytes_out_total",
        "Payload bytes sent over lanes of shared memory.",
        "not among `transport_bytes_out_total`",
        |stats| stats.lent_bytes_out,
    ),
    Row::counter(
        "transport_reads_total",
        "System calls that read from sockets.",
        "bytes ÷ calls is the batch: below 64 KiB with large STFs, the sockets are starved",
        |stats| stats.reads,
    ),
    Row::counter(
        "transport_writes_total",
        "System calls that write to sockets.",
        "as `transport_reads_total`",
        |stats| stats.writes,
    ),
    Row::counter(
        "transport_accepted_total",
        "Connections accepted from peers.",
        "healthy: constant after the start. Growing: streams break, see the log with `-v`",
        |stats| stats.accepted,
    ),
    Row::counter(
        "transport_connected_total",
        "Connections made to peers.",
        "as `transport_accepted_total`",
        |stats| stats.connected,
    ),
    Row::counter(
        "transport_redials_total",
        "Connection attempts repeated because the first was not answered.",
        "growing: a peer or the path to it is overloaded or away",
        |stats| stats.connect_retries,
    ),
    Row::counter(
        "transport_closed_total",
        "Connections ended.",
        "as `transport_accepted_total`",
        |stats| stats.closed,
    ),
    Row::counter(
        "transport_handshakes_total",
        "TLS handshakes completed.",
        "healthy: constant after the start",
        |stats| stats.handshakes,
    ),
    Row::counter(
        "transport_handshakes_resumed_total",
        "TLS handshakes that resumed an earlier session.",
        "as `transport_handshakes_total`",
        |stats| stats.handshakes_resumed,
    ),
    Row::counter(
        "transport_heap_fallbacks_total",
        "Payloads placed on the heap because the arena was full or fragmented.",
        "some are harmless; many cost throughput: raise `capacity_bytes` or `hold_bytes`",
        |stats| stats.heap_fallbacks,
    ),
    Row::counter(
        "transport_waits_total",
        "Times that a stream was not read for want of arena space.",
        "the consumer keeps memory: it is too slow",
        |stats| stats.waits_for_space,
    ),
    Row::counters(
        "transport_refused_total",
        "Connections ended because of the peer, by reason.",
        "`magic`: something else speaks to this port. `version`: another release of Sheaf. `kind`, `digest`: \
         damaged or foreign bytes. `head_too_large`, `body_too_large`: the nodes have different farm files. \
         `cut`: a peer died in the middle of a frame. `early`: a stranger sends a payload, or a large head, before \
         a hello that is accepted. `shm`: shared memory that cannot be as a peer left it. \
         `silent`: a port scan, or a hung node. `stalled`: a peer or path hangs. `too_many`: more than 4096 \
         connections. `tls_plain`: a node without certificates, or another protocol. `tls_no_certificate`, \
         `tls_certificate`: not a node of this farm, or its certificate has expired. `tls_alert`: the peer \
         does not trust us. `tls_protocol`: another version of TLS, damaged bytes, a peer that went away. \
         `tls_slow`, `tls_crowded`: handshakes that did not end: a port scan, or an attack",
        &["reason"],
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
                ("early", refused.early),
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
        "used near capacity: as above",
        Arena::used_bytes,
    ),
    Row::gauge(
        "transport_arena_capacity_bytes",
        "Bytes of payload memory.",
        "as `transport_arena_used_bytes`",
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

/// Metrics of one table of the reference page.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name of the table: a role, a kind of sink, or `node` for all.
    pub name: &'static str,
    /// Registrations of the metrics, in the order of the page.
    pub metrics: Vec<Metric>,
}

/// Returns every metric, by the tables of `docs/reference/metrics.md`.
#[must_use]
pub fn groups() -> Vec<Group> {
    let group = |name, metrics| Group { name, metrics };
    let of_node = [security::LEVEL, reject::REJECTED].into_iter();
    let [streams, writers, shm] = sink::metrics().map(|(kind, metrics)| group(kind, metrics));
    vec![
        group("icn", icn::metrics().collect()),
        group("flp", of(OF_FLP).collect()),
        group("epn", of(OF_EPN).collect()),
        streams,
        writers,
        group("writer", writer::METRICS.to_vec()),
        shm,
        group("zmq", zmq::METRICS.to_vec()),
        group("page", http::metrics().collect()),
        group("reporting", sheaf_metrics::reporter_metrics()),
        group("process", usage::metrics().collect()),
        group(
            "node",
            of_node
                .chain(of(run_queue::METRICS))
                .chain(of(OF_TRANSPORT))
                .chain(of(OF_ARENA))
                .collect(),
        ),
    ]
}

fn of<S>(rows: &[Row<S>]) -> impl Iterator<Item = Metric> + '_ {
    rows.iter().map(|row| row.metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Metric> {
        groups()
            .into_iter()
            .flat_map(|group| group.metrics)
            .collect()
    }

    #[test]
    fn every_metric_stands_in_one_group() {
        let mut names: Vec<_> = all().iter().map(|metric| metric.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn every_help_is_a_sentence_of_its_own() {
        for Metric { name, help, .. } in all() {
            let is_sentence = help.ends_with('.') && help.len() > 10;
            let refers = ["of them", "Those ", "They ", concat!("said ", "again")];
            assert!(
                is_sentence && !refers.iter().any(|word| help.contains(word)),
                "{name}: {help}"
            );
        }
    }
}
