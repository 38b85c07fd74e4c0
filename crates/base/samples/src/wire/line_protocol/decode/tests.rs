//! The decoder by examples, and beside the crate of InfluxDB's authors.

use super::super::{Series, Value};
use super::*;
use influxdb_line_protocol::{FieldValue, parse_lines};
use proptest::prelude::*;

/// All that an input holds, one entry a line: `series|field=value|…@time`, or `code@offset`.
fn all(decoder: &mut Decoder, input: &[u8]) -> Vec<String> {
    let mut lines = decoder.lines(input);
    let mut all = Vec::new();
    while let Some(line) = lines.next_line() {
        all.push(match line {
            Ok(line) => {
                let mut text = String::from_utf8_lossy(line.series).into_owned();
                for field in line.fields() {
                    let name = String::from_utf8_lossy(field.name);
                    text.push_str(&format!("|{name}={:?}", field.value));
                }
                let at_ms = line.at_ms.map(|at_ms| format!("@{at_ms}"));
                text + &at_ms.unwrap_or_default()
            }
            Err(fault) => format!("{}@{}", fault.code, fault.offset),
        });
    }
    all
}

#[track_caller]
fn check(input: &str, expected: &[&str]) {
    let mut decoder = Decoder::new(Precision::Ms, 64);
    assert_eq!(all(&mut decoder, input.as_bytes()), expected, "{input:?}");
}

#[test]
fn lines_have_series_fields_and_time() {
    check(
        "cpu,host=a idle=1.5,n=-3i,u=3u,on=t,s=\"a, b\" 17\n\n# comment\r\nmem used=2\r\n",
        &[
            "cpu,host=a|idle=Float(1.5)|n=Int(-3)|u=Uint(3)|on=Bool(true)|s=Text([97, 44, 32, 98])@17",
            "mem|used=Float(2.0)",
        ],
    );
    check("a\\ b,c=\\, f\\ g=1", &["a\\ b,c=\\,|f\\ g=Float(1.0)"]);
    check(
        "m f=\"a\nb\",g=1 2\nn f=0",
        &["m|f=Text([97, 10, 98])|g=Float(1.0)@2", "n|f=Float(0.0)"],
    );
    check("  m  f=1   -7  \n", &["m|f=Float(1.0)@-7"]);
}

#[test]
fn bad_lines_are_named_and_their_neighbours_kept() {
    for (bad, fault) in [
        ("m", "no-fields@3"),
        ("m,a=1 ", "no-fields@8"),
        ("m f", "bad-field@5"),
        ("m =1", "bad-field@4"),
        ("m f=", "bad-field@6"),
        ("m f=x", "bad-field@6"),
        ("m f=tru", "bad-field@6"),
        ("m f=1,", "bad-field@8"),
        ("m f=1 g=2", "bad-time@8"),
        ("m f=1x", "bad-field@7"),
        ("m f=1.", "bad-number@6"),
        ("m f=-", "bad-number@6"),
        ("m f=1e", "bad-number@6"),
        ("m f=1e999", "bad-number@6"),
        ("m f=9223372036854775808i", "bad-number@6"),
        ("m f=-1u", "bad-number@6"),
        ("m f=1 1.5", "bad-time@9"),
        ("m f=1 9223372036854775808", "bad-time@8"),
        ("m f=\"open", "open-quote@6"),
    ] {
        check(&format!("\n\n{bad}\nok f=1"), &[fault, "ok|f=Float(1.0)"]);
    }
}

#[test]
fn the_longest_line_is_taken_and_a_longer_one_is_not() {
    let line = |length: usize| format!("m f=\"{}\"", "x".repeat(length - 6));
    let mut decoder = Decoder::new(Precision::Ns, 64);
    for tail in ["", "\n", "\nok f=1"] {
        let lines = all(&mut decoder, (line(64) + tail).as_bytes());
        assert!(lines[0].starts_with("m|f=Text"), "{lines:?}");
    }
    let ok = "ok|f=Float(1.0)";
    assert_eq!(
        all(&mut decoder, (line(65) + "\nok f=1").as_bytes()),
        ["line-too-long@0", ok]
    );
    let open = line(65).replace('x', "\n") + "\nok f=1";
    let open = all(
        &mut decoder,
        open.replacen('"', "\"\n", 1).replace("\n\"", "").as_bytes(),
    );
    assert_eq!(
        (open[0].as_str(), open.last().unwrap().as_str()),
        ("open-quote@4", ok)
    );
    let long = format!("m f=1{}\nok f=1", ",g=2".repeat(20));
    assert_eq!(all(&mut decoder, long.as_bytes())[1..], [ok]);
    assert!(all(&mut decoder, long.as_bytes())[0].starts_with("line-too-long"));
    assert!(all(&mut decoder, "m".repeat(65).as_bytes())[0].starts_with("line-too-long"));
}

