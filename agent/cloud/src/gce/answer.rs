//! Reads the JSON responses of Compute Engine.
//!
//! Source: the Compute Engine API v1: `instanceGroupManagers`, `instanceTemplates`, `instances`. Compute Engine writes 64-bit numbers as
//! strings.

use std::collections::BTreeMap;

use kops_agent_cluster::identity::gce::{
    GceInstance, GceNetworkInterface, GceRanges, InstancePath, InstanceTemplate, ManagedGroup,
    ManagedInstance,
};
use serde::Deserialize;

pub(super) trait Page: for<'de> Deserialize<'de> {
    type Item;

    /// The items on this page, and the token of the next page, if there is one.
    fn into_parts(self) -> (Vec<Self::Item>, Option<String>);
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ManagedGroups {
    items: Vec<ManagedGroupAnswer>,
    next_page_token: Option<String>,
}

/// The requested fields of [`ManagedGroups`].
pub(super) const MANAGED_GROUPS: &str =
    "items(name,baseInstanceName,instanceTemplate,versions/instanceTemplate),nextPageToken";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedGroupAnswer {
    name: String,
    base_instance_name: String,
    instance_template: String,
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Version {
    instance_template: String,
}

impl Page for ManagedGroups {
    type Item = ManagedGroup;

    fn into_parts(self) -> (Vec<ManagedGroup>, Option<String>) {
        let group = |answer: ManagedGroupAnswer| {
            let of_versions = answer.versions.into_iter().map(|version| version.instance_template);
            let mut instance_templates: Vec<String> =
                of_versions.chain([answer.instance_template]).filter(|url| !url.is_empty()).collect();
            instance_templates.sort();
            instance_templates.dedup();
            ManagedGroup {
                name: answer.name,
                base_instance_name: answer.base_instance_name,
                instance_templates,
            }
        };
        (self.items.into_iter().map(group).collect(), self.next_page_token)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ManagedInstances {
    managed_instances: Vec<ManagedInstanceAnswer>,
    next_page_token: Option<String>,
}

/// The requested fields of [`ManagedInstances`].
pub(super) const MANAGED_INSTANCES: &str =
    "managedInstances(id,instance,instanceStatus,version/instanceTemplate),nextPageToken";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ManagedInstanceAnswer {
    id: String,
    instance: String,
    instance_status: String,
    version: Version,
}

impl Page for ManagedInstances {
    type Item = ManagedInstance;

    /// Skips the instances that their group has not created yet: they have neither a number nor a template.
    fn into_parts(self) -> (Vec<ManagedInstance>, Option<String>) {
        let instance = |answer: ManagedInstanceAnswer| {
            Some(ManagedInstance {
                id: answer.id.parse().ok()?,
                path: path_of(&answer.instance)?,
                status: answer.instance_status,
                instance_template: answer.version.instance_template,
            })
        };
        (self.managed_instances.into_iter().filter_map(instance).collect(), self.next_page_token)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Zones {
    items: Vec<ZoneAnswer>,
    next_page_token: Option<String>,
}

/// The requested fields of [`Zones`].
pub(super) const ZONES: &str = "items(name,region),nextPageToken";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ZoneAnswer {
    pub(super) name: String,
    region: String,
}

impl ZoneAnswer {
    pub(super) fn is_of(&self, region: &str) -> bool {
        self.region.rsplit_once('/').is_some_and(|(_, name)| name == region)
    }
}

impl Page for Zones {
    type Item = ZoneAnswer;

    fn into_parts(self) -> (Vec<ZoneAnswer>, Option<String>) {
        (self.items, self.next_page_token)
    }
}

/// The zone and the name in the URL of an instance: `…/projects/PROJECT/zones/ZONE/instances/NAME`.
fn path_of(url: &str) -> Option<InstancePath> {
    let (rest, name) = url.rsplit_once("/instances/")?;
    let (_, zone) = rest.rsplit_once("/zones/")?;
    Some(InstancePath { zone: zone.to_owned(), name: name.to_owned() })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TemplateAnswer {
    properties: Properties,
}

/// The requested fields of [`TemplateAnswer`].
pub(super) const TEMPLATE: &str = "properties(metadata/items,tags/items)";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Properties {
    metadata: Items<MetadataItem>,
    tags: Items<String>,
}

#[derive(Debug, Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

impl<T> Default for Items<T> {
    fn default() -> Items<T> {
        Items { items: Vec::new() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataItem {
    key: String,
    value: String,
}

/// The maximum size of a metadata value, in bytes; longer values are dropped. User data has hundreds of kilobytes, and this client does not
/// need user data.
const LONGEST_VALUE: usize = 1024;

fn metadata(items: Items<MetadataItem>) -> BTreeMap<String, String> {
    let short = items.items.into_iter().filter(|item| item.value.len() <= LONGEST_VALUE);
    short.map(|item| (item.key, item.value)).collect()
}

impl From<TemplateAnswer> for InstanceTemplate {
    fn from(answer: TemplateAnswer) -> InstanceTemplate {
        let Properties { metadata: items, tags } = answer.properties;
        InstanceTemplate { metadata: metadata(items), tags: tags.items }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct InstanceAnswer {
    id: String,
    name: String,
    status: String,
    creation_timestamp: String,
    last_start_timestamp: String,
    metadata: Items<MetadataItem>,
    network_interfaces: Vec<NetworkInterface>,
}

/// The requested fields of [`InstanceAnswer`].
pub(super) const INSTANCE: &str = "id,name,status,creationTimestamp,lastStartTimestamp,metadata/items,networkInterfaces(networkIP,ipv6Address)";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NetworkInterface {
    #[serde(rename = "networkIP")]
    network_ip: String,
    ipv6_address: String,
}

impl InstanceAnswer {
    /// The instance; `None` if it has no number.
    pub(super) fn into_instance(self) -> Option<GceInstance> {
        let interface = |interface: NetworkInterface| GceNetworkInterface {
            network_ip: interface.network_ip,
            ipv6_address: interface.ipv6_address,
        };
        let last_start = match self.last_start_timestamp.is_empty() {
            true => self.creation_timestamp,
            false => self.last_start_timestamp,
        };
        Some(GceInstance {
            id: self.id.parse().ok()?,
            name: self.name,
            status: self.status,
            last_start,
            metadata: metadata(self.metadata),
            network_interfaces: self.network_interfaces.into_iter().map(interface).collect(),
        })
    }
}

/// The IPv6 ranges of a zone's instances.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Ranges {
    items: Vec<RangesAnswer>,
    next_page_token: Option<String>,
}

/// The requested fields of [`Ranges`].
pub(super) const RANGES: &str =
    "items(id,networkInterfaces/ipv6AccessConfigs(externalIpv6,externalIpv6PrefixLength)),nextPageToken";

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RangesAnswer {
    id: String,
    network_interfaces: Vec<InterfaceRanges>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InterfaceRanges {
    ipv6_access_configs: Vec<Ipv6AccessConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Ipv6AccessConfig {
    external_ipv6: String,
    external_ipv6_prefix_length: u32,
}

impl Page for Ranges {
    type Item = GceRanges;

    fn into_parts(self) -> (Vec<GceRanges>, Option<String>) {
        let instance = |answer: RangesAnswer| {
            let configs =
                answer.network_interfaces.into_iter().flat_map(|interface| interface.ipv6_access_configs);
            let external = configs.filter(|config| !config.external_ipv6.is_empty());
            // The range keeps upstream's spelling. Otherwise it would differ from the range that upstream set on a Node, and the API server
            // permits no change of a Node's range.
            let written = |config: Ipv6AccessConfig| {
                format!("{}/{}", config.external_ipv6, config.external_ipv6_prefix_length)
            };
            Some(GceRanges { id: answer.id.parse().ok()?, external_ipv6: external.map(written).collect() })
        };
        (self.items.into_iter().filter_map(instance).collect(), self.next_page_token)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ShieldedIdentity {
    pub(super) signing_key: Option<SigningKey>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SigningKey {
    /// The public key, in PEM.
    pub(super) ek_pub: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) error: RefusalError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RefusalError {
    pub(super) message: String,
    errors: Vec<Reason>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reason {
    reason: String,
}

impl RefusalError {
    /// Google's name of the error (`rateLimitExceeded`); empty if the error has no name.
    pub(super) fn reason(&self) -> &str {
        self.errors.first().map_or("", |error| &error.reason)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_templates_of_a_group_are_read() {
        let text = r#"{"items": [{"name": "a-nodes-c", "baseInstanceName": "nodes", "instanceTemplate": "t/2",
            "versions": [{"instanceTemplate": "t/1", "targetSize": {"fixed": 1}}, {"instanceTemplate": "t/2"}]},
            {"name": "empty"}], "nextPageToken": "x"}"#;
        let (groups, next) = serde_json::from_str::<ManagedGroups>(text).unwrap().into_parts();
        assert_eq!(groups[0].instance_templates, ["t/1", "t/2"]);
        assert_eq!(groups[1], ManagedGroup { name: "empty".into(), ..ManagedGroup::default() });
        assert_eq!(next.as_deref(), Some("x"));
    }

    #[test]
    fn instances_that_do_not_exist_yet_are_skipped() {
        let text = r#"{"managedInstances": [
            {"instance": "https://www.googleapis.com/compute/v1/projects/p/zones/z-1-a/instances/nodes-1", "id": "18446744073709551615",
             "instanceStatus": "RUNNING", "currentAction": "NONE", "version": {"instanceTemplate": "t/1"}},
            {"instance": "https://www.googleapis.com/compute/v1/projects/p/zones/z-1-a/instances/nodes-2", "currentAction": "CREATING"}]}"#;
        let (instances, next) = serde_json::from_str::<ManagedInstances>(text).unwrap().into_parts();
        let [instance] = instances.try_into().unwrap();
        assert_eq!(
            (instance.id, instance.path.zone.as_str(), instance.path.name.as_str()),
            (u64::MAX, "z-1-a", "nodes-1")
        );
        assert_eq!(next, None);
    }

    #[test]
    fn the_external_ranges_of_all_interfaces_are_read() {
        let text = r#"{"items": [
            {"id": "7", "networkInterfaces": [
                {"ipv6AccessConfigs": [{"externalIpv6": "2600:1900:4000:1:0:1::", "externalIpv6PrefixLength": 96}]},
                {"ipv6AccessConfigs": [{"name": "internal only"}]}, {}]},
            {"id": "8", "networkInterfaces": [{}]}, {"networkInterfaces": []}], "nextPageToken": "x"}"#;
        let (instances, next) = serde_json::from_str::<Ranges>(text).unwrap().into_parts();
        let [with, without] = instances.try_into().unwrap();
        assert_eq!(with, GceRanges { id: 7, external_ipv6: vec!["2600:1900:4000:1:0:1::/96".into()] });
        assert_eq!(without, GceRanges { id: 8, external_ipv6: vec![] });
        assert_eq!(next.as_deref(), Some("x"));
    }

    #[test]
    fn long_metadata_values_are_dropped() {
        let long = "x".repeat(LONGEST_VALUE + 1);
        let text = format!(
            r#"{{"properties": {{"metadata": {{"items": [{{"key": "user-data", "value": "{long}"}}, {{"key": "cluster-name",
            "value": "c"}}, {{"key": "empty"}}]}}, "tags": {{"items": ["http"]}}}}}}"#
        );
        let template = InstanceTemplate::from(serde_json::from_str::<TemplateAnswer>(&text).unwrap());
        assert_eq!(template.metadata.keys().collect::<Vec<_>>(), ["cluster-name", "empty"]);
        assert_eq!(template.tags, ["http"]);
        let bare = InstanceTemplate::from(serde_json::from_str::<TemplateAnswer>("{}").unwrap());
        assert_eq!(bare, InstanceTemplate::default());
    }
}
