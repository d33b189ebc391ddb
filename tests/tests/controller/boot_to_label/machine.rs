//! A worker: its configuration from kOps, and its boot.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{self, ExampleStore, NODES, releases};
use kops_agent_tests::machine_store::merge;
use nix::mount::{MsFlags, mount};
use serde_yaml::Value;
use sha2::{Digest as _, Sha256};

use super::kubelet::{forward, run_until};
use super::network::{CONTROL_PLANE, on_machine, write_files};
use super::{LIAR, MACHINE, OTHER_PORT, PORT, authority};
use crate::bootstrap::World;
use crate::clouds::{Ground, Lot};
use crate::cluster::{CLUSTER, CONFIG_BASE, GROUP_LABEL, agent_on_node, path_of, plain_agent};

const BOOT_CONFIG: &str = "kube_env.yaml";
const BOOT_CONFIG_OF_UPSTREAM: &str = "kube_env-of-upstream.yaml";

/// A worker that a test boots.
pub struct Machine<'a, G> {
    ground: &'a G,
    folder: PathBuf,
    config: String,
    _downloads: Downloads,
}

pub struct Booted {
    pub code: Option<i32>,
    pub said: String,
    /// The folder with the machine's files.
    pub root: PathBuf,
}

impl<'a, G: Ground> Machine<'a, G> {
    /// Makes a machine of the cluster's group `nodes`, and its boot config. If kOps stores a group's configuration for this cloud,
    /// writes the configuration into the store.
    pub fn new(ground: &'a G, world: &World) -> Machine<'a, G> {
        let folder = world.cluster.make_folder("machine");
        let mut files = releases().stand_ins().unwrap();
        files.extend(G::DOWNLOADS.iter().map(|path| ((*path).to_owned(), path.as_bytes().to_vec())));
        let downloads = Downloads::start_on(TcpListener::bind((CONTROL_PLANE, 0)).unwrap(), files).unwrap();
        let authority = authority(&world.cluster);
        let indented: String = authority.certificate.lines().map(|line| format!("    {line}\n")).collect();
        let config = derive(world, &folder.join("example"), G::NAME, &downloads.url(), authority);
        match G::KOPS_WRITES_CONFIGS {
            true => world.cluster.write_nodeup_config(NODES, &config),
            false => world.cluster.remove_nodeup_configs(),
        }
        let api_server = world.cluster.api.url().trim_start_matches("https://").parse().unwrap();
        forward((CONTROL_PLANE, 443).into(), api_server);
        let name = format!("kops-controller.internal.{CLUSTER}");
        write_files(&folder, &[&name, &format!("api.internal.{CLUSTER}")]);
        let hash = STANDARD.encode(Sha256::digest(&config));
        for (file, port) in [(BOOT_CONFIG, PORT), (BOOT_CONFIG_OF_UPSTREAM, OTHER_PORT)] {
            let boot_config = format!(
                "CloudProvider: {}\nClusterName: {CLUSTER}\nConfigServer:\n  CACertificates: |\n{indented}  servers:\n  \
                 - https://{name}:{port}/\nInstanceGroupName: {NODES}\nInstanceGroupRole: Node\nNodeupConfigHash: {hash}\n",
                G::NAME
            );
            fs::write(folder.join(file), boot_config).unwrap();
        }
        Machine { ground, folder, config, _downloads: downloads }
    }

    /// The configuration of the machine's group.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Runs `act` on a second machine, while this machine is up.
    pub fn beside<T: Send>(&self, lot: Lot, act: impl FnOnce() -> T + Send) -> T {
        on_machine(lot.address, &self.ground.hostname(lot), &self.folder, act)
    }

    pub fn boot(&self) -> Booted {
        self.boot_from(BOOT_CONFIG, "root", None)
    }

    /// Boots this machine. Its only server is the stand-in for kOps' own kops-controller.
    pub fn boot_at_upstream(&self) -> Booted {
        self.boot_from(BOOT_CONFIG_OF_UPSTREAM, "root-of-upstream", None)
    }

    /// Boots a liar, which claims to be this machine, at a different address.
    pub fn boot_as_liar(&self) -> Booted {
        self.boot_from(BOOT_CONFIG, "liar", Some(LIAR))
    }

    fn boot_from(&self, boot_config: &str, root: &str, liar: Option<Ipv4Addr>) -> Booted {
        let root = self.folder.join(root);
        fs::create_dir(&root).unwrap();
        let _metadata = self.ground.serve_metadata(MACHINE, liar);
        on_machine(liar.unwrap_or(MACHINE.address), &self.ground.hostname(MACHINE), &self.folder, || {
            let _equipment = self.ground.equip(&root, liar.is_some());
            let mut agent = agent_on_node();
            agent.envs(self.ground.variables()).args(["converge", "--store-timeout", "1", "--conf"]);
            agent.arg(self.folder.join(boot_config)).arg("--root").arg(&root);
            let output = agent.output().unwrap();
            let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
            Booted { code: output.status.code(), said, root: root.clone() }
        })
    }

    /// Runs the kubelet of a machine during `act`. `root` is the machine's root folder.
    pub fn with_kubelet(&self, root: &Path, act: impl FnOnce()) {
        let (stops, stop) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                on_machine(MACHINE.address, &self.ground.hostname(MACHINE), &self.folder, move || {
                    run_until(stop, root, &self.folder);
                });
            });
            // If `act` panics, this sender is dropped, which stops the kubelet too.
            let stops = stops;
            act();
            drop(stops);
        });
    }

    /// The kubeconfig of a machine's kubelet. `None` if the machine has no kubeconfig.
    pub fn kubeconfig(&self, root: &Path) -> Option<PathBuf> {
        Some(root.join("var/lib/kubelet/kubeconfig")).filter(|file| file.exists())
    }
}

