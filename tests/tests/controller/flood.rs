//! Ten thousand liars send bad requests at once, while a hundred honest machines bootstrap. The program is the one that ships.
//! The server lets in every honest machine and no liar, and afterwards it is as before.

mod aws;
mod azure;
mod gce;
mod honest;
mod liars;
mod lies;
mod manners;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::bootstrap::World;
use crate::cluster::eventually;
use crate::controller::Controller;
use honest::{Granted, Signing, Went};
use liars::Liars;
use lies::Lie;
use manners::Answer;

/// The number of liars. Each liar has one connection.
const LIARS: usize = 10_000;
/// The number of machines that bootstrap during the flood.
const HONEST: usize = 100;
/// The number of machines that bootstrap without a flood, half of them before the flood and half after it.
const CALM: usize = 20;
/// The number of the cluster's machines that liars control.
const INSIDERS: usize = 20;
/// The time between the starts of two honest machines.
const BETWEEN_HONEST: Duration = Duration::from_millis(200);
/// The maximum time for an honest machine. Most of this time is pauses between the machine's tries.
const HONEST_WITHIN: Duration = Duration::from_secs(180);
/// The maximum time until each liar has lied once. The flood lasts at least until then.
const LIED_WITHIN: Duration = Duration::from_secs(180);
/// The maximum time for a machine that bootstraps before or after the flood. Its first try must succeed.
const CALM_WITHIN: Duration = Duration::from_secs(5);
/// The maximum time for the controller's response to `/healthz`.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// The maximum peak memory of the controller, in MiB.
const MOST_MEMORY: f64 = 128.0;
/// The bootstrap server's maximum number of connections, as in `server::Limits`.
const MOST_CONNECTIONS: usize = 2048;
/// The number of connections to servers such as STS that the controller may keep open.
const KEPT: usize = 8;
const LEADS: &str = r#"leader_election_master_status{name="kops-controller-leader"} 1"#;

#[test]
#[ignore = "takes all cores for some minutes: tests/controller/run --flood"]
fn a_flood_on_aws() {
    let aws = aws::Aws::start();
    let granted = Arc::<Granted>::default();
    let lies = [lies::of_tls(), lies::of_http(), lies::of_insiders(&aws.insider()), aws.lies(&granted)];
    let sign = |number: usize, body: &str| aws.token(number, body);
    let lies = lies.into_iter().flatten().collect();
    under_flood("AWS", &aws.world.world, &sign, &granted, lies);
    assert_eq!(aws.elsewhere.calls(), 0, "STS is not followed elsewhere");
}

#[test]
#[ignore = "takes all cores for some minutes: tests/controller/run --flood"]
fn a_flood_on_gce() {
    let gce = gce::Gce::start();
    let granted = Arc::<Granted>::default();
    let lies = [lies::of_tls(), lies::of_http(), lies::of_insiders(&gce.insider()), gce.lies(&granted)];
    let sign = |number: usize, body: &str| gce.token(number, body);
    under_flood("GCE", &gce.world, &sign, &granted, lies.into_iter().flatten().collect());
}

#[test]
#[ignore = "takes all cores for some minutes: tests/controller/run --flood"]
#[allow(clippy::print_stdout)]
fn a_flood_of_azures_documents() {
    let azure = azure::Azure::start();
    let granted = Arc::<Granted>::default();
    let lies = [lies::of_tls(), lies::of_http(), lies::of_insiders(&azure.insider()), azure.lies(&granted)];
    let sign = |number: usize, body: &str| azure.token(number, body);
    let begun = Instant::now();
    under_flood("Azure", &azure.world, &sign, &granted, lies.into_iter().flatten().collect());
    // The liars make the controller list the machines of one scale set, their addresses, and the names of scale sets. The controller
    // repeats each list after some seconds at the earliest, so the limit below grows with time.
    let (calls, most) = (azure.calls(), 10 + begun.elapsed().as_secs() as usize);
    println!("| questions to Azure, of at most {most} | {calls} |");
    assert!(calls <= most, "{calls} questions");
}

/// The controller's load during the flood.
#[derive(Default)]
struct Seen {
    /// The highest observed number of open connections to the bootstrap server.
    connections: usize,
    /// The longest time for a response to `/healthz`.
    alive: Duration,
    /// The minimum number of open connections of liars, observed after all liars had connected.
    liars: usize,
}

