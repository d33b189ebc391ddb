//! The state store that kOps would write for this cluster, and the boot config of each machine.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_cluster::bootstrap::server_url;
use kops_agent_machines::assets::etcd_member;
use kops_agent_machines::path_of;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_tests::example_store::{BUCKET, CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES};
use kops_agent_tests::kops_controller::server_name;
use kops_agent_tests::machine_metadata::Cloud;
use kops_agent_tests::machine_store;
use kops_agent_tests::released_store;
use serde_yaml::{Mapping, Sequence, Value};
use sha2::{Digest as _, Sha256};

use crate::agent;
use crate::cluster::Software;
use crate::world::{MIRROR, REGISTRY};

/// The name, the id and the manifest of each add-on in the channel.
pub const ADDONS: [(&str, &str, &str); 4] = [
    ("kubelet-api.rbac.addons.k8s.io", "k8s-1.9", "kubelet-api.rbac.addons.k8s.io/k8s-1.9.yaml"),
    ("kops-agent.rbac.addons.k8s.io", "v1", "kops-agent.rbac.addons.k8s.io/v1.yaml"),
    ("limit-range.addons.k8s.io", "", "limit-range.addons.k8s.io/v1.5.0.yaml"),
    ("widgets.example.com", "v1", "widgets.example.com/v1.yaml"),
];

const CHANNELS_POD: &str = "manifests/channels/kops-channels.yaml";
/// The name of containerd's plugin for pods, in configurations of containerd 1 and of containerd 2.
const CRI_OF_1: &str = r#"plugins."io.containerd.grpc.v1.cri""#;
const CRI_OF_2: &str = r#"plugins."io.containerd.cri.v1.runtime""#;
/// With this setting, containerd does not lower the OOM score of pods. The test host may forbid lower scores.
const OOM_SCORE: &str = "restrict_oom_score_adj";
/// containerd's setting for the folder of the CNI plugins. Without it, Debian's containerd 1.7 uses a different folder than kOps.
const PLUGIN_FOLDER: &str = "cni.bin_dir";

pub struct Store {
    example: ExampleStore,
    /// The mirror's two download folders: one for the first release, and one for later releases.
    downloads: [PathBuf; 2],
    control_planes: Vec<IpAddr>,
    /// The manifest of the channels pod, which the store of kOps up to 1.35 does not have.
    channels_pod: String,
}

impl Store {
    /// Writes the store to `folder`. `downloads` are the mirror's folders. `control_planes` has the instance group and the address of
    /// each control plane. If all these addresses are IPv6 addresses, the store describes an IPv6-only cluster.
    pub fn write(
        folder: &Path,
        software: &Software,
        downloads: [PathBuf; 2],
        control_planes: &[(&str, IpAddr)],
    ) -> Store {
        let mut overlays = vec![path_of("cluster/store")];
        if control_planes.iter().all(|(_, address)| address.is_ipv6()) {
            overlays.push(path_of("cluster/store-ipv6"));
        }
        let mirror = format!("http://{MIRROR}");
        let example =
            machine_store::write(folder, Cloud::Aws, &software.releases, &mirror, &overlays).unwrap();
        let addresses: Vec<IpAddr> = control_planes.iter().map(|(_, address)| *address).collect();
        // In the names of images, kOps writes the registry from `assets.containerRegistry`.
        let named = |text: &str| text.replace("registry.k8s.io/", &format!("{REGISTRY}/"));
        machine_store::replace_below(&example.cluster_folder(), &named).unwrap();
        let channels_pod = fs::read_to_string(example.cluster_folder().join(CHANNELS_POD)).unwrap();
        let store = Store { example, downloads, control_planes: addresses, channels_pod };
        if let Some(kops) = software.kops {
            store.write_as(kops);
        }
        if software.releases.containerd.starts_with("1.") {
            store.configure_containerd(&format!("{{'{CRI_OF_1}.{PLUGIN_FOLDER}': /opt/cni/bin}}"));
        }
        store.put_control_planes(control_planes);
        let rbac = fs::read(path_of("../packaging/kubernetes/rbac.yaml")).unwrap();
        let of_rbac = store.path("addons/kops-agent.rbac.addons.k8s.io/v1.yaml");
        fs::create_dir_all(of_rbac.parent().unwrap()).unwrap();
        fs::write(of_rbac, rbac).unwrap();
        store.put_addons(&ADDONS);
        store
    }

