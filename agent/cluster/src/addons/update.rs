//! Decides which work is due for an add-on.

use super::menu::Addon;
use super::spec::NeedsRollingUpdate;
use super::version::ChannelVersion;

/// The annotation of a Node that `kops rolling-update cluster` must replace. Its value is empty.
pub const NEEDS_UPDATE_ANNOTATION: &str = "kops.k8s.io/needs-update";

/// The due work for an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The version to apply; `None` if the version is current. To apply a version, kops-agent applies the manifest, deletes objects by the
    /// add-on's rules, and records the version.
    pub version: Option<ChannelVersion>,
    /// Whether the add-on's authority and issuer must be created.
    pub pki: bool,
    /// The nodes to mark for replacement after the manifest is applied. `None` for a new add-on, because no node has run an older version.
    pub marks: Option<NeedsRollingUpdate>,
}

/// Decides the due work for an add-on. `installed` is the recorded version in the cluster. `has_pki` matters only if the add-on needs a
/// PKI. Returns `None` if there is nothing to do.
pub fn due(addon: &Addon, installed: Option<&ChannelVersion>, has_pki: bool) -> Option<Due> {
    let version = addon.version();
    let is_new = installed.is_none_or(|installed| version.replaces(installed));
    let pki = addon.spec.needs_pki && !has_pki;
    (is_new || pki).then(|| Due {
        version: is_new.then_some(version),
        pki,
        marks: addon.needs_rolling_update().filter(|_| is_new && installed.is_some()),
    })
}
