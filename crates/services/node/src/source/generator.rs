//! Bytes without structure, made in a pool of their own.

use super::{Input, Opening, Place, SourceError, SourceKind};
use crate::check::Check;
use crate::slots::ArenaSlots;
use sheaf_stf_builder::{Generator, GeneratorConfig, GeneratorError, SizeModel};
use sheaf_transport::Arena;

impl SourceKind for GeneratorConfig {
    fn check(&self, check: &mut Check) {
        if let Err(error) = GeneratorConfig::check(self) {
            let (key, found, expected) = explain(&error);
            check.fail(&format!("flp.source.{key}"), found, expected);
        }
    }

    fn stf_bytes(&self) -> Option<u64> {
        match self.sizes {
            SizeModel::Trace => self.trace_bytes.iter().copied().max(),
            _ => Some(self.bytes_mean),
        }
    }

    fn has_memory(&self) -> bool {
        true
    }

    fn bytes_beside(&self, _place: &Place) -> u64 {
        self.pool_bytes
    }

    /// The pool lies on pages like those of the holds, since the kernel copies out of both.
    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let pool_bytes = usize::try_from(self.pool_bytes).unwrap_or(usize::MAX);
        let arena = Arena::new(pool_bytes, opening.pool)?;
        (opening.lend)(&arena);
        let generator = Generator::new_in(self.clone(), opening.flp, &mut ArenaSlots(arena))?;
        Ok(Input::Made(Box::new(generator)))
    }
}

/// Returns the key, what was found and what was expected.
fn explain(error: &GeneratorError) -> (&'static str, String, String) {
    match error {
        GeneratorError::Pool { needed, pool_bytes } => (
            "pool_bytes",
            pool_bytes.to_string(),
            format!("at least {needed}, the bytes of the largest payload"),
        ),
        GeneratorError::Room { pool_bytes } | GeneratorError::Address { pool_bytes } => (
            "pool_bytes",
            pool_bytes.to_string(),
            "what fits this machine".to_owned(),
        ),
        GeneratorError::TraceEmpty => (
            "trace_bytes",
            "no size".to_owned(),
            "at least one for sizes = \"trace\"".to_owned(),
        ),
        GeneratorError::Period => (
            "sine_period_tfs",
            "0".to_owned(),
            "at least 1 TF".to_owned(),
        ),
        GeneratorError::Amplitude { found } => {
            ("sine_amplitude", found.to_string(), "0 to 1".to_owned())
        }
        GeneratorError::Sigma { found } => {
            ("lognormal_sigma", found.to_string(), "0 to 3".to_owned())
        }
    }
}
