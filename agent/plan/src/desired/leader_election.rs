//! The flags by which replicas of a component elect a leader. All components have the same flags for this.

use kops_agent_spec::LeaderElectionConfiguration;

use super::flags::Flags;

pub(super) fn leader_election_flags(flags: &mut Flags, config: Option<&LeaderElectionConfiguration>) {
    let Some(config) = config else { return };
    flags.set("leader-elect", &config.leader_elect);
    flags.set("leader-elect-lease-duration", &config.leader_elect_lease_duration);
    flags.set("leader-elect-renew-deadline", &config.leader_elect_renew_deadline_duration);
    flags.set("leader-elect-resource-lock", &config.leader_elect_resource_lock);
    flags.set("leader-elect-resource-name", &config.leader_elect_resource_name);
    flags.set("leader-elect-resource-namespace", &config.leader_elect_resource_namespace);
    flags.set("leader-elect-retry-period", &config.leader_elect_retry_period);
}
