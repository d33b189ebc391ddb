//! containerd's configuration file. In containerd 2 its image service and its runtime are two plugins, in containerd 1
//! they are one.

use toml::{Table, Value};

use crate::desired::paths;
use crate::resolve::NodeConfig;
use crate::resolve::containerd_config::{CRI_IMAGES, CRI_OF_1, CRI_RUNTIME};
use crate::resolve::containerd_version::CONFIG_VERSION_OF_1;
use kops_agent_spec::NRIConfig;

/// The plugins of the chosen containerd.
#[derive(Clone, Copy)]
struct Cri {
    /// The one that pulls images.
    images: [&'static str; 2],
    /// The one that runs containers.
    runtime: [&'static str; 2],
    /// Where the first has the sandbox's image.
    sandbox_image: &'static [&'static str],
}

impl Cri {
    fn of(config_version: i64) -> Cri {
        match config_version {
            CONFIG_VERSION_OF_1 => {
                let both = ["plugins", CRI_OF_1];
                Cri { images: both, runtime: both, sandbox_image: &["sandbox_image"] }
            }
            _ => Cri {
                images: ["plugins", CRI_IMAGES],
                runtime: ["plugins", CRI_RUNTIME],
                sandbox_image: &["pinned_images", "sandbox"],
            },
        }
    }
}

/// The plugin for plugins of Node Resource Interface.
const NRI: [&str; 2] = ["plugins", "io.containerd.nri.v1.nri"];

/// The text of the file: the user's own, if there is one.
pub(super) fn text(node: &NodeConfig) -> String {
    match &node.containerd().config_override {
        Some(text) => text.clone(),
        None => configuration(node).to_string(),
    }
}

fn configuration(node: &NodeConfig) -> Table {
    let config = node.containerd();
    let runtime = &node.container_runtime;
    let cri = Cri::of(runtime.config_version);
    let mut file = Table::new();
    set(&mut file, &["version"], runtime.config_version);
    if let Some(nri) = &config.nri {
        set_nri(&mut file, nri);
    }
    if config.selinux_enabled {
        set_in(&mut file, cri.runtime, &["enable_selinux"], true);
    }
    if let Some(image) = &config.sandbox_image {
        set_in(&mut file, cri.images, cri.sandbox_image, image.clone());
    }
    if !config.registry_mirrors.is_empty() {
        set_in(&mut file, cri.images, &["registry", "config_path"], paths::CONTAINERD_REGISTRIES);
    }
    set_in(&mut file, cri.runtime, &["containerd", "default_runtime_name"], "runc");
    set_runtime(&mut file, cri, "runc", "io.containerd.runc.v2");
    set_runtime_option(&mut file, cri, "runc", "SystemdCgroup", true);
    if node.config.uses_kubenet {
        set_in(&mut file, cri.runtime, &["cni", "conf_template"], paths::CONTAINERD_CNI_TEMPLATE);
    }
    if runtime.nvidia_driver_package.is_some() {
        set_nvidia_runtime(&mut file, cri);
    }
    if runtime.gvisor_platform.is_some() {
        set_runtime(&mut file, cri, "runsc", "io.containerd.runsc.v1");
    }
    for (path, value) in &runtime.config_additions {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        set(&mut file, &path, value.clone());
    }
    file
}

/// Naming NRI at all enables it, unless it says otherwise.
fn set_nri(file: &mut Table, nri: &NRIConfig) {
    if nri.enabled == Some(false) {
        return;
    }
    set_in(file, NRI, &["disable"], false);
    if let Some(timeout) = nri.plugin_request_timeout {
        set_in(file, NRI, &["plugin_request_timeout"], timeout.to_string());
    }
    if let Some(timeout) = nri.plugin_registration_timeout {
        set_in(file, NRI, &["plugin_registration_timeout"], timeout.to_string());
    }
}

fn set_nvidia_runtime(file: &mut Table, cri: Cri) {
    set_runtime(file, cri, "nvidia", "io.containerd.runc.v2");
    set_runtime_option(file, cri, "nvidia", "SystemdCgroup", true);
    set_runtime_option(file, cri, "nvidia", "BinaryName", "/usr/bin/nvidia-container-runtime");
    let runtime = ["containerd", "runtimes", "nvidia"];
    set_in(file, cri.runtime, &[&runtime[..], &["privileged_without_host_devices"]].concat(), false);
    set_in(file, cri.runtime, &[&runtime[..], &["runtime_engine"]].concat(), "");
    set_in(file, cri.runtime, &[&runtime[..], &["runtime_root"]].concat(), "");
}

fn set_runtime(file: &mut Table, cri: Cri, name: &str, runtime_type: &str) {
    set_in(file, cri.runtime, &["containerd", "runtimes", name, "runtime_type"], runtime_type);
}

fn set_runtime_option(file: &mut Table, cri: Cri, runtime: &str, option: &str, value: impl Into<Value>) {
    set_in(file, cri.runtime, &["containerd", "runtimes", runtime, "options", option], value);
}

fn set_in(file: &mut Table, plugin: [&str; 2], path: &[&str], value: impl Into<Value>) {
    set(file, &[&plugin[..], path].concat(), value);
}

/// Sets the value at this path. What stands in the way of it as a plain value is stepped over, and a
/// table at its end is replaced: so kOps has always treated additions of the user's that contradict the
/// rest.
fn set(table: &mut Table, path: &[&str], value: impl Into<Value>) {
    match path {
        [] => {}
        [key] => {
            table.insert((*key).to_owned(), value.into());
        }
        [key, rest @ ..] => {
            if !table.contains_key(*key) {
                table.insert((*key).to_owned(), Value::Table(Table::new()));
            }
            match table.get_mut(*key) {
                Some(Value::Table(inner)) => set(inner, rest, value),
                _ => set(table, rest, value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_make_tables_and_the_last_value_wins() {
        let mut file = Table::new();
        set(&mut file, &["version"], 4);
        set(&mut file, &["plugins", "a.b", "x"], true);
        set(&mut file, &["plugins", "a.b", "x"], "y");
        assert_eq!(file.to_string(), "version = 4\n\n[plugins.\"a.b\"]\nx = \"y\"\n");
    }

    #[test]
    fn a_plain_value_in_the_way_stays() {
        let mut file = Table::new();
        set(&mut file, &["version"], 4);
        set(&mut file, &["version", "x"], 1);
        assert_eq!(file.to_string(), "version = 4\nx = 1\n");
    }
}
