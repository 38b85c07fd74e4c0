//! Reading of the keys that rules have beside those of Prometheus.

use super::templates::add_template;
use super::{Action, ActionOrder, NoData, NoDataState, OrderLimit};
use crate::fields::Fields;
use crate::finding::Collector;
use crate::online::Band;
use crate::template::Template;
use crate::yaml::Node;

pub(super) fn read_nodata(node: &Node, out: &mut Collector<'_>) -> Option<NoData> {
    const STATES: [(&str, NoDataState); 4] = [
        ("nodata", NoDataState::NoData),
        ("firing", NoDataState::Firing),
        ("ok", NoDataState::Ok),
        ("keep", NoDataState::Keep),
    ];
    let mut fields = Fields::of(node, "a table with \"for\" and \"state\"", out)?;
    let for_ms = fields.duration("for", out);
    if for_ms.is_none_or(|ms| ms <= 0) {
        out.add(
            fields.line,
            "\"nodata\" without time",
            "a duration above 0 under \"for\"",
        );
    }
    let state = fields
        .choice("state", &STATES.map(|one| one.0), out)
        .map_or(NoDataState::NoData, |at| STATES[at].1);
    fields.finish(out);
    Some(NoData {
        for_ms: for_ms?,
        state,
    })
}

pub(super) fn read_band(node: &Node, out: &mut Collector<'_>) -> Option<Band> {
    let mut fields = Fields::of(
        node,
        "a table with \"half_life\", \"sigma\" and \"warmup\"",
        out,
    )?;
    let half_life_ms = fields.duration("half_life", out).unwrap_or(300_000).max(1);
    let sigma = fields.number("sigma", (0.1, 1000.0), out).unwrap_or(4.0);
    let warmup = fields.count("warmup", (1, 1_000_000), out).unwrap_or(30);
    fields.finish(out);
    Some(Band {
        half_life_ms,
        sigma,
        warmup,
    })
}

pub(super) fn read_action(node: &Node, out: &mut Collector<'_>) -> Option<Action> {
    let mut fields = Fields::of(node, "a table with \"order\"", out)?;
    let order = fields.choice("order", &["drain", "set-weight", "stop"], out);
    if fields.take("order").is_none() {
        out.add(
            fields.line,
            "no key \"order\"",
            "one of drain, set-weight, stop",
        );
    }
    let target_line = fields.take("target").map_or(fields.line, |node| node.line);
    let target = fields
        .text("target", out)
        .and_then(|text| match Template::parse(&text) {
            Ok(template) => Some(template),
            Err(error) => {
                add_template(target_line, "target", &error, out);
                None
            }
        });
    let weight = fields.number("weight", (0.0, 1000.0), out);
    let undo = fields.number("undo", (0.0, 1000.0), out);
    let is_dry_run = fields.flag("dry_run", out).unwrap_or(true);
    let limit = fields
        .take("limit")
        .map_or(Some(OrderLimit::default()), |node| read_limit(node, out));
    let cooldown_ms = fields.duration("cooldown", out).unwrap_or(600_000);
    let line = fields.line;
    fields.finish(out);
    let milli = |weight: f64| (weight * 1000.0).round() as u32;
    let order = match order? {
        0 => ActionOrder::Drain,
        1 => match weight {
            Some(weight) => ActionOrder::SetWeight {
                weight_milli: milli(weight),
                undo_milli: undo.map(milli),
            },
            None => {
                out.add(
                    line,
                    "set-weight without weight",
                    "a number under \"weight\"",
                );
                return None;
            }
        },
        _ => ActionOrder::Stop,
    };
    let is_stop = order == ActionOrder::Stop;
    if is_stop != target.is_none() {
        let found = if is_stop {
            "a target of stop"
        } else {
            "an order without target"
        };
        out.add(
            line,
            found,
            "a target such as \"epn {{ $labels.epn }}\" for drain and set-weight alone",
        );
        return None;
    }
    Some(Action {
        order,
        target,
        is_dry_run,
        limit: limit?,
        cooldown_ms,
    })
}

fn read_limit(node: &Node, out: &mut Collector<'_>) -> Option<OrderLimit> {
    let mut fields = Fields::of(node, "a table with \"nodes\" and \"in\"", out)?;
    let default = OrderLimit::default();
    let nodes = fields
        .count("nodes", (1, 100_000), out)
        .unwrap_or(default.nodes);
    let in_ms = fields.duration("in", out).unwrap_or(default.in_ms);
    fields.finish(out);
    Some(OrderLimit { nodes, in_ms })
}
