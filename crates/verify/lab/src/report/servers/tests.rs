use super::*;
use crate::results::tests::point;
use sheaf_sim::serving::{Placement, ServingFault};
use std::collections::BTreeMap;

/// Runs of a plane with `clients`, at these rates.
fn at(plane: &str, clients: u32, client_mbit: f64, rates: &[f64]) -> (Point, Vec<RunResult>) {
    let asked = Serving {
        plane: plane.to_owned(),
        clients,
        client_mbit,
        ..Serving::default()
    };
    of_runs(asked, 0, rates)
}

fn of_runs(asked: Serving, failed: u64, rates: &[f64]) -> (Point, Vec<RunResult>) {
    let run = |rate: &f64| RunResult {
        announced: 100,
        lost: failed,
        servers: Some(ServersRun {
            gbit_per_s: *rate,
            ..ServersRun::default()
        }),
        ..RunResult::default()
    };
    let published = [28.384, 37.19];
    let is_plain = asked.besides().is_empty();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let served = Served {
        skipped: rates
            .is_empty()
            .then(|| "needs a kernel with ip_vs".to_owned()),
        gbit_per_s: mean,
        gbit_per_s_ci95: [mean - 1.0, mean + 1.0],
        gbit_per_s_max: mean + 2.0,
        connections_per_s: 50.0,
        held_max: asked.clients,
        finished: (100 - failed) as f64,
        failed: failed as f64,
        broken: failed as f64,
        drains: 0,
        jain: 0.99,
        fullest: 1.1,
        cpu_s_per_gb: 0.5,
        others_share_max: 0.0,
        published_gbit_per_s: (asked.clients == 3000 && is_plain).then_some(published),
        asked,
    };
    let label = served.asked.load();
    let point = Point {
        label,
        n: rates.len() as u32,
        loss_percent: failed as f64,
        lost_by: BTreeMap::new(),
        served: Some(served),
        ..point("servers", failed as f64, None)
    };
    (point, rates.iter().map(run).collect())
}

fn results(points: Vec<(Point, Vec<RunResult>)>) -> Results {
    let mut summary = Summary::new("lvs-gridftp");
    let (points, runs) = points.into_iter().unzip();
    summary.points = points;
    Results {
        summary,
        runs,
        question: "How much?".to_owned(),
        reference: "table 1".to_owned(),
    }
}

#[test]
fn a_row_has_published_ipvs_and_direct_beside_the_plane_and_a_plane_that_was_not_run_its_reason() {
    let measured = results(vec![
        at("ipvs", 3000, 20.0, &[25.0, 25.0]),
        at("direct", 3000, 20.0, &[50.0, 50.0]),
        at("nft", 3000, 20.0, &[40.0, 40.0]),
        // Another load: nothing is compared with it.
        at("ipvs", 3000, 0.0, &[1.0]),
    ]);
    let page = markdown(&measured);
    let row = "| 3000 | 20 Mbit/s | nft | 40.00 | 39.00 to 41.00 | 28.38 | 1.41 | 1.60 | 0.80 | 42.00 | 37.19 | 0.0 \
               | 0.0 | 100 |";
    assert!(page.contains(row), "{page}");
    let skipped = results(vec![
        at("ipvs", 3000, 20.0, &[]),
        at("nft", 3000, 20.0, &[40.0]),
    ]);
    let page = markdown(&skipped);
    assert!(page.contains("| ipvs | not run: needs a kernel with ip_vs | – | 28.38 |"));
    assert!(page.contains("| nft | 40.00 | 39.00 to 41.00 | 28.38 | 1.41 | – | – |"));
    assert!(page.contains("- ipvs was not run: needs a kernel with ip_vs."));
    let text = table(&skipped.summary);
    assert!(
        text.contains("not run: needs a kernel with ip_vs"),
        "{text}"
    );
    assert!(html(&skipped, str::to_owned).contains("<td>not run: needs a kernel with ip_vs<td>"));
}

/// Sentence about the decline, of rates at 1,000, 3,000 and 5,000 clients with cables and without.
fn answer(with: [&[f64]; 3], without: [&[f64]; 3]) -> String {
    let mut points = Vec::new();
    for (mbit, rates) in [(20.0, with), (0.0, without)] {
        for (clients, rates) in [1000, 3000, 5000].into_iter().zip(rates) {
            points.push(at("nft", clients, mbit, rates));
        }
    }
    sentences(&results(points)).remove(0)
}

