//! The counts of the pure brains and of the transport, as metrics. Names: `docs/reference/metrics.md`.

use sheaf_metrics::Registry;
use sheaf_stf_builder::flp::Flp;
use sheaf_tf_builder::{RefusedStf, TfBuilder};
use sheaf_transport::{Arena, Stats};

/// Brings the metrics of an FLP up to date.
pub(crate) fn export_flp(registry: &Registry, brain: &Flp) {
    let stats = brain.stats();
    let counter = |name: &str, help: &str, total: u64| {
        registry.counter(name, help, &[]).raise_to(total);
    };
    counter(
        "acquire_stf_made_total",
        "STFs made and announced.",
        stats.made_stfs,
    );
    counter(
        "acquire_stf_made_bytes_total",
        "Payload bytes of STFs made.",
        stats.made_bytes,
    );
    counter(
        "acquire_stf_skipped_total",
        "TFs without an STF of this FLP.",
        stats.skipped_stfs,
    );
    counter(
        "acquire_stf_refused_total",
        "STFs out of order or run.",
        stats.refused_stfs,
    );
    counter(
        "acquire_stf_late_total",
        "STFs made after their TF's verdict.",
        stats.late_stfs,
    );
    counter(
        "acquire_stf_offered_total",
        "STFs offered to an EPN, repeats included.",
        stats.offered_stfs,
    );
    counter(
        "acquire_stf_sent_total",
        "STFs sent, repeats included.",
        stats.sent_stfs,
    );
    counter(
        "acquire_stf_sent_bytes_total",
        "Bytes sent, repeats included.",
        stats.sent_bytes,
    );
    counter(
        "acquire_stf_reassigned_total",
        "STFs sent to another EPN.",
        stats.reassigned_stfs,
    );
    counter(
        "acquire_stf_released_total",
        "STFs let go after a verdict.",
        stats.released_stfs,
    );
    counter(
        "acquire_announces_repeated_total",
        "Announces said again.",
        stats.repeated_announces,
    );
    let gauge = |name: &str, help: &str, value: u64| {
        registry.gauge(name, help, &[]).set_u64(value);
    };
    gauge(
        "acquire_held_stfs",
        "STFs kept until their verdict.",
        brain.held_stfs() as u64,
    );
    gauge(
        "acquire_held_bytes",
        "Bytes kept until their verdict.",
        brain.held_bytes(),
    );
}

/// Brings the metrics of an EPN up to date.
pub(crate) fn export_epn<P: Clone>(registry: &Registry, brain: &TfBuilder<P>) {
    let stats = brain.stats();
    let counter = |name: &str, help: &str, total: u64| {
        registry.counter(name, help, &[]).raise_to(total);
    };
    counter(
        "build_stf_accepted_total",
        "STFs taken into a TF.",
        stats.accepted_stfs,
    );
    counter(
        "build_stf_accepted_bytes_total",
        "Payload bytes of them.",
        stats.accepted_bytes,
    );
    for reason in RefusedStf::ALL {
        registry
            .counter(
                "build_stf_refused_total",
                "STFs refused.",
                &[("reason", reason.name())],
            )
            .raise_to(stats.refused(reason));
    }
    counter(
        "build_stf_granted_total",
        "STFs asked for, repeats included.",
        stats.grants,
    );
    counter(
        "build_tf_complete_total",
        "TFs handed on whole.",
        stats.delivered_complete,
    );
    counter(
        "build_tf_incomplete_total",
        "TFs handed on incomplete.",
        stats.delivered_incomplete,
    );
    counter(
        "build_tf_bytes_total",
        "Payload bytes handed on.",
        stats.delivered_bytes,
    );
    counter(
        "build_tf_discarded_total",
        "TFs decided elsewhere.",
        stats.discarded_tfs,
    );
    counter(
        "build_tf_stale_total",
        "TFs reported for their age.",
        stats.stale_tfs,
    );
    counter(
        "build_reports_repeated_total",
        "Reports said again.",
        stats.repeated_reports,
    );
    counter(
        "build_commits_impossible_total",
        "Commits not held.",
        stats.impossible_commits,
    );
    let gauge = |name: &str, help: &str, value: u64| {
        registry.gauge(name, help, &[]).set_u64(value);
    };
    gauge(
        "build_open_tfs",
        "TFs in building.",
        brain.open_tfs() as u64,
    );
    gauge(
        "build_open_bytes",
        "Bytes of TFs in building.",
        brain.open_bytes(),
    );
    counter(
        "build_tf_stored_total",
        "TFs stored before they were reported.",
        stats.stored_tfs,
    );
    counter(
        "build_tf_recovered_total",
        "TFs published for a former life of the EPN.",
        stats.recovered_tfs,
    );
    counter(
        "build_tf_not_stored_total",
        "TFs of a former life that are not on the disk.",
        stats.not_stored_tfs,
    );
    gauge(
        "build_former_tfs",
        "TFs of former lives that are stored and not published.",
        brain.former_tfs() as u64,
    );
    gauge(
        "build_storage_full",
        "1 while the storage takes nothing.",
        u64::from(brain.is_storage_full()),
    );
    gauge(
        "build_sink_bytes",
        "Bytes with the consumer.",
        brain.sink_bytes(),
    );
}

