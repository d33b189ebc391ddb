//! Leader election: of several processes, only the holder of the Lease writes. The controllers' Lease is
//! `kube-system/kops-controller-leader`; upstream's kops-controller uses the same Lease.
//!
//! As in client-go, a Lease has expired once it has not changed for its duration on this process' own clock, because machines'
//! clocks may differ. A holder that cannot renew its Lease stops writing before the Lease expires.
//!
//! Sources: client-go's `tools/leaderelection`; controller-runtime's defaults.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use kops_agent_net::random;
use kops_agent_process::output::error_text;
use kops_agent_process::service_manager;

pub const NAMESPACE: &str = "kube-system";
/// Name of the controllers' Lease.
pub const NAME: &str = "kops-controller-leader";

#[derive(Debug)]
pub struct Contest {
    pub lease: &'static str,
    /// The task of the Lease's holder. A status text of the holder ends with this task.
    pub doing: &'static str,
}

pub const OF_CONTROLLERS: Contest = Contest { lease: NAME, doing: "this process labels Nodes" };

/// Time after the last renewal until other processes may take the Lease.
const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time after the last renewal until the holder stops writing to the API server.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Interval between two renewals by the holder, and between two checks by other processes.
const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// Timeout of reading and writing the Lease. A timed-out write may still succeed, and then this process does not know
/// that it holds the Lease. So the timeout is long enough for a slow API server. It is still short enough for another
/// try before [`RENEW_DEADLINE`].
const TIMEOUT: Duration = Duration::from_secs(5);
/// A process is stuck if its last try to take or renew the Lease was longer ago than this time.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// Whether this process may write to the API server. Clones share the state.
#[derive(Clone, Debug)]
pub struct Leadership {
    start: Instant,
    /// This process may write until this time, in milliseconds after `start`. Zero if it may not write.
    until: Arc<AtomicU64>,
}

impl Leadership {
    fn none() -> Leadership {
        Leadership { start: Instant::now(), until: Arc::default() }
    }

    /// A leadership without a Lease, for a single run.
    pub fn uncontested() -> Leadership {
        Leadership { start: Instant::now(), until: Arc::new(AtomicU64::new(u64::MAX)) }
    }

    /// A leadership by a Lease that was just renewed. The Lease is never renewed again.
    #[cfg(any(test, feature = "testing"))]
    pub fn renewed_now() -> Leadership {
        let leadership = Leadership::none();
        leadership.renewed(leadership.start);
        leadership
    }

