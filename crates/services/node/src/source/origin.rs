//! Where TF 0 begins when several FLPs read files of one run and the farm file does not give it: the earliest of all.

use super::SourceError;
use super::files::read;
use bytes::Bytes;
use sheaf_formats::Findings;
use sheaf_formats::hbfs;
use sheaf_formats::km3net::{Packets, Records};
use sheaf_formats::stf_file::FileTfs;
use sheaf_formats::xtc2::{Datagrams, Service};
use std::path::PathBuf;

/// The earliest orbit of all whole HBFs in `files`. Orbits are serial numbers: the half of the range behind one
/// is its future.
pub(super) fn first_orbit(files: &[PathBuf]) -> Result<Option<u32>, SourceError> {
    let orbits = of_all(files, |input| {
        hbfs(input).0.iter().map(|hbf| hbf.orbit).collect()
    })?;
    let Some(reference) = orbits.first().copied() else {
        return Ok(None);
    };
    let since = |orbit: &u32| orbit.wrapping_sub(reference).cast_signed();
    Ok(orbits.into_iter().min_by_key(since))
}

/// The lowest time slice of all records or packets in `files`.
pub(super) fn first_slice(files: &[PathBuf]) -> Result<Option<u64>, SourceError> {
    let slices = of_all(files, |input| {
        let mut findings = Findings::default();
        if Packets::are_at_start_of(input) {
            let mut packets = Packets::new(input);
            let next = || packets.next_good(&mut findings);
            std::iter::from_fn(next)
                .map(|packet| packet.slice())
                .collect()
        } else {
            let mut records = Records::new(input);
            let next = || records.next_good(&mut findings);
            std::iter::from_fn(next)
                .filter_map(|record| u64::try_from(record.frame_index).ok())
                .collect()
        }
    })?;
    Ok(slices.into_iter().min())
}

/// The time of the earliest event in `files`, in ns.
pub(super) fn first_ns(files: &[PathBuf]) -> Result<Option<u64>, SourceError> {
    let times = of_all(files, |input| {
        let mut findings = Findings::default();
        let mut datagrams = Datagrams::new(input);
        std::iter::from_fn(|| datagrams.next_good(&mut findings))
            .filter(|datagram| datagram.service == Service::L1Accept)
            .map(|datagram| datagram.time.as_ns())
            .collect()
    })?;
    Ok(times.into_iter().min())
}

/// The lowest counter of all TFs in `files`.
pub(super) fn first_counter(files: &[PathBuf]) -> Result<Option<u32>, SourceError> {
    let counters = of_all(files, |input| {
        let (mut tfs, mut findings) = (FileTfs::new(input), Findings::default());
        let found = std::iter::from_fn(|| tfs.next_good(&mut findings));
        found.map(|tf| tf.counter()).collect()
    })?;
    Ok(counters.into_iter().min())
}

fn of_all<T>(
    files: &[PathBuf],
    mut values: impl FnMut(&Bytes) -> Vec<T>,
) -> Result<Vec<T>, SourceError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(values(&read(file)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(names: &[&str]) -> Vec<PathBuf> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../testdata");
        names.iter().map(|name| folder.join(name)).collect()
    }

    #[test]
    fn the_earliest_of_all_files_is_found() {
        let raw = [
            "alice-its-rdh7/ci_ols_data_1hbf.raw",
            "alice-its-rdh7/10_rdh.raw",
        ];
        assert_eq!(first_orbit(&data(&raw)).unwrap(), Some(512));
        // A super-page of a long run: its orbits are, as serial numbers, before those of a young one.
        let wrapped = [
            "alice-its-rdh7/10_rdh.raw",
            "alice-its-rdh7/readout.superpage.1.raw",
        ];
        assert_eq!(first_orbit(&data(&wrapped)).unwrap(), Some(2_604_259_072));
        let slices = ["km3net-daq/IO_SUM.dat", "km3net-daq/IO_TSSN.dat"];
        assert_eq!(first_slice(&data(&slices)).unwrap(), Some(198));
        assert_eq!(first_orbit(&data(&["README.md"])).unwrap(), None);
    }
}
