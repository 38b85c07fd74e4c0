use super::*;

/// Bytes of a window of a writer.
const WINDOW: u64 = 100;

fn id(tf: u64) -> HandoffId {
    HandoffId {
        run: RunId(1),
        tf: TfId(tf),
        attempt: Attempt(1),
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms * 1_000_000)
}

/// A hand-off to writers with windows of 2 TFs and a silence of 100 ms.
fn handoff(writers: u16) -> Handoff {
    of_policy(writers, "least-loaded", 2)
}

fn of_policy(writers: u16, policy: &str, window_tfs: u32) -> Handoff {
    let config = HandoffConfig {
        writers,
        policy: policy.to_owned(),
        window_tfs,
        silence: Duration::from_millis(100),
        seed: 1,
    };
    Handoff::new(config).expect("the policy is known")
}

impl Handoff {
    fn welcome(&mut self, writers: &[u16]) {
        for writer in writers {
            let welcome = WriterWelcome {
                window_bytes: WINDOW,
                window_tfs: 4,
                ..WriterWelcome::default()
            };
            self.handle_welcome(at(0), *writer, welcome);
        }
    }

    fn offer_all(&mut self, tfs: &[u64], bytes: u64) {
        for tf in tfs {
            self.offer(id(*tf), bytes);
        }
    }

    fn say_full(&mut self, writer: u16, is_full: bool) {
        let pulse = WriterPulse {
            is_full,
            capacity_bytes: WINDOW,
            ..WriterPulse::default()
        };
        self.handle_pulse(at(0), writer, &pulse);
    }

    fn written(&mut self, writer: u16, tf: u64, copy: u32) -> Option<Vec<u16>> {
        self.handle_written(at(0), writer, &id(tf).copy(copy))
    }

    /// Orders of a tick at 0 ms.
    fn tick(&mut self) -> Vec<String> {
        self.tick_at(0)
    }

    fn tick_at(&mut self, ms: u64) -> Vec<String> {
        self.handle_tick(at(ms));
        self.orders()
    }

    /// Orders, as `1 <- 7.2 again (0 3)`: send writer 1 copy 2 of TF 7, which it may have, as 0 and 3 may.
    fn orders(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.poll()).map(words).collect()
    }

    fn told(&mut self) -> Vec<WriterNews> {
        std::iter::from_fn(|| self.poll_news()).collect()
    }
}

fn name(copy: &TfCopy) -> String {
    match copy.copy {
        u32::MAX => format!("{}.all", copy.tf.0),
        number => format!("{}.{number}", copy.tf.0),
    }
}

fn words(action: HandoffAction) -> String {
    match action {
        HandoffAction::Send {
            writer,
            copy,
            may_be_here,
            elsewhere,
            ..
        } => {
            let again = if may_be_here { " again" } else { "" };
            let others: Vec<String> = elsewhere.iter().map(u16::to_string).collect();
            let others = match others.is_empty() {
                true => String::new(),
                false => format!(" ({})", others.join(" ")),
            };
            format!("{writer} <- {}{again}{others}", name(&copy))
        }
        HandoffAction::Void { writer, copies } => {
            let copies: Vec<String> = copies.iter().map(name).collect();
            format!("{writer} void {}", copies.join(" "))
        }
        HandoffAction::Settled { writer, moves } => {
            let of = |it: &Move| format!("{} of {}", name(&it.copy), it.from);
            let moves: Vec<String> = moves.iter().map(of).collect();
            format!("{writer} settled {}", moves.join(" "))
        }
        HandoffAction::Close { writer } => format!("{writer} close"),
    }
}

#[test]
fn tfs_go_to_the_writer_with_the_most_room_as_far_as_windows_allow() {
    let mut handoff = handoff(2);
    handoff.offer_all(&[1, 2, 3, 4, 5, 5], 10);
    assert!(handoff.tick().is_empty() && !handoff.can_write());
    handoff.welcome(&[0, 1]);
    let sent = ["0 <- 1.0", "1 <- 2.0", "0 <- 3.0", "1 <- 4.0"];
    assert_eq!(handoff.tick(), sent);
    assert_eq!((handoff.waiting(), handoff.pending()), (1, 5));
    assert_eq!(handoff.load(0), (2, 20, true));
    assert_eq!(handoff.written(1, 2, 0), Some(vec![1]));
    assert_eq!(handoff.written(1, 2, 0), None, "it is done with");
    assert_eq!(handoff.tick(), ["1 <- 5.0"]);
}

#[test]
fn windows_of_bytes_hold_as_well() {
    let mut handoff = handoff(1);
    handoff.offer_all(&[1, 2], 60);
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 <- 1.0"]);
    handoff.written(0, 1, 0).expect("it was sent");
    assert_eq!(handoff.tick(), ["0 <- 2.0"]);
}

#[test]
fn the_policy_chooses_the_writer() {
    let mut handoff = of_policy(3, "fixed:1", 2);
    handoff.offer_all(&[1, 2], 10);
    handoff.welcome(&[0, 1, 2]);
    assert_eq!(handoff.tick(), ["1 <- 1.0", "1 <- 2.0"]);
}