#[test]
fn precisions_are_read_in_ms() {
    for (precision, time, at_ms) in [
        (
            Precision::Ns,
            "1700000000123456789",
            Some(1_700_000_000_123_i64),
        ),
        (Precision::Ns, "-1", Some(-1)),
        (
            Precision::Us,
            "1700000000123456",
            Some(1_700_000_000_123_i64),
        ),
        (Precision::Ms, "5", Some(5)),
        (Precision::S, "-5", Some(-5_000)),
        (Precision::S, "9223372036854775807", None),
    ] {
        let mut decoder = Decoder::new(precision, 64);
        let expected = at_ms.map_or("bad-time@6".to_owned(), |at_ms| {
            format!("m|f=Float(1.0)@{at_ms}")
        });
        assert_eq!(
            all(&mut decoder, format!("m f=1 {time}").as_bytes()),
            [expected]
        );
    }
}

/// Content of one line as a parser gives it: name and value of every field with the labels it has here, and the time.
type Content = (
    Vec<(String, String)>,
    String,
    Vec<(String, String)>,
    Option<i64>,
);

fn ours(input: &str) -> Vec<Option<Content>> {
    let mut decoder = Decoder::new(Precision::Ms, usize::MAX >> 1);
    let mut lines = decoder.lines(input.as_bytes());
    let mut all = Vec::new();
    while let Some(line) = lines.next_line() {
        all.push(line.ok().and_then(|line| {
            let series = Series::parse(line.series).ok()?;
            let fields = line.fields().map(|field| {
                let value = match field.value {
                    Value::Text(text) => {
                        let text = std::str::from_utf8(text).expect("the input is a str");
                        format!(
                            "Text({})",
                            text.replace("\\\\", "\0")
                                .replace("\\\"", "\"")
                                .replace('\0', "\\")
                        )
                    }
                    value => format!("{value:?}"),
                };
                // A field's name has the escapes of a tag's name.
                let tag = [b"m,", field.name, b"=1"].concat();
                let name = Series::parse(&tag).ok()?.tags[0].0.to_string();
                Some((name, value))
            });
            let fields = fields.collect::<Option<_>>()?;
            let tags = series
                .tags
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()));
            Some((
                tags.collect(),
                series.measurement.to_string(),
                fields,
                line.at_ms,
            ))
        }));
    }
    all
}

fn theirs(input: &str) -> Vec<Option<Content>> {
    let parse = |line: Result<influxdb_line_protocol::ParsedLine<'_>, _>| {
        let line = line.ok()?;
        let fields = line.field_set.iter().map(|(name, value)| {
            let value = match value {
                FieldValue::I64(value) => format!("Int({value})"),
                FieldValue::U64(value) => format!("Uint({value})"),
                FieldValue::F64(value) => format!("Float({value:?})"),
                FieldValue::String(text) => format!("Text({text})"),
                FieldValue::Boolean(value) => format!("Bool({value})"),
            };
            (name.to_string(), value)
        });
        let tags = line.series.tag_set.iter().flatten();
        let tags = tags.map(|(key, value)| (key.to_string(), value.to_string()));
        Some((
            tags.collect(),
            line.series.measurement.to_string(),
            fields.collect(),
            line.timestamp,
        ))
    };
    parse_lines(input).map(parse).collect()
}

