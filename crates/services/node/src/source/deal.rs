//! Which of the listed files an FLP reads, and which links of them.

use super::SourceError;
use sheaf_protocol::FlpId;
use sheaf_stf_builder::{Share, ShareError};

/// Share of one FLP in a list of files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// Files, as places in the list.
    pub(super) files: Vec<usize>,
    /// Links of the FLP in each of the files.
    pub(super) share: Share,
}

impl Dealt {
    /// Deals `files` out over `flps` FLPs in turn. FLPs that get the same file share its links.
    pub(super) fn new(files: usize, flp: FlpId, flps: u32) -> Result<Self, SourceError> {
        share(flp, flps)?;
        let (index, flps) = (usize::from(flp.0), flps as usize);
        if files >= flps || files == 0 {
            let files = (index..files).step_by(flps).collect();
            return Ok(Self {
                files,
                share: Share::ALL,
            });
        }
        let file = index % files;
        let readers = (flps - file).div_ceil(files);
        let of = u32::try_from(readers).expect("not more than there are FLPs");
        let place = u16::try_from(index / files).expect("below the index, which is one");
        Ok(Self {
            files: vec![file],
            share: share(FlpId(place), of)?,
        })
    }

    /// As [`new`](Self::new), for files of `kind` that cannot be shared.
    pub(super) fn one_file_a_flp(
        kind: &'static str,
        files: usize,
        flp: FlpId,
        flps: u32,
    ) -> Result<Self, SourceError> {
        if files < flps as usize {
            return Err(SourceError::Files { kind, files, flps });
        }
        Self::new(files, flp, flps)
    }
}

/// Returns the share of `flp` in what all FLPs read.
pub(super) fn share(flp: FlpId, flps: u32) -> Result<Share, ShareError> {
    Share::new(flp.0, u16::try_from(flps).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `expected` is what each FLP gets: its files, then its place among how many readers.
    fn check(files: usize, flps: u16, expected: &str) {
        let dealt = (0..flps).map(|flp| {
            let dealt = Dealt::new(files, FlpId(flp), flps.into()).unwrap();
            let names: Vec<String> = dealt.files.iter().map(ToString::to_string).collect();
            format!(
                "{}({}/{})",
                names.join("+"),
                dealt.share.index(),
                dealt.share.of()
            )
        });
        assert_eq!(dealt.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn files_and_flps_are_matched_in_turn() {
        check(1, 3, "0(0/3) 0(1/3) 0(2/3)");
        check(2, 5, "0(0/3) 1(0/2) 0(1/3) 1(1/2) 0(2/3)");
        check(3, 3, "0(0/1) 1(0/1) 2(0/1)");
        check(5, 2, "0+2+4(0/1) 1+3(0/1)");
    }
}
