//! Whole farms of real processes on loopback: what a user starts, kills and gets wrong.
//!
//! One farm at a time, so that the timing of one is not that of the machine. No test sleeps: it waits for a line,
//! an exit or a descriptor, with a generous bound.

mod ansible;
mod backends;
mod bench_farm;
mod bench_icn;
mod bench_serve;
mod bench_transport;
mod clock;
mod command_line;
mod consume;
mod containers;
mod delivery;
mod doctor;
mod ends;
mod failover;
mod faults;
mod file_server;
mod guest;
mod harness;
mod helm;
mod hosts;
mod icns;
mod init;
mod inspect;
mod lab;
mod lab_monitor;
mod lab_run;
mod logs;
mod machine;
mod memory;
mod monitored;
mod node_doctor;
mod orders;
mod package;
#[path = "../../crates/io/zmtp/tests/peer/program.rs"]
mod program;
mod readout;
mod restart;
mod rolled_back;
mod security;
mod serving;
mod shapes;
mod shipped;
mod simulator;
mod slurm;
mod stand;
mod start_order;
mod status;
mod stf_files;
mod stored;
mod stream_formats;
mod streams;
mod systemd;
mod threads;
mod top;
mod totals;
mod tutorials;
mod unix;
mod upgrade;
mod verify;
mod writers;
mod wrong_uses;
mod zmq;