#[test]
fn the_decline_is_the_clients_if_it_goes_with_their_cables() {
    let flat: [&[f64]; 3] = [&[25.0, 25.1], &[30.0, 30.2], &[30.1, 29.9]];
    let falling: [&[f64]; 3] = [&[25.0, 25.1], &[30.0, 30.2], &[24.0, 24.5]];
    let scattered: [&[f64]; 3] = [&[25.0, 25.1], &[20.0, 40.0], &[15.0, 35.0]];
    let once: [&[f64]; 3] = [&[25.0], &[30.0], &[24.0]];
    for (with, without, told) in [
        (falling, flat, "the decline is that of the clients' cables"),
        (
            flat,
            flat,
            "no decline, with the clients' cables or without",
        ),
        (falling, falling, "they are not the cause"),
        (flat, falling, "the bound is elsewhere"),
        (scattered, flat, "not answered: the intervals allow both"),
        (once, flat, "not answered: two runs and more"),
    ] {
        let answer = answer(with, without);
        assert!(answer.contains(told), "{told}: {answer}");
    }
    let told = answer(falling, flat);
    assert!(
        told.starts_with("nft, hosts 20 Mbit/s: above 3,000 clients the rate changes by -19.4 % [")
    );
}

#[test]
fn fits_have_every_plane_that_has_three_numbers_of_clients_and_the_published_one() {
    let mut points = Vec::new();
    for (clients, rate) in [(1000, 10.0), (2000, 19.0), (3000, 20.0), (4000, 15.0)] {
        points.push(at("nft", clients, 20.0, &[rate - 0.5, rate + 0.5]));
    }
    points.push(at("direct", 1000, 20.0, &[50.0]));
    let page = markdown(&results(points));
    assert!(page.contains("| nft | 20 Mbit/s | 2"), "{page}");
    assert!(
        page.contains("| published | 1 Gbit/s, number not told | 3008 |"),
        "{page}"
    );
    assert!(
        !page.contains("| direct | 20 Mbit/s | 1000 |"),
        "one point has no fit"
    );
    assert!(
        page.contains("| -17.8 |"),
        "published: 23.334 ÷ 28.384\n{page}"
    );
}

#[test]
fn faults_show_that_rows_can_fail_and_what_they_do_not_show_is_told() {
    let killed = |failed| {
        let asked = Serving {
            plane: "userspace".to_owned(),
            fault: Some(ServingFault::DirectorKilled),
            ..Serving::default()
        };
        of_runs(asked, failed, &[10.0])
    };
    let plain = at("userspace", 1000, 20.0, &[40.0]);
    let good = results(vec![plain.clone(), killed(66)]);
    let told = sentences(&good).remove(0);
    let expected = "Rows can fail: userspace, the director killed: 66.00 % of the transfers failed";
    assert_eq!(told, expected);
    let row = "| the director killed | 1000 | 20 Mbit/s | userspace | nginx | 10.00 | 0.25 | 66.0 | 66.0 | 34 |";
    assert!(markdown(&good).contains(row), "{}", markdown(&good));
    let blind = sentences(&results(vec![plain, killed(0)])).remove(0);
    assert!(blind.starts_with("No fault shows, so rows without failures prove nothing"));
}

#[test]
fn a_csv_row_has_as_many_cells_as_its_header_and_farms_have_none() {
    let results = results(vec![
        at("nft", 3000, 20.0, &[1.0]),
        at("ipvs", 3000, 20.0, &[]),
    ]);
    let csv = csv(&results.summary).expect("there are servers");
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [34; 3], "{csv}");
    let mut farm = Summary::new("x");
    farm.points.push(point("sheaf", 0.0, None));
    assert_eq!(super::csv(&farm), None);
    assert_eq!(table(&farm), "");
}

#[test]
fn figures_are_for_each_kind_of_client_hosts_that_has_several_numbers_of_clients() {
    let lot = |clients| {
        let asked = Serving {
            clients,
            placement: Placement::Random,
            ..Serving::default()
        };
        of_runs(asked, 0, &[20.0])
    };
    let results = results(vec![
        at("nft", 1000, 20.0, &[1.0]),
        at("nft", 3000, 20.0, &[2.0]),
        at("nft", 1000, 0.0, &[2.0]),
        lot(1000),
        lot(3000),
    ]);
    let names: Vec<String> = figures(&results.summary)
        .unwrap()
        .into_iter()
        .map(|(name, svg)| {
            assert!(svg.contains("client hosts"), "{name}");
            name
        })
        .collect();
    let expected = [
        "servers-rate-1",
        "servers-transfer-1",
        "servers-rate-3",
        "servers-transfer-3",
    ];
    assert_eq!(names, expected);
}
