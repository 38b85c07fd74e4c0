//! Everything that a seed of the family `monitor` stands for.

use crate::dice::Dice;
use sheaf_intake::IntakeConfig;
use sheaf_processing::ProcessingConfig;
use sheaf_sample_store::Config;

/// Length of a turn: how often the collector looks at its sockets, in ms.
pub(super) const TURN_MS: i64 = 25;
/// A multiple of every partition's length, some time in this century.
pub(super) const BEGIN_MS: i64 = 86_400_000 * 240 * 85;
const DAY_MS: i64 = 86_400_000;

/// Way of a client to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Packed datagrams of line protocol, with the count of what was sent.
    Datagrams,
    /// Requests of remote write, repeated until they are acknowledged.
    RemoteWrite,
    /// Requests of line protocol, repeated until they are acknowledged.
    Lines,
}

/// One client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// Way to the collector.
    pub way: Way,
    /// Turns between two flushes.
    pub every: u64,
    /// Series of each of its metrics.
    pub series: u32,
    /// Bytes of a datagram at most.
    pub datagram_bytes: usize,
}

/// Network between clients and collector, in thousandths of the datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkOptions {
    /// Datagrams that are lost.
    pub lost: u64,
    /// Datagrams that arrive twice.
    pub twice: u64,
    /// Datagrams of which the last line is cut.
    pub cut: u64,
    /// Datagrams that others overtake.
    pub late: u64,
    /// How late those are at most, in ms.
    pub late_ms: u64,
    /// Time of every datagram, in ms.
    pub delay_ms: u64,
    /// Answers to requests that are lost.
    pub answers_lost: u64,
}

/// Operators between intake and store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operators {
    /// Refresh of the suppression of `state`, in ms; 0: not suppressed.
    pub refresh_ms: i64,
    /// Whether `noise` is discarded.
    pub discards: bool,
    /// Whether `old_level` becomes `level`.
    pub renames: bool,
    /// Windows over `work`.
    pub window: Option<WindowOptions>,
}

/// Windows over `work`: count, sum and max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowOptions {
    /// Length, in ms.
    pub length_ms: i64,
    /// How long a window waits, in ms.
    pub late_ms: i64,
    /// Whether each source has windows of its own.
    pub by_source: bool,
}

/// How far a sample may be ahead of the clock for a window, in ms.
pub(super) const AHEAD_MS: i64 = 5_000;

impl Operators {
    /// The configuration.
    pub(super) fn config(&self) -> ProcessingConfig {
        let mut text = String::new();
        if self.refresh_ms > 0 {
            text += &format!(
                "[[operator]]\nkind = 'on_change'\nid = 'same'\nselect = 'state'\nrefresh_ms = {}\n",
                self.refresh_ms
            );
        }
        if self.discards {
            text += "[[operator]]\nkind = 'discard'\nid = 'noise'\nselect = 'noise'\n";
        }
        if self.renames {
            text += "[[operator]]\nkind = 'rename'\nid = 'old'\nmetric = 'old_(.*)'\nto = '$1'\n";
        }
        if let Some(window) = self.window {
            let by = if window.by_source { "'source'" } else { "" };
            text += &format!(
                "[[operator]]\nkind = 'window'\nid = 'work'\nselect = 'work'\n\
                 functions = ['count', 'sum', 'max']\nlength_ms = {}\nlate_ms = {}\n\
                 ahead_ms = {AHEAD_MS}\nby = [{by}]\n",
                window.length_ms, window.late_ms
            );
        }
        toml::from_str(&text).expect("a configuration that this module writes")
    }

    fn draw(dice: &mut Dice) -> Self {
        Self {
            refresh_ms: dice.pick(&[0, 500, 2_000, 60_000]),
            discards: dice.chance(50),
            renames: dice.chance(50),
            window: dice.chance(80).then(|| WindowOptions {
                length_ms: dice.pick(&[100, 500, 1_000, 3_000]),
                late_ms: dice.pick(&[0, 100, 500]),
                by_source: dice.chance(50),
            }),
        }
    }