#[test]
fn the_load_of_other_epns_counts_up_to_half_of_a_window() {
    let mut handoff = of_policy(2, "least-loaded", 4);
    handoff.welcome(&[0, 1]);
    let pulse = WriterPulse {
        queued_bytes: 900,
        capacity_bytes: 1000,
        ..WriterPulse::default()
    };
    handoff.handle_pulse(at(0), 0, &pulse);
    handoff.offer_all(&[1, 2, 3, 4], 20);
    let sent = ["1 <- 1.0", "1 <- 2.0", "1 <- 3.0", "0 <- 4.0"];
    assert_eq!(handoff.tick(), sent);
}

#[test]
fn a_tf_that_moves_has_the_next_copy_number_and_names_its_former_writers() {
    let mut handoff = handoff(3);
    handoff.offer(id(7), 10);
    handoff.welcome(&[0, 1, 2]);
    assert_eq!(handoff.tick(), ["0 <- 7.0"]);
    handoff.handle_closed(0);
    assert_eq!(handoff.tick(), ["1 <- 7.1 (0)"]);
    handoff.handle_closed(1);
    assert_eq!(handoff.tick(), ["2 <- 7.2 (0 1)"]);
    assert_eq!(handoff.written(1, 7, 1), None, "a later copy counts");
    assert_eq!(handoff.written(2, 7, 2), Some(vec![0, 1, 2]));
    assert_eq!((handoff.moved(), handoff.pending()), (2, 0));
}

#[test]
fn a_tf_that_a_former_life_left_at_a_writer_moves_on_from_its_number() {
    let mut handoff = handoff(3);
    handoff.welcome(&[1, 2]);
    handoff.offer_moved(id(7), 10, 3, vec![0, 1]);
    handoff.handle_closed(1);
    assert_eq!(handoff.tick(), ["2 <- 7.4 (0 1)"]);
    // It is committed: the earlier copies stay until this one is written.
    assert_eq!(handoff.to_void(), 0);
    handoff.written(2, 7, 4).expect("it was sent");
    assert_eq!(handoff.to_void(), 2);
}

#[test]
fn a_tf_goes_again_to_a_writer_that_has_come_back() {
    let mut handoff = handoff(2);
    handoff.offer_all(&[7, 8], 10);
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 <- 7.0", "0 <- 8.0"]);
    // The only writer: its copy stays the same one, and the oldest is first.
    handoff.handle_closed(0);
    handoff.offer(id(6), 10);
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 <- 7.0 again", "0 <- 8.0 again"]);
    // By way of another one it is a later copy, and the one before it is not to count.
    handoff.written(0, 8, 0).expect("it was sent");
    handoff.handle_closed(0);
    handoff.welcome(&[1]);
    assert_eq!(handoff.tick(), ["1 <- 7.1 (0)", "1 <- 6.0"]);
    handoff.handle_closed(1);
    handoff.welcome(&[0]);
    assert_eq!(
        handoff.tick(),
        ["0 <- 6.1 (1)", "0 <- 7.2 again (1)"],
        "in the order of their numbers"
    );
    handoff.welcome(&[1]);
    assert_eq!(handoff.tick(), ["1 void 6.1 7.2"]);
}

/// A TF that was at writer 0, and is at 1 as copy 1.
fn moved_once() -> Handoff {
    let mut handoff = handoff(2);
    handoff.offer(id(7), 10);
    handoff.welcome(&[0, 1]);
    handoff.tick();
    handoff.handle_closed(0);
    assert_eq!(handoff.tick(), ["1 <- 7.1 (0)"]);
    handoff
}

#[test]
fn earlier_copies_are_made_void_until_their_writer_answers_and_then_the_move_is_settled() {
    let mut handoff = moved_once();
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 void 7.1"]);
    assert!(handoff.tick().is_empty(), "once a stream");
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 void 7.1"]);
    handoff.handle_voided(0, &[id(7).copy(0), id(9).copy(1)]);
    assert!(handoff.orders().is_empty(), "an answer to something else");
    handoff.handle_voided(0, &[id(7).copy(1)]);
    assert_eq!(handoff.orders(), ["1 settled 7.1 of 0"]);
    assert_eq!(handoff.to_void(), 0);
}

#[test]
fn a_move_that_its_holder_repeats_is_settled_once_more() {
    let mut handoff = moved_once();
    handoff.written(1, 7, 1).expect("it was sent");
    handoff.handle_closed(1);
    handoff.welcome(&[0]);
    handoff.tick();
    handoff.handle_voided(0, &[id(7).copy(1)]);
    assert!(handoff.tick().is_empty(), "the holder cannot be reached");
    handoff.welcome(&[1]);
    let copy = id(7).copy(1);
    let moves = [0, 1].map(|from| Move { copy, from });
    handoff.handle_moves(1, &moves);
    assert_eq!(handoff.tick(), ["0 void 7.1"]);
    handoff.handle_voided(0, &[copy]);
    assert_eq!(handoff.orders(), ["1 settled 7.1 of 0"]);
}

