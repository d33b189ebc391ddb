//! `kops-agent fleet reboot`: starts a rollout that reboots nodes. `fleet rollout` shows, pauses, resumes and aborts it.

mod blocking;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum, value_parser};
use kops_agent_cluster::fleet::named;
use kops_agent_cluster::rollout::{
    Blockers, DrainMode, MOST_BOOTS, MaxUnavailable, Rollout, State, Window, boots_to_end,
};
use kops_agent_process::exit::{self, WrongUsage};
use kops_agent_process::output::{self, one_line};

use super::commands::{begin, client, id, must_exist};
use super::config_map::Stored;
use crate::fleet;
use crate::fleet::table::SHOWN_OF_PROBLEM;
use kops_agent_kube::KubeconfigArgs;

pub(super) use blocking::Blocking;

#[derive(Args, Clone, Debug)]
pub struct RebootArgs {
    /// Access to the API server, as a user with the right to list Nodes and to write the ConfigMap kops-agent/rollout.
    #[command(flatten)]
    pub kubeconfig: KubeconfigArgs,
    /// All nodes of this instance group, whether they require a reboot or not; may be given more than once.
    #[arg(long = "instance-group", value_name = "GROUP")]
    pub instance_groups: Vec<String>,
    /// Only nodes that report that they require a reboot (`fleet status`). Of all groups, unless --instance-group is given.
    #[arg(long)]
    pub all_required: bool,
    /// Number or share of the nodes of each group that may be unavailable at a time, such as 2 or 10%. Control planes
    /// always reboot one at a time.
    #[arg(long, value_name = "N|P%", default_value_t)]
    pub max_unavailable: MaxUnavailable,
    /// Whether to drain a node before it reboots.
    #[arg(long, value_enum, default_value_t)]
    pub drain: RebootDrainArg,
    /// Seconds after which a node that is not Ready again has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::node_timeout(), value_parser = value_parser!(u32).range(1..))]
    pub node_timeout: u32,
    /// Seconds that a node is Ready in its new boot before its pods are compared with those before its order; 0 compares none.
    #[arg(long, value_name = "SECONDS", default_value_t = Rollout::check_pods_after())]
    pub check_pods_after: u32,
    /// Time in which nodes may begin, as for `fleet rollout start`; may be given more than once. Default: always.
    #[arg(long = "window", value_name = "DAYS HH:MM-HH:MM ZONE")]
    pub windows: Vec<Window>,
    /// Label selector of pods. A node with such a pod gets no order to reboot.
    #[arg(long, value_name = "SELECTOR", default_value = "")]
    pub blocked_by_pods: String,
    /// Query of Prometheus. While it has a result, no node gets an order to reboot. Such as 'ALERTS{alertstate="firing",severity="critical"}'.
    #[arg(long, value_name = "QUERY", default_value = "", requires = "prometheus")]
    pub blocked_by_alerts: String,
    /// The Service of Prometheus, such as monitoring/prometheus:9090.
    #[arg(long, value_name = "NAMESPACE/NAME:PORT", default_value = "")]
    pub prometheus: String,
}

/// Whether to drain a node before it reboots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RebootDrainArg {
    /// Drain the node.
    #[default]
    Always,
    /// Evict no pods.
    Never,
}

/// Starts the rollout.
///
/// # Errors
/// No Node has a given group, a rollout is not over, or the API server rejects the request.
pub async fn reboot(args: &RebootArgs) -> Result<u8> {
    if args.instance_groups.is_empty() && !args.all_required {
        let problem = "give --instance-group GROUP, --all-required, or both, to choose the nodes that reboot";
        return Err(WrongUsage(problem.to_owned()).into());
    }
    let blocked_by = Blockers {
        pods: args.blocked_by_pods.clone(),
        alerts: args.blocked_by_alerts.clone(),
        prometheus: args.prometheus.clone(),
    };
    blocked_by.service().map_err(WrongUsage)?;
    let client = client(&args.kubeconfig)?;
    let nodes = fleet::all_nodes(client.clone()).await.context("listing Nodes")?;
    let labelled = || nodes.iter().filter(|node| !node.group.is_empty());
    let groups: BTreeSet<String> = labelled().map(|node| node.group.clone()).collect();
    must_exist(&args.instance_groups.iter().cloned().collect(), &groups)?;
    let (boots, left_out) = boots_to_end(&nodes, &args.instance_groups, args.all_required);
    if !left_out.is_empty() {
        output::print_text(&format!(
            "left out, because their kops-agent reports nothing about reboots: {}\n",
            one_line(&named(&left_out.iter().map(String::as_str).collect::<Vec<_>>()), SHOWN_OF_PROBLEM)
        ))?;
    }
    if boots.is_empty() {
        output::print_text("no such node reports that it requires a reboot, so nothing reboots\n")?;
        return Ok(exit::CONVERGED);
    }
    if boots.len() > MOST_BOOTS {
        let problem = format!(
            "{} nodes would reboot, and one rollout reboots at most {MOST_BOOTS}; give fewer --instance-group",
            boots.len()
        );
        return Err(WrongUsage(problem).into());
    }
    output::print_text(&format!("{} nodes reboot\n", boots.len()))?;
    let rollout = Rollout {
        id: id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: labelled()
            .filter(|node| boots.contains_key(&node.name))
            .map(|node| node.group.clone())
            .collect(),
        max_unavailable: args.max_unavailable,
        canary: 0,
        drain: match args.drain {
            RebootDrainArg::Always => DrainMode::Always,
            RebootDrainArg::Never => DrainMode::Never,
        },
        may_go_back: false,
        reboot: Some(boots),
        blocked_by,
        health_timeout: Rollout::health_timeout(),
        node_timeout: args.node_timeout,
        check_pods_after: args.check_pods_after,
        windows: args.windows.clone(),
    };
    begin(&Stored::new(client), &rollout).await
}
