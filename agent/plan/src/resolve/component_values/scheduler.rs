//! Checks values of kube-scheduler. kube-scheduler ignores `kubeAPIQPS` and `kubeAPIBurst`, because kOps gives it a configuration file.

use kops_agent_spec::KubeSchedulerConfig;

use super::resources::Resources;
use super::{Component, leader_election, text};

pub(super) fn check(mut component: Component<'_>, config: &KubeSchedulerConfig) {
    component.logging(&config.log_format, config.log_level);
    component.always_allow_paths(&config.authorization_always_allow_paths);
    // This value becomes `clientConnection.burst` of the configuration file.
    component.numbers(0..=i64::MAX, &[("burst", Some(config.burst.into()))]);
    component.warn_of_negative(&[
        ("kubeAPIBurst", text(config.kube_api_burst)),
        ("kubeAPIQPS", text(config.kube_api_qps.as_ref())),
        ("maxPersistentVolumes", text(config.max_persistent_volumes)),
        ("qps", text(config.qps.as_ref())),
    ]);
    leader_election::check(&mut component, config.leader_election.as_ref());
    let resources = Resources {
        cpu_request: config.cpu_request.as_ref(),
        usual_cpu_request: "100m",
        cpu_limit: config.cpu_limit.as_ref(),
        memory_request: config.memory_request.as_ref(),
        memory_limit: config.memory_limit.as_ref(),
    };
    resources.check(&mut component);
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        SCHEDULER, assert_accepted, assert_refused, assert_warned,
    };

    #[test]
    fn values_that_kube_scheduler_rejects_are_refused() {
        assert_refused(
            "1.34.0",
            SCHEDULER,
            &[
                ("logFormat: xml", "logFormat"),
                ("logLevel: -1", "logLevel"),
                ("burst: -5", "burst"),
                ("authorizationAlwaysAllowPaths: [/healthz, '/a*/b']", "authorizationAlwaysAllowPaths[1]"),
            ],
        );
        assert_warned("1.34.0", SCHEDULER, &[("maxPersistentVolumes: -1", "maxPersistentVolumes")]);
        let other_build = "{image: 'mirror.example.com/kube-scheduler:mine', logFormat: xml}";
        assert_warned("1.34.0", SCHEDULER, &[(other_build, "logFormat")]);
        assert_accepted(
            "1.34.0",
            SCHEDULER,
            &[
                "{logFormat: json, logLevel: 4, burst: 100, qps: 50, authorizationAlwaysAllowPaths: ['/healthz*', '/']}",
            ],
        );
    }
}
