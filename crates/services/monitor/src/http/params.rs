//! Parameters of a request, from its address and its form.

use super::answer::Refused;
use sheaf_query::Options;
use sheaf_samples::Matcher;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Names and values in their order; a name may stand several times.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn new(query: Option<&str>, form: &[u8]) -> Self {
        let of = |bytes: &[u8]| {
            let pairs = form_urlencoded::parse(bytes).into_owned();
            pairs.collect::<Vec<_>>()
        };
        let mut pairs = of(query.unwrap_or_default().as_bytes());
        pairs.extend(of(form));
        Self(pairs)
    }

    /// First value of `name` that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let pairs = self.0.iter().filter(move |pair| pair.0 == name);
        pairs.map(|pair| pair.1.as_str())
    }

    pub(super) fn need(&self, name: &'static str) -> Result<&str, Refused> {
        self.get(name).ok_or_else(|| {
            Refused::bad(format!(
                "invalid parameter {name:?}: found none, expected one"
            ))
        })
    }

    /// Time in ms since 1970: seconds with a fraction, or RFC 3339.
    pub(super) fn time_ms(&self, name: &'static str, default: i64) -> Result<i64, Refused> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        read_time(text).ok_or_else(|| {
            Refused::bad(format!(
                "invalid parameter {name:?}: cannot parse {text:?} to a valid timestamp"
            ))
        })
    }

    /// Span in ms: seconds with a fraction, or PromQL's notation such as `15s`.
    pub(super) fn span_ms(&self, name: &'static str) -> Result<i64, Refused> {
        let text = self.need(name)?;
        read_span(text).ok_or_else(|| {
            Refused::bad(format!(
                "invalid parameter {name:?}: cannot parse {text:?} to a valid duration"
            ))
        })
    }

    /// Selectors `match[]`, each a list of matchers.
    pub(super) fn selectors(&self) -> Result<Vec<Vec<Matcher>>, Refused> {
        let options = Options::default();
        let read =
            |text| sheaf_query::matchers(text, &options).map_err(|error| Refused::query(&error));
        self.all("match[]").map(read).collect()
    }
}

fn read_time(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return in_ms(seconds);
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
}

fn read_span(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return in_ms(seconds);
    }
    let span = promql_parser::util::parse_duration(text).ok()?;
    i64::try_from(span.as_millis()).ok()
}

fn in_ms(seconds: f64) -> Option<i64> {
    let ms = (seconds * 1000.0).round();
    // Beyond this whole ms are not exact in an f64.
    (ms.abs() < 9e15).then_some(ms as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_rfc_3339() {
        assert_eq!(read_time("1.5"), Some(1500));
        assert_eq!(read_time("1970-01-01T00:00:02.250Z"), Some(2250));
        assert_eq!(read_time("1970-01-01T01:00:02+01:00"), Some(2000));
        for wrong in ["", "now", "1e300", "NaN"] {
            assert_eq!(read_time(wrong), None, "{wrong}");
        }
        assert_eq!(read_span("15s"), Some(15_000));
        assert_eq!(read_span("0.5"), Some(500));
    }

    #[test]
    fn names_may_repeat_and_forms_count() {
        let params = Params::new(Some("match[]=a&x=&x=1"), b"match%5B%5D=b{c=\"d\"}");
        assert_eq!(params.all("match[]").count(), 2);
        assert_eq!(params.get("x"), Some("1"));
        assert_eq!(params.selectors().unwrap()[1].len(), 2);
        assert!(params.need("query").is_err());
    }
}
