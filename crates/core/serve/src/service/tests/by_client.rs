//! Services where all connections of a client go to one server.

use super::*;

#[test]
fn no_connection_breaks_where_all_of_a_client_go_to_one_server() {
    for seed in 0..40 {
        torture(seed, Affinity::Client);
    }
}

#[test]
fn a_client_moves_as_a_whole_when_it_has_no_connection_left() {
    let mut world = World::new(
        7,
        ServiceConfig {
            affinity: Affinity::Client,
            ..config(3, true)
        },
    );
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    let drained = ServerId(0);
    let clients = |world: &World| -> BTreeSet<IpAddr> {
        let flows = world.hosts[&drained].flows.iter();
        flows.map(|flow| flow.address).collect()
    };
    world.order(drain(0)).expect("a server to drain");
    while world.status().step != Step::Listing {
        world.step();
    }
    let before = clients(&world);
    assert!(before.len() > 20, "{before:?}");
    for _ in 0..200 {
        world.step();
        world.connect();
        assert_eq!(world.broken(), []);
    }
    let status = world.status();
    assert_eq!((status.step, status.moving), (Step::Steady, 0));
    assert_eq!(clients(&world), before, "none has come, none is gone");
    assert_eq!(status.servers[0].pins, before.len());
    // A client with connections left gets new ones there; one without gets them elsewhere.
    let host = world.hosts.get_mut(&drained).expect("three hosts");
    let stays = *before.first().expect("there are clients");
    host.flows.retain(|flow| flow.address == stays);
    world.run(2500);
    assert_eq!(world.status().servers[0].pins, 1);
    (0..300).for_each(|_| world.connect());
    assert_eq!(clients(&world), BTreeSet::from([stays]));
    assert_eq!(world.broken(), []);
}

#[test]
fn a_change_is_put_off_when_the_agent_is_silent_and_connections_go_on() {
    let mut world = World::new(
        8,
        ServiceConfig {
            affinity: Affinity::Client,
            ..config(3, true)
        },
    );
    world.run(1000);
    (0..300).for_each(|_| world.connect());
    world.is_silent = true;
    world.order(drain(0)).expect("a server to drain");
    world.run(500);
    assert!(
        !world
            .plane
            .wanted
            .as_ref()
            .expect("a table")
            .moving
            .is_empty()
    );
    world.run(3000);
    assert!(
        world
            .plane
            .wanted
            .as_ref()
            .expect("a table")
            .moving
            .is_empty()
    );
    let before = world.connections;
    (0..300).for_each(|_| world.connect());
    assert_eq!(world.connections, before + 300, "none waits");
    assert_eq!(world.broken(), []);
    world.is_silent = false;
    world.run(6000);
    assert_eq!(world.status().servers[0].slots, 0);
    assert_eq!(world.broken(), []);
}
