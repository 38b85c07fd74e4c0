//! Test that a choice does not allocate: it stands in the way of every timeframe of the farm.

#![expect(
    unsafe_code,
    reason = "a global allocator, which counts, is unsafe to implement"
)]

use sheaf_placement::{Job, LoadView, TargetId, TargetLoad, policy};
use sheaf_protocol::Timestamp;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting the allocations of the calling thread.
struct Counting;

thread_local! {
    // `const` and without a destructor, so that reading it can neither allocate nor fail.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; `realloc` and `alloc_zeroed` are the trait's
// own, which call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `alloc` above, which is the system's, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[test]
fn no_policy_allocates_to_choose_or_to_refuse() {
    let avoid = [TargetId(0)];
    let mut view = LoadView::new();
    for id in 0..200 {
        view.insert(TargetLoad::new(TargetId(id), 1_000_000, 3));
    }
    let mut policies: Vec<_> = policy::NAMES
        .iter()
        .map(|name| policy::by_name(name, 1).expect("one of NAMES"))
        .collect();
    for policy in &mut policies {
        let mut view = view.clone();
        // Some keep a table of the members, made when they first see them.
        let first = Job {
            id: 0,
            bytes: 1000,
            avoid: &avoid,
            is_early: false,
        };
        policy
            .choose(Timestamp(0), &first, &view)
            .expect("room on 199");
        let before = ALLOCATIONS.get();
        let mut refused = 0;
        for id in 0..1000 {
            let job = Job {
                id,
                bytes: 1000,
                avoid: &avoid,
                is_early: false,
            };
            // Ten seconds in all: tables that are rebuilt now and then are so meanwhile.
            match policy.choose(Timestamp(id * 10_000_000), &job, &view) {
                Ok(target) => view.book(target, job.bytes),
                Err(_) => refused += 1,
            }
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{}", policy.name());
        assert_eq!(refused, 1000 - 199 * 3, "{}", policy.name());
    }
}

#[test]
fn the_count_sees_an_allocation() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(vec![1_u8; 10]));
    assert!(ALLOCATIONS.get() > before);
}
