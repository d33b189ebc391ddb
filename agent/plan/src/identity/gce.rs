//! Which machine a Node is on GCE: `spec.providerID` → the managed instance group that lists the instance → the
//! instance template that the group made it from → the template's metadata and network tags.
//!
//! An instance may write its own metadata, so nothing of it counts: neither `created-by`, nor the name of a group in it.
//! What its group says of it, and the template, can be changed only with rights to Google's API.
//!
//! Sources: upstream's `pkg/nodeidentity/gce/identify.go` and `pkg/model/gcemodel/autoscalinggroup.go`; node names:
//! `upup/pkg/fi/nodeup/command.go` (`evaluateHostnameOverride`).

mod network_tags;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Identity, Refusal, quoted};
use crate::labels::INSTANCE_GROUP;
use crate::pod_ranges::{PodRangeProblem, Source};

/// The key of a template's metadata with the name of the instance group.
pub const INSTANCE_GROUP_METADATA: &str = "kops-k8s-io-instance-group-name";
/// The key of a template's metadata with the name of the cluster.
pub const CLUSTER_METADATA: &str = "cluster-name";
/// The state of an instance in which its Node may be there.
const AT_WORK: &str = "RUNNING";
const FORM: &str = "gce://my-project/europe-west1-b/nodes-x1y2";

/// What is known of a cluster on GCE before its API is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GceCluster {
    pub name: String,
    /// The project of its machines.
    pub project: String,
    /// The region of its machines.
    pub region: String,
}

/// Where an instance is, in the cluster's project.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstancePath {
    pub zone: String,
    /// Its name, which no other has in that zone at the same time.
    pub name: String,
}

/// What GCE tells of a managed instance group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedGroup {
    pub name: String,
    /// What the names of its instances begin with.
    pub base_instance_name: String,
    /// URLs of the templates that it makes instances from.
    pub instance_templates: Vec<String>,
}

/// What a managed instance group tells of one of its instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedInstance {
    /// Its number, which is never given to another.
    pub id: u64,
    /// Where it is.
    pub path: InstancePath,
    /// `RUNNING`, `STOPPING`, …
    pub status: String,
    /// URL of the template that it was made from.
    pub instance_template: String,
}

/// What an instance template says, as far as it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceTemplate {
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
}

/// What GCE tells of an instance, as far as it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceInstance {
    /// Its number, which is never given to another.
    pub id: u64,
    pub name: String,
    /// `RUNNING`, `STOPPING`, …
    pub status: String,
    /// When it was started last, in RFC 3339; empty if GCE did not say.
    pub last_start: String,
    /// Its metadata, which it may write itself.
    pub metadata: BTreeMap<String, String>,
    pub network_interfaces: Vec<GceNetworkInterface>,
}

/// What GCE tells of a network interface of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceNetworkInterface {
    /// Its private IPv4 address; empty where it has none.
    pub network_ip: String,
    /// Its IPv6 address; empty where it has none.
    pub ipv6_address: String,
}

/// What GCE tells of the external IPv6 addresses of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceRanges {
    /// The instance's number, which is never given to another.
    pub id: u64,
    /// The external ranges of all its network interfaces: the address and the length of its prefix.
    pub external_ipv6: Vec<String>,
}

/// The range of addresses that the pods of an instance get: its only external IPv6 range
/// (upstream: `cmd/kops-controller/controllers/gceipam.go`).
///
/// # Errors
/// It has none, or several.
pub fn pod_ranges(instance: &str, ranges: &GceRanges) -> Result<Vec<String>, PodRangeProblem> {
    let source = Source {
        machine: instance,
        wanted: "external IPv6 range",
        to_do: "its network interface is to have exactly one, in a subnet with external IPv6 addresses",
    };
    source.only(&ranges.external_ipv6)
}

/// Where the instance is that a providerID names.
///
/// # Errors
/// If it names none that the cluster could have.
pub fn instance_path(provider_id: &str, cluster: &GceCluster) -> Result<InstancePath, Refusal> {
    let refusal = || Refusal::ProviderId { provider_id: provider_id.to_owned(), cloud: "GCE", form: FORM };
    let parts: Vec<&str> = provider_id.strip_prefix("gce://").ok_or_else(refusal)?.split('/').collect();
    let [project, zone, name] = parts.as_slice() else { return Err(refusal()) };
    if !is_zone(zone) || !is_resource_name(name) || !is_project(project) {
        return Err(refusal());
    }
    check_place(project, zone, name, cluster)?;
    Ok(InstancePath { zone: (*zone).to_owned(), name: (*name).to_owned() })
}

/// Checks that an instance would be in the cluster's project and region.
///
/// # Errors
/// If it is elsewhere.
pub fn check_place(project: &str, zone: &str, name: &str, cluster: &GceCluster) -> Result<(), Refusal> {
    let elsewhere = |owner: String| Refusal::OtherCluster {
        instance: quoted(&format!("gce://{project}/{zone}/{name}")),
        owner,
        cluster: cluster.name.clone(),
    };
    if project != cluster.project {
        return Err(elsewhere(format!("the project {}", quoted(project))));
    }
    let is_of_region = zone.strip_prefix(&cluster.region).is_some_and(|rest| rest.starts_with('-'));
    match is_of_region {
        true => Ok(()),
        false => Err(elsewhere(format!("another region than {}", cluster.region))),
    }
}

/// Whether GCE could have something of that name (RFC 1035, as the Compute Engine API has it).
pub fn is_resource_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(is_inner)
        && !name.ends_with('-')
}

/// Whether GCE could have a zone of that name: its region, and what tells it from the region's others.
pub fn is_zone(name: &str) -> bool {
    is_resource_name(name) && name.matches('-').count() >= 2
}