/// Renames the example cluster to `CLUSTER`, moves it to this cloud, and writes its spec, its worker group and its CA to the store. Returns
/// the configuration that kOps derives from these files for the workers.
fn derive(world: &World, folder: &Path, cloud: &str, mirror: &str, keyset: Keyset) -> String {
    let example = ExampleStore::write_with_keys(folder, Some(mirror), &[keyset]).unwrap();
    let changes = fs::read_to_string(path_of(&format!("tests/golden/clouds/{cloud}.yaml"))).unwrap();
    let changes: Value = serde_yaml::from_str(&changes).unwrap();
    let store = world.cluster.store();
    for file in
        ["cluster-completed.spec", "config", "instancegroup/nodes", "pki/private/kubernetes-ca/keyset.yaml"]
    {
        let text = fs::read_to_string(example.cluster_folder().join(file)).unwrap();
        let mut document: Value = serde_yaml::from_str(&text).unwrap();
        match file {
            "instancegroup/nodes" => {
                // `kops create instancegroup` writes this label.
                document["spec"]["nodeLabels"][GROUP_LABEL] = NODES.into();
                for field in ["image", "machineType", "subnets"] {
                    let spec = &changes["node"]["group"]["spec"];
                    let value = spec.get(field).unwrap_or(&document["spec"][field]).clone();
                    document["spec"][field] = value;
                }
            }
            "cluster-completed.spec" | "config" => {
                merge(&mut document, changes["cluster"].clone());
                merge(&mut document, serde_yaml::from_str(EVERYWHERE).unwrap());
                document["spec"]["networking"] = serde_yaml::from_str("cni: {}").unwrap();
            }
            _ => {}
        }
        let text = serde_yaml::to_string(&document).unwrap();
        let target = store.join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, text.replace(example_store::CLUSTER, CLUSTER)).unwrap();
    }
    let mut derive = plain_agent();
    derive.args([
        "config",
        "derive",
        "--instance-group",
        NODES,
        "--config-base",
        CONFIG_BASE,
        "--store-mirror",
    ]);
    let output = derive.arg(format!("{CONFIG_BASE}={}", store.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The part of the spec that is the same on all clouds: machines find the control plane by DNS and run kube-proxy, and the store is a
/// folder.
const EVERYWHERE: &str =
    "spec: {topology: {dns: {type: Public}}, kubeProxy: {enabled: null, proxyMode: null},
    configBase: 's3://clusters/demo.example.com', keyStore: 's3://clusters/demo.example.com/pki',
    secretStore: 's3://clusters/demo.example.com/secrets'}";

/// Makes `file` a device of the machine, in addition to the devices that programs expect on every machine.
pub fn bind_as_device(file: &Path, name: &str) {
    const NOWHERE: Option<&str> = None;
    let devices = file.parent().unwrap().with_extension("dev");
    fs::create_dir_all(&devices).unwrap();
    let bind = |from: &Path, at: &Path| {
        fs::write(at, "").unwrap();
        mount(Some(from), at, NOWHERE, MsFlags::MS_BIND, NOWHERE).unwrap();
    };
    for device in ["null", "zero", "full", "random", "urandom"] {
        bind(&Path::new("/dev").join(device), &devices.join(device));
    }
    bind(file, &devices.join(name));
    mount(Some(&devices), "/dev", NOWHERE, MsFlags::MS_BIND | MsFlags::MS_REC, NOWHERE).unwrap();
}
