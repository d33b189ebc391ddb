//! containerd's configuration file. In the format of containerd 1, one plugin serves Kubernetes. In the format of containerd 2, two plugins
//! serve Kubernetes: one for images and one for the runtime.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::desired::paths;
use crate::resolve::{CONFIG_VERSION_OF_1, NodeConfig};
use crate::resource::{File, FreeText};
use kops_agent_spec::NRIConfig;

/// The plugin names that one format version of containerd's configuration file uses.
struct Form {
    images: [&'static str; 2],
    runtime: [&'static str; 2],
    /// Path of the setting for the sandbox (pause) image, below the plugin for images.
    sandbox_image: &'static [&'static str],
}

const OF_1: Form = Form {
    images: ["plugins", "io.containerd.grpc.v1.cri"],
    runtime: ["plugins", "io.containerd.grpc.v1.cri"],
    sandbox_image: &["sandbox_image"],
};
const OF_2: Form = Form {
    images: ["plugins", "io.containerd.cri.v1.images"],
    runtime: ["plugins", "io.containerd.cri.v1.runtime"],
    sandbox_image: &["pinned_images", "sandbox"],
};
/// The plugin that runs plugins of the Node Resource Interface.
const NRI: [&str; 2] = ["plugins", "io.containerd.nri.v1.nri"];

/// containerd's configuration file. If the user overrides the configuration, the file has the user's text.
pub(super) fn file(node: &NodeConfig) -> File {
    if let Some(text) = &node.containerd().config_override {
        return File::text(paths::CONTAINERD_CONFIG, text.clone()).with_free_text(FreeText::Whole);
    }
    let (text, typed) = (configuration(node, true).to_string(), configuration(node, false).to_string());
    let typed: BTreeSet<&str> = typed.lines().collect();
    let added = text.lines().enumerate().filter(|(_, line)| !typed.contains(line));
    let added = added.map(|(number, _)| number).collect();
    File::text(paths::CONTAINERD_CONFIG, text).with_free_text(FreeText::Lines(added))
}

/// The directories for containerd's data that a configuration names: `root` and `state` of config.toml(5).
pub(super) fn data_folders(config: &str) -> Vec<String> {
    let config: Table = config.parse().unwrap_or_default();
    let folders = ["root", "state"].iter().filter_map(|name| config.get(*name)?.as_str());
    folders.map(str::to_owned).collect()
}

/// The configuration that kOps generates. `has_additions` says whether the configuration includes the user's own
/// settings.
fn configuration(node: &NodeConfig, has_additions: bool) -> Table {
    let config = node.containerd();
    let runtime = &node.container_runtime;
    let form = if runtime.config_version == CONFIG_VERSION_OF_1 { OF_1 } else { OF_2 };
    let mut file = Table::new();
    set(&mut file, &["version"], runtime.config_version);
    if let Some(nri) = &config.nri {
        set_nri(&mut file, nri);
    }
    if config.selinux_enabled {
        set_in(&mut file, form.runtime, &["enable_selinux"], true);
    }
    if let Some(image) = pause_image(node) {
        set_in(&mut file, form.images, form.sandbox_image, image);
    }
    set_mirrors(&mut file, &form, node);
    set_in(&mut file, form.runtime, &["containerd", "default_runtime_name"], "runc");
    set_runtime(&mut file, &form, "runc", "io.containerd.runc.v2");
    set_runtime_option(&mut file, &form, "runc", "SystemdCgroup", true);
    if node.config.uses_kubenet {
        set_in(&mut file, form.runtime, &["cni", "conf_template"], paths::CONTAINERD_CNI_TEMPLATE);
    }
    if runtime.nvidia_driver_package.is_some() {
        set_nvidia_runtime(&mut file, &form);
    }
    if runtime.gvisor_platform.is_some() {
        set_runtime(&mut file, &form, "runsc", "io.containerd.runsc.v1");
    }
    for (path, value) in runtime.config_additions.iter().filter(|_| has_additions) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        set(&mut file, &path, value.clone());
    }
    file
}