    /// A leadership of a process that does not hold the Lease.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_another() -> Leadership {
        Leadership::none()
    }

    /// The remaining time in which this process may begin a write. `None` if it may not begin a write now. A write that
    /// begins in time and takes at most [`Leadership::LONGEST_WRITE`] ends before another process may write.
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining_at(Instant::now())
    }

    fn remaining_at(&self, now: Instant) -> Option<Duration> {
        let until = Duration::from_millis(self.until.load(Ordering::Acquire));
        let since_start = now.saturating_duration_since(self.start);
        until.checked_sub(since_start).filter(|remaining| !remaining.is_zero())
    }

    pub const LONGEST_WRITE: Duration = Duration::from_secs(4);

    fn renewed(&self, asked: Instant) {
        let until = asked.saturating_duration_since(self.start) + RENEW_DEADLINE;
        self.until.store(u64::try_from(until.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn lost(&self) {
        self.until.store(0, Ordering::Release);
    }
}

/// A unique name of this process for the Lease: the machine's name and a random part.
pub fn identity() -> Result<String> {
    let host = nix::unistd::gethostname().context("reading this machine's name")?;
    let unique = random::name().context("making a unique name")?;
    Ok(format!("{}_{unique}", host.to_string_lossy()))
}

/// Tries to take a Lease, and then renews it.
pub struct Election {
    leases: Api<Lease>,
    contest: Contest,
    identity: String,
    leadership: Leadership,
    leads: watch::Sender<bool>,
    /// When this process last tried to take or renew the Lease, in milliseconds after the start of `leadership`.
    beat: AtomicU64,
}

impl Election {
    /// `identity` is the name of this process in the Lease. It must be unique to this process.
    pub fn new(client: Client, contest: Contest, identity: String) -> Election {
        let (leads, _) = watch::channel(false);
        Election {
            leases: Api::namespaced(client, NAMESPACE),
            contest,
            identity,
            leadership: Leadership::none(),
            leads,
            beat: AtomicU64::new(0),
        }
    }

    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Receives `true` when this process begins to lead, and `false` when it stops.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    pub async fn run(&self) {
        let mut seen: Option<Seen> = None;
        // A repeated problem is logged once, even if an API server is unreachable for an hour.
        let mut said = String::new();
        loop {
            let asked = Instant::now();
            let problem = match timeout(TIMEOUT, self.contend(&mut seen, asked)).await {
                Ok(Ok(true)) => {
                    self.leadership.renewed(asked);
                    String::new()
                }
                Ok(Ok(false)) => {
                    self.leadership.lost();
                    String::new()
                }
                Ok(Err(error)) => error_text(&error),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if problem != said && !problem.is_empty() {
                let name = self.contest.lease;
                log::warn!("the Lease {NAMESPACE}/{name} cannot be renewed: {problem}; retrying");
            }
            self.tell();
            self.show_life(problem.is_empty());
            said = problem;
            sleep(RETRY_PERIOD).await;
            self.tell();
        }
    }

    /// Releases the Lease. The next holder can then take it immediately.
    pub async fn release(&self) {
        if self.leadership.remaining().is_none() {
            return;
        }
        self.leadership.lost();
        self.tell();
        let name = self.contest.lease;
        let release = async {
            let mut lease = self.leases.get(name).await?;
            if holder(&lease) == self.identity {
                let spec = lease.spec.get_or_insert_default();
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.leases.replace(name, &PostParams::default(), &lease).await?;
            }
            Ok::<(), Error>(())
        };
        if let Ok(Err(error)) = timeout(RETRY_PERIOD, release).await {
            log::debug!("the Lease {NAMESPACE}/{name} was not released: {error}");
        }
    }

    /// The failure text for a liveness probe if this process no longer tries to take or renew the Lease; otherwise `None`.
    /// One try takes a few seconds at most, even if the API server hangs.
    pub fn not_live(&self) -> Option<String> {
        let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
        let is_stuck = self.leadership.start.elapsed().saturating_sub(beat) >= STUCK_AFTER;
        is_stuck.then(|| "this process no longer tries to take or renew the Lease".to_owned())
    }

    fn show_life(&self, is_answered: bool) {
        let now = self.leadership.start.elapsed().as_millis();
        self.beat.store(u64::try_from(now).unwrap_or(u64::MAX), Ordering::Relaxed);
        let what = match self.leadership.remaining() {
            Some(_) => format!("leading: {}", self.contest.doing),
            None if !is_answered => "waiting for the API server: the leader is unknown".to_owned(),
            None => "waiting for its turn: another process leads".to_owned(),
        };
        service_manager::waiting(what, STUCK_AFTER);
    }

    fn tell(&self) {
        let leads = self.leadership.remaining().is_some();
        let changed = self.leads.send_if_modified(|told| std::mem::replace(told, leads) != leads);
        let name = self.contest.lease;
        match (changed, leads) {
            (true, true) => log::info!("{} leads: it holds the Lease {NAMESPACE}/{name}", self.identity),
            (true, false) => log::warn!("{} does not lead any more", self.identity),
            (false, _) => {}
        }
    }

    /// Takes or renews the Lease if this process may write it. Returns whether this process now holds the Lease.
    async fn contend(&self, seen: &mut Option<Seen>, now: Instant) -> Result<bool> {
        let name = self.contest.lease;
        let Some(mut lease) = self.leases.get_opt(name).await.context("reading the Lease")? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            return written(self.leases.create(&PostParams::default(), &lease).await)
                .context("creating the Lease");
        };
        match next(&lease, seen, &self.identity, now) {
            Next::Wait => Ok(false),
            Next::Write => {
                lease.spec = Some(self.spec(lease.spec.as_ref()));
                written(self.leases.replace(name, &PostParams::default(), &lease).await)
                    .context("writing the Lease")
            }
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let renews = before.is_some_and(|spec| spec.holder_identity.as_ref() == Some(&self.identity));
        let acquired = before.filter(|_| renews).and_then(|spec| spec.acquire_time.clone());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
            acquire_time: acquired.or_else(|| now.clone()),
            renew_time: now,
            lease_transitions: Some(if renews || before.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}

/// The last seen version of a Lease, and when this process first saw this version.
pub struct Seen {
    version: Option<String>,
    at: Instant,
}

impl Seen {
    /// Records the present version of the Lease. `before` is the last record.
    pub fn new(lease: &Lease, before: Option<&Seen>, now: Instant) -> Seen {
        let version = lease.metadata.resource_version.clone();
        let at = before.filter(|seen| seen.version == version).map_or(now, |seen| seen.at);
        Seen { version, at }
    }

    /// Whether the Lease has stayed unchanged for longer than its `leaseDurationSeconds`.
    pub fn has_expired(&self, lease: &Lease, now: Instant) -> bool {
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        now.saturating_duration_since(self.at) > duration
    }
}

enum Next {
    Wait,
    Write,
}

/// Whether this process may write the Lease: it is the holder, the Lease has no holder, or the Lease has expired.
fn next(lease: &Lease, seen: &mut Option<Seen>, identity: &str, now: Instant) -> Next {
    let is_now = Seen::new(lease, seen.as_ref(), now);
    let has_expired = is_now.has_expired(lease, now);
    *seen = Some(is_now);
    let holder = holder(lease);
    if holder.is_empty() || holder == identity || has_expired { Next::Write } else { Next::Wait }
}

/// The holder of a Lease. Empty if the Lease has no holder.
pub fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether the write of the Lease succeeded. A conflict means that another process was faster.
fn written(result: Result<Lease, Error>) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: &str, version: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.into()),
                lease_duration_seconds: Some(15),
                ..LeaseSpec::default()
            }),
        }
    }

    fn writes(lease: &Lease, seen: &mut Option<Seen>, now: Instant) -> bool {
        matches!(next(lease, seen, "me", now), Next::Write)
    }

    #[test]
    fn a_lease_is_taken_once_its_holder_has_not_renewed_it_for_as_long_as_it_says() {
        let (mut seen, start) = (None, Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!writes(&lease("other", "1"), &mut seen, at(0)));
        assert!(!writes(&lease("other", "1"), &mut seen, at(15)));
        assert!(!writes(&lease("other", "2"), &mut seen, at(16)), "it was renewed");
        assert!(!writes(&lease("other", "2"), &mut seen, at(31)));
        assert!(writes(&lease("other", "2"), &mut seen, at(32)));
    }

    #[test]
    fn a_lease_of_ours_or_without_a_holder_is_written_at_once() {
        assert!(writes(&lease("me", "1"), &mut None, Instant::now()));
        assert!(writes(&lease("", "1"), &mut None, Instant::now()));
    }

    #[test]
    fn a_leader_that_cannot_renew_stops_before_another_may_begin() {
        let leadership = Leadership::none();
        let now = leadership.start;
        assert_eq!(leadership.remaining_at(now), None);
        leadership.renewed(now);
        assert_eq!(leadership.remaining_at(now), Some(RENEW_DEADLINE));
        assert!(leadership.remaining_at(now + RENEW_DEADLINE - Duration::from_millis(1)).is_some());
        assert_eq!(leadership.remaining_at(now + RENEW_DEADLINE), None);
        assert!(RENEW_DEADLINE + Leadership::LONGEST_WRITE < LEASE_DURATION);
        leadership.renewed(now);
        leadership.lost();
        assert_eq!(leadership.remaining_at(now), None);
    }
}
