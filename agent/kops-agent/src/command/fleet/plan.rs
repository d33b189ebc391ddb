//! `kops-agent fleet plan`: shows the change that waits for the nodes of each instance group, as the Nodes report it.

use anyhow::{Context, Result};
use time::OffsetDateTime;

use kops_agent_cluster::fleet::groups;
use kops_agent_cluster::fleet::plan_table::table;
use kops_agent_controller::fleet::{nodes, wanted_machines};
use kops_agent_process::exit;

use super::must_exist;
use crate::cli::{FleetPlanArgs, Output};
use crate::output;

/// Prints the change that waits for the nodes of each instance group. Changes nothing.
pub(super) async fn run(args: &FleetPlanArgs) -> Result<u8> {
    let chosen = args.kubeconfig.choose(None)?;
    let client = kops_agent_kube::client_of(&chosen)?;
    let nodes = nodes::all(client.clone()).await.with_context(|| format!("listing Nodes by {chosen}"))?;
    let now = OffsetDateTime::now_utc();
    let machines = wanted_machines::read(client, now).await;
    let mut groups = groups(&nodes, &machines, now);
    let of_nodes = groups.iter().map(|group| group.group.clone()).filter(|group| !group.is_empty());
    must_exist(&args.instance_groups, &of_nodes.collect())?;
    let wanted = &args.instance_groups;
    groups.retain(|group| wanted.is_empty() || wanted.contains(&group.group));
    match args.output {
        Output::Json => output::print_json(&groups)?,
        Output::Text => {
            let not_compared = machines.err().map(|failure| failure.to_string());
            output::print_text(&table(&groups, not_compared.as_deref()))?
        }
    };
    Ok(exit::CONVERGED)
}
