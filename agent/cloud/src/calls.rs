//! Counts the calls to clouds as a metric, and notes how long a service has not answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    Success,
    Throttled,
    /// The call was rejected, or not answered.
    Error,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    service: &'static str,
    action: &'static str,
    outcome: Outcome,
}

/// A service that has not answered for this long is reported. Shorter outages pass by themselves.
const REPORTED_AFTER: Duration = Duration::from_secs(3 * 60);
/// A failure that is older than this is ignored, because the service may work again.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(5 * 60);

/// The calls of this process to clouds. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct CloudCalls {
    counted: Family<Call, Counter>,
    /// The services whose last call failed.
    failing: Arc<Mutex<BTreeMap<&'static str, Failing>>>,
}

/// When a service's calls began to fail, and when the last call failed. No call between these two times succeeded.
#[derive(Clone, Copy, Debug)]
struct Failing {
    first: Instant,
    last: Instant,
}

impl CloudCalls {
    pub fn count(&self, service: &'static str, action: &'static str, outcome: Outcome) {
        self.counted.get_or_create(&Call { service, action, outcome }).inc();
        match outcome {
            Outcome::Success => self.note_answer(service),
            Outcome::Throttled | Outcome::Error => self.failed(service, Instant::now()),
        }
    }

    /// Notes that a service has answered. The rejection of a machine's own token is an answer, too.
    pub fn note_answer(&self, service: &'static str) {
        self.failing.lock().remove(service);
    }

    fn failed(&self, service: &'static str, now: Instant) {
        let mut failing = self.failing.lock();
        let known = failing.get(service).filter(|known| now.duration_since(known.last) < FAILURE_COUNTS_FOR);
        let first = known.map_or(now, |known| known.first);
        failing.insert(service, Failing { first, last: now });
    }

    /// Describes the services that are still in use and have not answered for minutes; `None` if there are none.
    pub fn silent(&self) -> Option<String> {
        self.silent_at(Instant::now())
    }

    fn silent_at(&self, now: Instant) -> Option<String> {
        let failing = self.failing.lock();
        let is_silent = |failing: &Failing| {
            now.duration_since(failing.last) < FAILURE_COUNTS_FOR
                && failing.last.duration_since(failing.first) >= REPORTED_AFTER
        };
        let silent = failing.iter().filter(|(_, failing)| is_silent(failing));
        let told: Vec<String> = silent
            .map(|(service, failing)| {
                let minutes = now.duration_since(failing.first).as_secs() / 60;
                format!("all calls to {service} have failed for {minutes} minutes")
            })
            .collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn counted(&self, service: &'static str, action: &'static str, outcome: Outcome) -> u64 {
        self.counted.get_or_create(&Call { service, action, outcome }).get()
    }

    /// Records that a call to a service failed `REPORTED_AFTER` ago. If one more call fails, `silent` reports the service.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail_minutes_ago(&self, service: &'static str) {
        let now = Instant::now();
        self.failed(service, now.checked_sub(REPORTED_AFTER).unwrap_or(now));
    }

    /// The counters, for the metrics endpoint.
    pub fn metric(&self) -> Family<Call, Counter> {
        self.counted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_reported_after_minutes_of_failures_until_it_answers() {
        let (calls, start) = (CloudCalls::default(), Instant::now());
        let minutes = |minutes: u64| start + Duration::from_secs(60 * minutes);
        calls.failed("sts", minutes(0));
        assert_eq!(calls.silent_at(minutes(4)), None, "one failure");
        calls.failed("sts", minutes(2));
        assert_eq!(calls.silent_at(minutes(2)), None, "a short outage");
        calls.failed("sts", minutes(4));
        calls.failed("ec2", minutes(4));
        let told = "all calls to sts have failed for 6 minutes".to_owned();
        assert_eq!(calls.silent_at(minutes(6)), Some(told), "ec2 has failed once");
        assert_eq!(calls.silent_at(minutes(10)), None, "nobody has asked since");
        // Failures after a long gap begin a new outage.
        calls.failed("sts", minutes(20));
        assert_eq!(calls.silent_at(minutes(20)), None);
        calls.failed("sts", minutes(24));
        assert!(calls.silent_at(minutes(24)).is_some());
        calls.note_answer("sts");
        assert_eq!(calls.silent_at(minutes(24)), None);
    }
}