#[test]
fn a_silent_writer_is_closed_and_its_run_delay_is_allowed() {
    let mut handoff = handoff(2);
    handoff.welcome(&[0, 1]);
    let pulse = WriterPulse {
        run_delay_ns: 50_000_000,
        ..WriterPulse::default()
    };
    handoff.handle_pulse(at(0), 1, &pulse);
    assert!(handoff.tick_at(99).is_empty());
    assert_eq!(handoff.tick_at(100), ["0 close"]);
    handoff.handle_closed(0);
    assert!(handoff.tick_at(149).is_empty());
    assert_eq!(handoff.tick_at(150), ["1 close"]);
    assert!(handoff.tick_at(200).is_empty(), "once a stream");
}

#[test]
fn an_acknowledgement_is_a_sign_of_life() {
    let mut handoff = handoff(1);
    handoff.welcome(&[0]);
    let other = id(9).copy(0);
    assert_eq!(handoff.handle_written(at(80), 0, &other), None);
    assert!(handoff.tick_at(179).is_empty());
    assert_eq!(handoff.tick_at(180), ["0 close"]);
}

#[test]
fn a_full_writer_is_left_only_as_far_as_others_have_room() {
    let mut handoff = handoff(2);
    handoff.offer_all(&[1, 2, 3, 4], 10);
    handoff.welcome(&[0, 1]);
    handoff.tick();
    handoff.told();
    handoff.say_full(0, true);
    assert!(handoff.tick().is_empty(), "the other one has no room");
    assert_eq!(handoff.load(0), (2, 20, false));
    handoff.written(1, 2, 0).expect("it was sent");
    assert_eq!(handoff.tick(), ["1 <- 1.1 (0)", "0 void 1.1"]);
    assert_eq!(handoff.load(0), (1, 10, false));
    // What is still there may be written there after all.
    handoff.say_full(0, false);
    assert_eq!(handoff.written(0, 3, 0), Some(vec![0]));
    assert_eq!(
        handoff.told(),
        [WriterNews::Full(0), WriterNews::Takes(0)],
        "each change once"
    );
}

#[test]
fn a_writer_that_leaves_keeps_what_it_has_and_gets_nothing_new() {
    let mut handoff = handoff(2);
    handoff.offer_all(&[1, 2], 10);
    handoff.welcome(&[0, 1]);
    handoff.tick();
    let pulse = WriterPulse {
        is_leaving: true,
        ..WriterPulse::default()
    };
    handoff.handle_pulse(at(0), 0, &pulse);
    handoff.offer(id(3), 10);
    assert_eq!(handoff.tick(), ["1 <- 3.0"]);
    assert_eq!(handoff.written(0, 1, 0), Some(vec![0]));
}

#[test]
fn a_tf_larger_than_every_window_is_reported_once() {
    let mut handoff = handoff(1);
    handoff.offer(id(7), WINDOW + 1);
    handoff.tick();
    assert!(handoff.told().is_empty(), "no writer has told its window");
    handoff.welcome(&[0]);
    handoff.tick();
    handoff.tick();
    let too_large = WriterNews::TooLarge(id(7), WINDOW + 1);
    assert_eq!(handoff.told(), [WriterNews::Takes(0), too_large]);
}

#[test]
fn only_tfs_that_were_not_sent_are_recalled() {
    let mut handoff = handoff(1);
    handoff.offer_all(&[1, 2, 3], 10);
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 <- 1.0", "0 <- 2.0"]);
    handoff.handle_closed(0);
    let recalled = [1, 2, 3, 4].map(|tf| handoff.recall(id(tf)));
    assert_eq!(recalled, [false, false, true, false]);
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 <- 1.0 again", "0 <- 2.0 again"]);
    assert_eq!((handoff.pending(), handoff.waiting()), (2, 0));
}

#[test]
fn a_tf_that_is_withdrawn_is_revoked_wherever_it_was_sent() {
    let mut handoff = moved_once();
    handoff.withdraw(id(7));
    handoff.welcome(&[0]);
    assert_eq!(handoff.tick(), ["0 void 7.all", "1 void 7.all"]);
    assert_eq!((handoff.pending(), handoff.load(1)), (0, (0, 0, true)));
    assert_eq!(handoff.written(1, 7, 1), None);
    handoff.handle_voided(0, &[id(7).copy(1)]);
    assert_eq!(handoff.to_void(), 2, "an answer to the void before");
    for writer in [0, 1] {
        handoff.handle_voided(writer, &[id(7).copy(u32::MAX)]);
    }
    assert_eq!(handoff.to_void(), 0);
    // One that was not sent is at no writer.
    handoff.handle_closed(0);
    handoff.handle_closed(1);
    handoff.offer(id(8), 10);
    handoff.withdraw(id(8));
    assert_eq!((handoff.waiting(), handoff.to_void()), (0, 0));
}
