//! Identifies the machine of a Node on Linode by kOps' tags of the instance. The Node's providerID has the instance's number. Changing tags
//! requires a token of the account.
//!
//! Sources: upstream's `upup/pkg/fi/cloudup/linode/cloud.go` (names of tags), `verifier.go` in the same folder (names and addresses), and
//! `pkg/nodeidentity/linode/identify.go` (states, labels). Unlike upstream, this module requires that the instance belongs to this cluster
//! and to exactly one group.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::machine::{CloudMachine, ProviderIds, role_label};
use super::{Identity, Refusal, tags};
use crate::labels;
use crate::machine_id::{IdForm, MachineId};

const CLUSTER_TAG: &str = "kops.k8s.io/cluster:";
const INSTANCE_GROUP_TAG: &str = "kops.k8s.io/instance-group:";
/// The key of the tag with the role of the instance group.
const INSTANCE_ROLE: &str = "kops.k8s.io/instance-role";
/// A tag whose key has one of these prefixes becomes a label of the Node.
const LABELS: [&str; 2] = ["kops.k8s.io/", "node-role.kubernetes.io/"];
/// The form of Linode's providerIDs (Linode's cloud controller: `ProviderIDPrefix` in `cloud/linode/utils/common.go`). Upstream also
/// accepts `linode:///ID` and `linode://REGION/ID` (`parseInstanceIDFromProviderID` in `pkg/nodeidentity/linode/identify.go`).
pub const PROVIDER_IDS: ProviderIds = ProviderIds {
    cloud: "Linode",
    prefix: "linode://",
    form: "linode://12345678",
    id: |text| place(text).map(|(_region, id)| id),
};
/// The states in which an instance may bootstrap. Linode reports `provisioning` and `booting` for a while after the instance has started.
const AT_WORK: [&str; 3] = ["running", "booting", "provisioning"];

/// An instance as Linode's API reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinodeInstance {
    /// The instance's number. Linode never reuses it.
    pub id: u64,
    /// The instance's name, which is unique in the account (Linode API, "Create a Linode": `label`).
    pub label: String,
    /// The instance's region, such as `de-fra-2`.
    pub region: String,
    /// `running`, `offline`, …
    pub status: String,
    pub tags: Vec<String>,
    /// The instance's public and private addresses, in Linode's order.
    pub ipv4: Vec<Ipv4Addr>,
    /// The instance's public IPv6 address.
    pub ipv6: Option<Ipv6Addr>,
    /// When Linode created the instance, in seconds since 1970; `None` if the answer does not have the time.
    pub created: Option<i64>,
}

pub fn cluster_tag(cluster: &str) -> String {
    format!("{CLUSTER_TAG}{cluster}")
}

/// The region and the id in `ID`, `/ID` or `REGION/ID`. The region is empty if the text has none.
fn place(text: &str) -> Option<(&str, MachineId)> {
    let (region, id) = text.split_once('/').unwrap_or(("", text));
    let is_of_region = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_region =
        region.bytes().all(is_of_region) && !region.starts_with(|c: char| !c.is_ascii_lowercase());
    IdForm::Number.parse(id).filter(|_| is_region).map(|id| (region, id))
}

impl CloudMachine for LinodeInstance {
    fn id(&self) -> MachineId {
        self.id.into()
    }

    fn provider_id(&self) -> String {
        format!("{}{}", PROVIDER_IDS.prefix, self.id)
    }

    fn is_named_by(&self, provider_id: &str) -> bool {
        let named = provider_id.strip_prefix(PROVIDER_IDS.prefix).and_then(place);
        named.is_some_and(|(region, id)| id == self.id() && (region.is_empty() || region == self.region))
    }

    /// The instance's label, which is the name of the instance's Node.
    fn node_name(&self) -> String {
        self.label.clone()
    }

