use super::*;

/// Records of the tests have this many bytes; a queue takes 10 of them.
const BYTES: u64 = 100;
const SLOW: Duration = Duration::from_secs(2);
const SPACE: Space = Space {
    min_bytes: 1 << 30,
    low_bytes: 2 << 30,
};

fn config(disks: u32, overload: Overload, classes: &[u16]) -> IntakeConfig {
    IntakeConfig {
        disks,
        assignment: Assignment::named("open-rate").expect("it is in the table"),
        overload,
        classes: classes.to_vec(),
        queue_bytes: 10 * BYTES,
        queue_records: 1000,
        queue_high_percent: 60,
        space: SPACE,
        slow: SLOW,
        seed: 1,
    }
}

/// An intake with what stands for its writers: open files, and records that are held.
struct Test {
    intake: Intake,
    now: Timestamp,
    open: Vec<(TargetId, Place)>,
    loads: Vec<DiskLoad>,
}

impl Test {
    fn new(disks: u32, overload: Overload, classes: &[u16]) -> Self {
        Self {
            intake: Intake::new(config(disks, overload, classes)).expect("a good configuration"),
            now: Timestamp(0),
            open: Vec::new(),
            loads: vec![DiskLoad::default(); disks as usize],
        }
    }

    /// Lets a disk hold so many records, and fail or not.
    fn set(&mut self, disk: u32, records: u64, is_failing: bool) {
        let load = &mut self.loads[disk as usize];
        load.held_records = records;
        load.held_bytes = records * BYTES;
        load.is_failing = is_failing;
        self.intake.handle_load(self.now, TargetId(disk), *load);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for (disk, load) in (0..).zip(&self.loads) {
            self.intake.handle_load(self.now, TargetId(disk), *load);
        }
    }

    /// Plans one record of each of some streams in a block: `0` and so on for the disk, `s` for shed; `wait`.
    fn plan(&mut self, block: u64, streams: &[u16]) -> String {
        let want = |stream: &u16| Want {
            place: Place {
                run: 1,
                stream: StreamId(*stream),
                block,
            },
            bytes: BYTES,
        };
        let wants: Vec<Want> = streams.iter().map(want).collect();
        let open = &self.open;
        let is_open = |disk: TargetId, place: Place| open.contains(&(disk, place));
        let Some(plan) = self.intake.plan(self.now, &wants, &is_open) else {
            return "wait".to_owned();
        };
        let mut text = String::new();
        for (planned, want) in plan.iter().zip(&wants) {
            match planned {
                Planned::Shed(_) => text.push('s'),
                Planned::Write(disk) => {
                    self.open.retain(|(_, place)| *place != want.place);
                    self.open.push((*disk, want.place));
                    text.push_str(&disk.0.to_string());
                }
            }
        }
        text
    }

    fn news(&mut self) -> Vec<DiskNews> {
        std::iter::from_fn(|| self.intake.poll()).collect()
    }
}

#[test]
fn files_are_spread_over_disks_and_records_follow_their_file() {
    let mut test = Test::new(2, Overload::Block, &[0, 0, 0]);
    assert_eq!(test.plan(0, &[0, 1]), "01");
    for _ in 0..3 {
        assert_eq!(test.plan(0, &[0]), "0");
        assert_eq!(test.plan(0, &[1]), "1");
    }
}

