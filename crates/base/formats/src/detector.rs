//! Detectors of ALICE: system ids in the headers of pages, and names in the headers of blocks.
//!
//! Table after AliceO2 `DetectorsCommonDataFormats/DetID.h` and `DataFormats/Headers/include/Headers/DAQID.h`.

/// System ids and names of all detectors.
const DETECTORS: [(u8, &str); 19] = [
    (3, "TPC"),
    (4, "TRD"),
    (5, "TOF"),
    (6, "HMP"),
    (7, "PHS"),
    (8, "CPV"),
    (10, "MCH"),
    (15, "ZDC"),
    (17, "CTP"),
    (18, "EMC"),
    (19, "TST"),
    (32, "ITS"),
    (33, "FDD"),
    (34, "FT0"),
    (35, "FV0"),
    (36, "MFT"),
    (37, "MID"),
    (38, "DCS"),
    (39, "FOC"),
];

/// Returns the names of all detectors, by system id.
pub fn detectors() -> impl Iterator<Item = &'static str> {
    DETECTORS.iter().map(|(_, name)| *name)
}

/// Returns the name of the detector with a system id; `None` for those that are not known.
#[must_use]
pub fn detector_name(system_id: u8) -> Option<&'static str> {
    let found = DETECTORS.iter().find(|(id, _)| *id == system_id);
    found.map(|(_, name)| *name)
}

/// Returns the name of the detector that is the origin of a block, padded with a zero.
pub(crate) fn detector_of_origin(origin: [u8; 4]) -> Option<&'static str> {
    let (end, name) = origin.split_last()?;
    let is_it = |known: &&str| known.as_bytes() == name;
    detectors().find(is_it).filter(|_| *end == 0)
}