#[allow(clippy::print_stdout)]
fn under_flood(cloud: &str, world: &World, sign: &Signing<'_>, granted: &Arc<Granted>, lies: Vec<Lie>) {
    world.cluster.write_nodeup_config("nodes", "Networking: {}\n");
    let controller = world.controller();
    eventually("it leads", || controller.get("/metrics").contains(LEADS));
    let calmly = |numbers: std::ops::Range<usize>| -> Vec<Went> {
        numbers.map(|number| honest::bootstrap(world, number, sign, granted)).collect()
    };
    let before = calmly(HONEST..HONEST + CALM / 2);
    eventually("no connection is open", || metric(&controller, "kops_agent_bootstrap_connections") == 0);
    let descriptors = controller.descriptors();

    let liars = Liars::new(world, lies);
    liars.lie_calmly();
    let connected_in = liars.connect(LIARS);
    println!("{cloud}: {LIARS} liars are connected at once, in {connected_in:.1?}");
    let over = AtomicBool::new(false);
    let (went, seen) = thread::scope(|scope| {
        let ending = Ending(&over);
        let watch = scope.spawn(|| seen(&controller, &liars, &over));
        liars.begin();
        let honest: Vec<_> = (0..HONEST)
            .map(|number| {
                scope.spawn(move || {
                    thread::sleep(BETWEEN_HONEST * number as u32);
                    honest::bootstrap(world, number, sign, granted)
                })
            })
            .collect();
        let went: Vec<Went> = honest.into_iter().map(|machine| machine.join().unwrap()).collect();
        let waited = Instant::now();
        while liars.begun() < LIARS && waited.elapsed() < LIED_WITHIN {
            thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(liars.begun(), LIARS, "so many have lied");
        drop(ending);
        (went, watch.join().unwrap())
    });
    let refused = metric(&controller, "kops_agent_bootstrap_connections_refused_total");
    let tally = liars.stop();
    let ended = Instant::now();
    let after = calmly(HONEST + CALM / 2..HONEST + CALM);
    let again = ended.elapsed() / after.len() as u32;

    let memory = controller.peak_memory();
    let mut took: Vec<Duration> = went.iter().map(|went| went.took).collect();
    took.sort();
    let put_off: Vec<usize> = went.iter().map(|went| went.put_off.len()).collect();
    let mut why = BTreeMap::<u16, usize>::new();
    went.iter().flat_map(|went| &went.put_off).for_each(|status| *why.entry(*status).or_default() += 1);
    println!("{tally}");
    println!("| {cloud} | |\n| --- | --- |");
    println!("| lies told by {LIARS} liars | {} |", tally.told());
    println!("| fewest connections that liars had, once all had one | {} |", seen.liars);
    println!("| most connections to the server | {} |", seen.connections);
    println!("| connections closed at once | {refused} |");
    println!(
        "| {HONEST} honest machines, median and longest, s | {:.1}, {:.1} |",
        took[HONEST / 2].as_secs_f64(),
        took[HONEST - 1].as_secs_f64()
    );
    println!(
        "| how often they had to come again: in all, one of them | {}, {} |",
        put_off.iter().sum::<usize>(),
        put_off.iter().max().unwrap()
    );
    println!("| because of which status (0: no answer) | {why:?} |");
    println!("| longest time until it says that it lives, s | {:.2} |", seen.alive.as_secs_f64());
    println!("| peak memory of the controller, MiB | {memory:.1} |");
    println!("| a machine that bootstraps afterwards, mean, s | {:.2} |", again.as_secs_f64());

    // If clients exceed the server's limits, the server closes their connections or tells them to retry. If a request to the cloud
    // takes too long, the server tells the client to retry. If a connection gets no processor time, the server responds with 408.
    tally.assert_refused(&[Answer::HungUp, Answer::Status(408), Answer::Status(500), Answer::Status(503)]);
    assert!(took[HONEST - 1] <= HONEST_WITHIN, "honest machines take too long: {took:?}");
    assert!(memory <= MOST_MEMORY, "{memory} MiB");
    assert!(seen.connections <= MOST_CONNECTIONS, "{} connections", seen.connections);
    assert!(seen.alive <= ALIVE_WITHIN, "it took {:?} to say that it lives", seen.alive);
    for calm in before.iter().chain(&after) {
        assert!(calm.put_off.is_empty() && calm.took <= CALM_WITHIN, "in calm: {calm:?}");
    }
    // The controller may have lost its Lease, if the API server had too little processor time.
    eventually("it leads", || controller.get("/metrics").contains(LEADS));
    eventually("connections and what they took are given back", || {
        metric(&controller, "kops_agent_bootstrap_connections") == 0
            && controller.descriptors() <= descriptors + KEPT
    });
}

/// When dropped, ends the observation, also in a failing test.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Observes the controller until `over` is true.
fn seen(controller: &Controller, liars: &Liars, over: &AtomicBool) -> Seen {
    let mut seen = Seen { liars: usize::MAX, ..Seen::default() };
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        assert_eq!(controller.get("/healthz"), "ok");
        seen.alive = seen.alive.max(asked.elapsed());
        let connections = metric(controller, "kops_agent_bootstrap_connections");
        seen.connections = seen.connections.max(connections);
        seen.liars = seen.liars.min(liars.connected());
        thread::sleep(Duration::from_millis(100));
    }
    seen
}

fn metric(controller: &Controller, name: &str) -> usize {
    let metrics = controller.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.parse().unwrap()
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}
