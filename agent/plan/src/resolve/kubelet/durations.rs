//! Checks durations of kubelet for negative values. kubelet itself checks only some durations (`values.rs`).
//!
//! Source: pkg/kubelet/apis/config/validation, and `NewRemoteRuntimeService` in k8s.io/cri-client.

use kops_agent_spec::{Duration, KubeletConfigSpec};

use crate::resolve::Problems;

pub(super) fn check(config: &KubeletConfigSpec, problems: &mut Problems) {
    let is_negative = |duration: &Duration| *duration < Duration::default();
    if let Some(timeout) = config.runtime_request_timeout.filter(is_negative) {
        problems.add(
            "KubeletConfig.runtimeRequestTimeout",
            format!(
                "is {timeout}, so kubelet cannot ask containerd anything and does not start; use more than 0s"
            ),
        );
    }
    // `volumeStatsAggPeriod` is not in this list, because a negative value switches the collection of volume
    // statistics off.
    for (field, duration) in [
        ("authenticationTokenWebhookCacheTTL", config.authentication_token_webhook_cache_ttl),
        ("evictionPressureTransitionPeriod", config.eviction_pressure_transition_period),
        ("housekeepingInterval", config.housekeeping_interval),
        ("nodeStatusUpdateFrequency", config.node_status_update_frequency),
        ("streamingConnectionIdleTimeout", config.streaming_connection_idle_timeout),
    ] {
        if let Some(duration) = duration.filter(is_negative) {
            problems.warn(
                format!("KubeletConfig.{field}"),
                format!("is {duration}, which kubelet accepts, but a negative value has no meaning here; use 0s or more, or remove it"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(settings: &str) -> (String, Vec<String>) {
        let mut problems = Problems::default();
        check(&serde_yaml::from_str(settings).unwrap(), &mut problems);
        (problems.to_string(), problems.warnings().iter().map(|warning| warning.field.clone()).collect())
    }

    #[test]
    fn negative_durations_are_refused_or_warned_of() {
        let (problem, warnings) = told("runtimeRequestTimeout: -1m");
        assert!(
            problem.starts_with("KubeletConfig.runtimeRequestTimeout: is -1m0s, so kubelet"),
            "{problem}"
        );
        assert_eq!(warnings, [""; 0]);
        for field in [
            "authenticationTokenWebhookCacheTTL",
            "evictionPressureTransitionPeriod",
            "housekeepingInterval",
            "nodeStatusUpdateFrequency",
            "streamingConnectionIdleTimeout",
        ] {
            assert_eq!(
                told(&format!("{field}: -1s")),
                (String::new(), vec![format!("KubeletConfig.{field}")])
            );
            assert_eq!(told(&format!("{field}: 0s")), (String::new(), vec![]));
        }
        assert_eq!(told("{volumeStatsAggPeriod: -1s, runtimeRequestTimeout: 0s}"), (String::new(), vec![]));
    }
}
