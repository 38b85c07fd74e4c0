//! An EPN of the prior systems.

use super::queue::Lanes;
use super::wire::{self, FRAMING, MESSAGE, Message};
use super::{NodeConfig, NodeReport};
use sheaf_sim::prior::SetBuilder;
use std::io::{self, Read};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// Registers, takes messages of all FLPs in turn, acknowledges sets. Ends when the ICN has closed its side and all FLPs
/// have gone.
///
/// # Errors
///
/// What sockets give.
pub(super) fn run(config: &NodeConfig) -> io::Result<NodeReport> {
    let Some(SocketAddr::V4(address)) = config.data else {
        return Err(wire::invalid(
            "data: found none, expected an IPv4 address".to_owned(),
        ));
    };
    let listener = wire::listen(address.into())?;
    let control = super::icn::find(config.control)?;
    let most = usize::try_from(config.rules.queue_messages_max).unwrap_or(usize::MAX);
    let lanes = Arc::new(Lanes::new(most.max(1)));
    let message_bytes = usize::try_from(config.bytes)
        .unwrap_or(usize::MAX)
        .saturating_add(FRAMING + MESSAGE);
    accept_all(listener, &lanes, message_bytes);
    register(&control, config.index, address)?;
    wait_for_end(control.try_clone()?, &lanes);
    let rule = config.rules.builder;
    let mut builder = SetBuilder::new(rule, config.rules.order, config.flps.into());
    let mut report = NodeReport::default();
    while let Some(heartbeat) = lanes.pop() {
        report.messages += 1;
        if let Some((heartbeat, _)) = builder.take(heartbeat, config.bytes).whole {
            match (Message::Ack { heartbeat }).write(&control) {
                // The ICN is gone: counting has ended.
                Err(error) if wire::is_end(&error) => {}
                other => other?,
            }
        }
    }
    report.out_of_order = builder.thrown_away();
    report.open_messages = builder.open_messages();
    Ok(report)
}

fn register(control: &TcpStream, index: u16, address: SocketAddrV4) -> io::Result<()> {
    let message = Message::Channel {
        index: index.into(),
        address,
    };
    message.write(control)
}

/// Starts a thread for each connection; all end with the process.
fn accept_all(listener: TcpListener, lanes: &Arc<Lanes<u64>>, message_bytes: usize) {
    let lanes = lanes.clone();
    thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let (lanes, lane) = (lanes.clone(), lanes.add());
            thread::spawn(move || {
                // A connection that breaks has brought what it has brought.
                let _ = read_all(connection, &lanes, lane, message_bytes);
                lanes.end(lane);
            });
        }
    });
}

fn read_all(
    mut connection: TcpStream,
    lanes: &Lanes<u64>,
    lane: usize,
    message_bytes: usize,
) -> io::Result<()> {
    let mut buffer = vec![0; message_bytes];
    loop {
        connection.read_exact(&mut buffer)?;
        let mut head = [0; MESSAGE];
        head.copy_from_slice(&buffer[2..2 + MESSAGE]);
        if let Message::Heartbeat { heartbeat, .. } = Message::decode(&head)? {
            lanes.push(lane, heartbeat);
        }
    }
}

/// The ICN closes its side when all FLPs have sent what they had.
fn wait_for_end(mut control: TcpStream, lanes: &Arc<Lanes<u64>>) {
    let lanes = lanes.clone();
    thread::spawn(move || {
        let mut rest = Vec::new();
        let _ = control.read_to_end(&mut rest);
        lanes.close();
    });
}
