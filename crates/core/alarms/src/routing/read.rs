//! Reading of routing files.

use super::{Channel, GroupBy, Inhibition, RateLimit, Receiver, Route, Routing};
use crate::expression;
use crate::fields::Fields;
use crate::finding::{Collector, Findings};
use crate::yaml::{self, Node};
use sheaf_samples::Matcher;
use std::collections::BTreeSet;

/// Most routes of a file.
const ROUTES_MAX: usize = 1000;

impl Routing {
    /// Reads a routing file; `file` is its name in findings.
    ///
    /// # Errors
    ///
    /// All that is wrong in the file, with lines.
    pub fn parse(file: &str, text: &str) -> Result<Self, Findings> {
        let mut out = Collector::new(file);
        let routing = yaml::parse(text, &mut out).and_then(|root| read(&root, &mut out));
        out.finish(routing.unwrap_or_default())
    }
}

fn read(root: &Node, out: &mut Collector<'_>) -> Option<Routing> {
    let mut fields = Fields::of(root, "a table with \"route\" and \"receivers\"", out)?;
    let mut receivers: Vec<Receiver> = Vec::new();
    for node in fields.list("receivers", out) {
        let Some(receiver) = read_receiver(node, out) else {
            continue;
        };
        if receivers.iter().any(|one| one.name == receiver.name) {
            out.add(
                node.line,
                format!("receiver {:?} twice", receiver.name),
                "each name once",
            );
        }
        receivers.push(receiver);
    }
    let inhibitions = fields.list("inhibit_rules", out);
    let inhibitions = inhibitions
        .iter()
        .filter_map(|node| read_inhibition(node, out))
        .collect();
    let mut routes = Vec::new();
    match fields.take("route") {
        Some(node) => {
            read_route(node, None, &receivers, &mut routes, out);
        }
        None => out.add(fields.line, "no key \"route\"", "the root of all routes"),
    }
    fields.finish(out);
    Some(Routing {
        routes,
        receivers,
        inhibitions,
    })
}

fn read_matchers(
    key: &'static str,
    fields: &mut Fields<'_>,
    out: &mut Collector<'_>,
) -> Vec<Matcher> {
    let mut found = Vec::new();
    for (line, text) in fields.texts(key, out) {
        match expression::matcher(&text) {
            Ok(matcher) => found.push(matcher),
            Err(error) => out.add(line, error, "NAME=\"VALUE\", with =, !=, =~ or !~"),
        }
    }
    found
}

fn read_route(
    node: &Node,
    parent: Option<usize>,
    receivers: &[Receiver],
    routes: &mut Vec<Route>,
    out: &mut Collector<'_>,
) -> Option<usize> {
    let mut fields = Fields::of(node, "a route", out)?;
    if routes.len() >= ROUTES_MAX {
        out.add(node.line, format!("more than {ROUTES_MAX} routes"), "fewer");
        return None;
    }
    let mut route = match parent {
        Some(at) => Route {
            children: Vec::new(),
            limit: None,
            goes_on: false,
            ..routes[at].clone()
        },
        None => Route::root(),
    };
    let receiver_line = fields.take("receiver").map_or(node.line, |node| node.line);
    let receiver = fields.text("receiver", out);
    match receiver.map(|name| (receivers.iter().position(|one| one.name == name), name)) {
        Some((Some(at), _)) => route.receiver = at,
        Some((None, name)) => {
            let names: Vec<&str> = receivers.iter().map(|one| one.name.as_str()).collect();
            out.add(
                receiver_line,
                format!("receiver {name:?}"),
                format!("one of {}", names.join(", ")),
            );
        }
        None if parent.is_none() => out.add(
            node.line,
            "no key \"receiver\" in the root",
            "the name of a receiver",
        ),
        None => {}
    }
    let matchers_line = fields.take("matchers").map_or(node.line, |node| node.line);
    route.matchers = read_matchers("matchers", &mut fields, out);
    if parent.is_none() && !route.matchers.is_empty() {
        out.add(
            matchers_line,
            "matchers of the root",
            "none: every alert has a route",
        );
    }
    let has_group_by = fields.take("group_by").is_some();
    let group_by = fields.texts("group_by", out);
    if has_group_by {
        let is_all = group_by.iter().any(|one| one.1 == "...");
        let names: BTreeSet<String> = group_by.into_iter().map(|one| one.1).collect();
        route.group_by = if is_all {
            GroupBy::All
        } else {
            GroupBy::Labels(names)
        };
    }
    let mut duration = |key, default: i64| fields.duration(key, out).unwrap_or(default);
    route.group_wait_ms = duration("group_wait", route.group_wait_ms);
    route.group_interval_ms = duration("group_interval", route.group_interval_ms).max(1);
    route.repeat_ms = duration("repeat_interval", route.repeat_ms).max(1);
    route.goes_on = fields.flag("continue", out).unwrap_or(false);
    route.limit = fields
        .take("rate_limit")
        .and_then(|node| read_limit(node, out));
    let children = fields.list("routes", out);
    fields.finish(out);
    let at = routes.len();
    if let Some(parent) = parent {
        route.path = format!("{}.{}", routes[parent].path, routes[parent].children.len());
    }
    routes.push(route);
    for node in children {
        if let Some(child) = read_route(node, Some(at), receivers, routes, out) {
            routes[at].children.push(child);
        }
    }
    Some(at)
}

