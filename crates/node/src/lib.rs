//! The processes FLP, ICN and EPN: sockets, clocks and signals around the brains.
