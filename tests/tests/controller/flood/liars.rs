//! The liars. All of them lie at once. Each has a connection, and replaces it when it ends.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::sleep;

use super::lies::Lie;
use super::manners::{Answer, Dialects};
use crate::bootstrap::World;
use crate::client::connect;

/// The number of the process' file descriptors that are not for liars.
const OTHERS: u64 = 2048;
/// Half of the liars share this number of addresses. Each liar of the other half has its own address.
const SHARED: usize = 50;
/// After each reconnect, a liar waits for at least this long before it sends anything. With this pause, ten thousand liars
/// make about five thousand connections a second.
const PAUSE: Duration = Duration::from_millis(1500);
/// How often each lie is told before the flood. Some lies differ each time.
const TOLD_CALMLY: usize = 3;
const CONNECTED_WITHIN: Duration = Duration::from_secs(120);

/// The liars of one flood.
pub struct Liars {
    all: Arc<All>,
    begin: watch::Sender<bool>,
    runtime: Runtime,
}

struct All {
    server: SocketAddr,
    dialects: Dialects,
    lies: Vec<Lie>,
    connected: AtomicUsize,
    /// The number of liars that have lied at least once.
    begun: AtomicUsize,
    told: AtomicUsize,
    tally: Mutex<Tally>,
}

/// The answers to the lies, and the expected answers.
#[derive(Clone)]
pub struct Tally {
    expected: BTreeMap<&'static str, &'static [Answer]>,
    answered: BTreeMap<&'static str, BTreeMap<Answer, usize>>,
}

impl Liars {
    /// Makes liars that tell these lies to the server of a cluster. The liars do not connect yet.
    pub fn new(world: &World, lies: Vec<Lie>) -> Liars {
        let expected: BTreeMap<_, _> = lies.iter().map(|lie| (lie.what, lie.expected)).collect();
        assert_eq!(expected.len(), lies.len(), "each lie has a name of its own");
        let all = Arc::new(All {
            server: world.address,
            dialects: Dialects::new(world.name.clone()),
            lies,
            connected: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            tally: Mutex::new(Tally { expected, answered: BTreeMap::new() }),
        });
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Liars { all, begin: watch::Sender::new(false), runtime }
    }

    /// Tells each lie `TOLD_CALMLY` times, without any other load. Checks that the server rejects each lie as expected.
    pub fn lie_calmly(&self) {
        for _ in 0..TOLD_CALMLY {
            let told: Vec<_> = (0..self.all.lies.len())
                .map(|number| {
                    let all = self.all.clone();
                    self.runtime.spawn(async move {
                        let stream = Counted::new(all.connect(number).await, &all.connected);
                        all.tell(&all.lies[number], stream).await;
                    })
                })
                .collect();
            told.into_iter().for_each(|told| self.runtime.block_on(told).unwrap());
        }
        let mut tally = self.all.tally.lock();
        tally.assert_refused(&[]);
        tally.answered.clear();
    }

    /// Connects this many liars, which are silent at first. Returns the time until all are connected.
    pub fn connect(&self, count: usize) -> Duration {
        raise_limit(count);
        let (all, runtime) = (&self.all, &self.runtime);
        let started = Instant::now();
        for number in 0..count {
            runtime.spawn(all.clone().liar(number, self.begin.subscribe()));
        }
        while all.connected.load(Ordering::Relaxed) < count {
            assert!(started.elapsed() < CONNECTED_WITHIN, "no more than {:?} connect", all.connected);
            thread::sleep(Duration::from_millis(10));
        }
        started.elapsed()
    }

    /// The number of the liars' open connections.
    pub fn connected(&self) -> usize {
        self.all.connected.load(Ordering::Relaxed)
    }

    /// Makes all liars tell their lies repeatedly from now on.
    pub fn begin(&self) {
        self.begin.send_replace(true);
    }

    /// The number of liars that have told their first lie, with or without an answer.
    pub fn begun(&self) -> usize {
        self.all.begun.load(Ordering::Relaxed)
    }

    /// Stops all liars, and returns the answers to their lies.
    pub fn stop(self) -> Tally {
        self.runtime.shutdown_timeout(Duration::from_secs(30));
        self.all.tally.lock().clone()
    }
}

impl All {
    async fn liar(self: Arc<All>, number: usize, mut begun: watch::Receiver<bool>) {
        // A liar needs no signal at the end of the flood, because the shutdown of the runtime ends this task.
        let lie = &self.lies[number % self.lies.len()];
        let stream = Counted::new(self.connect(number).await, &self.connected);
        let _ = begun.wait_for(|begun| *begun).await;
        self.tell(lie, stream).await;
        self.begun.fetch_add(1, Ordering::Relaxed);
        loop {
            let stream = Counted::new(self.connect(number).await, &self.connected);
            // Different pauses keep the liars from acting at the same time.
            sleep(PAUSE + PAUSE.mul_f64((number % 997) as f64 / 997.0)).await;
            self.tell(lie, stream).await;
        }
    }

    async fn connect(&self, number: usize) -> TcpStream {
        loop {
            if let Ok(stream) = connect(address(number), self.server).await {
                return stream;
            }
            sleep(PAUSE).await;
        }
    }

    async fn tell(&self, lie: &Lie, stream: Counted<'_>) {
        let Counted(stream, _held) = stream;
        let manner = (lie.manner)(self.told.fetch_add(1, Ordering::Relaxed));
        let answer = self.dialects.lie(stream, manner).await;
        *self.tally.lock().answered.entry(lie.what).or_default().entry(answer).or_default() += 1;
    }
}

/// A connection that counts as open until it is dropped.
struct Counted<'a>(TcpStream, Held<'a>);

struct Held<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(stream: TcpStream, count: &'a AtomicUsize) -> Counted<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(stream, Held(count))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    pub fn told(&self) -> usize {
        self.answered.values().flat_map(BTreeMap::values).sum()
    }

    /// Checks that each lie got one of its expected answers, or one of `otherwise`.
    #[track_caller]
    pub fn assert_refused(&self, otherwise: &[Answer]) {
        for (what, expected) in &self.expected {
            let answered = &self.answered[what];
            let other =
                answered.keys().find(|answer| !expected.contains(answer) && !otherwise.contains(answer));
            assert_eq!(other, None, "{what}: {answered:?}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, answered) in &self.answered {
            let answered: Vec<String> =
                answered.iter().map(|(answer, count)| format!("{answer:?} {count}")).collect();
            writeln!(formatter, "  {what}: {}", answered.join(", "))?;
        }
        Ok(())
    }
}

/// The loopback address of a liar.
fn address(number: usize) -> Ipv4Addr {
    // The kind of address, shared or own, changes every 101 liars, so that each lie comes from both kinds.
    match (number / 101) % 2 {
        0 => Ipv4Addr::new(127, 1, 0, 1 + (number % SHARED) as u8),
        _ => Ipv4Addr::new(127, 2, (number / 250) as u8, 1 + (number % 250) as u8),
    }
}

/// Raises the limit of open files to allow a socket for each liar.
fn raise_limit(liars: usize) {
    let needed = liars as u64 + OTHERS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < needed {
        // Root may also raise the hard limit.
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed))
            .expect("so many sockets need `ulimit -Hn` to be higher, or root");
    }
}
