//! Rules of the firewall, in the language of `nft`, that disturb what a network device sends and receives.

/// Which packets between a node and the others are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All.
    Both,
    /// Packets that arrive.
    In,
    /// Packets that leave.
    Out,
}

/// Returns rules that drop packets of `way`: those from and to the address `peer`, or all of `eth0` if it is `None`.
#[must_use]
pub fn cut(way: Way, peer: Option<&str>) -> String {
    let (from, to) = match peer {
        None => (
            "iifname eth0 drop".to_owned(),
            "oifname eth0 drop".to_owned(),
        ),
        Some(peer) => (
            format!("ip saddr {peer} drop"),
            format!("ip daddr {peer} drop"),
        ),
    };
    let (input, output) = (chain("input", &from), chain("output", &to));
    match way {
        Way::Both => format!("{input}\n{output}"),
        Way::In => input,
        Way::Out => output,
    }
}

/// Returns a rule that drops `per_mille` of 1000 TCP packets that arrive.
#[must_use]
pub fn lose(per_mille: u32) -> String {
    let rule = format!("numgen random mod 1000 < {per_mille} drop");
    chain("input", &format!("tcp dport 1-65535 {rule}"))
}

/// Returns a rule that sends every TCP packet twice.
#[must_use]
pub fn duplicate() -> String {
    let chain = "type filter hook egress device eth0 priority 0;\n  ip protocol tcp dup to eth0";
    format!("table netdev lab {{\n chain out {{\n  {chain}\n }}\n}}")
}

/// Returns a rule that answers every TCP packet that arrives with a reset.
#[must_use]
pub fn reset() -> String {
    chain("input", "tcp dport 1-65535 reject with tcp reset")
}

/// A chain of filter rules at `hook`.
fn chain(hook: &str, rule: &str) -> String {
    format!(
        "table inet lab-{hook} {{\n chain {hook} {{\n  type filter hook {hook} priority 0;\n  {rule}\n }}\n}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_one_chain_a_way() {
        assert_eq!(
            cut(Way::In, None),
            "table inet lab-input {\n chain input {\n  type filter hook input priority 0;\n  iifname eth0 drop\n }\n}"
        );
        let both = cut(Way::Both, Some("10.77.0.2"));
        assert!(
            both.contains("ip saddr 10.77.0.2 drop") && both.contains("ip daddr 10.77.0.2 drop")
        );
        let out = cut(Way::Out, None);
        assert!(out.contains("oifname eth0 drop") && !out.contains("iifname"));
    }
}
