//! `kops-agent fleet reboot`: starts a rollout that reboots nodes. `fleet rollout` shows, pauses, resumes and aborts it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use kops_agent_cluster::fleet::named;
use kops_agent_cluster::rollout::{Blockers, MOST_BOOTS, Rollout, State, boots_to_end};
use kops_agent_controller::fleet::nodes;
use kops_agent_controller::rollout::Stored;
use kops_agent_controller::rollout::operator::new_id;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::terminal::SHOWN_OF_PROBLEM;

use super::must_exist;
use super::rollout::{begin, client};
use crate::cli::RebootArgs;
use crate::output;

/// Starts a rollout that reboots nodes.
pub(super) async fn run(args: &RebootArgs) -> Result<u8> {
    if args.instance_groups.is_empty() && !args.all_required {
        let problem = "give --instance-group GROUP, --all-required, or both, to choose the nodes that reboot";
        return Err(Failure::new(Kind::WrongUsage, problem).into());
    }
    let blocked_by = Blockers {
        pods: args.blocked_by_pods.clone(),
        alerts: args.blocked_by_alerts.clone(),
        prometheus: args.prometheus.clone(),
    };
    blocked_by.service().map_err(|problem| Failure::new(Kind::WrongUsage, problem))?;
    let client = client(&args.kubeconfig)?;
    let nodes = nodes::all(client.clone()).await.context("listing Nodes")?;
    let labelled = || nodes.iter().filter(|node| !node.group.is_empty());
    let groups: BTreeSet<String> = labelled().map(|node| node.group.clone()).collect();
    must_exist(&args.instance_groups, &groups)?;
    let (boots, left_out) = boots_to_end(&nodes, &args.instance_groups, args.all_required);
    if !left_out.is_empty() {
        output::print_text(&format!(
            "nodes left out, because their kops-agent reports nothing about reboots: {}\n",
            one_line(&named(&left_out.iter().map(String::as_str).collect::<Vec<_>>()), SHOWN_OF_PROBLEM)
        ))?;
    }
    if boots.is_empty() {
        output::print_text("no such node reports that it requires a reboot, so nothing reboots\n")?;
        return Ok(exit::CONVERGED);
    }
    if boots.len() > MOST_BOOTS {
        let problem = format!(
            "{} nodes would reboot, but one rollout reboots at most {MOST_BOOTS}; name fewer groups with \
             --instance-group",
            boots.len()
        );
        return Err(Failure::new(Kind::WrongUsage, problem).into());
    }
    output::print_text(&format!("{} nodes reboot\n", boots.len()))?;
    let rollout = Rollout {
        id: new_id()?,
        state: State::Running,
        attempt: 1,
        instance_groups: labelled()
            .filter(|node| boots.contains_key(&node.name))
            .map(|node| node.group.clone())
            .collect(),
        max_unavailable: args.max_unavailable,
        canary: 0,
        drain: args.drain.into(),
        may_go_back: false,
        reboot: Some(boots),
        program: None,
        blocked_by,
        health_timeout: Rollout::health_timeout(),
        node_timeout: args.node_timeout,
        check_pods_after: args.check_pods_after,
        observe: 0,
        windows: args.windows.clone(),
    };
    begin(&Stored::new(client), &rollout).await
}
