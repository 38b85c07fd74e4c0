//! Configuration of keepalived for directors that stand in for each other.
//!
//! A director has an instance of VRRP for each family, both in one group, so that the addresses of a service move
//! together. Whether a director is ready is asked of itself. One that is not loses priority instead of its addresses:
//! where no director is ready, the kernel of the last one still forwards.

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use crate::failover::FailoverConfig;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

/// Time between two questions whether the director is ready, in seconds.
const ASK_EVERY_S: u32 = 1;
/// Longest time of such a question, in seconds.
const ASK_TIMEOUT_S: u32 = 2;

impl GatewayConfig {
    /// Returns the configuration of keepalived on the director `name`. Equal files give equal texts.
    ///
    /// # Errors
    ///
    /// [`GatewayError::NoFailover`] without a table `[failover]`, [`GatewayError::NoDirector`] without the name in it.
    pub fn keepalived(&self, name: &str) -> Result<String, GatewayError> {
        let failover = self.failover.as_ref().ok_or(GatewayError::NoFailover)?;
        let (own, others) = failover.split(name)?;
        let all: BTreeSet<IpAddr> = self
            .services
            .iter()
            .flat_map(|service| service.addresses.iter().copied())
            .collect();
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "# Made by `sheaf serve keepalived` for the director {name}: make it again when gateway.toml changes.\n\
             global_defs {{\n    router_id sheaf-{name}\n    vrrp_version 3\n    enable_script_security\n    \
             script_user root\n}}\n\n"
        );
        let peers: Vec<String> = others.iter().map(|row| row.http.to_string()).collect();
        let program = failover.program.display();
        let _ = write!(
            text,
            "vrrp_script sheaf_ready {{\n    script \"{program} serve status --quiet --ready --director {} --peer {}\"\n    \
             interval {ASK_EVERY_S}\n    timeout {ASK_TIMEOUT_S}\n    fall 2\n    rise 2\n    weight -{}\n    \
             init_fail\n}}\n\n",
            own.http,
            peers.join(" "),
            FailoverConfig::UNREADY
        );
        let families: Vec<(u8, bool)> = [(4, true), (6, false)]
            .into_iter()
            .filter(|(_, is_v4)| all.iter().any(|address| address.is_ipv4() == *is_v4))
            .collect();
        if families.len() > 1 {
            text += "# Both families move together, by the same script and priorities.\n\
                     vrrp_sync_group sheaf {\n    group {\n        sheaf_v4\n        sheaf_v6\n    }\n    \
                     sync_group_tracking_weight\n}\n\n";
        }
        for (number, is_v4) in families {
            let own_address = own.address(is_v4).map(|address| address.to_string());
            let peers = others.iter().filter_map(|row| row.address(is_v4));
            let interface = failover.interface.as_ref();
            let interface = interface.unwrap_or(&self.director.interface);
            let seconds = failover.advert_ms as f64 / 1000.0;
            let _ = write!(
                text,
                "vrrp_instance sheaf_v{number} {{\n    state BACKUP\n    interface {interface}\n    \
                 virtual_router_id {}\n    priority {}\n    advert_int {seconds}\n    preempt_delay {}\n    \
                 unicast_src_ip {}\n    unicast_peer {{\n",
                failover.router_id,
                own.priority,
                failover.preempt_delay_s,
                own_address.unwrap_or_default(),
            );
            for peer in peers {
                let _ = writeln!(text, "        {peer}");
            }
            text += "    }\n    virtual_ipaddress {\n";
            for address in all.iter().filter(|address| address.is_ipv4() == is_v4) {
                let prefix = prefix(*address);
                // Deprecated, so that connections of the director itself do not begin from it.
                let rest = if is_v4 { "" } else { " preferred_lft 0" };
                let _ = writeln!(text, "        {address}/{prefix} dev {interface}{rest}");
            }
            text += "    }\n    track_script {\n        sheaf_ready\n    }\n}\n\n";
        }
        text.truncate(text.trim_end().len());
        Ok(text + "\n")
    }
}