    /// The first private address, by upstream's definition of private. The challenge request never uses the public network. A loopback
    /// address counts as private, because the stand-in for Linode in tests has a loopback address.
    fn called_back_at(&self) -> Option<IpAddr> {
        let is_private = |address: &&Ipv4Addr| address.is_private() || address.is_loopback();
        self.ipv4.iter().find(is_private).copied().map(IpAddr::V4)
    }

    fn certificate_names(&self) -> Vec<String> {
        self.ipv4.iter().map(ToString::to_string).collect()
    }

    /// The label of the instance's role, and all tags that are labels of Kubernetes or kOps. A tag that the API server would reject as a
    /// label is left out without a message. For example, the hash in a tag of kOps may end in a dash.
    fn noted_labels(&self) -> BTreeMap<String, String> {
        let label = |tag: &String| {
            let (key, value) = tag.split_once(':')?;
            if key == INSTANCE_ROLE {
                return role_label(value);
            }
            let is_label =
                LABELS.iter().any(|prefix| key.starts_with(prefix)) && labels::problem(key, value).is_none();
            is_label.then(|| (key.to_owned(), value.to_owned()))
        };
        self.tags.iter().filter_map(label).collect()
    }

    fn created(&self) -> Option<i64> {
        self.created
    }

    fn identify(&self, cluster: &str) -> Result<Identity, Refusal> {
        let instance = self.id.to_string();
        tags::require_cluster(&instance, &self.tags, CLUSTER_TAG, cluster, cluster)?;
        if !AT_WORK.contains(&self.status.as_str()) {
            return Err(Refusal::NotRunning { instance, state: self.status.clone() });
        }
        tags::identity(&instance, &self.tags, INSTANCE_GROUP_TAG)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::machine::identify_node;
    use super::*;

    const CLUSTER: &str = "c.example.com";

    fn tagged(tags: &[&str]) -> LinodeInstance {
        LinodeInstance {
            id: 4711,
            label: "nodes-1a2b3c4d5e6f7a8b".into(),
            region: "de-fra-2".into(),
            status: "running".into(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ipv4: vec![[203, 0, 113, 15].into(), [192, 168, 152, 10].into(), [10, 0, 0, 2].into()],
            ipv6: None,
            created: None,
        }
    }

    fn instance() -> LinodeInstance {
        tagged(&[
            "kops.k8s.io/cluster:c.example.com",
            "kops.k8s.io/instance-group:nodes",
            "kops.k8s.io/instance-role:Node",
            "kops.k8s.io/instance-userdata:0aB_c-D",
        ])
    }

    fn noted(tags: &[&str]) -> Vec<(String, String)> {
        tagged(tags).noted_labels().into_iter().collect()
    }

    #[test]
    fn an_instance_of_the_cluster_has_the_group_of_its_tag() {
        let own = instance();
        let identity = identify_node("nodes-1a2b3c4d5e6f7a8b", &own, Some(&own), CLUSTER).unwrap();
        assert_eq!(identity.instance_group, "nodes");
        for status in AT_WORK {
            assert!(LinodeInstance { status: status.into(), ..instance() }.identify(CLUSTER).is_ok());
        }
        assert_eq!(own.provider_id(), "linode://4711");
        assert_eq!(own.certificate_names(), ["203.0.113.15", "192.168.152.10", "10.0.0.2"]);
        assert_eq!(own.called_back_at(), Some([192, 168, 152, 10].into()));
        let public = LinodeInstance { ipv4: vec![[203, 0, 113, 15].into()], ..instance() };
        assert_eq!(public.called_back_at(), None);
    }

    #[test]
    fn a_provider_id_may_contain_the_correct_region() {
        let id = |text: &str| PROVIDER_IDS.id(text).map(|id| id.to_string());
        for provider_id in ["linode://4711", "linode:///4711", "linode://de-fra-2/4711"] {
            assert_eq!(id(provider_id).unwrap(), "4711", "{provider_id}");
            assert!(instance().is_named_by(provider_id), "{provider_id}");
        }
        for provider_id in
            ["linode://4712", "linode:///4712", "linode://us-ord/4711", "linode://de-fra-2/4712"]
        {
            assert!(id(provider_id).is_ok() && !instance().is_named_by(provider_id), "{provider_id}");
        }
        for malformed in
            ["//4711", "de-fra-2/", "de-fra-2//4711", "a/b/4711", "De-fra-2/4711", "-a/4711", "../4711"]
        {
            let malformed = format!("{}{malformed}", PROVIDER_IDS.prefix);
            assert_eq!(PROVIDER_IDS.id(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            assert!(!instance().is_named_by(&malformed), "{malformed}");
        }
    }

    #[test]
    fn foreign_groupless_and_stopped_instances_are_rejected() {
        let own = "kops.k8s.io/cluster:c.example.com";
        let group = "kops.k8s.io/instance-group:nodes";
        for (tags, reason, is_definite) in [
            (vec!["kops.k8s.io/cluster:c.example.com.au", group], "InstanceOfOtherCluster", true),
            (vec![group], "InstanceOfOtherCluster", false),
            (vec!["kops.k8s.io/cluster:", group], "InstanceOfOtherCluster", false),
            (vec![own, "kops.k8s.io/cluster:other", group], "InstanceOfOtherCluster", false),
            (vec![own], "InstanceGroupUnknown", false),
            (vec![own, "kops.k8s.io/instance-group:"], "InstanceGroupUnknown", false),
            (vec![own, group, "kops.k8s.io/instance-group:b"], "InstanceGroupUnknown", false),
        ] {
            let refusal = tagged(&tags).identify(CLUSTER).unwrap_err();
            assert_eq!((refusal.reason(), refusal.is_definite()), (reason, is_definite), "{tags:?}");
        }
        for status in ["offline", "shutting_down", "deleting", ""] {
            let instance = LinodeInstance { status: status.into(), ..instance() };
            assert_eq!(instance.identify(CLUSTER).unwrap_err().reason(), "InstanceNotRunning");
        }
    }

    #[test]
    fn only_a_node_with_another_instances_name_is_an_impostor() {
        let own = instance();
        let victim = LinodeInstance { id: 1, label: "control-plane-3c4d".into(), ..instance() };
        let refused = |instance: &LinodeInstance, namesake: Option<&LinodeInstance>| {
            let refusal = identify_node("nodes-1a2b3c4d5e6f7a8b", instance, namesake, CLUSTER).unwrap_err();
            (refusal.reason(), refusal.is_definite())
        };
        assert_eq!(refused(&victim, Some(&own)), ("InstanceOfOtherNode", true));
        assert_eq!(refused(&victim, None), ("InstanceOfOtherNode", false));
    }

    #[test]
    fn labels_equal_upstreams_except_invalid_ones() {
        let labels = instance().noted_labels();
        let expected = [
            ("kops.k8s.io/cluster", CLUSTER),
            ("kops.k8s.io/instance-group", "nodes"),
            ("kops.k8s.io/instance-userdata", "0aB_c-D"),
            ("node-role.kubernetes.io/node", ""),
        ];
        assert_eq!(labels, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        assert_eq!(noted(&["node-role.kubernetes.io/web:"]).len(), 1);
        for (role, label) in [("ControlPlane", "control-plane"), ("APIServer", "api-server")] {
            let labels = noted(&[&format!("kops.k8s.io/instance-role:{role}")]);
            assert_eq!(labels, [(format!("node-role.kubernetes.io/{label}"), String::new())]);
        }
        for tag in [
            "kops.k8s.io/instance-role:Bastion",
            "kops.k8s.io/instance-userdata:aB_c-",
            "kops.k8s.io/instance-userdata:_aBc",
            "kops.k8s.io/x:a b",
            "kops.k8s.io/x:a:b",
            "kops.k8s.io/:a",
            "kops.k8s.io/a/b:c",
            "kops.k8s.io/x",
            "tier:web",
            "example.com/kops.k8s.io/x:y",
            "",
        ] {
            assert_eq!(noted(&[tag]), [], "{tag}");
        }
    }
}
