#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::add;
use crate::desired::testing::{Desired, Machine};
use crate::desired::{gvisor, nvidia, paths, runtime_commands};
use crate::resource::{FreeText, Kind, ResourceId};

fn config(desired: &Desired) -> serde_json::Value {
    toml::from_str(desired.text(paths::CONTAINERD_CONFIG)).unwrap()
}

const RUNTIME: &str = "io.containerd.cri.v1.runtime";
const IMAGES: &str = "io.containerd.cri.v1.images";

#[test]
fn the_default_configuration_is_written() {
    let machine =
        Machine::node().config(json!({ "containerdConfig": { "sandboxImage": "pause", "logLevel": "info" }}));
    let desired = machine.desired(add);
    assert_eq!(
        config(&desired),
        json!({
            "version": 4,
            "plugins": {
                IMAGES: { "pinned_images": { "sandbox": "pause" }},
                RUNTIME: { "containerd": {
                    "default_runtime_name": "runc",
                    "runtimes": { "runc": {
                        "runtime_type": "io.containerd.runc.v2", "options": { "SystemdCgroup": true },
                    }},
                }},
            },
        })
    );
    assert_eq!(desired.text(paths::CONTAINERD_SYSCONFIG), "CONTAINERD_OPTS=\"--log-level=info\"\n");
    for program in
        ["/usr/bin/containerd", "/usr/bin/containerd-shim-runc-v2", "/usr/bin/ctr", "/usr/sbin/runc"]
    {
        assert!(desired.has(&format!("file {program}")), "{program}");
    }
}

#[test]
fn containerd_1_has_one_plugin_for_images_and_containers() {
    let machine = Machine::node().config(json!({ "containerdConfig": {
        "version": "1.7.28", "sandboxImage": "pause", "registryMirrors": { "docker.io": ["https://a"] },
    }}));
    assert_eq!(
        config(&machine.desired(add)),
        json!({
            "version": 2,
            "plugins": { "io.containerd.grpc.v1.cri": {
                "sandbox_image": "pause",
                "registry": { "config_path": "/etc/containerd/certs.d" },
                "containerd": {
                    "default_runtime_name": "runc",
                    "runtimes": { "runc": {
                        "runtime_type": "io.containerd.runc.v2", "options": { "SystemdCgroup": true },
                    }},
                },
            }},
        })
    );
}

#[test]
fn mirrors_have_a_file_for_each_registry() {
    let machine = Machine::node().config(json!({ "containerdConfig": { "registryMirrors": {
        "*": ["https://all"], "docker.io": ["https://b", "https://a"],
    }}}));
    let desired = machine.desired(add);
    assert_eq!(
        config(&desired)["plugins"][IMAGES],
        json!({ "registry": { "config_path": "/etc/containerd/certs.d" }})
    );
    assert!(desired.has("file /etc/containerd/certs.d/_default/hosts.toml"));
    let hosts = desired.text("/etc/containerd/certs.d/docker.io/hosts.toml");
    assert!(hosts.find("https://b").unwrap() < hosts.find("https://a").unwrap());
}

#[test]
fn the_users_own_file_is_the_whole_configuration() {
    let machine = Machine::node().config(json!({ "containerdConfig": {
        "configOverride": "mine = true\n", "registryMirrors": { "docker.io": ["https://a"] },
        "configAdditions": { "\"unclosed": "x" },
    }}));
    let desired = machine.desired(add);
    assert_eq!(desired.text(paths::CONTAINERD_CONFIG), "mine = true\n");
    assert!(!desired.has("file /etc/containerd/certs.d/docker.io/hosts.toml"));
}

#[test]
fn additions_reach_plugins_whose_names_have_dots() {
    let additions = json!({ "containerdConfig": { "configAdditions": {
        "plugins.\"a.b\".on": "true", "plugins.\"a.b\".count": 1, "plugins.\"a.b\".text": "1", "version": 3,
    }}});
    let file = config(&Machine::node().config(additions).desired(add));
    assert_eq!(file["plugins"]["a.b"], json!({ "on": true, "count": 1, "text": "1" }));
    assert_eq!(file["version"], 3);
    let wrong = Machine::node().config(json!({ "containerdConfig": { "configAdditions": { "a.\"b": "" }}}));
    assert_eq!(wrong.problems(), "containerdConfig.configAdditions: a.\"b: a quote is not closed");
}

