//! URIs of back ends, taken apart: `scheme://place?option=value&option=value`.

use std::fmt;

/// URI of a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    pub(crate) scheme: String,
    /// Text between `://` and `?`: address, path, or both.
    pub(crate) place: String,
    /// Options in their order, without escapes.
    pub(crate) options: Vec<(String, String)>,
}

impl Uri {
    /// Takes `text` apart; none if it has no `://`, or an option without `=` or with a broken escape.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let options = query.split('&').filter(|option| !option.is_empty());
        let option = |option: &str| {
            let (name, value) = option.split_once('=')?;
            Some((unescaped(name)?, unescaped(value)?))
        };
        Some(Self {
            scheme: scheme.to_owned(),
            place: place.to_owned(),
            options: options.map(option).collect::<Option<_>>()?,
        })
    }

    /// Returns the value of an option.
    pub(crate) fn option(&self, name: &str) -> Option<&str> {
        let mut options = self.options.iter();
        let (_, value) = options.find(|(known, _)| known == name)?;
        Some(value)
    }

    /// Returns the place if it is `HOST:PORT`, with a slash at its end at most.
    pub(crate) fn address(&self) -> Option<&str> {
        let address = self.place.strip_suffix('/').unwrap_or(&self.place);
        is_address(address).then_some(address)
    }

    /// Returns the place as `HOST:PORT` and a path, which begins with a slash or is empty.
    pub(crate) fn address_and_path(&self) -> Option<(&str, &str)> {
        let end = self.place.find('/').unwrap_or(self.place.len());
        let (address, path) = self.place.split_at(end);
        is_address(address).then_some((address, path))
    }
}

/// Without the options.
impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.place)
    }
}

/// Returns whether `text` is a host and a port; an IPv6 address stands in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let is_host = !host.is_empty()
        && (is_bracketed || !host.contains(':'))
        && !host.contains(['/', '@', ' ']);
    is_host && port.parse::<u16>().is_ok()
}

/// Returns `text` with each `%41` replaced by its byte.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        // `+1` would be a number, too.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Returns `text` with the bytes escaped that cannot stand in a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uri_has_scheme_place_and_options() {
        let uri = Uri::parse("influxdb-http://[::1]:8086/x?db=a%20b&verbosity=prod&").unwrap();
        assert_eq!(uri.scheme, "influxdb-http");
        assert_eq!(uri.address_and_path(), Some(("[::1]:8086", "/x")));
        assert_eq!(uri.option("db"), Some("a b"));
        assert_eq!(uri.option("verbosity"), Some("prod"));
        assert_eq!(uri.option("other"), None);
        assert_eq!(uri.to_string(), "influxdb-http://[::1]:8086/x");
        assert_eq!(Uri::parse("stdout://").unwrap().place, "");
        for bad in [
            "",
            "stdout",
            "a://b?c",
            "a://b?c=%4",
            "a://b?c=%+1",
            "a://b?c=%ff",
        ] {
            assert_eq!(Uri::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_address_is_host_and_port() {
        for (place, expected) in [
            ("127.0.0.1:8089", Some("127.0.0.1:8089")),
            ("mon.example:1/", Some("mon.example:1")),
            ("[::1]:80", Some("[::1]:80")),
            ("::1:80", None),
            ("host", None),
            (":80", None),
            ("host:70000", None),
            ("user@host:80", None),
            ("host:80/path", None),
        ] {
            let uri = Uri::parse(&format!("x://{place}")).unwrap();
            assert_eq!(uri.address(), expected, "{place}");
        }
    }

    proptest! {
        #[test]
        fn options_come_back(value in ".*") {
            let uri = Uri::parse(&format!("a://b?c={}", escaped(&value))).unwrap();
            prop_assert_eq!(uri.option("c"), Some(value.as_str()));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            if let Some(uri) = Uri::parse(&text) {
                let _ = (uri.address(), uri.address_and_path());
            }
        }
    }
}
