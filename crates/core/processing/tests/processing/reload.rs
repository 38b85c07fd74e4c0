//! Another configuration while samples run.

use crate::site::{Seen, Site, config};
use crate::stream::{CONFIGS, apply, events};
use proptest::prelude::*;
use sheaf_processing::{Fate, Output, Table, TableError};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_equal_configuration_changes_nothing(
        seed: u64, shards in 0_u32..4, moments in proptest::collection::vec(0_usize..300, 1..4),
    ) {
        for text in CONFIGS {
            let config = config(text);
            let mut still = Site::new(&config, shards);
            let mut reloaded = Site::new(&config, shards);
            let events = events(seed, 300);
            let last = (events.last().unwrap().0 + 7_200_000, crate::stream::Event::Poll);
            for (at, (now_ms, event)) in events.iter().chain([&last, &last]).enumerate() {
                if moments.contains(&at) {
                    reloaded.reconfigure(*now_ms, &config);
                }
                apply(&mut still, *now_ms, event);
                apply(&mut reloaded, *now_ms, event);
            }
            // Between shards the order of series is that in which the merger got to know them.
            prop_assert_eq!(still.by_series(), reloaded.by_series());
            if shards == 0 {
                prop_assert_eq!(still.lines(), reloaded.lines());
            }
            prop_assert_eq!(still.series().len(), reloaded.series().len());
            for (one, other) in still.pipelines.iter().zip(&reloaded.pipelines) {
                let mut stats = other.stats().clone();
                for (one, other) in one.stats().operators.iter().zip(&mut stats.operators) {
                    // A reload looks every series up again.
                    other.unmatched_lookups = one.unmatched_lookups;
                }
                prop_assert_eq!(one.stats(), &stats);
            }
        }
    }

    /// Between any two configurations nothing is lost: the accounting adds up, and what the windows of the first hold
    /// comes out.
    #[test]
    fn a_change_loses_nothing(
        seed: u64,
        shards in 0_u32..4,
        from in 0_usize..4,
        to in 0_usize..4,
        moment in 0_usize..300,
    ) {
        let mut site = Site::new(&config(CONFIGS[from]), shards);
        let events = events(seed, 300);
        for (at, (now_ms, event)) in events.iter().enumerate() {
            if at == moment {
                site.reconfigure(*now_ms, &config(CONFIGS[to]));
            }
            apply(&mut site, *now_ms, event);
        }
        site.poll(events.last().unwrap().0 + 7_200_000);
        site.assert_balanced();
        for pipeline in &site.pipelines {
            prop_assert_eq!(pipeline.open_windows(), 0);
        }
    }

    /// A metric that passes both configurations comes out sample by sample, and windows that change or go count every
    /// sample once.
    #[test]
    fn samples_that_pass_both_are_all_there(seed: u64, shards in 0_u32..4, moment in 0_usize..300) {
        let window = |keys: &str| format!(
            "[[operator]]\nkind = 'window'\nfunctions = ['count']\nby = []\noutput = 'samples'\nselect = 'rate'\nconsume = true\n{keys}\n"
        );
        let configs = [
            window("length_ms = 1000"),
            format!("{}[[operator]]\nkind = 'on_change'\nselect = 'latency_ms'\n", window("length_ms = 4000")),
        ];
        let mut site = Site::new(&config(&configs[0]), shards);
        let mut passing = 0;
        let events = events(seed, 300);
        let mut registered = std::collections::BTreeSet::new();
        for (at, (now_ms, event)) in events.iter().enumerate() {
            if at == moment {
                site.reconfigure(*now_ms, &config(&configs[1]));
            }
            apply(&mut site, *now_ms, event);
            match event {
                crate::stream::Event::Register { handle } => drop(registered.insert(*handle)),
                crate::stream::Event::End { handle } => drop(registered.remove(handle)),
                crate::stream::Event::Samples(samples) => {
                    let is_passing = |one: &&(u32, i64, f64)| one.0 % 3 == 1 && registered.contains(&one.0);
                    passing += samples.iter().filter(is_passing).count();
                }
                crate::stream::Event::Poll => {}
            }
        }
        site.poll(events.last().unwrap().0 + 7_200_000);
        let of = |name: &str| site.seen.iter().filter(|one| one.series.starts_with(name)).collect::<Vec<_>>();
        prop_assert_eq!(of("bytes_total").len(), passing);
        let counted: f64 = of("samples").into_iter().map(Seen::value).sum();
        prop_assert_eq!(counted, site.ended(Fate::Aggregated) as f64);
    }
}