#[test]
fn only_the_users_settings_in_the_configuration_are_free_text() {
    let hidden = |config: serde_json::Value| {
        let desired = Machine::node().config(json!({ "containerdConfig": config })).desired(add);
        let file = desired.file(paths::CONTAINERD_CONFIG);
        let text = desired.text(paths::CONTAINERD_CONFIG);
        match file.free_text.as_ref().unwrap() {
            FreeText::Lines(lines) => text
                .lines()
                .enumerate()
                .filter(|(n, _)| lines.contains(n))
                .map(|(_, line)| line.to_owned())
                .collect(),
            other => vec![format!("{other:?}")],
        }
    };
    assert_eq!(hidden(json!({ "sandboxImage": "pause" })), [""; 0]);
    let additions = json!({ "plugins.\"a.b\".auth": "typed-by-a-user", "plugins.\"a.b\".more": "two lines" });
    let added = hidden(json!({ "sandboxImage": "pause", "configAdditions": additions })).join("\n");
    for part in ["typed-by-a-user", "two lines"] {
        assert!(added.contains(part), "{added}");
    }
    assert!(!added.contains("pause") && !added.contains("SystemdCgroup"), "{added}");
    assert_eq!(hidden(json!({ "configOverride": "version = 3\n" })), ["Whole"]);
}

#[test]
fn skip_install_leaves_out_all_but_explicitly_enabled_tools() {
    let skipped =
        Machine::node().config(json!({ "containerdConfig": { "skipInstall": true, "version": "" }}));
    assert!(skipped.desired(add).0.is_empty());
    assert!(skipped.desired(runtime_commands::add_nerdctl).0.is_empty());
    let wanted =
        skipped.config(json!({ "containerdConfig": { "installNerdCtl": true, "installCriCtl": true }}));
    assert!(wanted.desired(runtime_commands::add_nerdctl).has("file /usr/local/bin/nerdctl"));
    assert!(wanted.desired(runtime_commands::add_crictl).0.is_empty(), "no crictl is among the downloads");
}

#[test]
fn the_distributions_containerd_is_only_configured() {
    for (distro, line) in [
        ("flatcar", "ExecStart=\nExecStart=/usr/bin/containerd --config /etc/containerd/config.toml\n"),
        ("cos", "TasksMax=infinity\n"),
    ] {
        let machine =
            Machine::node().on(distro, "1").config(json!({ "containerdConfig": { "version": null }}));
        let desired = machine.desired(add);
        assert_eq!(config(&desired)["version"], 3);
        assert!(!desired.has("file /usr/bin/containerd"));
        let unit = desired.unit("containerd.service");
        assert_eq!(unit.text, None);
        let restarts = |path: &str| unit.restarted_by.contains(&ResourceId::new(Kind::File, path));
        assert!(restarts("/etc/containerd/config.toml"), "{unit:?}");
        let drop_in = desired.file("/etc/systemd/system/containerd.service.d/10-kops.conf");
        assert!(desired.text(&drop_in.path).contains(line), "{distro}");
        assert!(restarts(&drop_in.path), "{unit:?}");
        assert_eq!(drop_in.on_change.len(), 3);
    }
}

#[test]
fn mentioning_nri_enables_it() {
    let nri = |fields: serde_json::Value| {
        let machine = Machine::node().config(json!({ "containerdConfig": { "nri": fields }}));
        config(&machine.desired(add))["plugins"]["io.containerd.nri.v1.nri"].clone()
    };
    assert_eq!(
        nri(json!({ "pluginRequestTimeout": "5s" })),
        json!({ "disable": false, "plugin_request_timeout": "5s" })
    );
    assert_eq!(nri(json!({ "enabled": false })), json!(null));
}