fn read_limit(node: &Node, out: &mut Collector<'_>) -> Option<RateLimit> {
    let mut fields = Fields::of(node, "a table with \"notifications\" and \"in\"", out)?;
    let line = fields.line;
    let notifications = fields.count("notifications", (1, 10_000), out);
    let in_ms = fields.duration("in", out).filter(|ms| *ms > 0);
    fields.finish(out);
    if notifications.is_none() || in_ms.is_none() {
        out.add(
            line,
            "a rate limit without both keys",
            "\"notifications\" and \"in\"",
        );
    }
    Some(RateLimit {
        notifications: notifications?,
        in_ms: in_ms?,
    })
}

fn read_receiver(node: &Node, out: &mut Collector<'_>) -> Option<Receiver> {
    let mut fields = Fields::of(node, "a receiver with \"name\"", out)?;
    let name = fields.required("name", out);
    let mut channels = Vec::new();
    if fields.flag("log", out) == Some(true) {
        channels.push(Channel::Log);
    }
    for node in fields.list("webhook_configs", out) {
        let Some(mut fields) = Fields::of(node, "a table with \"url\"", out) else {
            continue;
        };
        let url = fields.required("url", out);
        let secret_file = fields.text("secret_file", out);
        check_url(node.line, url.as_deref(), out);
        fields.finish(out);
        channels.extend(url.map(|url| Channel::Webhook { url, secret_file }));
    }
    for node in fields.list("alertmanager_configs", out) {
        let Some(mut fields) = Fields::of(node, "a table with \"url\"", out) else {
            continue;
        };
        let url = fields.required("url", out);
        check_url(node.line, url.as_deref(), out);
        fields.finish(out);
        channels.extend(url.map(|url| Channel::Alertmanager {
            url: url.trim_end_matches('/').to_owned(),
        }));
    }
    for node in fields.list("email_configs", out) {
        let Some(mut fields) = Fields::of(node, "a table with \"to\"", out) else {
            continue;
        };
        let (to, from) = (fields.required("to", out), fields.text("from", out));
        for address in [&to, &from].into_iter().flatten() {
            if !address.contains('@') || address.contains(['\r', '\n']) {
                out.add(node.line, format!("address {address:?}"), "NAME@HOST");
            }
        }
        fields.finish(out);
        channels.extend(to.map(|to| Channel::Email { to, from }));
    }
    fields.finish(out);
    Some(Receiver {
        name: name?,
        channels,
    })
}

fn check_url(line: usize, url: Option<&str>, out: &mut Collector<'_>) {
    if let Some(url) = url.filter(|url| !url.starts_with("http://") && !url.starts_with("https://"))
    {
        out.add(line, format!("address {url:?}"), "http://… or https://…");
    }
}

