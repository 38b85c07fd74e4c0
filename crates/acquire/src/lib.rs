//! The brain of an FLP: raw-data walkers, cutting, re-stamping, generator, the hold of STFs.
