//! Two endpoints over TCP: one sends payloads out of its arena, the other one takes them in its own, and compares
//! checksums that were taken as the bytes arrived.
//!
//!     cargo run --example two_endpoints -p sheaf-transport

use sheaf_protocol::crc32c;
use sheaf_transport::{Arena, ArenaOptions, Event, Frame, Tcp, TcpConfig, Transport, WireKind};
use std::error::Error;
use std::sync::mpsc;

const FRAMES: u64 = 100;
const BODY_BYTES: usize = 1 << 20;

fn endpoint() -> Result<Tcp, Box<dyn Error + Send + Sync>> {
    // Payloads that arrive lie in an arena: no memory is asked for on the way.
    let arena = Arena::new(64 << 20, ArenaOptions::default())?;
    Ok(Tcp::new(TcpConfig::default(), arena)?)
}

/// Takes all frames, and returns the bytes of their bodies.
fn receive(address: &mpsc::SyncSender<String>) -> Result<u64, Box<dyn Error + Send + Sync>> {
    let mut receiver = endpoint()?;
    let (_, listening) = receiver.listen("127.0.0.1:0")?;
    address.send(listening)?;
    let (mut bytes, mut events) = (0, Vec::new());
    loop {
        receiver.poll(&mut events, None)?;
        for event in events.drain(..) {
            match event {
                Event::Accepted { conn, peer, .. } => {
                    println!("{peer} has connected");
                    // Until then a stranger may send one small frame.
                    receiver.admit(conn, 64 << 10);
                }
                Event::Received {
                    frame, body_digest, ..
                } => {
                    let digest = u32::from_le_bytes(frame.head[..].try_into()?);
                    assert_eq!(body_digest.unwrap_or_else(|| crc32c(&frame.body)), digest);
                    bytes += frame.body.len() as u64;
                    // Dropped, the block of the body is free again.
                }
                Event::Closed { .. } => return Ok(bytes),
                _ => {}
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (tell, told) = mpsc::sync_channel(1);
    let receiver = std::thread::spawn(move || receive(&tell));
    let mut sender = endpoint()?;
    let arena = Arena::new(64 << 20, ArenaOptions::default())?;
    let conn = sender.connect(&told.recv()?)?;
    let (mut sent, mut events, mut is_open) = (0, Vec::new(), true);
    while is_open {
        // A refused frame is sent again when there is room: nothing waits, nothing is lost.
        while sent < FRAMES {
            let Some(mut block) = arena.allocate(BODY_BYTES) else {
                break;
            };
            block.as_mut().fill(sent as u8);
            let body = block.freeze();
            let head = crc32c(&body).to_le_bytes().to_vec().into();
            let kind = WireKind::Stf;
            if sender.send(conn, Frame { kind, head, body }).is_err() {
                break;
            }
            sent += 1;
        }
        if sent == FRAMES {
            sender.finish(conn);
        }
        sender.poll(&mut events, None)?;
        is_open = !events
            .iter()
            .any(|event| matches!(event, Event::Closed { .. }));
    }
    let bytes = receiver.join().expect("the receiver does not panic")?;
    println!("{FRAMES} frames with {bytes} bytes, all intact");
    Ok(())
}
