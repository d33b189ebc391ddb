//! The document of a channel, by the names of kOps' API.

use std::collections::BTreeMap;

use kops_agent_spec::ObjectMeta;
use serde::Deserialize;

/// A document of the kind `Addons`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Addons {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: AddonsSpec,
}

/// Its `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AddonsSpec {
    pub(super) addons: Vec<Option<AddonSpec>>,
}

/// One version of one add-on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSpec {
    /// The add-on; without it, it has the name of the channel's document.
    pub name: Option<String>,
    /// The namespace whose annotation records the version; without it kube-system. Objects are where the manifest says.
    pub namespace: Option<String>,
    /// Labels of the add-on's objects. Nothing is decided by them.
    pub selector: BTreeMap<String, String>,
    /// The manifest's URL, or its path from the channel's.
    pub manifest: Option<String>,
    /// SHA-256 of the manifest without white space around it, in hexadecimal, where kOps has written it.
    pub manifest_hash: String,
    /// The Kubernetes versions for which this entry is; empty for all.
    pub kubernetes_version: String,
    /// Another one is another version of the add-on, though the manifest be the same.
    pub id: String,
    /// Which nodes have to be replaced after an update; empty for none.
    pub needs_rolling_update: String,
    /// Whether the add-on has an authority of its own, and an issuer of cert-manager that signs with it.
    #[serde(rename = "needsPKI")]
    pub needs_pki: bool,
    /// The version of the software. Nothing is decided by it.
    pub version: String,
    /// What is deleted after an update; without it nothing.
    pub prune: Option<PruneSpec>,
}

/// What is deleted after an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PruneSpec {
    /// The rules, a kind of object each.
    pub kinds: Vec<PruneKind>,
}

/// A rule: objects of a kind that the manifest does not have (any more) are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PruneKind {
    /// The API group; empty for the core's.
    pub group: String,
    pub kind: String,
    /// Only objects in these namespaces; where empty, objects everywhere.
    pub namespaces: Vec<String>,
    /// Only objects that this selects by their labels.
    pub label_selector: String,
    /// Only objects that this selects by their fields.
    pub field_selector: String,
}

/// Which nodes have to be replaced after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeedsRollingUpdate {
    /// Those of the control plane.
    ControlPlane,
    Workers,
    All,
}

impl NeedsRollingUpdate {
    /// Reads the field; `None` where it names none of the three.
    pub fn parse(text: &str) -> Option<NeedsRollingUpdate> {
        match text {
            "control-plane" => Some(NeedsRollingUpdate::ControlPlane),
            "workers" => Some(NeedsRollingUpdate::Workers),
            "all" => Some(NeedsRollingUpdate::All),
            _ => None,
        }
    }

    /// The label selector of the nodes; `None` for all of them. That of the control plane is upstream's to the letter: a label
    /// that kOps gives no node since Kubernetes 1.24, so that no node is marked where none has it from elsewhere (upstream:
    /// `patchNeedsUpdateLabel` in `channels/pkg/channels/addon.go`).
    pub fn selector(self) -> Option<&'static str> {
        match self {
            NeedsRollingUpdate::ControlPlane => Some("node-role.kubernetes.io/master="),
            NeedsRollingUpdate::Workers => Some("node-role.kubernetes.io/node="),
            NeedsRollingUpdate::All => None,
        }
    }
}
