//! The document of a channel, with the field names of kOps' API.

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

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AddonsSpec {
    pub(super) addons: Vec<Option<AddonSpec>>,
}

/// One version of one add-on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSpec {
    /// The add-on's name. The default is the name of the channel's document.
    pub name: Option<String>,
    /// The namespace whose annotation records the version. The default is kube-system. The objects' namespaces are in the manifest.
    pub namespace: Option<String>,
    /// Labels of the add-on's objects. No decision uses these labels.
    pub selector: BTreeMap<String, String>,
    /// The manifest's URL, or its path relative to the channel.
    pub manifest: Option<String>,
    /// In kOps' own channel, the hexadecimal SHA-256 of the manifest without white space at its start and end. Authors of other channels
    /// choose the value.
    pub manifest_hash: String,
    /// The Kubernetes version range of this entry. Empty for all versions.
    pub kubernetes_version: String,
    /// The id of the add-on's version. If the id changes, the version is new, even with an unchanged manifest.
    pub id: String,
    /// The nodes that need replacement after an update. Empty for no nodes.
    pub needs_rolling_update: String,
    /// Whether the add-on needs its own authority, and a cert-manager issuer that signs with this authority.
    #[serde(rename = "needsPKI")]
    pub needs_pki: bool,
    /// The version of the software. No decision uses this version.
    pub version: String,
    /// The rules for deletion after an update. Without rules, nothing is deleted.
    pub prune: Option<PruneSpec>,
}

/// The rules for deletion after an update.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PruneSpec {
    /// One rule for each kind of object.
    pub kinds: Vec<PruneKind>,
}

/// A rule that deletes the objects of one kind that the manifest does not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PruneKind {
    /// The API group. Empty for the core group.
    pub group: String,
    pub kind: String,
    /// The namespaces of the objects. Empty for all namespaces.
    pub namespaces: Vec<String>,
    pub label_selector: String,
    pub field_selector: String,
}

/// The nodes that need replacement after an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeedsRollingUpdate {
    ControlPlane,
    Workers,
    All,
}

impl NeedsRollingUpdate {
    pub fn parse(text: &str) -> Option<NeedsRollingUpdate> {
        match text {
            "control-plane" => Some(NeedsRollingUpdate::ControlPlane),
            "workers" => Some(NeedsRollingUpdate::Workers),
            "all" => Some(NeedsRollingUpdate::All),
            _ => None,
        }
    }

    /// The label selector of the nodes. `None` for all nodes. For control planes, this is upstream's selector (`patchNeedsUpdateLabel` in
    /// `channels/pkg/channels/addon.go`). kOps has not set the label in this selector since Kubernetes 1.24, so the selector matches only
    /// nodes that a different program has labelled.
    pub fn selector(self) -> Option<&'static str> {
        match self {
            NeedsRollingUpdate::ControlPlane => Some("node-role.kubernetes.io/master="),
            NeedsRollingUpdate::Workers => Some("node-role.kubernetes.io/node="),
            NeedsRollingUpdate::All => None,
        }
    }
}
