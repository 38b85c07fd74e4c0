//! The screen of a farm, drawn into memory.

use super::draw::draw;
use super::look::{Deed, Look};
use super::nodes::{bar, fit, most_telling};
use crate::demo::watch::Watch;
use crate::demo::watch::tests::{status_at, watch};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use sheaf_node::status::Quantiles;
use sheaf_protocol::EpnId;

fn buffer(width: u16, height: u16, look: &mut Look, watch: &Watch) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, look, watch)).unwrap();
    terminal.backend().buffer().clone()
}

fn lines_of(buffer: &Buffer) -> Vec<String> {
    let area = *buffer.area();
    let line = |y| {
        let symbols = (0..area.width).map(|x| buffer[(x, y)].symbol());
        symbols.collect::<String>().trim_end().to_owned()
    };
    (0..area.height).map(line).collect()
}

fn drawn(width: u16, height: u16, watch: &Watch) -> Vec<String> {
    let mut look = Look::new("what this is; q ends it");
    lines_of(&buffer(width, height, &mut look, watch))
}

/// A farm of 3 FLPs and 5 EPNs after minutes of work and some trouble, with large numbers.
fn large() -> Watch {
    let mut watch = Watch::default();
    for second in 1..=150_u32 {
        let mut status = status_at(100_000 + second);
        status.policy = "earliest-finish".to_owned();
        status.security = "crc-only".to_owned();
        status.accounting.abandoned = 3;
        status.accounting.reassigned = 1234;
        status.accounting.dropped = ["source-died", "source-late", "shed-overload"]
            .map(|reason| (reason.to_owned(), 99))
            .into();
        let assigned = Quantiles {
            p50: 100.0,
            p99: 300.0,
            max: 900.0,
        };
        status.latency_us = [("announce_to_assign".to_owned(), assigned)].into();
        status.ledger.backend = "majority".to_owned();
        status.ledger.records = 123_456;
        status.ledger.term = 2;
        status.flps = (0..3)
            .map(|index| {
                let mut flp = status.flps[0].clone();
                (flp.index, flp.held_stfs, flp.lag_tfs) = (index, 1234, 5);
                (flp.counter, flp.refused_stfs) = ("behind".to_owned(), 7);
                flp
            })
            .collect();
        status.epns = (0..5)
            .map(|index| {
                let mut epn = status.epns[0].clone();
                epn.index = index;
                epn.open_tfs = 17;
                epn.weight_milli = 1500;
                epn.open_bytes = 123_456_000_000;
                epn
            })
            .collect();
        if second == 150 {
            status.epns[2].state = "disabled".to_owned();
        }
        watch.add(status);
    }
    watch.tell(
        1234.5,
        "epn:1 killed, 12 TFs reassigned, 3 TFs abandoned, and more of a long line of text",
    );
    watch
}

#[test]
fn a_farm_is_drawn_with_nodes_ledger_and_happenings() {
    let lines = drawn(105, 24, &watch());
    assert_eq!(lines[0], "what this is; q ends it");
    assert!(
        lines[1].starts_with("3.0 s  running  round-robin  100.0 TF/s  100.0 MB/s"),
        "{lines:#?}"
    );
    let head = "node      state      (S)TF/s     MB/s   buffered        p50        p99   share";
    assert_eq!(lines[3], head);
    assert_eq!(lines[4], "icn:0     up           100.0      0.0     0.0 MB");
    let bar = "━".repeat(24);
    let expected =
        format!("flp:0     up           100.0    100.0     2.0 MB                         {bar}");
    assert_eq!(lines[5], expected);
    let expected =
        format!("epn:0     up           100.0    100.0     2.0 MB     1.5 ms    12.3 ms   {bar}");
    assert_eq!(lines[6], expected);
    let law = "announced 302 = complete 300 + incomplete 0 + dropped 0 + in flight 2 ✔";
    assert_eq!(lines[8], law);
    assert_eq!(lines[9], "reassigned 0  abandoned 0  duplicates refused 0");
    assert_eq!(lines[11], "    2.0 s  the run begins");
    assert_eq!(
        lines[23],
        "q quit  p pause  s sort (node)  / filter  ↑↓ choose"
    );
}

