//! Identifies the machine of a Node on GCE: `spec.providerID` → the managed instance group that lists the instance → the instance template
//! that the group made it from → the template's metadata and network tags.
//!
//! An instance can write its own metadata, so this module ignores that metadata, including `created-by` and the name of a group. Changing a
//! group's list or a template requires rights to Google's API.
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

/// The key of an instance template's metadata item that contains the name of the instance group.
pub const INSTANCE_GROUP_METADATA: &str = "kops-k8s-io-instance-group-name";
/// The key of an instance template's metadata item that contains the name of the cluster.
pub const CLUSTER_METADATA: &str = "cluster-name";
/// The instance state in which a Node may exist.
const AT_WORK: &str = "RUNNING";
const FORM: &str = "gce://my-project/europe-west1-b/nodes-x1y2";

/// The facts of a cluster on GCE that are known without a request to GCE's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GceCluster {
    pub name: String,
    pub project: String,
    pub region: String,
}

/// The zone and the name of an instance in the cluster's project.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstancePath {
    pub zone: String,
    /// The instance's name, which is unique in the zone as long as the instance exists.
    pub name: String,
}

/// A managed instance group as GCE's API reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedGroup {
    pub name: String,
    /// The prefix of the names of the group's instances.
    pub base_instance_name: String,
    /// URLs of the templates from which the group makes instances.
    pub instance_templates: Vec<String>,
}

/// An instance as its managed instance group lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagedInstance {
    /// The instance's number. GCE never reuses it.
    pub id: u64,
    pub path: InstancePath,
    /// `RUNNING`, `STOPPING`, …
    pub status: String,
    /// URL of the template from which the group made the instance.
    pub instance_template: String,
}

/// The fields of an instance template that identification uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceTemplate {
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
}

/// The fields of a GCE instance that kops-agent uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceInstance {
    /// The instance's number. GCE never reuses it.
    pub id: u64,
    pub name: String,
    /// `RUNNING`, `STOPPING`, …
    pub status: String,
    /// The last start of the instance, in RFC 3339. Empty if GCE does not report the start.
    pub last_start: String,
    /// The instance's metadata. The instance itself can change its metadata, so the metadata proves nothing.
    pub metadata: BTreeMap<String, String>,
    pub network_interfaces: Vec<GceNetworkInterface>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceNetworkInterface {
    /// The interface's private IPv4 address. Empty if the interface has no such address.
    pub network_ip: String,
    /// The interface's IPv6 address. Empty if the interface has no such address.
    pub ipv6_address: String,
}

/// The external IPv6 ranges of an instance as GCE's API reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GceRanges {
    /// The instance's number. GCE never reuses it.
    pub id: u64,
    /// The external ranges of all network interfaces, each as an address with a prefix length.
    pub external_ipv6: Vec<String>,
}

/// The pod address range of an instance: its only external IPv6 range (upstream: `cmd/kops-controller/controllers/gceipam.go`).
pub fn pod_ranges(instance: &str, ranges: &GceRanges) -> Result<Vec<String>, PodRangeProblem> {
    let source = Source {
        machine: instance,
        wanted: "external IPv6 range",
        to_do: "give its network interface exactly one, in a subnet with external IPv6 addresses",
    };
    source.only(&ranges.external_ipv6)
}

/// The path of the instance that a providerID names. Fails if the instance is not in the cluster's project and region.
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

/// Checks that an instance with this project and zone is in the cluster's project and region.
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

/// Whether GCE could have a resource with this name (RFC 1035, as in the Compute Engine API).
pub fn is_resource_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= 63
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(is_inner)
        && !name.ends_with('-')
}

/// Whether GCE could have a zone with this name: a region and a suffix.
pub fn is_zone(name: &str) -> bool {
    is_resource_name(name) && name.matches('-').count() >= 2
}

/// Whether Google could have a project with this id. Old ids have a domain before a colon.
pub fn is_project(id: &str) -> bool {
    let (domain, name) = id.split_once(':').unwrap_or(("a.b", id));
    is_resource_name(name) && domain.split('.').all(is_resource_name)
}

/// Sorts groups for the search for an instance: groups that probably made the instance come first. An instance is in at most one group, so
/// the search can stop at the first group that lists the instance.
pub fn in_order_of_likelihood<'a>(
    groups: &'a [ManagedGroup],
    instance: &str,
    cluster: &GceCluster,
) -> Vec<&'a ManagedGroup> {
    // The suffix of kOps' group names (upstream: `NameForInstanceGroupManager`). A long name is cut and loses the suffix, so a group with a
    // long name comes later in the search.
    let suffix = format!("-{}", cluster.name.replace('.', "-"));
    let likelihood = |group: &ManagedGroup| {
        (names_so(group, instance), group.name.ends_with(&suffix), group.base_instance_name.len())
    };
    let mut groups: Vec<&ManagedGroup> = groups.iter().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(likelihood(group)));
    groups
}

/// Whether an instance's name has the form that the group gives to its instances: the base name, a dash and a suffix. An instance has a
/// name of a different form only if someone requested that name from the group.
pub fn names_so(group: &ManagedGroup, instance: &str) -> bool {
    let rest = instance.strip_prefix(&group.base_instance_name);
    rest.is_some_and(|rest| rest.starts_with('-'))
}

/// Extracts the path after the project from a template's URL: `global/instanceTemplates/NAME` or `regions/REGION/instanceTemplates/NAME`.
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

/// Whether an instance is in the state in which its Node may exist.
pub fn is_at_work(instance: &ManagedInstance) -> bool {
    instance.status == AT_WORK
}

/// The names and addresses in the serving certificate of an instance's kubelet: all addresses of the first network interface with an
/// address (upstream: `GetInstanceCertificateAlternateNames`).
pub fn certificate_names(instance: &GceInstance) -> Vec<String> {
    let of_interface = |interface: &GceNetworkInterface| {
        let addresses = [interface.network_ip.clone(), interface.ipv6_address.clone()];
        addresses.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>()
    };
    instance.network_interfaces.iter().map(of_interface).find(|names| !names.is_empty()).unwrap_or_default()
}

/// Whether the instances of a template belong to the cluster.
pub fn is_of_cluster(template: &InstanceTemplate, cluster: &GceCluster) -> bool {
    template.metadata.get(CLUSTER_METADATA) == Some(&cluster.name)
}

/// Identifies `instance` as the machine of the Node with the name `node`. `instance` is the instance as its managed group lists it, and
/// `template` is the template from which the group made the instance.
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

/// The reason for rejecting an instance that no managed group of the cluster lists. The instance's own metadata is used only for the text
/// of the reason.
pub fn unlisted(instance: &GceInstance, cluster: &GceCluster) -> Refusal {
    let name = instance.name.clone();
    if instance.status != AT_WORK {
        return Refusal::NotRunning { instance: name, state: instance.status.clone() };
    }
    let says = instance.metadata.get(CLUSTER_METADATA);
    if says != Some(&cluster.name) {
        let says = format!(
            "no managed instance group of the cluster lists it, and its own metadata names {}",
            owner(says)
        );
        return Refusal::NoCluster { instance: name, says, cluster: cluster.name.clone() };
    }
    let missing = format!("no managed instance group of the cluster {} in its zone lists it", cluster.name);
    Refusal::NoInstanceGroup { instance: name, missing }
}

/// The reason for rejecting an instance of another cluster or of no cluster. `says` is the cluster name in the metadata of the instance's
/// template.
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
