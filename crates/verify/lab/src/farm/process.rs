//! A process of a node, in hand: a child of this one, or the near end of an `ssh` whose far end looks after it.

use crate::hosts::attend::Orders;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, ChildStdout, ExitStatus};

#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// To whom orders go, if it is on another machine.
    orders: Option<Orders>,
}

impl Process {
    /// A child that is the node.
    pub(super) fn here(child: Child) -> Self {
        Self {
            child,
            orders: None,
        }
    }

    /// A child through which the node is reached: its input is for orders.
    pub(super) fn there(mut child: Child) -> Self {
        let orders = child.stdin.take().map(Orders::through);
        Self { child, orders }
    }

    /// Output of the process.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The id of the child.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; whether there was somebody to send it to. The process is not reaped yet.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        match &self.orders {
            Some(orders) => orders.send(signal),
            None => kill_process(Pid::from_child(&self.child), signal).is_ok(),
        }
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        self.child.wait().ok()
    }

    /// Ends it at once. A node on another machine is killed there when its near end is gone.
    pub(super) fn kill(&mut self) {
        self.orders = None;
        // Errors mean that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