/// Whether Google could have a project of that id; old ones have a domain before a colon.
pub fn is_project(id: &str) -> bool {
    let (domain, name) = id.split_once(':').unwrap_or(("a.b", id));
    is_resource_name(name) && domain.split('.').all(is_resource_name)
}

/// Groups in the order in which to ask them for an instance of that name: first those that probably made it. An
/// instance is in one group at most, so asking can stop at the first that lists it.
pub fn in_order_of_likelihood<'a>(
    groups: &'a [ManagedGroup],
    instance: &str,
    cluster: &GceCluster,
) -> Vec<&'a ManagedGroup> {
    // As kOps names them (upstream: `NameForInstanceGroupManager`); one that is too long is cut, and comes later.
    let suffix = format!("-{}", cluster.name.replace('.', "-"));
    let likelihood = |group: &ManagedGroup| {
        (names_so(group, instance), group.name.ends_with(&suffix), group.base_instance_name.len())
    };
    let mut groups: Vec<&ManagedGroup> = groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(likelihood(group)));
    groups
}

/// Whether a group gives its instances names like that. Only a request to it for an instance by name gives another.
pub fn names_so(group: &ManagedGroup, instance: &str) -> bool {
    let rest = instance.strip_prefix(&group.base_instance_name);
    rest.is_some_and(|rest| rest.starts_with('-'))
}

/// The path of a template below its project, of its URL: `global/instanceTemplates/NAME`, or that of a region.
pub fn template_path(url: &str) -> Option<&str> {
    let (_, after) = url.rsplit_once("projects/")?;
    let (_, path) = after.split_once('/')?;
    let is_path = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["global", "instanceTemplates", name] => is_resource_name(name),
        ["regions", region, "instanceTemplates", name] => is_resource_name(region) && is_resource_name(name),
        _ => false,
    };
    is_path.then_some(path)
}

/// Whether an instance is in the state in which its Node may be there.
pub fn is_at_work(instance: &ManagedInstance) -> bool {
    instance.status == AT_WORK
}

/// The names and addresses that the serving certificate of an instance's kubelet is for: those of its first network
/// interface that has any (upstream: `GetInstanceCertificateAlternateNames`).
pub fn certificate_names(instance: &GceInstance) -> Vec<String> {
    let of_interface = |interface: &GceNetworkInterface| {
        let addresses = [interface.network_ip.clone(), interface.ipv6_address.clone()];
        addresses.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>()
    };
    instance.network_interfaces.iter().map(of_interface).find(|names| !names.is_empty()).unwrap_or_default()
}

/// Whether instances of a template are the cluster's.
pub fn is_of_cluster(template: &InstanceTemplate, cluster: &GceCluster) -> bool {
    template.metadata.get(CLUSTER_METADATA) == Some(&cluster.name)
}

/// Which machine the Node of that name is, if the instance that it says it is is its own: one that its group lists, and the
/// template that the group made it from.
///
/// # Errors
/// Why it is not believed.
pub fn identify(
    node: &str,
    instance: &ManagedInstance,
    template: &InstanceTemplate,
    cluster: &GceCluster,
) -> Result<Identity, Refusal> {
    let name = || instance.path.name.clone();
    if !is_at_work(instance) {
        return Err(Refusal::NotRunning { instance: name(), state: instance.status.clone() });
    }
    if !is_of_cluster(template, cluster) {
        return Err(other_cluster(name(), template.metadata.get(CLUSTER_METADATA), cluster));
    }
    if node != instance.path.name {
        return Err(Refusal::OtherNode { instance: name(), expected: name() });
    }
    let group = template.metadata.get(INSTANCE_GROUP_METADATA).filter(|name| !name.is_empty());
    let Some(instance_group) = group.cloned() else {
        let missing = format!("its instance template has no metadata {INSTANCE_GROUP_METADATA}");
        return Err(Refusal::NoInstanceGroup { instance: name(), missing });
    };
    let noted_labels = network_tags::role_labels(&template.tags, &cluster.name);
    let proven_labels = BTreeMap::from([(INSTANCE_GROUP.to_owned(), instance_group.clone())]);
    Ok(Identity { instance_group, noted_labels, instance_labels: BTreeMap::new(), proven_labels })
}

/// Why an instance is not believed that no managed group of the cluster lists. What it says of itself can only tell
/// people more about why.
pub fn unlisted(instance: &GceInstance, cluster: &GceCluster) -> Refusal {
    let name = instance.name.clone();
    if instance.status != AT_WORK {
        return Refusal::NotRunning { instance: name, state: instance.status.clone() };
    }
    let says = instance.metadata.get(CLUSTER_METADATA);
    if says != Some(&cluster.name) {
        let says =
            format!("no managed instance group of it lists it, and it says that it is of {}", owner(says));
        return Refusal::NoCluster { instance: name, says, cluster: cluster.name.clone() };
    }
    let missing = format!("no managed instance group of the cluster {} in its zone lists it", cluster.name);
    Refusal::NoInstanceGroup { instance: name, missing }
}

/// Why an instance of this template is not believed: its metadata names another cluster, or none.
fn other_cluster(instance: String, says: Option<&String>, cluster: &GceCluster) -> Refusal {
    let cluster = cluster.name.clone();
    match says {
        Some(_) => Refusal::OtherCluster { instance, owner: owner(says), cluster },
        None => Refusal::NoCluster { instance, says: format!("its template names {}", owner(says)), cluster },
    }
}

fn owner(says: Option<&String>) -> String {
    says.map_or_else(|| "no cluster".to_owned(), |owner| format!("the cluster {}", quoted(owner)))
}
