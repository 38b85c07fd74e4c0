//! Checksums in headers: `Digest` and `Want-Digest` (RFC 3230), `Repr-Digest` and `Want-Repr-Digest` (RFC 9530).
//!
//! Adler-32 is that of WLCG, which writes it in hexadecimal digits in `Digest`; CRC-32C stands there in base64, as in
//! XRootD. In `Repr-Digest` both are bytes in base64. Other algorithms are passed over: they are neither checked nor
//! sent, and clients have to expect that.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use sheaf_write::Sums;
use std::collections::BTreeSet;
use thiserror::Error;

/// Checksum that this server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Adler32,
    Crc32c,
}

/// Names of algorithms, in the order in which this server prefers them. IANA has `adler`, WLCG says `adler32`.
const NAMES: [(&str, Algorithm); 3] = [
    ("adler32", Algorithm::Adler32),
    ("crc32c", Algorithm::Crc32c),
    ("adler", Algorithm::Adler32),
];

fn named(name: &str) -> Option<(&'static str, Algorithm)> {
    let mut names = NAMES.into_iter();
    names.find(|(known, _)| known.eq_ignore_ascii_case(name))
}

impl Algorithm {
    /// Name in `Digest`.
    fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
        }
    }

    fn of(self, sums: &Sums) -> Option<u32> {
        match self {
            Self::Adler32 => Some(sums.adler32),
            Self::Crc32c => sums.crc32c,
        }
    }
}

/// Header by which a checksum was asked for, and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `Digest`.
    Digest,
    /// `Repr-Digest`.
    Repr,
}

/// Checksum that a client wants to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    form: Form,
    name: &'static str,
    algorithm: Algorithm,
}

impl Want {
    /// Reads `Want-Digest`, such as `md5;q=0.3, adler32`: the known one with the largest weight.
    pub(crate) fn of_want_digest(list: &str) -> Option<Self> {
        let wants = list.split(',').filter_map(|one| {
            let (name, parameter) = one.split_once(';').unwrap_or((one, ""));
            let weight = parameter.trim().strip_prefix("q=");
            let weight = weight.map_or(Some(1.0), |text| text.trim().parse::<f64>().ok())?;
            Some((named(name.trim())?, weight))
        });
        best(Form::Digest, wants)
    }

    /// Reads `Want-Repr-Digest`, such as `adler=10, crc32c=3`: the known one with the largest weight.
    pub(crate) fn of_want_repr_digest(list: &str) -> Option<Self> {
        let wants = list.split(',').filter_map(|one| {
            let (name, weight) = one.split_once('=')?;
            Some((named(name.trim())?, weight.trim().parse::<f64>().ok()?))
        });
        best(Form::Repr, wants)
    }

    /// Returns the header that answers, if the checksum is known.
    pub(crate) fn header(self, sums: &Sums) -> Option<(&'static str, String)> {
        Some(self.header_of(self.algorithm.of(sums)?))
    }

    /// Returns the header that answers, if another server has stated the checksum.
    pub(crate) fn header_stated(self, stated: &Stated) -> Option<(&'static str, String)> {
        Some(self.header_of(stated.get(self.algorithm)?))
    }

    fn header_of(self, sum: u32) -> (&'static str, String) {
        let name = self.name;
        match (self.form, self.algorithm) {
            (Form::Digest, Algorithm::Adler32) => ("Digest", format!("{name}={sum:08x}")),
            (Form::Digest, Algorithm::Crc32c) => (
                "Digest",
                format!("{name}={}", BASE64.encode(sum.to_be_bytes())),
            ),
            (Form::Repr, _) => (
                "Repr-Digest",
                format!("{name}=:{}:", BASE64.encode(sum.to_be_bytes())),
            ),
        }
    }
}

fn best(form: Form, wants: impl Iterator<Item = ((&'static str, Algorithm), f64)>) -> Option<Want> {
    // 0 means: not this one. Of equal ones the first.
    let wants = wants.filter(|(_, weight)| *weight > 0.0);
    let best = wants.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|((name, algorithm), _)| Want {
        form,
        name,
        algorithm,
    })
}

/// Reason why a stated checksum cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "found the checksum `{0}`, expected a value of 32 bits, such as `adler32=03da0195` or `adler=:A9oBlQ==:`"
)]
pub(crate) struct DigestError(String);

/// Checksums that a client states of what it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stated(Vec<(Algorithm, u32)>);

impl Stated {
    /// Returns whether no checksum that this server knows was stated.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of `Digest`.
    ///
    /// # Errors
    ///
    /// [`DigestError`] if the value of a known algorithm is none.
    pub(crate) fn add_digest(&mut self, list: &str) -> Result<(), DigestError> {
        self.add(list, |algorithm, value| match algorithm {
            Algorithm::Adler32 => of_hex(value),
            // XRootD has base64, other programs digits.
            Algorithm::Crc32c => of_base64(value).or_else(|| of_hex(value)),
        })
    }

    /// Adds those of `Repr-Digest` or `Content-Digest`, which are equal for a body without an encoding.
    ///
    /// # Errors
    ///
    /// As for [`add_digest`](Self::add_digest).
    pub(crate) fn add_repr_digest(&mut self, list: &str) -> Result<(), DigestError> {
        self.add(list, |_, value| {
            let inner = value
                .strip_prefix(':')
                .and_then(|value| value.strip_suffix(':'));
            of_base64(inner?)
        })
    }

