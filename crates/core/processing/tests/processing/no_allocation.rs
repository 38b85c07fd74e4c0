//! Test that samples on their way do not allocate: 600,000 of them come a second.

use crate::site::config;
use allocation_counter::measure;
use sheaf_processing::{Output, Pipeline, Role, SeriesHandle};
use sheaf_samples::{Labels, Sample};

/// Allocations for 100 batches of 1,000 samples each and the windows of 10 s, when everything has been used once.
fn allocations(text: &str) -> u64 {
    let mut pipeline = Pipeline::new(&config(text), Role::Whole).unwrap();
    for handle in 0..1000_u32 {
        let host = handle.to_string();
        let labels = Labels::new([("__name__", "latency_ms"), ("host", &host)]).unwrap();
        pipeline
            .handle_new_series(0, SeriesHandle(handle), &labels)
            .unwrap();
    }
    let mut output = Output::default();
    let mut samples = Vec::with_capacity(1000);
    let mut tick = |tick: i64| {
        let at_ms = tick * 100;
        let sample = |handle| {
            (
                SeriesHandle(handle),
                Sample {
                    at_ms,
                    value: f64::from(handle),
                },
            )
        };
        samples.clear();
        samples.extend((0..1000).map(sample));
        pipeline.handle_samples(at_ms + 50, &samples, &mut output);
        pipeline.poll(at_ms + 60, &mut output);
        output.clear();
    };
    (0..100).for_each(&mut tick);
    measure(|| (100..200).for_each(tick)).count_total
}

#[test]
fn samples_do_not_allocate() {
    for text in [
        "",
        "[[operator]]\nkind = 'set'\nlabels = { run = '1' }\n[[operator]]\nkind = 'scale'\nfrom = 'ms'\nto = 's'\n",
        "[[operator]]\nkind = 'on_change'\n",
        "[[operator]]\nkind = 'derive'\nfunction = 'rate'\n",
        "[[operator]]\nkind = 'on_change'\nrefresh_ms = 1\n[[operator]]\nkind = 'window'\nfunctions = ['avg']\nlength_ms = 1000\nby = []\n",
    ] {
        assert_eq!(allocations(text), 0, "{text}");
    }
}
