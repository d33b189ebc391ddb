//! `kops-agent fleet status`: shows which configuration each node of a cluster runs, as the Nodes report it.

use anyhow::{Context, Result};
use time::OffsetDateTime;

use kops_agent_cluster::fleet::table::table;
use kops_agent_cluster::fleet::{Row, rows};
use kops_agent_controller::fleet::{nodes, slots};
use kops_agent_kube::api_error::ApiError;
use kops_agent_kube::node_api::Nodes;
use kops_agent_process::exit;
use kops_agent_process::output::one_line;
use kops_agent_spec::terminal::SHOWN_OF_PROBLEM;

use super::watching;
use crate::cli::{FleetStatusArgs, Output};
use crate::output;

/// Prints the state of each node. Returns exit code 4 if a node is not ready, not configured or superseded, or if it
/// does not report. Also returns exit code 4 if a node's certificate has expired or expires soon.
pub(super) async fn run(args: &FleetStatusArgs) -> Result<u8> {
    let chosen = args.kubeconfig.choose(None)?;
    let client = kops_agent_kube::client_of(&chosen)?;
    let listing = || format!("listing Nodes by {chosen}");
    if args.watch {
        return watching::watch(Nodes::new(client), args.output).await.with_context(listing);
    }
    let (nodes, slots) = tokio::join!(nodes::all(client.clone()), slots::held(client));
    let rows = rows(nodes.with_context(listing)?, OffsetDateTime::now_utc());
    match args.output {
        Output::Json => output::print_json(&rows)?,
        Output::Text => output::print_text(&(table(&rows) + &of_slots(slots)))?,
    };
    Ok(if rows.iter().all(Row::is_healthy) { exit::CONVERGED } else { exit::DIFFERENT })
}

/// One line per slot in use, or one line with the error if the slots are unknown.
fn of_slots(slots: Result<Vec<String>, ApiError>) -> String {
    let lines = slots.unwrap_or_else(|error| vec![format!("the slots of nodes are unknown: {error}")]);
    lines.iter().map(|line| one_line(line, SHOWN_OF_PROBLEM) + "\n").collect()
}
