//! Checks the bootstrap server of each control plane, for `controller takeover --check`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod;
use kops_agent_cluster::pacing::CONTROL_PLANE_LABEL;
use kops_agent_cluster::takeover::{ControlPlane, PODS_OF_AGENT};
use kops_agent_kube::bootstrap_servers::{control_planes, port};
use kops_agent_kube::lease;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::Failure;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::ApiResource;

use super::{Answer, PodObject, not_ready, pod, ready, within};

/// Checks that machines can bootstrap at each control plane, now and after kOps' kops-controller has stopped. While kops-controller listens
/// on a control plane, a connection does not show whether kops-agent runs there, too. The Node of the control plane or a pod of kops-agent
/// must show this. A machine that replaces a control plane runs kops-agent only if its user-data starts the service.
pub(super) async fn servers(
    client: Result<&Client, Failure>,
    options: &KopsControllerOptions,
) -> Result<Answer> {
    let Some(port) = port(options)? else {
        return Ok(ready("the configuration has no bootstrap server, so no machine serves others"));
    };
    let client = client?;
    let all = control_planes(client, port).await?;
    if all.is_empty() {
        return Ok(not_ready(format!("no Node has the label {CONTROL_PLANE_LABEL}")));
    }
    let silent: Vec<String> = all.iter().filter_map(ControlPlane::why_silent).collect();
    let without = all.iter().filter(|one| one.silent.is_none() && !one.runs_controller);
    let without: BTreeSet<String> = without.map(|one| one.node.clone()).collect();
    let without = match without.is_empty() {
        true => Ok(without),
        false => nodes_with_pods(client).await.map(|with| without.difference(&with).cloned().collect()),
    };
    let without: Vec<String> = match without {
        Ok(without) => without.into_iter().collect(),
        // Ignore this error, because the check fails anyway: machines cannot bootstrap at the control planes in `silent`.
        Err(_) if !silent.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut why = Vec::new();
    if !silent.is_empty() {
        why.push(format!("machines cannot bootstrap at {}", silent.join(", ")));
    }
    if !without.is_empty() {
        why.push(format!(
            "a bootstrap server listens on {}, but neither the Node nor a pod shows that kops-agent runs there. Once kOps' kops-controller \
             stops, machines may be unable to bootstrap there",
            without.join(", ")
        ));
    }
    Ok(match why.as_slice() {
        [] => ready(format!(
            "kops-agent runs on all {} control-plane machines, and a bootstrap server listens on port {port} of each",
            all.len()
        )),
        why => not_ready(format!(
            "{}. Run `kops-agent converge --controller` on these control planes, and start the service in the group's user-data, so that \
             new machines of the group run it",
            why.join("; ")
        )),
    })
}

/// The Nodes with a pod of kops-agent's controller.
async fn nodes_with_pods(client: &Client) -> Result<BTreeSet<String>> {
    let pods: Api<PodObject> =
        Api::namespaced_with(client.clone(), lease::NAMESPACE, &ApiResource::erase::<Pod>(&()));
    let selected = ListParams::default().labels(&format!("k8s-app={PODS_OF_AGENT}"));
    let pods = within(pods.list(&selected)).await.context(
        "listing the pods of kops-agent's controller, because some control-plane Nodes do not show whether it runs there; the right \
         to list the pods is in packaging/kubernetes/rbac.yaml",
    )?;
    Ok(pods.items.into_iter().map(|found| pod(found).node).collect())
}
