//! Alarms as a whole: from samples to notifications and orders, in virtual time.

use super::*;
use crate::notify::Status;
use crate::state::State;
use proptest::prelude::*;
use sheaf_query::{Memory, Options};

mod properties;

const ROUTES: &str = r#"
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 1s
  group_interval: 10s
  repeat_interval: 60s
  routes:
  - matchers: [severity=page]
    receiver: pager
    rate_limit: {notifications: 3, in: 30s}
receivers:
- {name: ops, log: true}
- {name: pager, webhook_configs: [{url: "http://localhost/hook"}]}
inhibit_rules:
- {source_matchers: [alertname=Rack], target_matchers: [alertname=Hot], equal: [rack]}
"#;

const RULES: &str = r#"
groups:
- name: test
  interval: 1s
  rules:
  - {alert: Hot, expr: temperature > 60, online: true, for: 2s, clear: 55, keep_firing_for: 1s,
     annotations: {summary: "{{ $labels.epn }} {{ $value }}"}}
  - {alert: Rack, expr: "sum by (rack) (load) > 10", online: true, labels: {severity: page}}
  - {alert: Gone, expr: temperature < 0, online: true, nodata: {for: 5s, state: firing}}
  - alert: Fast
    expr: rate(frames_total[4s]) > 3
    online: true
    action: {order: set-weight, weight: 0.5, undo: 1, target: "epn {{ $labels.epn }}",
              dry_run: false, limit: {nodes: 2, in: 20s}, cooldown: 3s}
  - {alert: Odd, expr: temperature, online: true, band: {half_life: 5s, sigma: 3, warmup: 5}}
  - {alert: None, expr: "absent_over_time(load[3s])", online: true}
  - {alert: LateHot, expr: "max_over_time(temperature[3s]) > 70", for: 2s, nodata: {for: 4s}}
  - {record: farm:load, expr: sum(load), labels: {team: daq}}
"#;

fn alarms(rules: &str, routes: &str) -> Alarms {
    let rules = RuleFile::parse("rules.yml", rules).unwrap_or_else(|error| panic!("{error}"));
    let routes = Routing::parse("routes.yml", routes).unwrap_or_else(|error| panic!("{error}"));
    let config = AlarmsConfig {
        orders_nodes_max: 3,
        orders_in_ms: 20_000,
        sources: SourceConfig {
            settle_ms: 0,
            ..SourceConfig::default()
        },
        ..AlarmsConfig::default()
    };
    Alarms::new(config, &[rules], routes)
}

fn labels(name: &str, epn: &str) -> Arc<Labels> {
    let rack = if epn == "1" { "a" } else { "b" };
    Arc::new(Labels::new([("__name__", name), ("epn", epn), ("rack", rack)]).unwrap())
}

fn sample(at_ms: i64, value: f64) -> Sample {
    Sample { at_ms, value }
}

