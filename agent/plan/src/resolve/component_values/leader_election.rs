//! Checks leader election of kube-controller-manager and kube-scheduler.
//!
//! Source: `ValidateLeaderElectionConfiguration` in k8s.io/component-base, and `NewLeaderElector` in k8s.io/client-go.

use kops_agent_spec::{Duration, LeaderElectionConfiguration};

use super::Component;

const DEFAULT_LEASE: Duration = Duration::from_seconds(15);
const DEFAULT_RENEWAL: Duration = Duration::from_seconds(10);
const DEFAULT_RETRY: Duration = Duration::from_seconds(2);

pub(super) fn check(component: &mut Component<'_>, config: Option<&LeaderElectionConfiguration>) {
    let Some(config) = config.filter(|config| config.leader_elect != Some(false)) else { return };
    let lock = config.leader_elect_resource_lock.as_deref().unwrap_or_default();
    component.word("leaderElection.leaderElectResourceLock", lock, &["leases"]);

    const LEASE: &str = "leaderElection.leaderElectLeaseDuration";
    const RENEWAL: &str = "leaderElection.leaderElectRenewDeadlineDuration";
    const RETRY: &str = "leaderElection.leaderElectRetryPeriod";
    let lease = config.leader_elect_lease_duration.unwrap_or(DEFAULT_LEASE);
    let renewal = config.leader_elect_renew_deadline_duration.unwrap_or(DEFAULT_RENEWAL);
    let retry = config.leader_elect_retry_period.unwrap_or(DEFAULT_RETRY);
    let fields = [(LEASE, lease), (RENEWAL, renewal), (RETRY, retry)];
    let none = Duration::default();
    if fields.iter().any(|(_, duration)| *duration <= none) {
        for (field, duration) in fields.iter().filter(|(_, duration)| *duration <= none) {
            component.refuse_value(field, duration, "use more than 0s");
        }
        return;
    }
    if lease <= renewal {
        let advice = format!("use more than leaderElectRenewDeadlineDuration, which is {renewal}");
        component.refuse_value(LEASE, lease, advice);
    }
    // Between two tries, a replica waits up to 1.2 times the retry period. The renew deadline must be longer.
    if i128::from(renewal.nanoseconds()) * 10 <= i128::from(retry.nanoseconds()) * 12 {
        let advice = format!("use more than 1.2 times leaderElectRetryPeriod, which is {retry}");
        component.refuse_value(RENEWAL, renewal, advice);
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        CONTROLLER_MANAGER, SCHEDULER, assert_accepted, refused,
    };

    #[test]
    fn a_leader_election_that_cannot_work_is_refused() {
        for settings in [CONTROLLER_MANAGER, SCHEDULER] {
            for (set, field) in [
                ("{leaderElectResourceLock: endpoints}", "leaderElectResourceLock"),
                ("{leaderElectLeaseDuration: 10s}", "leaderElectLeaseDuration"),
                ("{leaderElectLeaseDuration: -1s}", "leaderElectLeaseDuration"),
                ("{leaderElectRenewDeadlineDuration: 2s}", "leaderElectRenewDeadlineDuration"),
                ("{leaderElectRetryPeriod: 10s}", "leaderElectRenewDeadlineDuration"),
                ("{leaderElect: true, leaderElectRetryPeriod: 0s}", "leaderElectRetryPeriod"),
            ] {
                let told = refused("1.34.0", settings, &format!("leaderElection: {set}"));
                let start = format!("{settings}.leaderElection.{field}: ");
                assert!(told.len() == 1 && told[0].starts_with(&start), "{set}: {told:?}");
            }
            assert_accepted(
                "1.34.0",
                settings,
                &[
                    "leaderElection: {leaderElect: false, leaderElectRetryPeriod: 0s}",
                    "leaderElection: {leaderElectLeaseDuration: 60s, leaderElectRenewDeadlineDuration: 40s, leaderElectResourceLock: leases}",
                ],
            );
        }
    }
}
