//! Benchmark of the STFs per second that one EPN puts into TFs.
//!
//! Workload: TFs of 8 and 250 STFs, each assigned, filled, reported, committed, delivered and released, 64 TFs in
//! building at the same time, whose STFs come in turns. Payloads are empty: this is the cost of the table, not of the
//! bytes. Unit: time a TF, and STFs a second. Aim on one core of 2020s server hardware: above a million STFs a second;
//! a detector of 250 FLPs at 351 TF/s brings 88,000 to the whole farm. `cargo bench --profile ci -p sheaf-tf-builder`
//! measures; under `cargo test` every bench runs once. The checksum tells whether two runs did the same work.

use divan::{Bencher, counter::ItemsCount};
use sheaf_protocol::control::{Assign, Commit, Release};
use sheaf_protocol::{
    Attempt, Control, EpnId, FlpId, Incarnation, PayloadFormat, RosterId, RunId, Source, StfHeader,
    StfKey, Target, TfId, Timestamp,
};
use sheaf_tf_builder::{Action, BuildConfig, TfBuilder};
use std::time::Duration;

const RUN: RunId = RunId(1);
/// TFs in building at the same time.
const ABREAST: u64 = 64;
/// STFs of a TF.
const FLPS: [u16; 2] = [8, 250];

fn main() {
    let rounds = if std::env::args().any(|arg| arg == "--bench") {
        20
    } else {
        1
    };
    for flps in FLPS {
        let mut epn = Epn::new(flps);
        (0..rounds).for_each(|_| epn.round());
        let stats = epn.builder.stats();
        assert_eq!(stats.delivered_complete, rounds * ABREAST);
        println!(
            "builder {flps:>3} FLPs: {} STFs in {} TFs, checksum {:016x}",
            stats.accepted_stfs, stats.delivered_complete, epn.checksum,
        );
    }
    divan::main();
}

struct Epn {
    builder: TfBuilder<()>,
    flps: u16,
    next: u64,
    now: Timestamp,
    checksum: u64,
}

fn source(flp: u16) -> Source {
    Source {
        flp: FlpId(flp),
        incarnation: Incarnation(1),
    }
}

fn header(tf: u64, flp: u16) -> StfHeader {
    StfHeader {
        key: StfKey {
            run: RUN,
            tf: TfId(tf),
            source: source(flp),
        },
        attempt: Attempt(1),
        format: PayloadFormat::Opaque,
        digest: u32::from(flp),
        payload_bytes: 0,
    }
}

impl Epn {
    fn new(flps: u16) -> Self {
        let mut builder = TfBuilder::new(BuildConfig::default());
        builder.handle_joined(Timestamp(0), RUN, false);
        let members: Vec<Source> = (0..flps).map(source).collect();
        builder.handle_roster(RosterId(1), &members);
        Self {
            builder,
            flps,
            next: 0,
            now: Timestamp(0),
            checksum: 0,
        }
    }

    /// Builds [`ABREAST`] TFs from their assignment to their release.
    fn round(&mut self) {
        let tfs = self.next..self.next + ABREAST;
        self.next = tfs.end;
        self.now.0 += 1_000_000;
        let target = Target {
            epn: EpnId(0),
            incarnation: Incarnation(1),
        };
        let assign = |tf| Assign {
            tf: TfId(tf),
            attempt: Attempt(1),
            target,
            roster: RosterId(1),
        };
        let assigns: Vec<Assign> = tfs.clone().map(assign).collect();
        self.builder.handle_assign(self.now, &assigns);
        for flp in 0..self.flps {
            for tf in tfs.clone() {
                let header = header(tf, flp);
                let taken =
                    self.builder
                        .handle_stf(self.now, &header, header.digest, (), Duration::ZERO);
                taken.expect("it is new and belongs here");
            }
        }
        self.act();
        self.builder.handle_release(&Release {
            version: self.next,
            floor: TfId(self.next),
            ranges: Vec::new(),
        });
    }

    /// Commits every reported TF and delivers every committed one, until no action is left.
    fn act(&mut self) {
        while let Some(action) = self.builder.poll_action() {
            match action {
                Action::Send(Control::Built(items)) => {
                    let commit = |tf| Commit {
                        tf,
                        is_redelivered: false,
                        missing: Vec::new(),
                    };
                    let commits: Vec<Commit> = items.iter().map(|item| commit(item.tf)).collect();
                    self.builder.handle_commit(self.now, &commits);
                }
                Action::Deliver(tf) => {
                    let parts = tf.parts.len() as u64;
                    self.checksum = self.checksum.wrapping_mul(31).wrapping_add(tf.tf.0 ^ parts);
                    self.builder
                        .handle_delivered(tf.run, tf.tf, tf.bytes(), tf.missing.len());
                }
                Action::Send(_)
                | Action::SendToFlp { .. }
                | Action::Recall { .. }
                | Action::Store(_)
                | Action::Unstore { .. }
                | Action::Recover { .. } => {}
            }
        }
    }
}

#[divan::bench(args = FLPS)]
fn tfs_64_abreast(bencher: Bencher<'_, '_>, flps: u16) {
    let mut epn = Epn::new(flps);
    let stfs = ABREAST * u64::from(flps);
    bencher
        .counter(ItemsCount::new(stfs))
        .bench_local(|| epn.round());
}
