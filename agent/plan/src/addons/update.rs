//! What an add-on is due for.

use super::menu::Addon;
use super::spec::NeedsRollingUpdate;
use super::version::ChannelVersion;

/// Marks a Node that `kops rolling-update cluster` is to replace. Its value is empty.
pub const NEEDS_UPDATE_ANNOTATION: &str = "kops.k8s.io/needs-update";

/// What has to be done about an add-on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its manifest is applied, what its rules name is pruned, and this version recorded.
    pub version: Option<ChannelVersion>,
    /// Its authority and issuer are made.
    pub pki: bool,
    /// Nodes are marked for replacement, after its manifest is applied. None are when the add-on is new: they have not
    /// run anything older.
    pub marks: Option<NeedsRollingUpdate>,
}

/// What has to be done about an add-on of which the cluster has this version, and all of its PKI or not (looked at only where
/// it needs one); `None` where there is nothing to do.
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
