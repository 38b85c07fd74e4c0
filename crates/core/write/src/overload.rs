//! Overload by name, and the classes of streams that are shed one behind the other.

use crate::id::StreamId;
use sheaf_protect::protect;

/// Behaviour when the disks take no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// Records wait, and those who bring them.
    #[default]
    Block,
    /// Records of the lowest classes of streams are shed; those of the highest wait.
    Shed,
    /// Records go to a further disk, the last one.
    Spill,
}

impl Overload {
    const ALL: [Self; 3] = [Self::Block, Self::Shed, Self::Spill];

    /// Name in farm files and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Shed => "shed",
            Self::Spill => "spill",
        }
    }

    /// Finds the behaviour of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Reason why a record was shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShedReason {
    /// The queues to the disks are filled above their watermark.
    Queue,
    /// The disks have less free than their watermark.
    Space,
    /// All disks fail or are slow.
    Disk,
}

impl ShedReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Queue, Self::Space, Self::Disk];

    /// Name in event logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Space => "space",
            Self::Disk => "disk",
        }
    }
}

/// Pressure at which no record but those of the highest class is taken.
const FULL: i64 = 1000;
/// Pressure by which it has to fall below the one at which a class was shed, for the class to be taken again.
const BAND: i64 = 250;

/// Pressure on the disks: 0 at the watermark, [`FULL`] where nothing is left, below 0 in front of the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pressure {
    permille: i64,
    reason: ShedReason,
}

impl Pressure {
    /// Returns the pressure at which all but the highest class is shed.
    pub(crate) fn full(reason: ShedReason) -> Self {
        Self {
            permille: FULL,
            reason,
        }
    }

    /// Returns the pressure of a value between a watermark and an end, which may lie below it.
    pub(crate) fn between(value: u64, watermark: u64, end: u64, reason: ShedReason) -> Self {
        let [value, watermark, end] = [value, watermark, end].map(i128::from);
        // Both positive where the value falls towards the end.
        let sign = if end < watermark { -1 } else { 1 };
        let (span, gone) = (sign * (end - watermark), sign * (value - watermark));
        let permille = match span {
            0 if gone >= 0 => FULL,
            0 => -FULL,
            _ => {
                // Rounded down: 0 only from the watermark on.
                let permille = (gone * i128::from(FULL)).div_euclid(span);
                let permille = permille.clamp(i128::from(-FULL), i128::from(FULL));
                i64::try_from(permille).expect("it is small")
            }
        };
        Self { permille, reason }
    }

    pub(crate) fn max(self, other: Self) -> Self {
        if other.permille > self.permille {
            other
        } else {
            self
        }
    }

    pub(crate) fn min(self, other: Self) -> Self {
        if other.permille < self.permille {
            other
        } else {
            self
        }
    }
}

/// Chooser of the classes that are shed: the lowest first, and each taken again only when the pressure has fallen
/// well below the one at which it was shed.
#[derive(Debug)]
pub(crate) struct Shedder {
    /// Rank of the class of each stream, from 0 for the lowest.
    ranks: Vec<usize>,
    /// Number of classes.
    classes: usize,
    /// Number of classes, from the lowest, that are shed.
    level: usize,
    reason: ShedReason,
}

impl Shedder {
    /// Creates a chooser that sheds nothing, for streams of these classes.
    pub(crate) fn new(classes: &[u16]) -> Self {
        let mut sorted = classes.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let rank = |class: &u16| sorted.partition_point(|other| other < class);
        Self {
            ranks: classes.iter().map(rank).collect(),
            classes: sorted.len(),
            level: 0,
            reason: ShedReason::Queue,
        }
    }

    /// Sets the pressure, by which classes are shed or taken again.
    pub(crate) fn set_pressure(&mut self, pressure: Pressure) {
        // Classes that may be shed: all but the highest.
        let sheddable = protect!(TopClassKept, self.classes.saturating_sub(1), else self.classes);
        let count = |permille: i64| {
            let from = |at: usize| FULL * at as i64 / sheddable.max(1) as i64;
            (0..sheddable).filter(|at| permille >= from(*at)).count()
        };
        let (rising, falling) = (
            count(pressure.permille),
            count(pressure.permille.saturating_add(BAND)),
        );
        let level = self.level.clamp(rising, falling.max(rising));
        if level > self.level || (level > 0 && rising >= level) {
            self.reason = pressure.reason;
        }
        self.level = level;
    }

    /// Returns why records of `stream` are shed now; `None` if they are not.
    pub(crate) fn sheds(&self, stream: StreamId) -> Option<ShedReason> {
        let rank = *self.ranks.get(usize::from(stream.0))?;
        (rank < self.level).then_some(self.reason)
    }

    /// Returns the number of classes that are shed.
    pub(crate) fn level(&self) -> usize {
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of three streams of the classes 5, 9 and 1 are shed after each fill of a queue, in percent.
    fn shed(fills: &[u64]) -> Vec<String> {
        let mut shedder = Shedder::new(&[5, 9, 1]);
        let after = |fill: &u64| {
            shedder.set_pressure(Pressure::between(*fill, 60, 100, ShedReason::Queue));
            let mark = |stream| match shedder.sheds(StreamId(stream)) {
                Some(_) => '-',
                None => '+',
            };
            (0..3).map(mark).collect()
        };
        fills.iter().map(after).collect()
    }

    #[test]
    fn classes_are_shed_from_the_lowest_and_the_highest_never() {
        assert_eq!(
            shed(&[0, 59, 60, 79, 80, 100, 500]),
            ["+++", "+++", "++-", "++-", "-+-", "-+-", "-+-"]
        );
    }

    #[test]
    fn a_class_is_taken_again_well_below_the_watermark_at_which_it_was_shed() {
        assert_eq!(
            shed(&[60, 55, 51, 50, 49, 60, 80, 71, 69, 49]),
            [
                "++-", "++-", "++-", "++-", "+++", "++-", "-+-", "-+-", "++-", "+++"
            ]
        );
    }

    #[test]
    fn pressure_of_free_space_grows_as_it_falls() {
        let of = |free| Pressure::between(free, 100, 60, ShedReason::Space).permille;
        assert_eq!(
            [of(200), of(100), of(80), of(60), of(0)],
            [-FULL, 0, 500, FULL, FULL]
        );
    }

    #[test]
    fn without_classes_nothing_is_shed() {
        let mut shedder = Shedder::new(&[3, 3]);
        shedder.set_pressure(Pressure::full(ShedReason::Disk));
        assert_eq!((shedder.sheds(StreamId(0)), shedder.level()), (None, 0));
        assert_eq!(shedder.sheds(StreamId(7)), None, "no such stream");
    }

    #[test]
    fn names_are_found() {
        for overload in Overload::ALL {
            assert_eq!(Overload::named(overload.name()), Some(overload));
        }
        assert_eq!(Overload::named("drop"), None);
    }
}
