//! `steadfast demo`: a server with something to look at, of which nothing is left.

use std::net::TcpListener;

use crate::world::{Running, World, until};

#[test]
fn a_demo_has_something_of_everything_and_leaves_nothing_behind() {
    let world = World::new();
    let place = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = world.steadfast();
    command.args(["demo", "--bind", &address.to_string(), "--dir"]).arg(place.path());
    let demo = Running::start(command);
    let shown = |path: &str| demo.json(path);
    // The last thing that is set up, and then that somebody works.
    until("a worker has taken jobs and vanished", || shown("/workers").to_string().contains("img-7f3a").then_some(()));
    until("jobs succeed", || (demo.count("succeeded") > 0).then_some(()));
    assert!(shown("/errors").as_array().unwrap().len() >= 4);
    assert!(shown("/schedules").as_array().unwrap().len() >= 3);
    let paused = shown("/queues").as_array().unwrap().iter().filter(|queue| queue["paused"] == true).count();
    assert_eq!(paused, 1);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    demo.stop();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "its directory is still there");
}