#[test]
fn at_80_by_24_nothing_is_cut() {
    let watch = large();
    let lines = drawn(80, 24, &watch);
    let text = lines.join(" ");
    let status = watch.status();
    for part in [
        "what this is; q ends it",
        "STFs IN THE CLEAR (crc-only)",
        "waiting for room 0",
        "latency p50 0.0 ms p99 0.0 ms",
        "shed-overload 99",
        "source-late 99",
        "in flight 2 ✔",
        "123456 MB",
        "12.3 ms",
        "q quit  p pause",
        "and more of a long line of text",
    ] {
        assert!(has_words(&text, part), "{part}: {lines:#?}");
    }
    for node in ["icn:0", "flp:2", "epn:4"] {
        assert!(
            lines.iter().any(|line| line.starts_with(node)),
            "{node}: {lines:#?}"
        );
    }
    assert!(
        text.contains(&status.accounting.announced.to_string()),
        "{lines:#?}"
    );
    assert!(!text.contains('…'), "{lines:#?}");
}

/// Whether the words of `part` follow each other, whatever is between them.
fn has_words(text: &str, part: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let wanted: Vec<&str> = part.split_whitespace().collect();
    words.windows(wanted.len()).any(|found| found == wanted)
}

#[test]
fn at_200_by_50_there_is_the_past_and_every_column() {
    let lines = drawn(200, 50, &large());
    let text = lines.join("\n");
    for part in [
        "TF/s now 100.0 most 100.0",
        "MB/s now 100.0 most 100.0",
        "latency p99 now 0.0 ms most 0.0 ms",
        "longest (S)TFs held lag TFs counter refused in sink weight",
        "announce to assign p50 0.1 ms p99 0.3 ms",
        "verdict log majority with 123456 records, icn:0 leads in term 2",
    ] {
        assert!(has_words(&text, part), "{part}: {lines:#?}");
    }
    let sparks = lines
        .iter()
        .filter(|line| line.contains("████████"))
        .count();
    assert!(sparks >= 4, "{lines:#?}");
    assert!(sparks <= 14, "{lines:#?}");
    let row = |node: &str| lines.iter().find(|line| line.starts_with(node)).unwrap();
    let flp = row("flp:1");
    assert!(
        flp.ends_with("1234         5   behind            7"),
        "{flp}"
    );
    let epn = row("epn:1");
    assert!(epn.ends_with("0     0.5 MB    1.5"), "{epn}");
    // The bars take what the other columns leave.
    let bar = "━".repeat(24 + 30);
    assert!(flp.contains(&bar), "{flp}");
}

#[test]
fn abandoned_tfs_change_the_colour_of_their_line() {
    let color_of = |watch: &Watch| {
        let mut look = Look::new("title");
        let buffer = buffer(100, 30, &mut look, watch);
        let lines = lines_of(&buffer);
        let y = lines
            .iter()
            .position(|line| line.starts_with("reassigned"))
            .unwrap();
        buffer[(0, u16::try_from(y).unwrap())].fg
    };
    assert_eq!(color_of(&watch()), Color::Reset);
    assert_eq!(color_of(&large()), Color::Yellow);
}

