//! How often a cloud was asked, and what came of it: a metric.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// It was answered.
    Success,
    /// The cloud asks to be asked less.
    Throttled,
    /// It was refused, or not answered.
    Error,
}

/// Which call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Call {
    service: &'static str,
    action: &'static str,
    outcome: Outcome,
}

/// The calls of this process to clouds. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct CloudCalls(Family<Call, Counter>);

impl CloudCalls {
    /// Counts one.
    pub fn count(&self, service: &'static str, action: &'static str, outcome: Outcome) {
        self.0.get_or_create(&Call { service, action, outcome }).inc();
    }

    /// How many there were of an outcome.
    #[cfg(any(test, feature = "testing"))]
    pub fn counted(&self, service: &'static str, action: &'static str, outcome: Outcome) -> u64 {
        self.0.get_or_create(&Call { service, action, outcome }).get()
    }

    /// The counters, to be shown.
    pub fn metric(&self) -> Family<Call, Counter> {
        self.0.clone()
    }
}