/// Returns the length of the prefix that holds one address.
pub(crate) fn prefix(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[director]
name = "d1"
listen = "[::]:7400"
interface = "eth0"
[failover]
router_id = 80
[[failover.director]]
name = "d1"
addresses = ["10.80.0.2", "fd00:80::2"]
http = "10.80.0.2:7400"
priority = 150
[[failover.director]]
name = "d2"
addresses = ["10.80.0.3", "fd00:80::3"]
http = "10.80.0.3:7400"
priority = 100
[[service]]
name = "files"
addresses = ["10.80.0.100", "fd00:80::100"]
port = 80
[[service]]
name = "more"
addresses = ["10.80.0.100"]
port = 81
"#;

    fn parse(text: &str) -> Result<GatewayConfig, String> {
        let config: GatewayConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn each_director_has_its_own_priority_and_the_others_as_peers() {
        let config = parse(FILE).expect("a configuration");
        let first = config.keepalived("d1").expect("d1 is in it");
        assert_eq!(first, config.keepalived("d1").expect("it still is"));
        let second = config.keepalived("d2").expect("d2 is in it");
        for (text, expected) in [
            (&first, "priority 150"),
            (
                &first,
                "unicast_src_ip fd00:80::2\n    unicast_peer {\n        fd00:80::3\n    }",
            ),
            (
                &first,
                "virtual_ipaddress {\n        10.80.0.100/32 dev eth0\n    }",
            ),
            (
                &first,
                "        fd00:80::100/128 dev eth0 preferred_lft 0\n",
            ),
            (&first, "advert_int 0.3\n"),
            (&first, "--director 10.80.0.2:7400 --peer 10.80.0.3:7400\""),
            (&second, "priority 100"),
            (&second, "--director 10.80.0.3:7400 --peer 10.80.0.2:7400\""),
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }

    #[test]
    fn a_service_of_one_family_has_one_instance_and_no_group() {
        let text = FILE.replace(", \"fd00:80::100\"", "");
        let text = parse(&text).expect("a configuration").keepalived("d1");
        let text = text.expect("d1 is in it");
        assert!(
            !text.contains("sheaf_v6") && !text.contains("vrrp_sync_group"),
            "{text}"
        );
    }

    #[test]
    fn each_fault_of_the_table_names_what_was_found() {
        for (from, to, expected) in [
            ("router_id = 80", "router_id = 0", "found router_id = 0"),
            (
                "priority = 100",
                "priority = 150",
                "found priority = [150, 150]",
            ),
            (
                "priority = 100",
                "priority = 90",
                "found priority = [150, 90]",
            ),
            (", \"fd00:80::3\"", "", "one of IPv6"),
            ("name = \"d2\"", "name = \"d1\"", "names that differ"),
            (
                "router_id = 80",
                "router_id = 80\nadvert_ms = 55",
                "found advert_ms = 55",
            ),
            (
                "listen = \"[::]:7400\"",
                "",
                "found listen = \"127.0.0.1:7400\"",
            ),
            (
                "[director]\nname = \"d1\"",
                "[director]\nname = \"d3\"",
                "found director \"d3\"",
            ),
        ] {
            let text = FILE.replacen(from, to, 1);
            assert_ne!(text, FILE, "{from}");
            let error = parse(&text).expect_err(expected);
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn without_the_table_there_is_nothing_to_render() {
        let (start, rest) = FILE.split_once("[failover]").expect("it has one");
        let (_, services) = rest.split_once("[[service]]").expect("it has one");
        let config = parse(&format!("{start}[[service]]{services}")).expect("a configuration");
        let error = config.keepalived("d1").expect_err("no table");
        assert!(matches!(error, GatewayError::NoFailover), "{error}");
    }
}
