//! Moves messages between nodes: TCP and memory behind one trait.
