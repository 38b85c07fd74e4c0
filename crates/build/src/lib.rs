//! The brain of an EPN: assembles TFs, knows what is missing, stale, duplicate, complete.