/// One rule and one series `x`; values at seconds; gives transitions as `seconds state`.
fn transitions(rule: &str, values: &[(i64, f64)], until_s: i64) -> String {
    let mut alarms = alarms(
        &format!("groups: [{{name: g, rules: [{{alert: A, {rule}}}]}}]"),
        ROUTES,
    );
    alarms.handle_new_series(SeriesHandle(0), &labels("x", "1"));
    for now_ms in (0..=until_s * 1000).step_by(100) {
        for (at_s, value) in values {
            if at_s * 1000 == now_ms {
                alarms.handle_samples(now_ms, &[(SeriesHandle(0), sample(now_ms, *value))]);
            }
        }
        alarms.poll(now_ms);
    }
    let all = std::iter::from_fn(|| alarms.poll_transition());
    all.map(|one| format!("{} {}", one.at_ms as f64 / 1000.0, one.to))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
fn a_threshold_fires_on_arrival() {
    let mut alarms = alarms(
        "groups: [{name: g, rules: [{alert: A, expr: x > 1, online: true}]}]",
        ROUTES,
    );
    assert!(alarms.handle_new_series(SeriesHandle(7), &labels("x", "1")));
    assert!(!alarms.handle_new_series(SeriesHandle(8), &labels("y", "1")));
    alarms.handle_samples(
        123,
        &[
            (SeriesHandle(7), sample(100, 2.0)),
            (SeriesHandle(8), sample(100, 2.0)),
        ],
    );
    let transition = alarms.poll_transition().unwrap();
    assert_eq!(
        (transition.at_ms, transition.to, transition.value),
        (123, State::Firing, 2.0)
    );
    assert_eq!(
        transition.labels.to_string(),
        r#"{alertname="A", epn="1", rack="a"}"#
    );
    assert!(alarms.poll_transition().is_none());
}

#[test]
fn every_kind_of_online_rule_fires_and_ends() {
    let ramp: Vec<(i64, f64)> = (0..20)
        .map(|at| (at, (at.clamp(5, 10) * 10) as f64))
        .collect();
    assert_eq!(
        transitions("expr: \'rate(x[4s]) > 5\', online: true", &ramp, 20),
        "8 firing, 12 resolved"
    );
    assert_eq!(
        transitions(
            "expr: \'changes(x[4s]) == 0\', online: true, for: 4s",
            &ramp,
            12
        ),
        "0 pending, 4 firing, 6 resolved"
    );
    assert_eq!(
        transitions(
            "expr: x > 60, clear: 55, online: true",
            &[(0, 70.0), (1, 58.0), (2, 50.0)],
            3
        ),
        "0 firing, 2 resolved"
    );
    let steady: Vec<(i64, f64)> = (0..30)
        .map(|at| (at, if at == 20 { 50.0 } else { (at % 2) as f64 }))
        .collect();
    assert_eq!(
        transitions(
            "expr: x, band: {half_life: 10s, sigma: 4, warmup: 10}, online: true",
            &steady,
            29
        ),
        "20 firing, 21 resolved"
    );
    assert_eq!(
        transitions(
            "expr: 'absent_over_time(x[2s])', online: true",
            &[(0, 1.0), (5, 1.0)],
            6
        ),
        "2 firing, 5 resolved"
    );
    assert_eq!(
        transitions(
            "expr: x > 1, online: true, nodata: {for: 2s, state: firing}",
            &[(0, 0.0), (5, 0.0), (6, 0.0), (7, 0.0)],
            8
        ),
        "2 firing, 7 resolved"
    );
}

/// Polls notifications of `seconds`, in steps of 100 ms, and confirms them: `seconds receiver status alerts`.
fn notified(alarms: &mut Alarms, seconds: std::ops::Range<i64>) -> Vec<String> {
    let mut found = Vec::new();
    for now_ms in (seconds.start * 1000..seconds.end * 1000).step_by(100) {
        alarms.poll(now_ms);
        while let Some(one) = alarms.poll_notification(now_ms) {
            let alerts = one.alerts.iter().map(|alert| {
                format!(
                    "{}={}",
                    alert
                        .labels
                        .get("epn")
                        .or(alert.labels.get("rack"))
                        .unwrap_or("-"),
                    alert.status.name()
                )
            });
            let alerts = alerts.collect::<Vec<_>>().join(" ");
            found.push(format!(
                "{} {} {} {alerts}",
                now_ms as f64 / 1000.0,
                one.receiver,
                one.status.name()
            ));
            alarms.handle_delivered(one.id);
        }
    }
    found
}

const PLAIN: &str = "groups: [{name: g, rules: [{alert: Hot, expr: temperature > 60, online: true}, {alert: Rack, expr: load > 1, online: true, labels: {severity: page}}]}]";

fn heat(alarms: &mut Alarms, now_s: i64, epn: u32, value: f64) {
    let now_ms = now_s * 1000;
    alarms.handle_new_series(SeriesHandle(epn), &labels("temperature", &epn.to_string()));
    alarms.handle_samples(now_ms, &[(SeriesHandle(epn), sample(now_ms, value))]);
}

#[test]
fn alerts_of_a_group_come_together_and_again_only_with_news() {
    let mut alarms = alarms(PLAIN, ROUTES);
    heat(&mut alarms, 0, 1, 70.0);
    heat(&mut alarms, 0, 2, 70.0);
    assert_eq!(
        notified(&mut alarms, 0..3),
        ["1 ops firing 1=firing 2=firing"]
    );
    heat(&mut alarms, 3, 2, 50.0);
    heat(&mut alarms, 4, 2, 70.0);
    assert!(
        notified(&mut alarms, 4..20).is_empty(),
        "no news at the looks at 11 s"
    );
    heat(&mut alarms, 20, 2, 50.0);
    assert_eq!(
        notified(&mut alarms, 20..40),
        ["21 ops firing 1=firing 2=resolved"]
    );
    // Repeated at the first look after the interval.
    assert_eq!(notified(&mut alarms, 40..90), ["81 ops firing 1=firing"]);
    heat(&mut alarms, 90, 1, 50.0);
    assert_eq!(
        notified(&mut alarms, 90..300),
        ["91 ops resolved 1=resolved"]
    );
}

#[test]
fn silenced_and_hidden_alerts_are_left_out() {
    let mut alarms = alarms(PLAIN, ROUTES);
    let request = SilenceRequest {
        matchers: SilenceRequest::matchers(&["epn=2"]).unwrap(),
        from_ms: 0,
        to_ms: 15_000,
        author: "a".to_owned(),
        comment: String::new(),
    };
    let id = alarms.create_silence(0, request).unwrap();
    alarms.handle_new_series(SeriesHandle(9), &labels("load", "1"));
    alarms.handle_samples(0, &[(SeriesHandle(9), sample(0, 2.0))]);
    heat(&mut alarms, 0, 1, 70.0);
    heat(&mut alarms, 0, 2, 70.0);
    let silences: Vec<_> = alarms
        .alerts(0)
        .map(|one| (one.silence, one.is_hidden))
        .collect();
    assert_eq!(silences, [(None, true), (Some(id), false), (None, false)]);
    assert_eq!(notified(&mut alarms, 0..10), ["1 pager firing 1=firing"]);
    // The silence ends at 15 s, seen by the look at 21 s; the hidden one stays hidden.
    assert_eq!(notified(&mut alarms, 10..30), ["21 ops firing 2=firing"]);
    alarms.handle_samples(30_000, &[(SeriesHandle(9), sample(30_000, 0.0))]);
    assert_eq!(
        notified(&mut alarms, 30..50),
        [
            "31 pager resolved 1=resolved",
            "31 ops firing 1=firing 2=firing"
        ]
    );
}

#[test]
fn a_rate_limit_delays_and_loses_nothing() {
    let routes = ROUTES.replace("rate_limit", "group_by: ['...'], rate_limit");
    let routes = routes.replace(
        "    group_by: ['...'], rate_limit",
        "    group_by: ['...']\n    rate_limit",
    );
    let mut alarms = alarms(PLAIN, &routes);
    for epn in 1..=5 {
        let handle = SeriesHandle(epn);
        alarms.handle_new_series(handle, &labels("load", &epn.to_string()));
        alarms.handle_samples(0, &[(handle, sample(0, 2.0))]);
    }
    let found = notified(&mut alarms, 0..60);
    let times: Vec<&str> = found
        .iter()
        .map(|one| one.split(' ').next().unwrap())
        .collect();
    assert_eq!(times, ["1", "1", "1", "31", "31"]);
    assert!(alarms.notify_stats().limited >= 2);
}

#[test]
fn deliveries_are_tried_again_given_up_and_told_again() {
    let mut alarms = alarms(PLAIN, ROUTES);
    alarms.config.delivery.attempts_max = 3;
    heat(&mut alarms, 0, 1, 70.0);
    let mut attempts = Vec::new();
    for now_ms in (0..12_000).step_by(100) {
        alarms.poll(now_ms);
        while let Some(one) = alarms.poll_notification(now_ms) {
            attempts.push(now_ms);
            alarms.handle_failed(now_ms, one.id);
        }
    }
    // After 1 s and 2 s more; given up, and notified again at the look at 11 s.
    assert_eq!(attempts, [1_000, 2_000, 4_000, 11_000]);
    assert_eq!(
        (alarms.notify_stats().dropped, alarms.notify_stats().failed),
        (1, 4)
    );
    heat(&mut alarms, 12, 1, 50.0);
    assert_eq!(
        notified(&mut alarms, 12..40),
        ["12 ops firing 1=firing", "21 ops resolved 1=resolved"]
    );
}

#[test]
fn a_full_queue_makes_groups_wait() {
    let routes = ROUTES.replace("group_by: [alertname]", "group_by: ['...']");
    let mut alarms = alarms(PLAIN, &routes);
    alarms.config.delivery.queue_max = 2;
    for epn in 1..=4 {
        heat(&mut alarms, 0, epn, 70.0);
    }
    for now_ms in (0..5_000).step_by(100) {
        alarms.poll(now_ms);
    }
    assert_eq!(
        (
            alarms.notifications_waiting(),
            alarms.notify_stats().deferred
        ),
        (2, 2)
    );
    assert_eq!(notified(&mut alarms, 5..30).len(), 4);
}

#[test]
fn a_newer_notification_takes_the_place_of_one_that_waits() {
    let mut alarms = alarms(PLAIN, ROUTES);
    heat(&mut alarms, 0, 1, 70.0);
    heat(&mut alarms, 0, 2, 70.0);
    assert_eq!(notified(&mut alarms, 0..2).len(), 1);
    heat(&mut alarms, 2, 1, 50.0);
    for now_ms in (2_000..12_000).step_by(100) {
        alarms.poll(now_ms);
    }
    heat(&mut alarms, 12, 2, 50.0);
    for now_ms in (12_000..22_000).step_by(100) {
        alarms.poll(now_ms);
    }
    let one = alarms.poll_notification(22_000).unwrap();
    assert_eq!(one.status, Status::Resolved);
    assert_eq!(one.alerts.len(), 2, "both ends are in it");
    assert!(alarms.poll_notification(22_000).is_none());
    assert_eq!(alarms.notify_stats().superseded, 1);
}

#[test]
fn late_rules_are_due_at_multiples_and_keep_state_when_a_query_fails() {
    let rules = "groups: [{name: g, interval: 10s, rules: [{record: r, expr: sum(x), labels: {a: b}}, {alert: A, expr: x > 1}]}]";
    let mut alarms = alarms(rules, ROUTES);
    let mut memory = Memory::new();
    memory.insert(&labels("x", "1"), sample(9_000, 2.0));
    let due = alarms.due(13_000);
    assert_eq!(
        due.iter()
            .map(|one| (one.query.as_str(), one.at_ms))
            .collect::<Vec<_>>(),
        [("sum(x)", 10_000), ("x > 1", 10_000)]
    );
    assert!(alarms.due(14_000).is_empty());
    for one in due {
        let result = evaluate(&memory, &one, &Options::default());
        alarms.handle_evaluated(13_000, one.id, result);
    }
    let recorded = alarms.poll_recorded().unwrap();
    assert_eq!(
        (recorded.labels.to_string(), recorded.sample),
        (r#"r{a="b"}"#.to_owned(), sample(10_000, 2.0))
    );
    assert_eq!(
        alarms.poll_transition().map(|one| one.to),
        Some(State::Firing)
    );
    let due = alarms.due(40_000);
    alarms.handle_evaluated(40_000, due[1].id, Err("the store failed: disk".to_owned()));
    assert!(alarms.poll_transition().is_none());
    let rule = alarms.rules().next().unwrap();
    assert_eq!(
        (rule.error, rule.state),
        (Some("the store failed: disk"), State::Firing)
    );
    // Two times passed at 40 s, and the first query of then has no result at 50 s.
    assert!(alarms.due(50_000).is_empty());
    assert_eq!(
        (
            alarms.stats().evaluations_missed,
            alarms.stats().evaluations_failed
        ),
        (3, 1)
    );
}

#[test]
fn an_expression_that_ends_alerts_is_asked_for_those_that_fire() {
    let rules =
        "groups: [{name: g, interval: 1s, rules: [{alert: A, expr: x > 10, clear: x < 5}]}]";
    let mut alarms = alarms(rules, ROUTES);
    let mut memory = Memory::new();
    let mut states = Vec::new();
    for (at_s, value) in [(1, 11.0), (2, 7.0), (3, 4.0), (4, 7.0)] {
        memory.insert(&labels("x", "1"), sample(at_s * 1000, value));
        for one in alarms.due(at_s * 1000) {
            alarms.handle_evaluated(
                at_s * 1000,
                one.id,
                evaluate(&memory, &one, &Options::default()),
            );
        }
        states.push(alarms.rules().next().unwrap().state.name());
    }
    assert_eq!(states, ["firing", "firing", "resolved", "resolved"]);
}

#[test]
fn alerts_of_a_rule_are_bounded() {
    let rules =
        "groups: [{name: g, limit: 2, rules: [{alert: A, expr: temperature > 1, online: true}]}]";
    let mut alarms = alarms(rules, ROUTES);
    for epn in 1..=4 {
        heat(&mut alarms, 0, epn, 70.0);
    }
    assert_eq!(
        (alarms.alerts(0).count(), alarms.stats().alerts_refused),
        (2, 2)
    );
    assert_eq!(
        alarms.rules().next().unwrap().error,
        Some("more than 2 alerts, expected fewer")
    );
}

#[test]
fn an_alert_whose_rule_was_taken_away_is_resolved() {
    let mut old = alarms(PLAIN, ROUTES);
    heat(&mut old, 0, 1, 70.0);
    assert_eq!(notified(&mut old, 0..2).len(), 1);
    let mut new = alarms("groups: []", ROUTES);
    let restored = new.restore(2_000, &old.save(2_000)).unwrap();
    assert_eq!((restored.alerts, restored.alerts_without_rule), (0, 1));
    assert_eq!(notified(&mut new, 2..30), ["11 ops resolved 1=resolved"]);
}

#[test]
fn a_reload_keeps_what_is_with_the_driver() {
    let mut alarms = alarms(PLAIN, ROUTES);
    heat(&mut alarms, 0, 1, 70.0);
    let handed = (0..100).find_map(|tenth| {
        alarms.poll(tenth * 100);
        alarms.poll_notification(tenth * 100)
    });
    let handed = handed.unwrap();
    let rules = RuleFile::parse("rules.yml", PLAIN).unwrap();
    let routes = Routing::parse("routes.yml", ROUTES).unwrap();
    let (transitions, config) = (alarms.stats().transitions, alarms.config.clone());
    let restored = alarms.reload(10_000, config, &[rules], routes).unwrap();
    assert_eq!((restored.alerts, restored.pause_ms), (1, 0));
    assert_eq!(alarms.stats().transitions, transitions);
    assert!(
        alarms.poll_notification(10_000).is_none(),
        "handed out twice"
    );
    alarms.handle_delivered(handed.id);
    assert_eq!(alarms.notifications_waiting(), 0);
}

#[test]
fn a_pause_is_not_held_against_sources_and_nothing_fires_unseen() {
    let rules =
        "groups: [{name: g, rules: [{alert: A, expr: temperature > 1, online: true, for: 10s}]}]";
    let mut old = alarms(rules, ROUTES);
    heat(&mut old, 0, 1, 70.0);
    old.handle_source_seen(0, "agent");
    let mut new = alarms(rules, ROUTES);
    let restored = new.restore(60_000, &old.save(1_000)).unwrap();
    assert_eq!((restored.alerts, restored.pause_ms), (2, 59_000));
    new.poll(60_000);
    new.poll(88_000);
    assert!(
        new.poll_transition().is_none(),
        "29 s of silence of the source, and no sample of the series"
    );
    heat(&mut new, 88, 1, 70.0);
    let transition = new.poll_transition().unwrap();
    assert_eq!(
        (transition.alert.as_str(), transition.to),
        ("A", State::Firing),
        "`for` went on"
    );
    new.poll(89_000);
    assert_eq!(
        new.poll_transition().map(|one| one.alert),
        Some("SourceSilent".to_owned())
    );
}

#[test]
fn damaged_state_changes_nothing() {
    let mut alarms = alarms(PLAIN, ROUTES);
    let mut bytes = alarms.save(0);
    bytes.push(b' ');
    assert!(alarms.restore(0, &bytes).is_err());
}