/// Text of one line: mostly right, with pieces that are not.
fn line() -> impl Strategy<Value = String> {
    let name = prop_oneof![
        8 => "[a-zA-Z0-9_.µ-]{1,6}",
        2 => r"[a-z]{1,2}(\\[ ,=a])[a-z]{1,2}",
        1 => Just(String::new()),
        1 => Just(r"\".to_owned()),
    ];
    let value = prop_oneof![
        4 => any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(|value| format!("{value:?}")),
        4 => (-99_999_i64..99_999, 0_u32..6).prop_map(|(whole, digits)| format!("{whole}.{digits}")),
        2 => any::<i64>().prop_map(|value| format!("{value}i")),
        2 => any::<u64>().prop_map(|value| format!("{value}u")),
        2 => any::<i64>().prop_map(|value| value.to_string()),
        2 => prop_oneof!["t", "F", "true", "FALSE", "False"].prop_map(|text: String| text),
        2 => r#""([ a-z,=\n#]|\\"|\\\\|\\a){0,6}""#,
        1 => r"[0-9.eE+i-]{1,6}",
        1 => "[a-z]{0,3}",
    ];
    let tags = proptest::collection::vec((name.clone(), name.clone()), 0..3);
    let fields = proptest::collection::vec((name.clone(), value), 0..4);
    let time = prop_oneof![
        Just(String::new()),
        any::<i64>().prop_map(|time| format!(" {time}")),
        " [0-9a-]{0,3}"
    ];
    (name, tags, fields, time).prop_map(|(name, tags, fields, time)| {
        let tags: String = tags
            .iter()
            .map(|(key, value)| format!(",{key}={value}"))
            .collect();
        let fields: Vec<_> = fields
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("{name}{tags} {}{time}", fields.join(","))
    })
}

/// Whether one of the listed differences of [`Decoder`] is in `line`.
fn differs(line: &str) -> bool {
    let all = theirs(line);
    let parsed = || all.iter().flatten();
    let is_infinite = parsed().any(|line| line.2.iter().any(|field| field.1.contains("inf")));
    // More commas in names than escaped ones in the line; texts may have escaped ones as well.
    let names = parsed().flat_map(|line| {
        let tags = line.0.iter().flat_map(|tag| [&tag.0, &tag.1]);
        tags.chain(line.2.iter().map(|field| &field.0))
            .chain([&line.1])
    });
    let commas: usize = names.map(|name| name.matches(',').count()).sum();
    let has_comma = commas > line.matches("\\,").count() || (commas > 0 && line.contains('"'));
    let has_end = line.ends_with(' ');
    has_end || is_infinite || has_comma || line.contains("\\\n")
}

/// Any byte, and often one that means something.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![
        any::<u8>(),
        proptest::sample::select(b"m,=\\\" \n\rf1eit.-#".to_vec())
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8_192))]

    #[test]
    fn the_crate_of_influxdb_reads_the_same(line in line()) {
        let line = line.trim_end_matches(' ');
        if differs(line) {
            return Ok(());
        }
        // How many lines a bad one with a line end in a text counts for may differ.
        let good = |lines: Vec<Option<Content>>| lines.into_iter().flatten().collect::<Vec<_>>();
        prop_assert_eq!(good(ours(line)), good(theirs(line)), "{:?}", line);
    }

    #[test]
    fn good_lines_stay_whatever_stands_between(bad in "[ -!$-~\n]{0,40}", value in any::<i32>()) {
        let good = format!("ok,a=b f={value}i 5");
        // A quote that is closed later on takes what is between.
        let bad = bad.replace('"', "'");
        let input = format!("{good}\n{bad}\n{good}\n");
        let lines = all(&mut Decoder::default(), input.as_bytes());
        let good = format!("ok,a=b|f=Int({value})@0");
        prop_assert_eq!(lines.first(), Some(&good));
        prop_assert_eq!(lines.last(), Some(&good));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(byte(), 0..120)) {
        let mut decoder = Decoder::new(Precision::S, 40);
        let mut lines = decoder.lines(&bytes);
        while let Some(line) = lines.next_line() {
            match line {
                Ok(line) => {
                    prop_assert!(line.fields().len() > 0);
                    let _ = Series::parse(line.series).map(|series| series.labels(line.fields().next().unwrap().name));
                }
                Err(fault) => prop_assert!(fault.offset <= bytes.len()),
            }
        }
    }
}