#[test]
fn a_small_terminal_shows_what_matters_whole() {
    let lines = drawn(40, 14, &watch());
    let expected = [
        "what this is; q ends it",
        "3.0 s  running  round-robin  100.0 TF/s",
        "100.0 MB/s  latency p50 0.0 ms",
        "p99 0.0 ms  waiting for room 0",
        "node      state      (S)TF/s     MB/s",
        "icn:0     up           100.0      0.0",
        "flp:0     up           100.0    100.0",
        "epn:0     up           100.0    100.0",
        "announced 302 = complete 300 +",
        "incomplete 0 + dropped 0 + in flight 2 ✔",
        "reassigned 0  abandoned 0  duplicates",
        "refused 0",
        "q quit  p pause  s sort (node)  / filter",
        "↑↓ choose",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_low_terminal_shows_the_nodes_that_are_not_well() {
    let mut watch = watch();
    watch.mark(EpnId(0).into(), Some("killed"));
    let rows = watch.rows();
    let names = |lines| {
        let (seen, hidden) = most_telling(&rows, lines);
        let names: Vec<String> = seen.iter().map(|row| row.node.to_string()).collect();
        (names.join(" "), hidden)
    };
    assert_eq!(names(3), ("icn:0 flp:0 epn:0".to_owned(), 0));
    assert_eq!(names(2), ("epn:0".to_owned(), 2));
    assert_eq!(names(0), (String::new(), 3));
    let lines = drawn(120, 8, &watch);
    assert_eq!(lines[4], "…         2 more");
}

#[test]
fn a_farm_that_does_not_answer_is_told_in_place_of_its_state() {
    let mut watch = watch();
    watch.lose("no ICN answers for 2 s: 127.0.0.1:7000 (connection refused)");
    let past = drawn(200, 50, &watch).join("\n");
    assert!(has_words(&past, "TF/s last 100.0"), "{past}");
    let lines = drawn(80, 24, &watch);
    assert!(lines[1].starts_with("no ICN answers for 2 s"), "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("epn:0     up             0.0      0.0")),
        "{lines:#?}"
    );
}

#[test]
fn only_a_farm_that_is_lost_is_told_in_red() {
    let color_in = |phase: &str| {
        let mut watch = watch();
        let mut status = status_at(4);
        status.phase = phase.to_owned();
        watch.add(status);
        watch.lose("no ICN answers for 2 s");
        buffer(80, 24, &mut Look::new("title"), &watch)[(0, 1)].fg
    };
    assert_eq!(color_in("running"), Color::Red);
    assert_eq!(color_in("draining"), Color::Reset);
}

fn press(look: &mut Look, keys: &str) -> Vec<Deed> {
    let deeds = keys.chars().filter_map(|key| {
        let code = match key {
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⏎' => KeyCode::Enter,
            '⎋' => KeyCode::Esc,
            other => KeyCode::Char(other),
        };
        look.handle_key(KeyEvent::new(code, KeyModifiers::NONE))
    });
    deeds.collect()
}

#[test]
fn keys_filter_sort_pause_and_quit() {
    let watch = large();
    let mut look = Look::new("title");
    let names = |look: &mut Look| -> Vec<String> {
        let lines = lines_of(&buffer(120, 40, look, &watch));
        let is_node = |line: &&String| line.contains(':') && line.contains(" MB");
        let nodes = lines.iter().filter(is_node);
        nodes
            .filter_map(|line| line.split(' ').next().map(str::to_owned))
            .collect()
    };
    assert_eq!(names(&mut look).len(), 9);
    assert_eq!(press(&mut look, "/flp⏎"), []);
    assert_eq!(names(&mut look), ["flp:0", "flp:1", "flp:2"]);
    assert_eq!(press(&mut look, "/⎋s"), []);
    assert_eq!(
        names(&mut look)[0],
        "epn:2",
        "that is disabled comes first by state"
    );
    assert!(!look.is_paused());
    assert_eq!(press(&mut look, "p"), []);
    assert!(look.is_paused() && look.prompt().ends_with("PAUSED"));
    assert_eq!(press(&mut look, "q"), [Deed::Quit]);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(look.handle_key(control_c), Some(Deed::Quit));
}

#[test]
fn an_epn_is_drained_when_it_is_chosen_and_confirmed() {
    let watch = large();
    let mut look = Look::new("title").with_orders();
    let draw = |look: &mut Look| drop(buffer(120, 40, look, &watch));
    draw(&mut look);
    assert_eq!(press(&mut look, "dy"), [], "nothing is chosen");
    assert_eq!(press(&mut look, "↓dy"), [], "an ICN is not drained");
    assert_eq!(press(&mut look, "↑↑↑↓↓↓↓↓d"), []);
    assert_eq!(look.prompt(), "drain epn:1? y or n");
    assert_eq!(press(&mut look, "n"), []);
    assert_eq!(press(&mut look, "↑dy"), [Deed::Drain(EpnId(0))]);
    let mut look = Look::new("title");
    draw(&mut look);
    assert_eq!(press(&mut look, "↓↓↓↓↓dy"), [], "a demo takes no orders");
}

#[test]
fn a_bar_is_as_long_as_its_share_of_the_longest() {
    assert_eq!(bar(0.0, 0.0, 26), "");
    assert_eq!(bar(1.0, 4.0, 26), "  ━━━━━━");
    assert_eq!(bar(1.0, 48.0, 26), "  ╸");
}

#[test]
fn numbers_fit_their_columns() {
    let cases = [
        (0.0, "0.0"),
        (99_999.9, "99999.9"),
        (999_999.96, "1000000"),
        (12_345_678.0, "12345.7k"),
        (1e18, "1000.0P"),
    ];
    for (value, expected) in cases {
        let found = fit(value, 8);
        assert!(found.len() <= 8, "{found}");
        if expected.len() <= 7 {
            assert_eq!(fit(value, 7), expected);
        }
    }
    assert_eq!(fit(12_345_678.0, 8), "12345678");
    assert_eq!(fit(123_456_789.0, 8), "123457k");
}

#[test]
fn a_farm_is_drawn_on_any_terminal() {
    for (width, height) in [(1, 1), (20, 5), (300, 4), (200, 50)] {
        drawn(width, height, &watch());
        drawn(width, height, &Watch::default());
        drawn(width, height, &large());
    }
}