    /// Changes the store to the format of this version of kOps. Call [`Store::update`] afterwards, which derives the configurations of
    /// the groups.
    pub fn write_as(&self, kops: &str) {
        let pod = self.path(CHANNELS_POD);
        fs::create_dir_all(pod.parent().unwrap()).unwrap();
        fs::write(pod, &self.channels_pod).unwrap();
        released_store::write_as(&self.example, kops).unwrap();
        // kOps up to 1.35 writes the configuration of containerd 1. In the configuration of containerd 2, the CRI plugin has a different
        // name. So an operator who upgrades kOps must rename the plugin in this setting.
        let [of_1, of_2] = [CRI_OF_1, CRI_OF_2].map(|plugin| format!("{plugin}.{OOM_SCORE}"));
        let (plugin, other) = if kops < "1.36" { (of_1, of_2) } else { (of_2, of_1) };
        self.configure_containerd(&format!("{{'{plugin}': 'true', '{other}': null}}"));
    }

    fn configure_containerd(&self, settings: &str) {
        let patch = format!("{{spec: {{containerd: {{configAdditions: {settings}}}}}}}");
        self.merge("cluster-completed.spec", &patch);
    }

    /// Adds an instance group for each control plane, as a copy of the example store's control-plane group. The etcds of all control planes
    /// are members of one etcd cluster.
    fn put_control_planes(&self, groups: &[(&str, IpAddr)]) {
        let example = fs::read_to_string(self.path(&format!("instancegroup/{CONTROL_PLANE}"))).unwrap();
        for (number, (group, _)) in groups.iter().enumerate() {
            fs::write(self.path(&format!("instancegroup/{group}")), example.replace(CONTROL_PLANE, group))
                .unwrap();
            for (name, client, peer) in [("main", 4001, 2380), ("events", 4002, 2381)] {
                let pod = etcd_member(REGISTRY, name, [client, peer], number, &self.control_planes);
                fs::write(self.path(&format!("manifests/etcd/{name}-{group}.yaml")), pod).unwrap();
            }
        }
        if groups.len() == 1 {
            return;
        }
        let members = groups.iter().enumerate().map(|(number, (group, _))| {
            let name = char::from(b'a' + u8::try_from(number).unwrap());
            format!("{{name: {name}, instanceGroup: {group}, encryptedVolume: true}}")
        });
        let members = members.collect::<Vec<_>>().join(", ");
        let file = self.path("cluster-completed.spec");
        let mut cluster: Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for etcd in cluster["spec"]["etcdClusters"].as_sequence_mut().unwrap() {
            let patch = format!("{{etcdMembers: [{members}]}}");
            machine_store::merge(etcd, serde_yaml::from_str(&patch).unwrap());
        }
        let patch = format!(
            "{{spec: {{kubeAPIServer: {{apiServerCount: {}}}, kubeControllerManager: {{leaderElection: {{leaderElect: true}}}}, \
             kubeScheduler: {{leaderElection: {{leaderElect: true}}}}}}}}",
            groups.len()
        );
        machine_store::merge(&mut cluster, serde_yaml::from_str(&patch).unwrap());
        fs::write(file, serde_yaml::to_string(&cluster).unwrap()).unwrap();
    }

    /// The folder of the buckets: each subfolder is a bucket.
    pub fn buckets(&self) -> PathBuf {
        self.example.buckets()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.example.cluster_folder().join(path)
    }

    pub fn put_addons(&self, addons: &[(&str, &str, &str)]) {
        self.edit_channel(|entries| {
            for (name, id, manifest) in addons {
                let text = fs::read_to_string(self.path(&format!("addons/{manifest}"))).unwrap();
                // kOps trims the manifest, and then hashes and writes the trimmed text.
                let hash = sha256_hex(text.trim().as_bytes());
                let fields = [("name", *name), ("id", id), ("manifest", manifest), ("manifestHash", &hash)];
                let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
                let entry: Mapping = fields.map(|(field, value)| (field.into(), value.into())).collect();
                entries.retain(|entry| entry["name"].as_str() != Some(name));
                entries.push(entry.into());
            }
        });
    }