#[test]
fn a_gpu_adds_its_own_runtime() {
    let enabled = json!({
        "NvidiaGPU": { "enabled": true, "package": "driver" },
        "containerdConfig": { "nvidiaGPU": { "enabled": true }},
    });
    let unknown = Machine::node().config(enabled);
    let gpu = |gpu: bool| unknown.clone().facts(json!({ "cloud": { "aws": { "gpu": gpu }}}));
    let (with, without) = (gpu(true), gpu(false));
    assert!(
        unknown
            .problems()
            .contains("NvidiaGPU: is enabled, but the facts do not say whether the instance type has a GPU")
    );
    let runtimes = |machine: &Machine| {
        config(&machine.desired(add))["plugins"][RUNTIME]["containerd"]["runtimes"].clone()
    };
    assert_eq!(runtimes(&without)["nvidia"], json!(null));
    assert_eq!(
        runtimes(&with)["nvidia"],
        json!({
            "privileged_without_host_devices": false, "runtime_engine": "", "runtime_root": "",
            "runtime_type": "io.containerd.runc.v2",
            "options": { "SystemdCgroup": true, "BinaryName": "/usr/bin/nvidia-container-runtime" },
        })
    );
    let packages = with.desired(nvidia::add);
    assert!(packages.has("package driver") && packages.has("package nvidia-container-toolkit"));
    let of_image = gpu(true).on("debian", "12").facts(json!({ "nvidiaRuntime": true }));
    assert!(of_image.desired(nvidia::add).0.is_empty());
    assert_eq!(runtimes(&of_image)["nvidia"], runtimes(&with)["nvidia"]);
}

#[test]
fn gvisor_is_for_workers() {
    let gvisor = json!({ "GVisor": { "enabled": true, "platform": "kvm" }});
    let worker = Machine::node().config(gvisor.clone());
    assert_eq!(
        worker.desired(add).text("/etc/containerd/runsc.toml"),
        "[runsc_config]\nplatform = \"kvm\"\n"
    );
    assert!(worker.desired(gvisor::add).has("package runsc"));
    assert!(worker.on("rhel", "9").desired(gvisor::add).0.is_empty());
    let control_plane = Machine::control_plane().config(gvisor);
    assert!(!control_plane.desired(add).has("file /etc/containerd/runsc.toml"));
}

#[test]
fn runtimes_of_nvidia_and_gvisor_have_the_form_of_each_containerd() {
    for (version, form, plugin) in
        [("1.7.28", 2, "io.containerd.grpc.v1.cri"), ("2.2.1", 3, RUNTIME), ("2.3.4", 4, RUNTIME)]
    {
        let machine = Machine::node().facts(json!({ "cloud": { "aws": { "gpu": true }}})).config(json!({
            "GVisor": { "enabled": true, "platform": "systrap" },
            "NvidiaGPU": { "enabled": true, "package": "driver" },
            "containerdConfig": { "version": version, "nvidiaGPU": { "enabled": true }},
        }));
        let config = config(&machine.desired(add));
        assert_eq!(config["version"], form, "{version}");
        let runtimes = &config["plugins"][plugin]["containerd"]["runtimes"];
        let program = &runtimes["nvidia"]["options"]["BinaryName"];
        assert_eq!(program, "/usr/bin/nvidia-container-runtime", "{version}");
        assert_eq!(runtimes["runsc"], json!({ "runtime_type": "io.containerd.runsc.v1" }), "{version}");
    }
}

#[test]
fn containerd_replaces_kubenet() {
    let kubenet = Machine::node().config(json!({ "UsesKubenet": true }));
    let desired = kubenet.desired(add);
    let text = desired.text(paths::CONTAINERD_CNI_TEMPLATE);
    let template: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(template["plugins"][0]["ipam"]["routes"], json!([{ "dst": "0.0.0.0/0" }]));
    assert!(text.contains("\n                \"ranges\": [[{\"subnet\": \"{{.PodCIDR}}\"}]],\n"), "{text}");
    assert_eq!(
        config(&desired)["plugins"][RUNTIME]["cni"]["conf_template"],
        "/etc/containerd/config-cni.template"
    );
    assert!(desired.text("/opt/kops/bin/cni-iptables-setup").contains("-A IP-MASQ -d 100.64.0.0/10 "));
    let everything = kubenet.config(json!({ "Networking": { "nonMasqueradeCIDR": "0.0.0.0/0" }}));
    assert!(!everything.desired(add).has("unit cni-iptables-setup.service"));
}

#[test]
fn programs_from_an_archive_get_their_selinux_labels() {
    let selinux = json!({ "containerdConfig": { "selinuxEnabled": true }});
    let unit = |distro: &str, version: &str| {
        let machine = Machine::node().on(distro, version).config(selinux.clone());
        machine.desired(add).unit_text("containerd.service").to_owned()
    };
    assert!(unit("rhel", "9").contains("ExecStartPre=/bin/sh -c 'restorecon -v /usr/sbin/runc'\n"));
    assert!(!unit("debian", "12").contains("restorecon"));
}
