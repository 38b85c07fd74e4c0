//! Changes of this machine.

use super::finding::{Repair, sysctl_name};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs a program of Debian's `package` with `input` to read. Returns what it prints.
pub(super) fn tool(
    name: &str,
    package: &str,
    words: &[&str],
    input: &str,
) -> Result<String, String> {
    let missing =
        |error| format!("{name} cannot be started ({error}); on Debian: apt-get install {package}");
    let mut child = Command::new(name)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    let pipe = child.stdin.take();
    let written = pipe.map_or(Ok(()), |mut pipe| pipe.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(missing)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let first = text.lines().find(|line| !line.trim().is_empty());
        return Err(format!(
            "{name} refused: {}",
            first.unwrap_or("no reason").trim()
        ));
    }
    written.map_err(missing)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Makes one change.
pub(super) fn make(repair: &Repair) -> Result<(), String> {
    let run = |name, package, words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        tool(name, package, &words, "").map(drop)
    };
    match repair {
        Repair::Set { key, value } => {
            let path = Path::new("/proc/sys").join(key);
            let written = std::fs::write(&path, value);
            written.map_err(|error| format!("{}: {error}", path.display()))
        }
        Repair::Ip(words) => run("ip", "iproute2", words),
        Repair::Ethtool(words) => run("ethtool", "ethtool", words),
    }
}

/// Returns how changes outlive a restart of the machine: lines for a file of sysctl.d, and commands for the
/// configuration of the network. Of several values of one setting the last counts.
pub(super) fn lasting(repairs: &[Repair]) -> (Vec<String>, Vec<String>) {
    let (mut settings, mut commands) = (BTreeMap::new(), Vec::new());
    for repair in repairs {
        match repair {
            Repair::Set { key, value } => drop(settings.insert(sysctl_name(key), value.clone())),
            // What was removed comes from a file that is there already.
            Repair::Ip(_) | Repair::Ethtool(_) => commands.push(repair.to_string()),
        }
    }
    let lines = settings.into_iter();
    let lines = lines.map(|(key, value)| format!("{key} = {value}"));
    (lines.collect(), commands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_last_by_a_file_and_addresses_by_commands() {
        let repairs = [
            Repair::set("net/ipv4/conf/all/arp_ignore", 1),
            Repair::ip("addr add 10.80.0.100/32 dev lo"),
            Repair::set("net/ipv4/ip_local_reserved_ports", "80"),
            Repair::set("net/ipv4/ip_local_reserved_ports", "80,2811"),
        ];
        let (lines, commands) = lasting(&repairs);
        let expected = [
            "net.ipv4.conf.all.arp_ignore = 1",
            "net.ipv4.ip_local_reserved_ports = 80,2811",
        ];
        assert_eq!(lines, expected);
        assert_eq!(commands, ["ip addr add 10.80.0.100/32 dev lo"]);
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        let error = tool("sheaf-no-such-program", "none", &[], "").expect_err("not there");
        assert!(
            error.contains("sheaf-no-such-program") && error.contains("install none"),
            "{error}"
        );
        let error = tool("ip", "iproute2", &["no-such-object"], "").expect_err("refused");
        assert!(
            error.contains("ip refused") || error.contains("apt-get"),
            "{error}"
        );
    }
}
