//! Where containerd looks for images instead of their registry: a file for each registry that has
//! mirrors. containerd watches their directory and tries the mirrors in the order of the file.

use crate::desired::paths;
use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File};

/// Adds the files, unless the user's own configuration file decides everything, or the mirrors stand in the configuration file.
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

/// containerd's name for all the registries that have no directory of their own is not kOps' `*`.
fn directory(registry: &str) -> &str {
    if registry == "*" { "_default" } else { registry.trim_matches('/') }
}

/// A table may stand in a file once only, so a mirror that is named again is left out.
fn hosts(mirrors: &[String]) -> String {
    let mut text = String::new();
    for (index, mirror) in mirrors.iter().enumerate() {
        if !mirrors[..index].contains(mirror) {
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
    fn mirrors_keep_their_order_and_stand_once() {
        let mirrors = ["https://b", "https://a", "https://b"].map(str::to_owned);
        assert_eq!(
            hosts(&mirrors),
            "[host.\"https://b\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n\
             [host.\"https://a\"]\ncapabilities = [\"pull\", \"resolve\"]\n\n"
        );
    }

    #[test]
    fn the_registry_for_all_others_has_containerds_name() {
        assert_eq!(directory("*"), "_default");
        assert_eq!(directory("docker.io"), "docker.io");
    }
}
