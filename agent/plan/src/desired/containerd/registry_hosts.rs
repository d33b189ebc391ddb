//! Registry mirrors for containerd: a file for each registry that has mirrors. containerd watches the directory of these files
//! and tries the mirrors in the order of the file.

use std::collections::BTreeSet;

use crate::desired::paths;
use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File};

/// Adds one file of mirrors for each registry, unless the user overrides containerd's configuration, or the configuration file itself has
/// the mirrors.
pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let config = node.containerd();
    if config.config_override.is_some() || node.release().containerd_configuration_is_of_1() {
        return;
    }
    for (registry, mirrors) in &config.registry_mirrors {
        let path = format!("{}/{}/hosts.toml", paths::CONTAINERD_REGISTRIES, directory(registry));
        state.add(File::text(path, hosts(mirrors)));
    }
}

/// The directory of a registry. kOps' `*` means all registries without their own directory. containerd's name for these registries is
/// `_default`.
fn directory(registry: &str) -> &str {
    if registry == "*" { "_default" } else { registry.trim_matches('/') }
}

/// The text of the file `hosts.toml`, which lists the mirrors of a registry. A repeated mirror is in the file only once,
/// because TOML rejects a repeated table.
fn hosts(mirrors: &[String]) -> String {
    let mut text = String::new();
    let mut seen = BTreeSet::new();
    for mirror in mirrors {
        if seen.insert(mirror) {
            let key = toml::Value::String(mirror.clone());
            text.push_str(&format!("[host.{key}]\ncapabilities = [\"pull\", \"resolve\"]\n\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_keep_their_order_without_duplicates() {
        let mirrors = ["https://b", "https://a", "https://b"].map(str::to_owned);
        assert_eq!(
            hosts(&mirrors),
            "[host.\"https://b\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n\
             [host.\"https://a\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n"
        );
    }

    #[test]
    fn the_wildcard_registry_has_containerds_name() {
        assert_eq!(directory("*"), "_default");
        assert_eq!(directory("docker.io"), "docker.io");
    }
}