    pub fn remove_addon(&self, name: &str) {
        self.edit_channel(|entries| entries.retain(|entry| entry["name"].as_str() != Some(name)));
    }

    fn edit_channel(&self, edit: impl FnOnce(&mut Sequence)) {
        let file = self.path("addons/bootstrap-channel.yaml");
        let mut channel: Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        edit(channel["spec"]["addons"].as_sequence_mut().unwrap());
        fs::write(file, serde_yaml::to_string(&channel).unwrap()).unwrap();
    }

    /// Removes a group from the store. Returns the paths and contents of the group's files.
    pub fn take_group(&self, group: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let files = [format!("instancegroup/{group}"), format!("igconfig/node/{group}/nodeupconfig.yaml")];
        let take = |file: String| {
            let file = self.path(&file);
            let content = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            (file, content)
        };
        files.map(take).into()
    }

    /// Merges a patch (RFC 7396) into a file of the cluster's folder, like a change by `kops edit` and `kops update`.
    pub fn merge(&self, path: &str, patch: &str) {
        let file = self.path(path);
        let mut document: Value = serde_yaml::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        machine_store::merge(&mut document, serde_yaml::from_str(patch).unwrap());
        fs::write(file, serde_yaml::to_string(&document).unwrap()).unwrap();
    }

    /// Writes the group's configuration to its path in kOps' store. Returns the boot config of the group's machines.
    pub fn update(&self, group: &str) -> String {
        let hashes = self.buckets().join("hashes");
        fs::write(&hashes, self.hashes()).unwrap();
        let derived = Command::new(agent())
            .args(["config", "derive", "--config-base", CONFIG_BASE, "--instance-group", group])
            .args(["--store-mirror", &format!("s3://{BUCKET}={}", self.buckets().join(BUCKET).display())])
            .arg("--asset-hashes")
            .arg(&hashes)
            .output()
            .unwrap();
        assert!(derived.status.success(), "{}", String::from_utf8_lossy(&derived.stderr));
        fs::remove_file(hashes).unwrap();
        let role = if is_control_plane(group) { "control-plane" } else { "node" };
        let file = self.path(&format!("igconfig/{role}/{group}/nodeupconfig.yaml"));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &derived.stdout).unwrap();
        let hash = STANDARD.encode(Sha256::digest(&derived.stdout));
        format!("{}NodeupConfigHash: {hash}\n", self.boot_config(group))
    }

    fn boot_config(&self, group: &str) -> String {
        // The example store's boot config for the role of `group`. The fields of this boot config suit every group with this role.
        let of = if is_control_plane(group) { CONTROL_PLANE } else { NODES };
        let example = fs::read_to_string(self.example.kube_env(of)).unwrap();
        let mut config: Value = serde_yaml::from_str(&example).unwrap();
        config["InstanceGroupName"] = group.into();
        if !is_control_plane(group) {
            let addresses: Vec<String> = self.control_planes.iter().map(IpAddr::to_string).collect();
            let servers: Vec<String> = addresses.iter().map(|address| server_url(address)).collect();
            let patch = format!(
                "{{APIServerIPs: {addresses:?}, ConfigServer: {{tlsServerName: {}, servers: {servers:?}}}}}",
                server_name()
            );
            machine_store::merge(&mut config, serde_yaml::from_str(&patch).unwrap());
            config["ConfigServer"]["CACertificates"] = self.trusted_certificates("kubernetes-ca").into();
        }
        serde_yaml::to_string(&config).unwrap()
    }

    /// A line for each download: its hash and its URL. As in kOps, the hash comes from the `.sha256` file beside the download.
    fn hashes(&self) -> String {
        let mut lines = String::new();
        let mut folders: Vec<(PathBuf, &Path)> =
            self.downloads.iter().map(|downloads| (downloads.clone(), downloads.as_path())).collect();
        while let Some((folder, downloads)) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push((path, downloads));
                } else if let Some(of) = path.to_str().unwrap().strip_suffix(".sha256") {
                    let below = of.strip_prefix(downloads.to_str().unwrap()).unwrap();
                    lines.push_str(&format!(
                        "{}  http://{MIRROR}{below}\n",
                        fs::read_to_string(&path).unwrap().trim()
                    ));
                }
            }
        }
        lines
    }
}

pub fn is_control_plane(group: &str) -> bool {
    group.starts_with("control-plane")
}
