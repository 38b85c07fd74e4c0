//! Who is alive in which role: a pure table of members and their silence.