fn read_inhibition(node: &Node, out: &mut Collector<'_>) -> Option<Inhibition> {
    let mut fields = Fields::of(
        node,
        "a table with \"source_matchers\" and \"target_matchers\"",
        out,
    )?;
    let sources = read_matchers("source_matchers", &mut fields, out);
    let targets = read_matchers("target_matchers", &mut fields, out);
    let equal = fields
        .texts("equal", out)
        .into_iter()
        .map(|one| one.1)
        .collect();
    fields.finish(out);
    if sources.is_empty() || targets.is_empty() {
        out.add(
            node.line,
            "an inhibition without matchers",
            "\"source_matchers\" and \"target_matchers\"",
        );
        return None;
    }
    Some(Inhibition {
        sources,
        targets,
        equal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::Labels;

    const FILE: &str = r#"
route:
  receiver: ops
  group_by: [alertname]
  group_wait: 10s
  routes:
  - matchers: ['severity="page"']
    receiver: pager
    continue: true
    rate_limit: {notifications: 10, in: 1h}
    routes:
    - matchers: [team=disk]
      receiver: disk
  - matchers: ['severity=~"page|ticket"']
    group_by: ['...']
receivers:
- name: ops
  log: true
- name: pager
  webhook_configs: [{url: "http://localhost:1/hook", secret_file: hook.key}]
- name: disk
  email_configs: [{to: disk@example.org}]
inhibit_rules:
- source_matchers: [alertname=NoLeader]
  target_matchers: [severity=ticket]
  equal: [farm]
"#;

    fn routes(labels: &[(&str, &str)]) -> Vec<String> {
        let routing = Routing::parse("routes.yml", FILE).unwrap();
        let labels = Labels::new(labels.iter().copied()).unwrap();
        let name = |at: usize| {
            let route = &routing.routes[at];
            format!("{} {}", route.path, routing.receivers[route.receiver].name)
        };
        routing.routes_of(&labels).into_iter().map(name).collect()
    }

    #[test]
    fn alerts_take_the_deepest_routes_that_match() {
        assert_eq!(routes(&[("severity", "page")]), ["0.0 pager", "0.1 ops"]);
        assert_eq!(
            routes(&[("severity", "page"), ("team", "disk")]),
            ["0.0.0 disk", "0.1 ops"]
        );
        assert_eq!(routes(&[("severity", "ticket")]), ["0.1 ops"]);
        assert_eq!(routes(&[("severity", "info")]), ["0 ops"]);
    }

    #[test]
    fn routes_inherit_all_but_limit_and_matchers() {
        let routing = Routing::parse("routes.yml", FILE).unwrap();
        let times: Vec<_> = routing
            .routes
            .iter()
            .map(|route| route.group_wait_ms)
            .collect();
        assert_eq!(times, [10_000; 4]);
        assert_eq!(routing.routes[3].group_by, GroupBy::All);
        assert_eq!(
            routing.routes[1].limit,
            Some(RateLimit {
                notifications: 10,
                in_ms: 3_600_000
            })
        );
        assert_eq!(routing.routes[2].limit, None);
    }

    #[test]
    fn an_alert_hides_others_but_not_its_like() {
        let routing = Routing::parse("routes.yml", FILE).unwrap();
        let labels = |name, severity, farm| {
            Labels::new([("alertname", name), ("severity", severity), ("farm", farm)]).unwrap()
        };
        let hides = |source: &Labels, target: &Labels| routing.inhibitions[0].hides(source, target);
        let source = labels("NoLeader", "page", "a");
        assert!(hides(&source, &labels("Slow", "ticket", "a")));
        assert!(!hides(&source, &labels("Slow", "ticket", "b")));
        assert!(!hides(&source, &labels("Slow", "page", "a")));
        let both = labels("NoLeader", "ticket", "a");
        assert!(!hides(&both, &both));
    }

    #[test]
    fn everything_wrong_is_named_at_once() {
        let text = "route:\n  receiver: ops\n  group_wait: never\n  routes: [{receiver: none, matchers: [x]}]\nreceivers:\n- name: a\n  webhook_configs: [{url: here}]\nextra: 1\n";
        let findings = Routing::parse("r.yml", text).unwrap_err();
        let found: Vec<_> = findings.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "r.yml:2: receiver \"ops\", expected one of a",
                "r.yml:3: \"never\" under \"group_wait\", expected a duration such as 5m or 1h30m",
                "r.yml:4: receiver \"none\", expected one of a",
                "r.yml:4: matcher \"x\", expected NAME=\"VALUE\", with =, !=, =~ or !~",
                "r.yml:7: address \"here\", expected http://… or https://…",
                "r.yml:8: key \"extra\", expected one of receivers, inhibit_rules, route",
            ]
        );
    }
}