#[test]
fn state_stays_with_operators_that_do_not_change() {
    let before = "[[operator]]\nkind = 'on_change'\n[[operator]]\nkind = 'window'\nfunctions = ['sum']\nlength_ms = 1000\n";
    let after =
        format!("[[operator]]\nkind = 'set'\nlabels = {{ farm = 'p2' }}\nselect = 'y'\n{before}");
    let mut site = Site::of(before);
    site.register(0, 0, &[("__name__", "x")]);
    site.register(0, 1, &[("__name__", "y")]);
    site.samples(100, &[(0, 100, 1.0), (1, 100, 1.0)]);
    site.reconfigure(150, &config(&after));
    site.samples(200, &[(0, 200, 1.0), (0, 300, 2.0)]);
    site.poll(1500);
    let lines = site.lines();
    assert_eq!(
        lines,
        [
            "x@100=1",
            "y@100=1",
            "x@300=2",
            "x_sum@1000=3",
            "y_sum@1000=1"
        ]
    );
    assert_eq!(site.ended(Fate::Suppressed), 1);
}

#[test]
fn windows_that_change_close_early_and_once() {
    let text = |functions: &str| {
        format!(
            "[[operator]]\nkind = 'window'\nlength_ms = 1000\nfunctions = {functions}\nconsume = true\n"
        )
    };
    let mut site = Site::of(&text("['sum']"));
    site.register(0, 0, &[("__name__", "x")]);
    site.samples(400, &[(0, 300, 1.0), (0, 400, 1.0)]);
    site.reconfigure(450, &config(&text("['sum', 'max']")));
    assert_eq!(site.lines(), ["x_sum@450=2"]);
    site.samples(600, &[(0, 600, 5.0)]);
    site.poll(1500);
    assert_eq!(site.lines()[1..], ["x_sum@1000=5", "x_max@1000=5"]);
    assert_eq!(site.pipeline().stats().ended(Fate::Aggregated), 3);
}

#[test]
fn a_refused_configuration_changes_nothing() {
    let mut site = Site::of("[[operator]]\nkind = 'on_change'\n");
    site.register(0, 0, &[("__name__", "x")]);
    site.samples(1, &[(0, 1, 1.0)]);
    let wrong = config("[[operator]]\nkind = 'on_changed'\n[[operator]]\nkind = 'drop'\n");
    let mut output = Output::default();
    let errors = site.pipelines[0]
        .reconfigure(2, &wrong, &mut output)
        .unwrap_err();
    assert_eq!(errors.0.len(), 2, "{errors}");
    site.samples(3, &[(0, 3, 1.0)]);
    assert_eq!(site.ended(Fate::Suppressed), 1);
}

#[test]
fn a_table_is_replaced_while_samples_run() {
    let text = r#"
        tables.hosts.file = "hosts.csv"
        [[operator]]
        kind = "enrich"
        table = "hosts"
        key = ["host"]
        [[operator]]
        kind = "window"
        functions = ["count"]
        length_ms = 1000
        by = ["rack"]
    "#;
    let mut site = Site::of(text);
    site.register(0, 0, &[("__name__", "x"), ("host", "a")]);
    site.samples(100, &[(0, 100, 1.0)]);
    let table = |rack: &str| Table {
        file: None,
        columns: vec!["host".to_owned(), "rack".to_owned()],
        rows: vec![vec!["a".to_owned(), rack.to_owned()]],
    };
    for (now_ms, rack) in [(200, "A"), (400, "B")] {
        let mut output = Output::default();
        site.pipelines[0]
            .set_table(now_ms, "hosts", table(rack), &mut output)
            .unwrap();
        site.absorb(0, output);
        site.samples(now_ms, &[(0, now_ms, 1.0)]);
    }
    site.reconfigure(500, &config(text));
    site.samples(600, &[(0, 600, 1.0)]);
    site.poll(1500);
    let expected = [
        r#"x{host="a"}@100=1"#,
        r#"x{host="a", rack="A"}@200=1"#,
        r#"x{host="a", rack="B"}@400=1"#,
        r#"x{host="a", rack="B"}@600=1"#,
        "x_count@1000=1",
        r#"x_count{rack="A"}@1000=1"#,
        r#"x_count{rack="B"}@1000=2"#,
    ];
    assert_eq!(site.lines(), expected);
    assert_eq!(site.pipeline().stats().operators[0].unmatched_lookups, 1);
    let mut output = Output::default();
    let mut set = |name: &str, table| site.pipelines[0].set_table(0, name, table, &mut output);
    assert_eq!(
        set("racks", table("A")),
        Err(TableError::Unknown("racks".to_owned()))
    );
    let mut wrong = table("A");
    wrong.columns[0] = "node".to_owned();
    assert!(matches!(
        set("hosts", wrong),
        Err(TableError::Missing { .. })
    ));
}
