//! Restarts at any moment, and online rules beside the evaluator, for seeded farms.

use super::*;

/// A farm of three EPNs whose values a seed chooses, and all that comes out of its alarms; `restarts` are steps at
/// which the process ends and another goes on with its state and the samples of the store.
fn outputs(seed: u64, restarts: &[usize]) -> Vec<String> {
    let mut random = seed | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut alarms = alarms(RULES, ROUTES);
    let names = ["temperature", "frames_total", "load"];
    let series: Vec<Arc<Labels>> = (0..9)
        .map(|at| labels(names[at % 3], &(at / 3 + 1).to_string()))
        .collect();
    for (at, labels) in series.iter().enumerate() {
        alarms.handle_new_series(SeriesHandle(at as u32), labels);
    }
    let mut memory = Memory::new();
    let mut frames = [0.0; 3];
    let (mut out, mut past): (Vec<String>, Vec<(SeriesHandle, Sample)>) = (Vec::new(), Vec::new());
    for step in 0..400 {
        let now_ms = 100_000 + step as i64 * 100;
        if restarts.contains(&step) {
            let bytes = alarms.save(now_ms);
            alarms = self::alarms(RULES, ROUTES);
            alarms.restore(now_ms, &bytes).unwrap();
            for (at, labels) in series.iter().enumerate() {
                alarms.handle_new_series(SeriesHandle(at as u32), labels);
            }
            alarms.handle_past(&past);
        }
        let mut batch = Vec::new();
        for (at, labels) in series.iter().enumerate() {
            let is_quiet = (step / 80 + at) % 4 == 0;
            let is_sent = next(5) == 0;
            let value = match at % 3 {
                0 => 40.0 + next(45) as f64,
                1 => {
                    frames[at / 3] += next(4) as f64;
                    frames[at / 3]
                }
                _ => next(8) as f64,
            };
            if is_sent && !is_quiet {
                memory.insert(labels, sample(now_ms, value));
                batch.push((SeriesHandle(at as u32), sample(now_ms, value)));
            }
        }
        alarms.handle_samples(now_ms, &batch);
        past.extend(batch);
        if !(20..=350).contains(&step) {
            alarms.handle_source_seen(now_ms, "agent");
        }
        for one in alarms.due(now_ms) {
            let result = evaluate(&memory, &one, &Options::default());
            alarms.handle_evaluated(now_ms, one.id, result);
        }
        alarms.poll(now_ms);
        while let Some(one) = alarms.poll_transition() {
            out.push(format!("{one:?}"));
        }
        while let Some(one) = alarms.poll_notification(now_ms) {
            let id = one.id;
            out.push(format!("{now_ms} {one:?}"));
            if (id + step as u64).is_multiple_of(3) {
                alarms.handle_failed(now_ms, id);
            } else {
                alarms.handle_delivered(id);
            }
        }
        while let Some(order) = alarms.poll_order() {
            out.push(format!("{order:?}"));
            alarms.handle_order(now_ms, order.id, Ok(()));
        }
        while let Some(recorded) = alarms.poll_recorded() {
            out.push(format!("{recorded:?}"));
        }
    }
    out.extend(alarms.history().iter().map(|entry| format!("{entry:?}")));
    out
}

#[test]
fn the_farm_of_the_property_test_has_something_of_everything() {
    let out = outputs(1, &[]).join("\n");
    for word in [
        "Hot",
        "Rack",
        "Gone",
        "Fast",
        "Odd",
        "None",
        "LateHot",
        "SourceSilent",
        "NoData",
        "SetWeight",
        "Refused",
        "Resolved",
    ] {
        assert!(out.contains(word), "{word}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A restart at any moment changes nothing of what comes out: no page twice, no alarm later or never.
    #[test]
    fn a_restart_is_not_seen_outside(seed in any::<u64>(), restarts in proptest::collection::vec(1_usize..400, 1..4)) {
        let (plain, restarted) = (outputs(seed, &[]), outputs(seed, &restarts));
        for (at, (left, right)) in plain.iter().zip(&restarted).enumerate() {
            prop_assert_eq!(left, right, "output {}", at);
        }
        prop_assert_eq!(plain.len(), restarted.len());
    }

    /// Online rules say what the evaluator says of the same samples.
    #[test]
    fn online_and_late_agree(seed in any::<u64>()) {
        const EXPRESSIONS: [&str; 10] = [
            "rate(frames_total[4s]) > 3",
            "increase(frames_total[3s]) > 2",
            "delta(temperature[2s]) < 0",
            "sum by (rack) (load) > 4",
            "avg(rate(frames_total[5s])) < 3.9999",
            "max(load) / avg(load) > 1.4999",
            "load / on (epn) temperature > 0.05",
            "load > 2 unless on (epn) temperature > 60",
            "count without (epn) (temperature) + min without (epn) (load) > 1",
            "-sum(load) * 2 < -10 or temperature > 80",
        ];
        let mut random = seed | 1;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let rules: Vec<String> = EXPRESSIONS.iter().map(|expr| format!("{{alert: A, online: true, expr: '{expr}'}}")).collect();
        let mut alarms = alarms(&format!("groups: [{{name: g, rules: [{}]}}]", rules.join(", ")), ROUTES);
        let mut memory = Memory::new();
        let names = ["temperature", "frames_total", "load"];
        let series: Vec<Arc<Labels>> = (0..9).map(|at| labels(names[at % 3], &(at / 3 + 1).to_string())).collect();
        for (at, labels) in series.iter().enumerate() {
            alarms.handle_new_series(SeriesHandle(at as u32), labels);
        }
        for step in 0..200_i64 {
            let now_ms = 100_000 + step * 100;
            for (at, labels) in series.iter().enumerate() {
                if next(4) == 0 {
                    let value = match at % 3 {
                        1 => (step as u64 / 2 + next(3)) as f64,
                        2 => next(90) as f64 / 10.0,
                        _ => next(90) as f64,
                    };
                    memory.insert(labels, sample(now_ms, value));
                    alarms.handle_samples(now_ms, &[(SeriesHandle(at as u32), sample(now_ms, value))]);
                }
            }
            alarms.poll(now_ms);
            if step % 10 != 0 {
                continue;
            }
            for (rule, expr) in EXPRESSIONS.iter().enumerate() {
                let evaluation = Evaluation { id: 0, query: (*expr).to_owned(), clear: None, at_ms: now_ms };
                let rows = evaluate(&memory, &evaluation, &Options::default()).unwrap().rows;
                let unnamed = |labels: &Labels| labels.filter(|name| name != "__name__").to_string();
                let rows = rows.iter();
                let mut wanted: Vec<(String, f64)> =
                    rows.map(|row| (unnamed(&row.labels), row.value)).collect();
                wanted.sort_by(|left, right| left.0.cmp(&right.0));
                let ids = alarms.alerts.of_rule(rule).filter_map(|id| alarms.alerts.get(id));
                let firing = ids.filter(|one| one.machine.state() == State::Firing);
                let mut found: Vec<(String, f64)> = firing
                    .map(|one| (one.key.to_string(), one.machine.value()))
                    .collect();
                found.sort_by(|left, right| left.0.cmp(&right.0));
                let is_close = |one: f64, other: f64| one == other || (one - other).abs() <= 1e-9 * one.abs().max(1.0);
                let is_near = |(left, right): (&(String, f64), &(String, f64))| {
                    left.0 == right.0 && is_close(left.1, right.1)
                };
                prop_assert!(found.len() == wanted.len() && found.iter().zip(&wanted).all(is_near), "{expr} at {now_ms}: {found:?}, expected {wanted:?}");
            }
        }
    }
}
