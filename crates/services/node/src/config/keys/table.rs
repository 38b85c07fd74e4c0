//! Every key of a farm file, once: description, unit, range. Defaults are those of the types.

use super::{Key, MAX, Range, Table, keys};

/// Largest rate of a clock of a node, in Hz.
pub(in crate::config) const RATE_HZ_MAX: f64 = 1e6;
/// Largest body of a frame, as in `sheaf_protocol::Limits`.
const STF_BYTES_MAX: u64 = 256 << 20;

keys! {
    /// Conditions of the begin and the end of a run.
    table [run] {
        /// Number of the run: the low half of its id, which files of DataDistribution have for the run. 0: drawn at
        /// random. The upper half is drawn for every run, so that two runs of one number differ.
        number: "";
        /// FLPs that must have joined before the run begins.
        flps: "FLPs", whole(1, 65_535, "");
        /// EPNs that must have joined before the run begins.
        epns: "EPNs", whole(1, 65_535, "");
        /// TFs to make, then the run ends. 0: no end.
        timeframes: "TFs";
        /// How long the sources run from the first announce on, in seconds. 0: no end.
        duration_s: "s", real(0.0, 1e9, "seconds from 0 (no end) to 1e9");
        /// The first TF of the run. Without it, the highest first TF id that the sources can give: 0 if all count by
        /// themselves.
        first_tf: "TF id", sample "1000000";
        /// How long the begin waits for sources that have not given the id of their first STF, from when one has, in
        /// ms.
        first_tf_wait_ms: "ms", whole(0, 3_600_000, " ms");
    }

    /// The ICN: decides which EPN builds which TF.
    table [icn] {
        /// Where the ICN listens and where all nodes find it, as HOST:PORT or unix:PATH, if there is one.
        address: "";
        /// Where the ICNs listen, by index, if there are several: one leads, the others stand by. Then `address` is
        /// not used.
        addresses: "";
        /// Where the ICN serves metrics (Prometheus text), as HOST:PORT.
        metrics: "", sample r#""127.0.0.1:9100""#;
        /// Delivery of a TF whose EPN dies before it acknowledges: at-most-once (the TF is abandoned) or at-least-once
        /// (another EPN builds it from the holds and delivers it marked as redelivered; consumers drop by TF id what
        /// they have). See docs/explanation/reliability.md.
        delivery: "";
    }

    /// The verdict log.
    table [icn.ledger] {
        /// Where verdicts are kept: file (an ICN that is started again goes on with the run), majority (files of three
        /// ICNs, most of which have to be there), zookeeper, or memory (the death of the ICN loses the run).
        backend: "";
        /// The folder of the files, made if it is not there. {icn} stands for the index of the ICN. Without it, the
        /// folder lies in $STATE_DIRECTORY (systemd), or beside the farm file and is called like it, with .state.
        directory: "";
        /// After so many records the log gets a checkpoint, or after 10 s if it has fewer. The next leader reads
        /// from the last checkpoint on, and what is before the last but one is removed.
        checkpoint_records: "records", whole(1, 1_000_000, " records");
    }

    /// How TFs are placed.
    table [icn.scheduler] {
        /// Policy that chooses the EPN: fixed, fixed:TARGET, random, round-robin, modulo, first-fit, least-loaded,
        /// power-of-two, weighted, earliest-finish, calendar, maglev, join-idle-queue or power-of-two-memory; see
        /// docs/explanation/policies.md.
        policy: "", live "the ICN";
        /// Seed of the policy's randomness.
        seed: "", live "the ICN";
        /// How the list of EPNs that the policy chooses from follows their deaths: whitelist (it is who is there),
        /// blacklist (fixed when the run begins, the dead are skipped), reinitialise (fixed, on a death rebuilt
        /// without the dead, who never come back) or none (the dead stay in it). Nothing is lost under any of them,
        /// only delayed.
        reaction: "";
        /// How long nothing is placed after a death under the reaction reinitialise, in ms.
        reset_ms: "ms", live "the ICN";
        /// Trigger of a TF: data-driven (the FLPs' announces) or paced (the ICN's heartbeat).
        mode: "";
        /// Rate of the heartbeat in paced mode, in Hz.
        paced_rate_hz: "Hz";
        /// Fate of a TF that lacks STFs: never (it is dropped) or allow (built, with the list of what is
        /// missing).
        incomplete: "";
        /// Fewest STFs of an incomplete TF.
        quorum_stfs_min: "STFs";
        /// How long a TF waits for announces after the first one, in ms; then it is assigned with what is there.
        announce_deadline_ms: "ms", whole(1, MAX, " ms"), live "the ICN";
        /// How long an EPN has for a TF whose STFs are all announced, in ms; then the TF moves to another.
        tf_deadline_ms: "ms", live "the ICN";
        /// How long a TF may wait for an EPN that all its FLPs reach, in ms.
        unreachable_timeout_ms: "ms", live "the ICN";
        /// How long TFs wait for an FLP whose control stream is closed while EPNs have data streams of it, in ms.
        /// They wait less if they fill a hold before.
        source_cut_ms: "ms", whole(1, MAX, " ms"), live "the ICN";
        /// How long an answer is awaited before a message is repeated, in ms.
        repeat_ms: "ms", whole(1, MAX, " ms"), live "the ICN";
        /// How long the farm has for its last TFs after the sources have stopped, in ms.
        drain_ms: "ms", whole(1, MAX, " ms"), live "the ICN";
        /// Largest STF that the farm takes, in bytes.
        stf_bytes_max: "bytes", whole(1, STF_BYTES_MAX, " bytes, the largest body of a frame");
        /// Bytes reserved for a TF in paced mode, before its announces are in.
        tf_bytes_max: "bytes";
        /// TFs that wait for room. When one more comes it is shed.
        queue_tfs_max: "TFs", whole(1, MAX, " TF"), live "the ICN";
        /// TFs committed to one EPN that it has not acknowledged, at most: so many may be abandoned when it dies.
        commits_max: "TFs", whole(1, MAX, " TF");
        /// An EPN may have as many of them as it acknowledged within this time, in ms, if that is more than
        /// `commits_max`, up to 16 times as many. 0: never more.
        commits_ms: "ms", whole(0, 1000, " ms");
    }

    /// How long silence may last.
    table [icn.liveness] {
        /// How often every node says that it is alive, in ms.
        pulse_ms: "ms", whole(1, MAX, " ms");
        /// Silence that makes a node suspect, in ms: it gets nothing new, its undecided TFs move.
        suspect_ms: "ms", live "the ICN";
        /// How much longer a node may be silent that waits for a processor, as its kernel counts it, in ms at most.
        run_delay_max_ms: "ms", whole(0, 1000, " ms"), live "the ICN";
        /// How long an FLP whose stream closed may take to come back, in ms. Its TFs wait that long.
        flp_grace_ms: "ms", whole(1, MAX, " ms"), live "the ICN";
        /// How long an EPN whose stream closed may take to come back, in ms. Its TFs have moved long before.
        epn_grace_ms: "ms", live "the ICN";
        /// Silence after which the ICN closes the stream from its side, in ms.
        cut_ms: "ms", live "the ICN";
    }

    /// All FLPs: make STFs and hold them until they are not needed any more.
    table [flp] {
        /// Bytes of STFs kept until their TF is decided.
        hold_bytes: "bytes";
        /// STFs kept until their TF is decided.
        hold_stfs_max: "STFs", whole(1, MAX, " STF");
        /// A TF that is due while the hold is full: block (the source waits) or drop-newest (it is skipped, and
        /// counted).
        when_full: "";
        /// How STFs get to their EPN: eager (pushed as soon as they are assigned) or granted (large ones are
        /// offered, and the EPN fetches a few at a time: for switches with shallow buffers).
        push: "";
        /// With push = "granted", STFs up to this size are pushed all the same, in bytes.
        eager_bytes: "bytes";
        /// TFs a second. 0: as fast as the hold takes them. Ignored in paced mode and for stdin, unix, tcp, zmq.
        rate_hz: "Hz", real(0.0, RATE_HZ_MAX, "a rate above 0, up to 1e6 Hz, or 0 for as fast as possible");
        /// Largest STF that an FLP announces, in bytes. A larger one is skipped as oversize.
        stf_bytes_max: "bytes";
        /// Where the FLP serves metrics, as HOST:PORT. FLPs on one machine need one each: --metrics.
        metrics: "", sample r#""127.0.0.1:9101""#;
    }

    /// Where STFs come from, by `kind`; the keys of the other kinds stand in docs/reference/config.md.
    table [flp.source] {
        /// Kind of source.
        kind: "";
        /// Recorded pages. Every FLP reads all of them; their links are dealt out over the FLPs.
        files: "";
        /// LHC orbits of one TF, 88.9 µs each.
        orbits_per_tf: "orbits";
        /// The orbit that TF 0 begins with.
        first_orbit: "";
    }

    /// All EPNs: build TFs and hand them on.
    table [epn] {
        /// Where the EPN listens for STFs, as HOST:PORT or unix:PATH. Port 0: any free one; {epn} is the index of
        /// the EPN.
        listen: "";
        /// Address announced to FLPs, as HOST:PORT or unix:PATH, if it is not where the EPN listens.
        advertise: "", sample r#""epn0.farm:7100""#;
        /// Further addresses where it listens for STFs, of other network cards. FLPs are shared out over all.
        listen_also: "", sample r#"["10.2.0.7:7100"]"#;
        /// Share of the work relative to other EPNs.
        weight: "", real(0.001, 1000.0, "a weight from 0.001 to 1000");
        /// TFs that may wait for the consumer. When it is full, TFs wait in the EPN until its memory is full too.
        queue_tfs: "TFs", whole(1, MAX, " TF");
        /// When a TF counts as built: "built", when it is in memory, or "stored", when it is on the disk under a
        /// name that no consumer reads; the commit publishes it, after a crash in the next life of the EPN.
        /// "stored" needs the sink file or writers. With "processed" a TF counts as built in memory, and FLPs hold it until
        /// its consumer has finished with it; it needs the sink shm and icn.delivery = "at-least-once".
        ack: "";
        /// Payloads whose CRC-32C the EPN computes and compares when it receives them: "crc32c", all, or
        /// "none-on-lane", not those that it reads in memory of an FLP on the same machine: then a consumer that
        /// computes it is the first that finds damage.
        digest: "";
        /// Where the EPN serves metrics, as HOST:PORT. EPNs on one machine need one each: --metrics.
        metrics: "", sample r#""127.0.0.1:9102""#;
    }

    /// How TFs are put together.
    table [epn.build] {
        /// Bytes for TFs in building and with the consumer. The EPN takes this much memory at its start.
        capacity_bytes: "bytes";
        /// TFs in building at once.
        tfs_in_building_max: "TFs", whole(1, MAX, " TF");
        /// How long a TF waits for its missing STFs before the EPN reports it as it is, in ms since its latest
        /// assignment.
        stf_timeout_ms: "ms";
        /// STFs fetched at once from FLPs that offer them (flp.push = "granted").
        grants_max: "STFs", whole(1, MAX, " STF");
        /// How long an STF that was asked for keeps the place of another one, in ms.
        grant_ms: "ms", whole(1, MAX, " ms");
        /// How long an answer of the ICN is awaited before a report is repeated, in ms.
        repeat_ms: "ms", whole(1, MAX, " ms");
    }

    /// Consumer of the TFs, by `kind`; the keys of the other kinds stand in docs/reference/config.md.
    table [epn.sink] {
        /// Kind of sink.
        kind: "";
    }

    /// Writer nodes: EPNs with the sink "writers" hand their TFs to them. Their files are configured in [writer.files],
    /// with the keys of the sink "streams" (docs/how-to/write.md).
    table [writer] {
        /// Where the writers listen and where EPNs find them, by index, as HOST:PORT or unix:PATH. Empty: there are
        /// none.
        addresses: "";
        /// Payload bytes that may be with a writer, shared by run.epns EPNs alike. A writer takes this much memory at
        /// its start.
        capacity_bytes: "bytes", whole(1 << 20, MAX, " bytes");
        /// TFs that one EPN may have with a writer without an acknowledgement.
        window_tfs: "TFs", whole(1, 1 << 20, " TFs");
        /// Period at which a writer tells EPNs its state, in ms.
        pulse_ms: "ms", whole(1, 60_000, " ms");
        /// TFs that may be with the threads of a writer.
        queue_tfs: "TFs", whole(1, 1 << 20, " TFs");
        /// Where the writer serves metrics, as HOST:PORT. Writers on one machine need one each: --metrics.
        metrics: "", sample r#""127.0.0.1:9103""#;
    }

    /// The process of a node.
    table [node] {
        /// Threads that move the STFs of an FLP, an EPN or a writer: a number, or auto (one less than the process has
        /// processors, 8 at most). 1: the thread of the node moves them beside all else. More share the connections,
        /// and the thread of the node keeps its control messages, which wait behind no data
        /// (docs/how-to/threads.md).
        threads: "threads";
    }

    /// The connections between FLPs, EPNs and the ICN.
    table [transport] {
        /// Congestion control, by its kernel name. Empty: the machine's own.
        congestion: "";
        /// Send and receive buffer that the kernel is asked for, in bytes each; 1 MiB at most on loopback. It may
        /// give less.
        socket_buffer_bytes: "bytes", whole(4096, 1 << 30, " bytes");
        /// Whether payload memory is asked for in huge pages.
        huge_pages: "";
        /// Whether STFs for an EPN on the same machine stay where they are, and the EPN looks at them there.
        shared_memory: "";
        /// Whether the kernel is asked not to copy large STFs that go to other machines. It is asked no more where
        /// it copies after all, or
        /// where copies take less processor time.
        zero_copy: "";
        /// Protection of the records of TLS sessions: auto (by the kernel, where it can change keys and a trial at the
        /// start shows that it takes less processor time), on (by the kernel, where it can change keys: for cards
        /// that encrypt) or off (by the node). The log of the start says which of the two, and why.
        kernel_tls: "";
        /// Connections that peers may have open at once. The limit of file descriptors must hold them.
        connections_max: "connections";
        /// The same for the peers of one address.
        connections_per_address_max: "connections";
    }

    /// Identity of the nodes of the farm, and encryption. On loopback nothing is needed. Off it a process needs
    /// certificates, which `sheaf cert` makes (docs/how-to/security.md).
    table [security] {
        /// Where ca.pem and the files of the nodes on this machine lie: epn-3.pem and epn-3.key for EPN 3.
        directory: "", sample r#""certs""#;
        /// The certificate of the node, if it lies elsewhere. {flp}, {epn} and {icn} stand for its index.
        certificate: "", sample r#""/etc/sheaf/epn-{epn}.pem""#;
        /// Private key of the node, which no other user may be able to read.
        key: "", sample r#""/etc/sheaf/epn-{epn}.key""#;
        /// The certificate of the CA.
        ca: "", sample r#""/etc/sheaf/ca.pem""#;
        /// Whether STFs are encrypted, too: encrypted or crc-only (in the clear, from an FLP that proves nothing).
        bulk: "";
        /// How metrics, health and readiness are served: plain, or tls (for clients with a certificate of the farm).
        page: "";
        /// Whether nodes may talk in the clear off loopback, without certificates. Every status view shows it.
        insecure: "";
    }

    /// Where nodes are written down, and find each other (docs/how-to/zookeeper.md).
    table [membership] {
        /// embedded (the ICN knows them, and they find it by icn.address) or zookeeper.
        backend: "";
        /// The ZooKeeper servers, HOST:PORT each.
        servers: "";
        /// The path in ZooKeeper that everything of the farm stands under. Farms that share an ensemble have one
        /// each.
        root: "";
        /// How long a node that is not heard any more stays written down, in ms. Servers grant no less than two of
        /// their ticks.
        session_ms: "ms", whole(200, 60_000, "; servers grant no less than two of their ticks");
        /// The name that nodes log in with (digest). What they write is then for this name alone.
        user: "", sample r#""farm""#;
        /// Where its password stands, one line, mode 0600.
        password_file: "", sample r#""/etc/sheaf/zookeeper.password""#;
        /// Whether connections to the servers are encrypted. Off loopback they have to be, if security.insecure is
        /// not set.
        tls: "";
        /// The certificates that the servers' are signed with, as PEM.
        ca: "", sample r#""/etc/sheaf/zookeeper-ca.pem""#;
        /// The certificate that the node shows to servers, as PEM. {flp}, {epn} and {icn} stand for its index.
        certificate: "", sample r#""/etc/sheaf/epn-{epn}.pem""#;
        /// Private key of the node, mode 0600.
        key: "", sample r#""/etc/sheaf/epn-{epn}.key""#;
    }

    /// Logs of all nodes.
    table [log] {
        /// Level of log lines: off, error, warn, info, debug or trace; or levels by module, such as
        /// info,sheaf_node=debug. -v and -q of the command line, and RUST_LOG, count more.
        level: "", live "all nodes";
        /// Bytes after which an event log (--events) goes on in a new file. 0: no limit.
        events_bytes_max: "bytes", live "all nodes";
        /// Age in seconds after which an event log goes on in a new file. 0: no limit.
        events_age_s: "s", whole(0, 31_536_000, " s, a year"), live "all nodes";
    }

    /// Metrics of all nodes, sent to back ends beside the page that each node may serve
    /// (docs/how-to/metrics-from-your-program.md).
    table [metrics] {
        /// Back ends as URIs, such as "influxdb-udp://127.0.0.1:8089". --metrics-to of a node takes their place.
        backends: "";
        /// Collectors side by side as URIs: each node sends to one of them, by the policy maglev, and to another one
        /// while that takes nothing. The same list at all nodes (docs/how-to/monitor.md).
        collectors: "";
        /// Time between two samples. They are taken at multiples of it, so that sums over nodes line up.
        interval_ms: "ms", whole(10, 3_600_000, " ms, an hour");
        /// Metrics that are sent to back ends whose URI has no verbosity: prod, info or debug.
        verbosity: "", live "all nodes";
        /// Verbosity of metrics by name, PATTERN=VERBOSITY each, such as "^transport_=debug". The first pattern that
        /// matches counts.
        policy: "", live "all nodes";
        /// Name of the farm, the label farm of all that is sent. Empty: no such label.
        farm: "";
        /// Share of a core that sampling and sending take at most. Beyond it samples become rarer.
        cpu_share_max: "", real(0.0001, 1.0, "a share from 0.0001 to 1");
    }
}
