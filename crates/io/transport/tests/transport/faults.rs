//! The memory network: same seed, same events; and every fault does what its name says.

use crate::stf;
use sheaf_protocol::Timestamp;
use sheaf_transport::memory::{Death, Faults, Memory, Network};
use sheaf_transport::{CloseReason, ConnId, Event, SendError, Transport};
use std::io::ErrorKind;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Two endpoints, "a" and "b", and a connection from a to b.
struct Scene {
    network: Network,
    a: Memory,
    b: Memory,
    at_a: ConnId,
    at_b: ConnId,
}

impl Scene {
    /// A connection made without faults, on a network that has `faults` from then on.
    fn new(seed: u64, faults: Faults) -> Self {
        let network = Network::new(seed, Faults::default());
        let (mut a, mut b) = (network.endpoint("a"), network.endpoint("b"));
        b.listen("b:1").unwrap();
        let at_a = a.connect("b:1").unwrap();
        let accepted = events(&mut b);
        let [
            Event::Accepted {
                conn: at_b, peer, ..
            },
        ] = accepted.as_slice()
        else {
            panic!("{accepted:?}");
        };
        assert_eq!(peer, "a");
        assert_eq!(events(&mut a), [Event::Connected { conn: at_a }]);
        network.set_faults(faults);
        Self {
            network,
            at_b: *at_b,
            a,
            b,
            at_a,
        }
    }

    fn send(&mut self, numbers: impl IntoIterator<Item = u8>) {
        for number in numbers {
            self.a.send(self.at_a, stf(number, 10)).unwrap();
        }
    }

    /// Everything that arrives at b until nothing is under way, as the number of each frame.
    fn arrivals(&mut self) -> Vec<u8> {
        let mut numbers = Vec::new();
        while let Some(due) = self.network.next_due() {
            self.network.advance_to(due);
            numbers.extend(events(&mut self.b).iter().filter_map(number));
            events(&mut self.a);
        }
        numbers
    }
}

fn events(endpoint: &mut Memory) -> Vec<Event> {
    let mut events = Vec::new();
    endpoint.poll(&mut events, None).unwrap();
    events
}

fn number(event: &Event) -> Option<u8> {
    match event {
        Event::Received { frame, .. } => Some(frame.head[0]),
        _ => None,
    }
}

const ROUGH: Faults = Faults {
    delay_min: Duration::from_micros(100),
    delay_max: MS,
    loss: 0.1,
    duplicate: 0.1,
    reorder: 0.1,
    late_max: Duration::from_millis(3),
    reset: 0.0,
    corrupt: 0.01,
};