#[test]
fn a_disk_with_more_free_space_gets_more_files() {
    let streams = [0; 8];
    let mut test = Test::new(2, Overload::Block, &streams);
    test.intake.handle_free(TargetId(0), Some(100 << 30));
    test.intake.handle_free(TargetId(1), Some(300 << 30));
    let plan = test.plan(0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(plan.matches('1').count(), 6, "{plan}");
}

#[test]
fn a_disk_that_fails_or_is_slow_gets_nothing_until_it_has_been_well() {
    for is_failing in [true, false] {
        let mut test = Test::new(2, Overload::Block, &[0]);
        assert_eq!(test.plan(0, &[0]), "0");
        test.set(0, 1, is_failing);
        test.loads[0].oldest = Some(test.now);
        test.pass(SLOW);
        assert_eq!(test.plan(0, &[0]), "1");
        let why = if is_failing {
            LeftOut::Failing
        } else {
            LeftOut::Slow
        };
        assert_eq!(test.news(), [DiskNews::LeftOut(TargetId(0), why)]);
        assert_eq!(test.intake.left_out(TargetId(0)), Some(why));
        assert!(test.intake.can_write());
        // Well again: first for a while, then for good.
        test.loads[0] = DiskLoad::default();
        test.pass(Duration::ZERO);
        assert_eq!(test.plan(1, &[0]), "1");
        test.pass(Duration::from_secs(5));
        assert_eq!(test.news(), [DiskNews::Back(TargetId(0))]);
        test.set(1, 10, false);
        assert_eq!(test.plan(2, &[0]), "0");
    }
}

#[test]
fn without_a_disk_that_is_well_records_are_taken_up_to_the_bound_of_the_queue() {
    let mut test = Test::new(2, Overload::Block, &[0]);
    test.set(0, 10, true);
    test.set(1, 9, true);
    assert!(!test.intake.can_write());
    assert_eq!(test.plan(0, &[0]), "1");
    test.set(1, 10, true);
    assert_eq!(test.plan(0, &[0]), "wait");
    // What waits is not counted.
    assert_eq!(test.intake.fates(StreamId(0), []).announced, 1);
}

#[test]
fn a_disk_below_its_watermark_gets_nothing_even_if_no_other_is_well() {
    let mut test = Test::new(2, Overload::Block, &[0]);
    test.intake
        .handle_free(TargetId(0), Some(SPACE.min_bytes - 1));
    test.set(1, 0, true);
    assert_eq!(test.plan(0, &[0]), "1", "it fails, and is tried again");
    test.set(1, 10, true);
    assert_eq!(test.plan(0, &[0]), "wait");
    test.intake
        .handle_free(TargetId(0), Some(SPACE.low_bytes - 1));
    assert_eq!(test.plan(0, &[0]), "wait", "the upper watermark counts");
    test.intake.handle_free(TargetId(0), Some(SPACE.low_bytes));
    assert_eq!(test.plan(0, &[0]), "0");
}

#[test]
fn classes_are_shed_by_the_emptiest_queue_and_counted() {
    let mut test = Test::new(2, Overload::Shed, &[7, 1, 4]);
    test.set(0, 10, false);
    test.set(1, 5, false);
    assert_eq!(test.plan(0, &[0, 1, 2]), "111");
    test.set(1, 6, false);
    assert_eq!(test.plan(0, &[0, 1, 2]), "1s1");
    test.set(1, 8, false);
    assert_eq!(test.plan(0, &[0, 1, 2]), "1ss");
    test.set(1, 10, false);
    assert_eq!(
        test.plan(0, &[0, 1, 2]),
        "wait",
        "the highest class is not shed"
    );
    assert_eq!(test.plan(0, &[1, 2]), "ss");
    let fates = |test: &Test, stream| {
        let fates = test.intake.fates(StreamId(stream), []);
        (fates.announced, fates.shed)
    };
    assert_eq!(
        [fates(&test, 0), fates(&test, 1), fates(&test, 2)],
        [(3, 0), (4, 3), (4, 2)]
    );
    let lost = test.intake.lost(StreamId(1));
    assert_eq!((lost.shed, lost.shed_bytes), ([3, 0, 0], 3 * BYTES));
    test.set(1, 0, false);
    assert_eq!(test.plan(0, &[0, 1, 2]), "111");
    assert_eq!(
        test.news(),
        [1, 2, 0].map(DiskNews::Shedding),
        "each change once"
    );
}

#[test]
fn classes_are_shed_as_the_space_runs_out() {
    let mut test = Test::new(1, Overload::Shed, &[1, 2]);
    let mut after = |free: u64| {
        test.intake.handle_free(TargetId(0), Some(free));
        let plan = test.plan(0, &[0, 1]);
        (plan, test.intake.lost(StreamId(0)).shed)
    };
    assert_eq!(after(SPACE.low_bytes + 1), ("00".to_owned(), [0, 0, 0]));
    assert_eq!(after(SPACE.low_bytes), ("s0".to_owned(), [0, 1, 0]));
    assert_eq!(after(SPACE.min_bytes - 1), ("wait".to_owned(), [0, 1, 0]));
    test.set(0, 0, true);
    test.intake
        .handle_free(TargetId(0), Some(SPACE.low_bytes * 2));
    assert_eq!(test.plan(0, &[0, 1]), "s0");
    let lost = test.intake.lost(StreamId(0));
    assert_eq!(lost.shed, [0, 1, 1], "the disk fails");
}

#[test]
fn records_spill_while_no_disk_has_room_and_come_back_when_it_is_half_empty() {
    let mut test = Test::new(2, Overload::Spill, &[0]);
    assert_eq!(test.plan(0, &[0]), "0");
    test.set(0, 10, false);
    assert_eq!(test.plan(0, &[0]), "1");
    test.set(0, 6, false);
    assert_eq!(test.plan(0, &[0]), "1");
    test.set(0, 5, false);
    assert_eq!(test.plan(0, &[0]), "0");
    assert_eq!(
        test.news(),
        [DiskNews::Spilling(true), DiskNews::Spilling(false)]
    );
    test.intake.handle_free(TargetId(0), Some(0));
    assert_eq!(test.plan(0, &[0]), "1");
    test.set(1, 10, false);
    assert_eq!(test.plan(0, &[0]), "wait");
    assert_eq!(test.intake.lost(StreamId(0)).spilled, 3);
}

#[test]
fn fates_add_up() {
    let mut test = Test::new(1, Overload::Shed, &[1, 2]);
    test.set(0, 7, false);
    assert_eq!(test.plan(0, &[0, 1]), "s0");
    test.intake.handle_refused(StreamId(1));
    let counts = Counts {
        written_records: 4,
        ..Counts::default()
    };
    let fates = test.intake.fates(StreamId(1), [(counts, 1)]);
    let expected = Fates {
        announced: 1,
        written: 4,
        shed: 0,
        refused: 1,
        in_flight: 1,
    };
    assert_eq!((fates, fates.is_balanced()), (expected, false));
    let fates = test.intake.fates(StreamId(0), []);
    assert!(fates.is_balanced() && fates.shed == 1, "{fates:?}");
}

#[test]
fn configurations_that_contradict_themselves_are_refused() {
    let refused = |change: fn(&mut IntakeConfig)| {
        let mut config = config(2, Overload::Block, &[1, 2]);
        change(&mut config);
        Intake::new(config).map(|_| ()).expect_err("refused")
    };
    assert_eq!(
        refused(|config| config.disks = 0),
        IntakeError::Disks { found: 0, min: 1 }
    );
    assert_eq!(
        refused(|config| (config.disks, config.overload) = (1, Overload::Spill)),
        IntakeError::Disks { found: 1, min: 2 }
    );
    assert_eq!(
        refused(|config| {
            config.overload = Overload::Shed;
            config.classes = vec![2, 2];
        }),
        IntakeError::Classes
    );
    assert_eq!(
        refused(|config| config.space.low_bytes = config.space.min_bytes),
        IntakeError::Space {
            low: 1 << 30,
            min: 1 << 30
        }
    );
    assert_eq!(
        refused(|config| config.queue_high_percent = 100),
        IntakeError::Queue { found: 100 }
    );
}
