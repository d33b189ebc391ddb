//! The download of the standard CNI plugins.

use kops_agent_spec::NodeupConfig;

use super::{Asset, Assets, Problems};

/// The archive of the plugins; `None` if the network has its own plugins.
pub(super) fn resolve(config: &NodeupConfig, assets: &Assets, problems: &mut Problems) -> Option<Asset> {
    if !config.install_cni_assets {
        return None;
    }
    let archive = assets.starting("cni-plugins-").cloned();
    if archive.is_none() {
        problems.add("Assets", "InstallCNIAssets is set, but there is no cni-plugins-* archive for this architecture; run `kops update cluster --yes`");
    }
    archive
}
