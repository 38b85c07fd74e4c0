//! `/proc/net/snmp` and `/proc/net/netstat`: pairs of lines, names above values.

use crate::line::lines;

/// Calls `each` with protocol, name and value of everything in the text. Values below 0 are passed over.
///
/// ```
/// let mut found = Vec::new();
/// sheaf_sensors::pairs("Tcp: MaxConn RetransSegs\nTcp: -1 7\n", |protocol, name, value| {
///     found.push((protocol, name, value));
/// });
/// assert_eq!(found, [("Tcp", "RetransSegs", 7)]);
/// ```
pub fn pairs<'a>(text: &'a str, mut each: impl FnMut(&'a str, &'a str, u64)) {
    let mut above: Option<(&str, &str)> = None;
    for line in lines(text) {
        let Some((protocol, rest)) = line.split_once(':') else {
            continue;
        };
        match above.take() {
            Some((known, names)) if known == protocol => {
                let values = rest.split_ascii_whitespace();
                for (name, value) in names.split_ascii_whitespace().zip(values) {
                    if let Ok(value) = value.parse() {
                        each(protocol, name, value);
                    }
                }
            }
            _ => above = Some((protocol, rest)),
        }
    }
}