#[test]
fn equal_seeds_and_calls_give_equal_events() {
    let run = |seed| {
        let mut scene = Scene::new(seed, ROUGH);
        scene.send(0..200);
        (
            scene.arrivals(),
            scene.network.now(),
            scene.network.totals(),
        )
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn delayed_frames_keep_their_order_and_come_when_they_are_due() {
    let faults = Faults {
        delay_min: MS,
        delay_max: 5 * MS,
        ..Faults::default()
    };
    let mut scene = Scene::new(3, faults);
    scene.send(0..50);
    scene.network.advance_to(Timestamp::default() + MS / 2);
    assert_eq!(events(&mut scene.b), []);
    assert!(scene.network.next_due().unwrap() >= Timestamp::default() + MS);
    assert!(scene.arrivals().into_iter().eq(0..50));
}

#[test]
fn lost_and_doubled_frames_are_counted() {
    let mut scene = Scene::new(
        4,
        Faults {
            loss: 0.5,
            ..Faults::default()
        },
    );
    scene.send(0..100);
    let arrived = scene.arrivals();
    let totals = scene.network.totals();
    assert!(
        arrived.is_sorted() && (30..70).contains(&arrived.len()),
        "{arrived:?}"
    );
    assert_eq!(
        (totals.sent, totals.vanished),
        (100, 100 - arrived.len() as u64)
    );
    assert_eq!(scene.a.queued_bytes(scene.at_a), 0);

    let mut scene = Scene::new(
        5,
        Faults {
            duplicate: 0.5,
            ..Faults::default()
        },
    );
    scene.send(0..100);
    let mut arrived = scene.arrivals();
    assert_eq!(
        arrived.len() as u64,
        100 + scene.network.totals().duplicated
    );
    arrived.sort_unstable();
    arrived.dedup();
    assert!(arrived.into_iter().eq(0..100));
}

#[test]
fn reordered_frames_are_overtaken_and_none_is_lost() {
    let mut scene = Scene::new(
        6,
        Faults {
            reorder: 0.2,
            late_max: MS,
            ..Faults::default()
        },
    );
    scene.send(0..100);
    let mut arrived = scene.arrivals();
    assert!(!arrived.is_sorted());
    assert!(scene.network.totals().reordered > 5);
    arrived.sort_unstable();
    assert!(arrived.into_iter().eq(0..100));
}

#[test]
fn a_reset_closes_both_ends_once() {
    let mut scene = Scene::new(
        7,
        Faults {
            reset: 1.0,
            ..Faults::default()
        },
    );
    scene.send([0]);
    let reset = |conn| Event::Closed {
        conn,
        reason: CloseReason::Reset,
    };
    assert_eq!(events(&mut scene.b), [reset(scene.at_b)]);
    assert_eq!(events(&mut scene.a), [reset(scene.at_a)]);
    assert_eq!(scene.a.send(scene.at_a, stf(1, 1)), Err(SendError::Closed));
    assert_eq!(
        (events(&mut scene.a), events(&mut scene.b)),
        (vec![], vec![])
    );
}

#[test]
fn a_cut_swallows_silently_until_it_is_healed() {
    let mut scene = Scene::new(
        8,
        Faults {
            delay_min: MS,
            delay_max: MS,
            ..Faults::default()
        },
    );
    scene.send([0]);
    scene.network.cut("a", "b");
    scene.send([1]);
    assert_eq!(scene.arrivals(), []);
    scene.network.heal("a", "b");
    scene.send([2]);
    assert_eq!(scene.arrivals(), [2]);
    scene.network.cut_one_way("b", "a");
    scene.b.send(scene.at_b, stf(3, 1)).unwrap();
    scene.send([4]);
    assert_eq!(scene.arrivals(), [4]);
    assert_eq!(scene.network.totals().vanished, 3);
}

#[test]
fn a_connection_that_nobody_answers_times_out() {
    let mut scene = Scene::new(9, Faults::default());
    scene.network.cut("a", "b");
    let conn = scene.a.connect("b:1").unwrap();
    assert_eq!(events(&mut scene.b), []);
    scene.network.advance_to(Timestamp::default() + 3000 * MS);
    let reason = CloseReason::Unreachable(ErrorKind::TimedOut);
    assert_eq!(events(&mut scene.a), [Event::Closed { conn, reason }]);
}

#[test]
fn a_death_that_is_seen_resets_and_refuses() {
    let mut scene = Scene::new(10, Faults::default());
    scene.b.send(scene.at_b, stf(1, 1)).unwrap();
    scene.network.kill("b", Death::Seen);
    let seen = events(&mut scene.a);
    assert_eq!(
        number(&seen[0]),
        Some(1),
        "what was sent before arrives: {seen:?}"
    );
    assert_eq!(
        seen[1..],
        [Event::Closed {
            conn: scene.at_a,
            reason: CloseReason::Reset
        }]
    );
    assert_eq!(scene.b.send(scene.at_b, stf(2, 1)), Err(SendError::Closed));
    let conn = scene.a.connect("b:1").unwrap();
    let reason = CloseReason::Unreachable(ErrorKind::ConnectionRefused);
    assert_eq!(events(&mut scene.a), [Event::Closed { conn, reason }]);

    // Restarted, it listens at the same address, and the connection of before stays dead.
    let mut b = scene.network.endpoint("b");
    b.listen("b:1").unwrap();
    let conn = scene.a.connect("b:1").unwrap();
    assert!(matches!(events(&mut b)[..], [Event::Accepted { .. }]));
    assert_eq!(events(&mut scene.a), [Event::Connected { conn }]);
    assert_eq!(events(&mut scene.b), []);
}

#[test]
fn a_silent_death_is_seen_only_when_the_machine_is_back() {
    let mut scene = Scene::new(11, Faults::default());
    scene.network.kill("b", Death::Silent);
    scene.send([1]);
    assert_eq!(events(&mut scene.a), []);
    let _b = scene.network.endpoint("b");
    scene.send([2]);
    let reset = Event::Closed {
        conn: scene.at_a,
        reason: CloseReason::Reset,
    };
    assert_eq!(events(&mut scene.a), [reset]);
}

#[test]
fn what_is_for_a_frozen_endpoint_waits_until_it_is_thawed() {
    let mut scene = Scene::new(12, Faults::default());
    scene.network.freeze("b");
    scene.send(0..5);
    assert_eq!(scene.arrivals(), []);
    assert!(scene.a.queued_bytes(scene.at_a) > 0);
    scene.network.thaw("b");
    let numbers: Vec<u8> = events(&mut scene.b).iter().filter_map(number).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[test]
fn any_faults_end_with_every_connection_closed_once_and_nothing_queued() {
    for seed in 0..300 {
        let mut scene = Scene::new(
            seed,
            Faults {
                reset: 0.02,
                ..ROUGH
            },
        );
        let mut closed = [0, 0];
        for round in 0..30 {
            // Refused as closed once a reset has come.
            let _ = scene.a.send(scene.at_a, stf(round, 100));
            let _ = scene.b.send(scene.at_b, stf(round, 100));
            scene.network.advance_to(scene.network.now() + MS / 3);
            for (end, count) in [&mut scene.a, &mut scene.b].into_iter().zip(&mut closed) {
                let events = events(end);
                assert!(
                    *count == 0 || events.is_empty(),
                    "seed {seed}: {events:?} after the end"
                );
                *count += events
                    .iter()
                    .filter(|e| matches!(e, Event::Closed { .. }))
                    .count();
            }
        }
        scene.network.set_faults(Faults::default());
        scene.a.finish(scene.at_a);
        while let Some(due) = scene.network.next_due() {
            scene.network.advance_to(due);
            for (end, count) in [&mut scene.a, &mut scene.b].into_iter().zip(&mut closed) {
                let closes = |event: &&Event| matches!(event, Event::Closed { .. });
                *count += events(end).iter().filter(closes).count();
            }
        }
        assert_eq!(closed, [1, 1], "seed {seed}");
        assert_eq!(scene.a.queued_bytes(scene.at_a), 0, "seed {seed}");
    }
}
