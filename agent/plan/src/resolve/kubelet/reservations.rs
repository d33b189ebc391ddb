//! Checks that the machine has the memory and the processors that kubelet reserves. kubelet does not start if the machine has less.
//!
//! Source: `validateNodeAllocatable` and `GetNodeAllocatableReservation` in pkg/kubelet/cm/node_container_manager_linux.go.

use std::collections::BTreeMap;

use kops_agent_spec::KubeletConfigSpec;
use kops_agent_spec::facts::Facts;

use crate::resolve::Problems;

use super::values::quantity;

const MEBIBYTE: f64 = 1024.0 * 1024.0;
/// kubelet's eviction threshold for available memory if `evictionHard` is unset, in bytes
/// (pkg/kubelet/apis/config/v1beta1/defaults_linux.go).
const DEFAULT_EVICTION: f64 = 100.0 * MEBIBYTE;

/// Checks that the machine has the reserved memory and processors. Does not check the memory if the facts lack its size, and does not check
/// the processors if the facts lack their number.
pub(super) fn check(
    config: &KubeletConfigSpec,
    eviction_hard: &BTreeMap<String, String>,
    facts: &Facts,
    problems: &mut Problems,
) {
    let reserved = |resource: &str| -> f64 {
        let sides = [&config.kube_reserved, &config.system_reserved];
        sides.into_iter().filter_map(|side| quantity(side.get(resource)?)).sum()
    };
    let mut refuse = |resource: &str, with: &str, kept: String, has: String| {
        problems.add(
            format!("KubeletConfig.kubeReserved.{resource}"),
            format!(
                "reserves {kept} together with {with}, but this machine has only {has}, so kubelet does not \
                 start; reserve less, or use a larger machine type"
            ),
        );
    };
    if let Some(memory) = facts.memory_bytes.map(|bytes| bytes as f64) {
        let kept = reserved("memory") + evicted(config, eviction_hard, memory);
        let [kept_mebibytes, mebibytes] =
            [kept, memory].map(|bytes| format!("{} MiB", (bytes / MEBIBYTE).floor()));
        if kept > memory {
            refuse("memory", "systemReserved.memory and evictionHard", kept_mebibytes, mebibytes);
        }
    }
    if let Some(processors) = facts.processors {
        let kept = reserved("cpu");
        if kept > f64::from(processors) {
            let kept = format!("{kept} CPUs");
            refuse("cpu", "systemReserved.cpu", kept, processors.to_string());
        }
    }
}

/// The memory below which kubelet evicts pods immediately. kubelet also subtracts this memory from the memory for pods.
fn evicted(config: &KubeletConfigSpec, eviction_hard: &BTreeMap<String, String>, memory: f64) -> f64 {
    if config.experimental_allocatable_ignore_eviction == Some(true) {
        return 0.0;
    }
    match eviction_hard.get("memory.available") {
        None if eviction_hard.is_empty() => DEFAULT_EVICTION,
        None => 0.0,
        // kubelet ignores a threshold of 0 % or 100 %.
        Some(amount) if matches!(amount.as_str(), "0%" | "100%") => 0.0,
        Some(amount) => match amount.strip_suffix('%') {
            Some(percent) => percent.parse().unwrap_or(0.0) / 100.0 * memory,
            None => quantity(amount).unwrap_or_default(),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIBIBYTE: u64 = 1 << 30;

    fn told(settings: &str, eviction: &[(&str, &str)], facts: &Facts) -> String {
        let config = serde_yaml::from_str(settings).unwrap();
        let eviction = eviction.iter().map(|(signal, amount)| ((*signal).into(), (*amount).into())).collect();
        let mut problems = Problems::default();
        check(&config, &eviction, facts, &mut problems);
        problems.to_string()
    }

    #[test]
    fn no_more_memory_is_kept_from_pods_than_there_is() {
        const BOTH: &str = "{kubeReserved: {memory: 1Gi}, systemReserved: {memory: 1Gi}}";
        for (settings, eviction, memory_bytes, is_refused) in [
            (BOTH, &[][..], Some(2 * GIBIBYTE), true),
            (BOTH, &[("nodefs.available", "10%")], Some(2 * GIBIBYTE), false),
            (BOTH, &[("memory.available", "100%")], Some(2 * GIBIBYTE), false),
            (BOTH, &[("memory.available", "10%")], Some(2 * GIBIBYTE), true),
            (BOTH, &[("memory.available", "0%")], Some(2 * GIBIBYTE), false),
            (BOTH, &[("memory.available", "1Gi")], Some(3 * GIBIBYTE), false),
            (BOTH, &[("memory.available", "1Gi")], Some(3 * GIBIBYTE - 1), true),
            (BOTH, &[], None, false),
            ("{}", &[("memory.available", "5Gi")], Some(4 * GIBIBYTE), true),
            (
                "{experimentalAllocatableIgnoreEviction: true}",
                &[("memory.available", "5Gi")],
                Some(4 * GIBIBYTE),
                false,
            ),
            ("{}", &[], Some(GIBIBYTE), false),
        ] {
            let problem = told(settings, eviction, &Facts { memory_bytes, ..Facts::default() });
            assert_eq!(
                !problem.is_empty(),
                is_refused,
                "{settings} {eviction:?} {memory_bytes:?}: {problem}"
            );
        }
        let facts = Facts { memory_bytes: Some(2 * GIBIBYTE), ..Facts::default() };
        let problem = told("{kubeReserved: {memory: 16Gi}}", &[], &facts);
        let start = "KubeletConfig.kubeReserved.memory: reserves 16484 MiB together with";
        assert!(problem.starts_with(start) && problem.contains("has only 2048 MiB"), "{problem}");
    }

    #[test]
    fn no_more_processors_are_kept_from_pods_than_there_are() {
        for (settings, processors, is_refused) in [
            ("{kubeReserved: {cpu: '1'}, systemReserved: {cpu: 1100m}}", Some(2), true),
            ("{kubeReserved: {cpu: '1'}, systemReserved: {cpu: 1000m}}", Some(2), false),
            ("{kubeReserved: {cpu: '96'}}", None, false),
        ] {
            let problem = told(settings, &[], &Facts { processors, ..Facts::default() });
            assert_eq!(!problem.is_empty(), is_refused, "{settings} {processors:?}: {problem}");
            let start = "KubeletConfig.kubeReserved.cpu: reserves 2.1 CPUs together with";
            assert!(!is_refused || problem.starts_with(start), "{problem}");
        }
    }
}
