//! The library for C and C++: sources, consumers and readers of files.
//!
//! Functions of C are those of `sheaf_node::readout` and `sheaf_node::consume` with a handle for each value, one file
//! for a type. Their comments are those of `include/sheaf.h`, which a test writes and holds against the one in the
//! tree, so they are for readers of C.
//!
//! Pointers come as references that may be null: what the caller of a function of C has to guarantee, that a pointer is
//! null or leads to a living value of its type, is what Rust asks of them. Pointers to texts and bytes are read in
//! `border`. A panic does not leave a function.

pub mod abi;
mod border;
pub mod consumer;
pub mod file;
pub mod source;
pub mod status;
pub mod tf;
