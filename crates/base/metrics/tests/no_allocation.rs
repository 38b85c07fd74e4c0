//! Test that recording does not allocate, whichever handle and thread.

use allocation_counter::measure;
use sheaf_metrics::{Registry, Reporter, Scale};
use std::sync::{Arc, Barrier};
use std::time::Duration;

#[test]
fn no_thread_allocates_to_record() {
    let registry = Arc::new(Registry::default());
    let registering = measure(|| {
        registry.counter("a_total", "Things.", &[("b", "1")]);
    });
    assert!(registering.count_total > 0, "registration allocates");
    let counter = registry.counter("a_total", "Things.", &[("b", "1")]);
    let gauge = registry.gauge("a_bytes", "Bytes.", &[]);
    let real = registry.real_gauge("a_celsius", "Temperature.", &[]);
    let histogram = registry.histogram("a_seconds", "Times.", &[], Scale::DURATION_NS);
    let event = registry.event("link_status", "A link.", &[], &["up"]);
    // From here on events are taken into the ring, which overflows below.
    let reporter = Reporter::builder(registry.clone())
        .interval(Duration::from_secs(3600))
        .backend("none://".parse().unwrap())
        .start()
        .unwrap();
    let threads = 12;
    let all = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (counter, gauge, real) = (&counter, &gauge, &real);
            let (histogram, event) = (&histogram, &event);
            let all = &all;
            scope.spawn(move || {
                all.wait();
                let counted = measure(|| {
                    for value in 0..10_000 {
                        counter.add(value);
                        counter.raise_to(value);
                        gauge.add(1);
                        gauge.set_u64(value);
                        real.set(value as f64);
                        histogram.record(value << thread);
                        event.send(&[value as f64]);
                    }
                });
                // The first record of a thread is among them.
                assert_eq!(counted.count_total, 0, "thread {thread}");
            });
        }
    });
    drop(reporter);
    assert_eq!(counter.value(), threads as u64 * (0..10_000).sum::<u64>());
    assert_eq!(histogram.snapshot().count(), threads as u64 * 10_000);
}
