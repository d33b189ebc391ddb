//! Ten thousand liars at once, while a hundred honest machines bootstrap from the program that ships: all honest ones are
//! let in, no liar is, and afterwards the server is as it was before.

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

/// How many liars there are, each with a connection.
const LIARS: usize = 10_000;
/// How many machines bootstrap meanwhile.
const HONEST: usize = 100;
/// How many bootstrap in calm, before and afterwards.
const CALM: usize = 20;
/// How many machines of the cluster are in the hands of liars.
const INSIDERS: usize = 20;
/// How long after each other they begin.
const BETWEEN_HONEST: Duration = Duration::from_millis(200);
/// How long an honest machine may take; most of it is the pauses between their tries.
const HONEST_WITHIN: Duration = Duration::from_secs(180);
/// So long all liars may take to have lied once: the flood does not end before.
const LIED_WITHIN: Duration = Duration::from_secs(180);
/// How long a machine may take that bootstraps before or afterwards, at the first try.
const CALM_WITHIN: Duration = Duration::from_secs(5);
/// How long the controller may take to say that it lives.
const ALIVE_WITHIN: Duration = Duration::from_secs(10);
/// The most memory that the controller may have had, in MiB.
const MOST_MEMORY: f64 = 128.0;
/// How many connections the server lets there be, as `server::Limits` says.
const MOST_CONNECTIONS: usize = 2048;
/// Connections that are kept open for a while to the server that was asked: STS, say.
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
    // Liars have the list of one scale set asked for, some seconds apart: its machines, their addresses, and the names of scale sets.
    let (calls, most) = (azure.calls(), 10 + begun.elapsed().as_secs() as usize);
    println!("| questions to Azure, of at most {most} | {calls} |");
    assert!(calls <= most, "{calls} questions");
}

/// What was seen of the controller while the flood was on.
#[derive(Default)]
struct Seen {
    /// The most connections to its bootstrap server.
    connections: usize,
    /// The longest that it took to say that it lives.
    alive: Duration,
    /// The fewest connections that liars had, once all had one.
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

    let liars = Liars::of(world, lies);
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

    // Too many are not heard, or told to come again; all are where nothing can be asked in time. A connection that
    // gets no processor is late.
    tally.assert_refused(&[Answer::HungUp, Answer::Status(408), Answer::Status(500), Answer::Status(503)]);
    assert!(took[HONEST - 1] <= HONEST_WITHIN, "honest machines take too long: {took:?}");
    assert!(memory <= MOST_MEMORY, "{memory} MiB");
    assert!(seen.connections <= MOST_CONNECTIONS, "{} connections", seen.connections);
    assert!(seen.alive <= ALIVE_WITHIN, "it took {:?} to say that it lives", seen.alive);
    for calm in before.iter().chain(&after) {
        assert!(calm.put_off.is_empty() && calm.took <= CALM_WITHIN, "in calm: {calm:?}");
    }
    // Where the API server has no processor left to answer, too, another may take over.
    eventually("it leads", || controller.get("/metrics").contains(LEADS));
    eventually("connections and what they took are given back", || {
        metric(&controller, "kops_agent_bootstrap_connections") == 0
            && controller.descriptors() <= descriptors + KEPT
    });
}

/// Dropping this ends the watching, in a failing test too.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Looks at the controller again and again, until it is over.
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

/// A number of the controller's metrics.
fn metric(controller: &Controller, name: &str) -> usize {
    let metrics = controller.get("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
    line.parse().unwrap()
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}