    fn add(
        &mut self,
        list: &str,
        read: impl Fn(Algorithm, &str) -> Option<u32>,
    ) -> Result<(), DigestError> {
        for one in list.split(',').map(str::trim) {
            let Some((name, value)) = one.split_once('=') else {
                continue;
            };
            if let Some((_, algorithm)) = named(name.trim()) {
                let value = read(algorithm, value.trim());
                self.0
                    .push((algorithm, value.ok_or_else(|| DigestError(one.to_owned()))?));
            }
        }
        Ok(())
    }

    /// Reads those of the headers of an answer: `Digest`, and `Repr-Digest`. A value that cannot be read is as good as
    /// none.
    pub(crate) fn of_answer(digest: &str, repr_digest: &str) -> Self {
        let mut stated = Self::default();
        let _ = stated.add_digest(digest);
        let _ = stated.add_repr_digest(repr_digest);
        stated
    }

    /// Returns the first checksum that `other` states otherwise: its name, that of `other`, and the one stated here.
    pub(crate) fn contradiction(&self, other: &Self) -> Option<(&'static str, u32, u32)> {
        self.0.iter().find_map(|&(algorithm, stated)| {
            let mut others = other.0.iter();
            let (_, found) = others.find(|&&(is, found)| is == algorithm && found != stated)?;
            Some((algorithm.name(), *found, stated))
        })
    }

    /// Returns the checksum by one algorithm.
    pub(crate) fn get(&self, algorithm: Algorithm) -> Option<u32> {
        let mut all = self.0.iter();
        let found = all.find(|&&(is, _)| is == algorithm);
        found.map(|&(_, sum)| sum)
    }

    /// Adds those of `other` that are not stated here.
    pub(crate) fn merge(&mut self, other: &Self) {
        for &(algorithm, sum) in &other.0 {
            if self.0.iter().all(|&(is, _)| is != algorithm) {
                self.0.push((algorithm, sum));
            }
        }
    }

    /// Returns the checksums as text, such as `adler32=03da0195`, each once.
    pub(crate) fn texts(&self) -> BTreeSet<String> {
        let texts = self.0.iter();
        texts
            .map(|(algorithm, sum)| format!("{}={sum:08x}", algorithm.name()))
            .collect()
    }

    /// Returns the first checksum that is not that of `sums`: its name, the one found, and the one stated.
    pub(crate) fn first_difference(&self, sums: &Sums) -> Option<(&'static str, u32, u32)> {
        self.0.iter().find_map(|&(algorithm, stated)| {
            let found = algorithm.of(sums)?;
            (found != stated).then_some((algorithm.name(), found, stated))
        })
    }
}

fn of_hex(value: &str) -> Option<u32> {
    let is_hex =
        (1..=8).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(value, 16).ok().filter(|_| is_hex)
}

fn of_base64(value: &str) -> Option<u32> {
    let bytes = BASE64.decode(value).ok()?;
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adler-32 of "Wikipedia", and a CRC.
    const SUMS: Sums = Sums {
        bytes: 9,
        adler32: 0x11e6_0398,
        crc32c: Some(0x0102_0304),
        xxh3: None,
    };

    fn header(want: Option<Want>) -> String {
        let header = want.and_then(|want| want.header(&SUMS));
        header.map_or_else(String::new, |(name, value)| format!("{name}: {value}"))
    }

    #[test]
    fn the_wanted_checksum_is_sent_in_its_form() {
        for (list, expected) in [
            ("adler32", "Digest: adler32=11e60398"),
            ("ADLER32;q=0.5, crc32c", "Digest: crc32c=AQIDBA=="),
            ("md5, adler32;q=0.1", "Digest: adler32=11e60398"),
            ("adler32;q=0", ""),
            ("adler32;q=x", ""),
            ("sha-256", ""),
            ("", ""),
        ] {
            assert_eq!(header(Want::of_want_digest(list)), expected, "{list}");
        }
        for (list, expected) in [
            ("adler=10", "Repr-Digest: adler=:EeYDmA==:"),
            ("adler=1, crc32c=2", "Repr-Digest: crc32c=:AQIDBA==:"),
            ("sha-256=10", ""),
            ("adler=0", ""),
            ("adler", ""),
        ] {
            assert_eq!(header(Want::of_want_repr_digest(list)), expected, "{list}");
        }
    }

    #[test]
    fn stated_checksums_are_compared() {
        let mut stated = Stated::default();
        stated.add_digest("adler32=11e60398,md5=xyz").unwrap();
        stated.add_digest("crc32c=AQIDBA==").unwrap();
        stated
            .add_repr_digest("adler=:EeYDmA==:, sha-256=:x:")
            .unwrap();
        assert_eq!(stated.first_difference(&SUMS), None);
        stated.add_digest("crc32c=01020305").unwrap();
        let difference = ("crc32c", 0x0102_0304, 0x0102_0305);
        assert_eq!(stated.first_difference(&SUMS), Some(difference));
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for list in [
            "adler32=",
            "adler32=xyz",
            "adler32=111111111",
            "crc32c=AQID",
            "adler32=+1",
        ] {
            assert!(Stated::default().add_digest(list).is_err(), "{list}");
        }
        for list in ["adler=EeYDmA==", "adler=:EeYD:", "adler=11e60398"] {
            assert!(Stated::default().add_repr_digest(list).is_err(), "{list}");
        }
    }
}
