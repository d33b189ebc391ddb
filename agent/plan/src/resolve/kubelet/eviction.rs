//! Checks the thresholds below which kubelet evicts pods, by kubelet's own rules.
//!
//! Source: `ParseThresholdConfig` in pkg/kubelet/eviction/helpers.go.

use std::collections::BTreeMap;

use kops_agent_spec::Duration;
use kops_agent_spec::invalid::Invalid;

use crate::resolve::Problems;

use super::values::{no_quantity, quantity};

const SIGNALS: [&str; 9] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

/// kubelet's eviction settings. The key is a signal, and the value is an amount or a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Eviction<'a> {
    pub(super) hard: &'a BTreeMap<String, String>,
    pub(super) soft: &'a BTreeMap<String, String>,
    pub(super) soft_grace_period: &'a BTreeMap<String, String>,
    pub(super) minimum_reclaim: &'a BTreeMap<String, String>,
}

impl Eviction<'_> {
    pub(super) fn check(&self, problems: &mut Problems) {
        check_each("evictionHard", self.hard, threshold, problems);
        check_each("evictionSoft", self.soft, threshold, problems);
        check_each("evictionSoftGracePeriod", self.soft_grace_period, grace_period, problems);
        check_each("evictionMinimumReclaim", self.minimum_reclaim, reclaim, problems);
        // kubelet drops a threshold of 0% or 100% (`parseThresholdStatement`), so such a threshold needs no grace
        // period.
        let thresholds = self.soft.iter().filter(|(_, value)| !matches!(value.as_str(), "0%" | "100%"));
        let signals = thresholds.map(|(signal, _)| signal);
        for signal in signals.filter(|signal| !self.soft_grace_period.contains_key(*signal)) {
            problems.add(
                "KubeletConfig.evictionSoft",
                format!(
                    "{signal} has no grace period; add one to evictionSoftGracePeriod, such as {signal}=1m30s"
                ),
            );
        }
    }
}

fn check_each(
    field: &str,
    values: &BTreeMap<String, String>,
    check: impl Fn(&str) -> Result<(), Invalid>,
    problems: &mut Problems,
) {
    let field = format!("KubeletConfig.{field}");
    for (signal, value) in values {
        if SIGNALS.contains(&signal.as_str()) {
            problems
                .keep(&field, check(value).map_err(|problem| Invalid::new(format!("{signal}: {problem}"))));
        } else {
            problems.add(
                &field,
                format!("kubelet does not measure {signal:?}; it measures {}", SIGNALS.join(", ")),
            );
        }
    }
}

fn threshold(value: &str) -> Result<(), Invalid> {
    match amount(value)? {
        Amount::Percent(percent) if (0.0..=100.0).contains(&percent) => Ok(()),
        Amount::Percent(_) => Err(Invalid::new(format!("{value} is refused by kubelet; use 0% to 100%"))),
        Amount::Quantity(amount) if amount > 0.0 => Ok(()),
        Amount::Quantity(_) => Err(Invalid::new(format!("{value} is refused by kubelet; use more than 0"))),
    }
}

fn reclaim(value: &str) -> Result<(), Invalid> {
    match amount(value)? {
        Amount::Percent(percent) if percent > 0.0 => Ok(()),
        Amount::Percent(_) => Err(Invalid::new(format!("{value} is refused by kubelet; use more than 0%"))),
        Amount::Quantity(amount) if amount >= 0.0 => Ok(()),
        Amount::Quantity(_) => Err(Invalid::new(format!("{value} is refused by kubelet; use 0 or more"))),
    }
}

fn grace_period(value: &str) -> Result<(), Invalid> {
    let period = value.parse::<Duration>().map_err(|error| error.to_string())?;
    if period < Duration::default() {
        return Err(Invalid::new(format!("{value} is refused by kubelet; use 0s or more")));
    }
    Ok(())
}

enum Amount {
    Percent(f32),
    Quantity(f64),
}

fn amount(value: &str) -> Result<Amount, Invalid> {
    if let Some(percent) = value.strip_suffix('%') {
        let percent = percent
            .parse()
            .map_err(|_| format!("{value:?} is not a percentage; use a percentage such as 10%"))?;
        return Ok(Amount::Percent(percent));
    }
    quantity(value)
        .map(Amount::Quantity)
        .ok_or_else(|| Invalid::new(format!("{}, or a percentage such as 10%", no_quantity(value))))
}
