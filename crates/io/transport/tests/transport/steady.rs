//! Steady state: no allocation that grows with the number of small frames, and one or two
//! of a few bytes for a large one, whose memory has to be notified when its last user is gone.

use crate::{PATIENCE, await_accepted};
use bytes::Bytes;
use sheaf_transport::{
    Arena, ArenaOptions, ConnId, Event, Frame, SendError, Tcp, TcpConfig, Transport, WireKind,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The system's allocator, which counts what each thread takes from it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[expect(unsafe_code, reason = "this is how an allocator is made")]
// SAFETY: every request goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Gone while a thread ends: allocations are not counted there.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() + layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let _ = BYTES.try_with(|bytes| bytes.set(bytes.get() - layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }
}

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Bytes that this thread has taken from the heap and not returned.
pub(crate) fn heap_bytes() -> i64 {
    BYTES.with(Cell::get)
}

/// Two endpoints in one thread, whose bodies lie in `memory`.
struct Two {
    client: Tcp,
    server: Tcp,
    conn: ConnId,
    memory: Arc<Arena>,
    events: Vec<Event>,
}

impl Two {
    fn new(shared_memory: bool) -> Self {
        let arena = |shared| {
            let options = ArenaOptions {
                huge_pages: false,
                prefault: true,
                shared,
            };
            Arena::new(16 << 20, options).unwrap()
        };
        let config = || TcpConfig {
            shared_memory,
            ..TcpConfig::default()
        };
        let mut client = Tcp::new(config(), arena(false)).unwrap();
        let memory = arena(true);
        client.lend(&memory, u64::MAX);
        let mut server = Tcp::new(config(), arena(false)).unwrap();
        let (_, address) = server.listen_bulk("127.0.0.1:0").unwrap();
        let conn = client.connect_bulk(&address).unwrap();
        await_accepted(&mut server);
        let mut two = Self {
            client,
            server,
            conn,
            memory,
            events: Vec::new(),
        };
        let start = Instant::now();
        let lanes = u64::from(shared_memory);
        while two.client.stats().lanes + two.server.stats().lanes < 2 * lanes
            || two.client.stats().connected == 0
        {
            assert!(start.elapsed() < PATIENCE, "they have not met");
            two.poll();
        }
        two
    }

    fn poll(&mut self) {
        for endpoint in [&mut self.client, &mut self.server] {
            endpoint
                .poll(&mut self.events, Some(Duration::ZERO))
                .unwrap();
            self.events.clear(); // Received bodies are released, as by an EPN that is done with them.
        }
    }

    /// Sends `count` frames with bodies of `bytes`, and waits until they are there.
    fn pass(&mut self, count: u64, body: &Bytes) {
        let head = Bytes::from_static(&[7; 64]);
        let (start, before) = (Instant::now(), self.server.stats().frames_in);
        for _ in 0..count {
            let mut frame = Frame {
                kind: WireKind::Stf,
                head: head.clone(),
                body: body.clone(),
            };
            while let Err(SendError::Full(same)) = self.client.send(self.conn, frame) {
                assert!(start.elapsed() < PATIENCE, "the queue stays full");
                frame = same;
                self.poll();
            }
        }
        while self.server.stats().frames_in < before + count {
            assert!(start.elapsed() < PATIENCE, "the frames have not come");
            self.poll();
        }
    }

    /// Allocations for each of `count` frames, both sides together.
    fn allocations_a_frame(&mut self, count: u64, bytes: usize) -> f64 {
        let mut block = self.memory.allocate(bytes).unwrap();
        block.as_mut().fill(3);
        let body = block.freeze();
        self.pass(count, &body);
        let before = allocations();
        self.pass(count, &body);
        (allocations() - before) as f64 / count as f64
    }
}

#[test]
fn small_frames_that_are_read_together_have_one_owner() {
    let mut two = Two::new(false);
    // Those below 1 KiB are copied one by one, each to memory with an owner. The others of one read have one in common,
    // but for one that is cut off by the end of a read, which few of 10,000 bytes are, and most of 100,000.
    for (bytes, owners) in [
        (0, 0.0),
        (100, 1.0),
        (4096, 0.2),
        (10_000, 0.4),
        (100_000, 1.2),
    ] {
        let found = two.allocations_a_frame(4000, bytes);
        println!("{bytes} bytes: {found:.4} allocations a frame");
        // A chunk for 256 heads of 64 bytes, a block for the bodies of a MiB, what the lists of free extents take, and
        // the owners.
        let most = 0.01 + bytes as f64 / f64::from(1 << 20) * 3.0 + owners;
        assert!(
            found <= most,
            "{bytes} bytes: {found} allocations a frame, {most} at most"
        );
    }
}

#[test]
fn a_large_frame_costs_as_few_allocations_as_its_memory_has_owners() {
    let mut two = Two::new(false);
    let found = two.allocations_a_frame(200, 1_000_000);
    println!("1,000,000 bytes: {found:.3} allocations a frame");
    assert!(found <= 2.1, "{found} allocations a frame");
}

#[test]
fn a_lent_frame_costs_one_allocation_whatever_its_size() {
    let mut two = Two::new(true);
    for bytes in [100, 1_000_000] {
        let found = two.allocations_a_frame(2000, bytes);
        println!("{bytes} bytes lent: {found:.3} allocations a frame");
        assert!(found <= 1.1, "{bytes} bytes: {found} allocations a frame");
    }
    assert_eq!(two.client.stats().lent_frames_out, 8000);
}