    /// Draws operators that differ from these in one thing or in none.
    fn draw_other(self, dice: &mut Dice) -> Self {
        let other = Self::draw(dice);
        match dice.range(0, 5) {
            0 => self,
            1 => Self {
                refresh_ms: other.refresh_ms,
                ..self
            },
            2 => Self {
                discards: !self.discards,
                ..self
            },
            3 => Self {
                renames: !self.renames,
                ..self
            },
            4 => Self {
                window: other.window,
                ..self
            },
            _ => other,
        }
    }
}

/// Death of the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Whether the machine loses power: what was not synced is gone, or a part of it.
    pub is_cut: bool,
    /// Steps of the disk that still happen: the death comes in the middle of a commit or of upkeep. 0: at once.
    pub after_steps: u64,
    /// Turns until it is started again.
    pub down: u64,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The collector dies.
    Die(Death),
    /// The disk has no room for so many turns.
    Full(u64),
    /// Every step of the disk takes so many ms, for so many turns.
    Slow(i64, u64),
    /// The next syncs of the log are refused, as those of a disk that fills up under it.
    RefuseSyncs(u64),
    /// The clock of the collector steps, in ms.
    CollectorClock(i64),
    /// The clock of a client steps, in ms.
    ClientClock(u16, i64),
    /// A client ends, and another process takes its place: its counts begin again.
    Restart(u16),
    /// A client sends so many new series with each flush, for so many flushes.
    Explode(u16, u32, u32),
    /// A client sends so many lines that are none, with its next flush.
    BadLines(u16, u32),
    /// Other operators.
    Reload(Operators),
    /// Nothing happens anywhere for so many ms.
    Gap(i64),
}

/// All that is drawn from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorOptions {
    /// The seed.
    pub seed: u64,
    /// The clients.
    pub clients: Vec<ClientOptions>,
    /// The network.
    pub network: NetworkOptions,
    /// Turns with faults; some more follow without.
    pub turns: u64,
    /// Bounds of each source.
    pub intake: IntakeConfig,
    /// Operators at the begin.
    pub operators: Operators,
    /// Settings of the store.
    pub store: Config,
    /// Period of commits, in ms.
    pub commit_ms: u64,
    /// Samples that may wait for the store.
    pub queue_max: usize,
    /// Datagrams that the kernel keeps for the collector.
    pub kernel_max: usize,
    /// Whether the oldest samples go when the disk is full.
    pub drops_oldest: bool,
    /// Faults, by the turn in which they come, in order.
    pub faults: Vec<(u64, Fault)>,
}

