//! Test that a choice does not allocate: it stands in the way of every timeframe of the farm.

use allocation_counter::measure;
use sheaf_placement::{Job, LoadView, TargetId, TargetLoad, policy};
use sheaf_protocol::Timestamp;

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
        let mut refused = 0;
        let counted = measure(|| {
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
        });
        assert_eq!(counted.count_total, 0, "{}", policy.name());
        assert_eq!(refused, 1000 - 199 * 3, "{}", policy.name());
    }
}

#[test]
fn the_count_sees_an_allocation() {
    let counted = measure(|| drop(std::hint::black_box(vec![1_u8; 10])));
    assert_eq!(counted.count_total, 1);
}