fn pause_image(node: &NodeConfig) -> Option<String> {
    if node.release().pause_image_is_kubelets() {
        return Some(node.kubelet.config.pod_infra_container_image.clone()).filter(|image| !image.is_empty());
    }
    node.containerd().sandbox_image.clone()
}

/// Up to kOps 1.35, sets the mirrors of all registries in this file. Since kOps 1.36, sets only the path of a directory, which contains a
/// file of mirrors for each registry.
fn set_mirrors(file: &mut Table, form: &Form, node: &NodeConfig) {
    let mirrors = &node.containerd().registry_mirrors;
    if node.release().containerd_configuration_is_of_1() {
        for (registry, endpoints) in mirrors {
            let endpoints: Vec<Value> = endpoints.iter().cloned().map(Value::String).collect();
            set_in(file, form.images, &["registry", "mirrors", registry, "endpoint"], endpoints);
        }
    } else if !mirrors.is_empty() {
        set_in(file, form.images, &["registry", "config_path"], paths::CONTAINERD_REGISTRIES);
    }
}

/// Applies the cluster's settings of NRI (Node Resource Interface). They enable NRI, unless `enabled` is false.
fn set_nri(file: &mut Table, nri: &NRIConfig) {
    let NRIConfig { enabled, plugin_registration_timeout, plugin_request_timeout } = nri;
    if *enabled == Some(false) {
        return;
    }
    set_in(file, NRI, &["disable"], false);
    if let Some(timeout) = plugin_request_timeout {
        set_in(file, NRI, &["plugin_request_timeout"], timeout.to_string());
    }
    if let Some(timeout) = plugin_registration_timeout {
        set_in(file, NRI, &["plugin_registration_timeout"], timeout.to_string());
    }
}

fn set_nvidia_runtime(file: &mut Table, form: &Form) {
    set_runtime(file, form, "nvidia", "io.containerd.runc.v2");
    set_runtime_option(file, form, "nvidia", "SystemdCgroup", true);
    set_runtime_option(file, form, "nvidia", "BinaryName", "/usr/bin/nvidia-container-runtime");
    let runtime = ["containerd", "runtimes", "nvidia"];
    set_in(file, form.runtime, &[&runtime[..], &["privileged_without_host_devices"]].concat(), false);
    set_in(file, form.runtime, &[&runtime[..], &["runtime_engine"]].concat(), "");
    set_in(file, form.runtime, &[&runtime[..], &["runtime_root"]].concat(), "");
}

fn set_runtime(file: &mut Table, form: &Form, name: &str, runtime_type: &str) {
    set_in(file, form.runtime, &["containerd", "runtimes", name, "runtime_type"], runtime_type);
}

fn set_runtime_option(file: &mut Table, form: &Form, runtime: &str, option: &str, value: impl Into<Value>) {
    set_in(file, form.runtime, &["containerd", "runtimes", runtime, "options", option], value);
}

fn set_in(file: &mut Table, plugin: [&str; 2], path: &[&str], value: impl Into<Value>) {
    set(file, &[&plugin[..], path].concat(), value);
}

/// Sets the value at this path. Makes missing tables, and replaces the value or table at the end of the path. If an earlier key of the path
/// has a value that is not a table, this key is skipped: the rest of the path is set in the table that contains the key. kOps treats
/// contradictory additions of a user in this way, too.
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
    fn setting_a_path_creates_tables_and_the_last_value_wins() {
        let mut file = Table::new();
        set(&mut file, &["version"], 4);
        set(&mut file, &["plugins", "a.b", "x"], true);
        set(&mut file, &["plugins", "a.b", "x"], "y");
        assert_eq!(file.to_string(), "version = 4\n\n[plugins.\"a.b\"]\nx = \"y\"\n");
    }

    #[test]
    fn a_plain_value_on_the_path_stays() {
        let mut file = Table::new();
        set(&mut file, &["version"], 4);
        set(&mut file, &["version", "x"], 1);
        assert_eq!(file.to_string(), "version = 4\nx = 1\n");
    }
}