impl MonitorOptions {
    /// Draws the options of `seed`.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x6d6f_6e69_746f_7200);
        let dice = &mut dice;
        let clients = dice.range(1, 5);
        let clients = (0..clients).map(|_| draw_client(dice)).collect::<Vec<_>>();
        let turns = dice.range(60, 320);
        let operators = Operators::draw(dice);
        let mut options = Self {
            seed,
            network: draw_network(dice),
            turns,
            intake: IntakeConfig {
                series_per_source_max: dice.pick(&[20, 40, 100_000]),
                new_series_burst: dice.pick(&[20, 60, 100_000]),
                new_series_per_s: dice.pick(&[1, 10]),
                cut_off_s: dice.pick(&[1, 3]),
                past_max_s: dice.pick(&[60, 3_600, 86_400]),
                future_max_s: dice.pick(&[5, 600]),
                // Series do not end within a seed.
                series_idle_s: 1_000_000_000,
                evict_after_s: 1_000_000_000,
                ..IntakeConfig::default()
            },
            operators,
            store: draw_store(dice),
            commit_ms: dice.pick(&[50, 100, 100, 200]),
            queue_max: dice.pick(&[20, 100, 1_000]),
            kernel_max: dice.pick(&[8, 40, 200]),
            drops_oldest: dice.chance(50),
            faults: Vec::new(),
            clients,
        };
        options.draw_faults(dice);
        options
    }

    fn draw_faults(&mut self, dice: &mut Dice) {
        // Each seed enables some kinds and weighs them.
        let weights: Vec<u64> = (0..11)
            .map(|_| if dice.chance(60) { dice.range(1, 5) } else { 0 })
            .collect();
        let total: u64 = weights.iter().sum();
        let count = if total == 0 { 0 } else { dice.range(0, 14) };
        let mut operators = self.operators;
        let mut turns: Vec<u64> = (0..count).map(|_| dice.range(1, self.turns)).collect();
        turns.sort_unstable();
        for turn in turns {
            let mut at = dice.range(0, total - 1);
            let kind = weights.iter().position(|&weight| {
                let is_it = at < weight;
                at = at.saturating_sub(weight);
                is_it
            });
            let client = u16::try_from(dice.range(0, self.clients.len() as u64 - 1));
            let client = client.expect("few clients");
            let fault = match kind.unwrap_or(0) {
                0 => Fault::Die(Death {
                    is_cut: false,
                    after_steps: dice.pick(&[0, 1, 2, 3, 5, 9]),
                    down: dice.range(0, 30),
                }),
                1 => Fault::Die(Death {
                    is_cut: true,
                    after_steps: dice.pick(&[0, 1, 2, 3, 5, 9]),
                    down: dice.range(0, 30),
                }),
                2 => Fault::Full(dice.range(1, 60)),
                3 => Fault::Slow(dice.pick(&[20, 150, 900]), dice.range(5, 60)),
                4 => Fault::RefuseSyncs(dice.range(1, 4)),
                5 => Fault::CollectorClock(draw_step(dice)),
                6 => Fault::ClientClock(client, draw_step(dice)),
                7 => Fault::Restart(client),
                8 if dice.chance(50) => Fault::BadLines(client, draw_count(dice, 1, 4)),
                8 => Fault::Explode(client, draw_count(dice, 5, 40), draw_count(dice, 1, 6)),
                9 => {
                    operators = operators.draw_other(dice);
                    Fault::Reload(operators)
                }
                _ => Fault::Gap(dice.pick(&[2_000, 90_000, 4_000_000, DAY_MS, DAY_MS * 5 / 4])),
            };
            self.faults.push((turn, fault));
        }
    }
}

fn draw_count(dice: &mut Dice, low: u64, high: u64) -> u32 {
    u32::try_from(dice.range(low, high)).expect("a small number")
}

fn draw_step(dice: &mut Dice) -> i64 {
    let length = dice.pick(&[30, 400, 3_000, 20_000, 7_200_000]);
    if dice.chance(50) { length } else { -length }
}

fn draw_client(dice: &mut Dice) -> ClientOptions {
    ClientOptions {
        way: dice.pick(&[
            Way::Datagrams,
            Way::Datagrams,
            Way::Datagrams,
            Way::RemoteWrite,
            Way::Lines,
        ]),
        every: dice.range(1, 12),
        series: draw_count(dice, 1, 3),
        datagram_bytes: dice.pick(&[160, 400, 1432]),
    }
}

fn draw_network(dice: &mut Dice) -> NetworkOptions {
    let mut some = |max| {
        if dice.chance(60) {
            dice.range(0, max)
        } else {
            0
        }
    };
    NetworkOptions {
        lost: some(150),
        twice: some(100),
        cut: some(60),
        late: some(200),
        late_ms: 1 + some(1500),
        delay_ms: some(40),
        answers_lost: some(200),
    }
}

fn draw_store(dice: &mut Dice) -> Config {
    Config {
        series_max: 10_000,
        late_ms: dice.pick(&[1_000, 60_000, 3_600_000]),
        future_ms: 600_000,
        seal_samples: dice.pick(&[4, 20, 1024]),
        seal_age_ms: dice.pick(&[1_000, 60_000, 600_000]),
        flush_bytes: dice.pick(&[500, 4_096, 16 << 20]),
        flush_age_ms: dice.pick(&[500, 5_000, 60_000]),
        reserve_bytes: 1000,
        cache_bytes: 1 << 20,
        // Nothing is too old within a seed.
        raw_ms: 1000 * DAY_MS,
        ten_seconds_ms: 1000 * DAY_MS,
        minute_ms: 1000 * DAY_MS,
        hour_ms: 1000 * DAY_MS,
        ..Config::default()
    }
}