/// Brings the metrics of a transport and its arena up to date.
pub(crate) fn export_transport(registry: &Registry, stats: &Stats, arena: &Arena) {
    let counter = |name: &str, help: &str, total: u64| {
        registry.counter(name, help, &[]).raise_to(total);
    };
    counter(
        "transport_frames_in_total",
        "Frames received.",
        stats.frames_in,
    );
    counter(
        "transport_bytes_in_total",
        "Bytes received.",
        stats.bytes_in,
    );
    counter(
        "transport_frames_out_total",
        "Frames sent.",
        stats.frames_out,
    );
    counter("transport_bytes_out_total", "Bytes sent.", stats.bytes_out);
    counter(
        "transport_zero_copy_sends_total",
        "Sends that the kernel was asked not to copy.",
        stats.zero_copy_sends,
    );
    counter(
        "transport_zero_copy_copied_total",
        "Those of them for which it copied after all.",
        stats.zero_copy_copied,
    );
    counter(
        "transport_lanes_total",
        "Streams that got a lane of shared memory beside them.",
        stats.lanes,
    );
    counter(
        "transport_lanes_failed_total",
        "Lanes that did not come to stand.",
        stats.lanes_failed,
    );
    counter(
        "transport_lent_bytes_in_total",
        "Bytes that came over lanes, not among those received.",
        stats.lent_bytes_in,
    );
    counter(
        "transport_lent_bytes_out_total",
        "Bytes that went over lanes, not among those sent.",
        stats.lent_bytes_out,
    );
    counter("transport_reads_total", "Read system calls.", stats.reads);
    counter(
        "transport_writes_total",
        "Write system calls.",
        stats.writes,
    );
    counter(
        "transport_accepted_total",
        "Connections accepted.",
        stats.accepted,
    );
    counter(
        "transport_connected_total",
        "Connections made.",
        stats.connected,
    );
    counter(
        "transport_redials_total",
        "Connections begun once more because nobody had answered.",
        stats.connect_retries,
    );
    counter("transport_closed_total", "Connections ended.", stats.closed);
    counter(
        "transport_handshakes_total",
        "TLS handshakes that came to their end.",
        stats.handshakes,
    );
    counter(
        "transport_handshakes_resumed_total",
        "Those that took up an earlier session.",
        stats.handshakes_resumed,
    );
    counter(
        "transport_heap_fallbacks_total",
        "Blocks from the heap.",
        stats.heap_fallbacks,
    );
    counter(
        "transport_waits_total",
        "Waits for arena space.",
        stats.waits_for_space,
    );
    let refused = &stats.refused;
    for (reason, count) in [
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
    ] {
        registry
            .counter(
                "transport_refused_total",
                "Connections refused.",
                &[("reason", reason)],
            )
            .raise_to(count);
    }
    let gauge = |name: &str, help: &str, value: u64| {
        registry.gauge(name, help, &[]).set_u64(value);
    };
    gauge(
        "transport_arena_used_bytes",
        "Arena bytes in use.",
        arena.used_bytes(),
    );
    gauge(
        "transport_arena_capacity_bytes",
        "Arena size.",
        arena.capacity_bytes(),
    );
}
