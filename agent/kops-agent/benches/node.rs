//! What a node costs, each number beside the most it may be: `cargo bench -p kops-agent`.
//!
//! The example cluster's control plane is decided from its parsed spec, rendered by a whole process from a
//! local store, and converged with small and with large downloads.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kops_agent_plan::derive::{self, KnownHashes};
use kops_agent_plan::desired::desired;
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::{Inputs, resolve};
use kops_agent_plan::spec::{BootConfig, Cluster, InstanceGroup, Keyset, parse_yaml};
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_keys::make_keysets;
use kops_agent_tests::example_store::{CONFIG_BASE, ExampleStore, releases};
use nix::sys::resource::{UsageWho, getrusage};
use sha2::{Digest, Sha256};

const GROUP: &str = "control-plane-eu-west-1a";
const LARGE: usize = 256 << 20;
const MIB: f64 = 1024.0 * 1024.0;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let keysets = make_keysets().unwrap();

    let small = Downloads::start(&releases()).unwrap();
    let store =
        ExampleStore::write_with_keys(&folder.path().join("small"), Some(&small.url()), &keysets).unwrap();
    println!(
        "{:44} {:>10} {:>10} {:>7}",
        "control plane of the example cluster", "measured", "at most", "ratio"
    );
    report("decide, from parsed spec (ms)", millis(decide(&store)), 5.0);
    report("render, whole process, local store (ms)", millis(render(&store)), 40.0);
    converge(&store, &folder.path().join("small-root"));
    report("converge, small downloads, peak memory (MiB)", peak_of_children(), 24.0);

    let mut files = releases().stand_ins().unwrap();
    enlarge(&mut files);
    let large = Downloads::start_with(files).unwrap();
    let store =
        ExampleStore::write_with_keys(&folder.path().join("large"), Some(&large.url()), &keysets).unwrap();
    converge(&store, &folder.path().join("large-root"));
    report("converge, a 256 MiB download, peak memory (MiB)", peak_of_children(), 24.0);
}

fn report(what: &str, measured: f64, at_most: f64) {
    println!("{what:44} {measured:>10.2} {at_most:>10.2} {:>7.2}", measured / at_most);
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The most memory that any child of this process has had.
fn peak_of_children() -> f64 {
    // The kernel counts it in KiB.
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() as f64 * 1024.0 / MIB
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn decide(store: &ExampleStore) -> Duration {
    let cluster_folder = store.cluster_folder();
    let read = |path: &str| fs::read(cluster_folder.join(path)).unwrap();
    let cluster = Cluster::parse(&read("cluster-completed.spec"), "cluster").unwrap();
    let group = InstanceGroup::parse(&read(&format!("instancegroup/{GROUP}")), "group").unwrap();
    let boot = BootConfig::from_user_data(&fs::read(store.kube_env(GROUP)).unwrap()).unwrap();
    let facts: Facts = parse_yaml(&fs::read(store.facts(GROUP)).unwrap(), "facts").unwrap();
    let keysets: BTreeMap<String, Keyset> = derive::needed_files(&cluster, &group)
        .keysets
        .into_iter()
        .map(|id| {
            let keyset = Keyset::parse(&read(&format!("pki/private/{id}/keyset.yaml")), &id).unwrap();
            (id, keyset)
        })
        .collect();
    let roles = BTreeSet::from([group.spec.role]);
    let (no_secrets, no_manifests, no_hashes) = (BTreeMap::new(), BTreeMap::new(), KnownHashes::default());
    let derivation = derive::Inputs {
        cluster: &cluster,
        user_cluster: None,
        instance_group: &group,
        roles: &roles,
        keysets: &keysets,
        secrets: &no_secrets,
        cluster_addons: None,
        bootstrap_channel: None,
        addon_manifests: &no_manifests,
        asset_hashes: &no_hashes,
        machine_type: None,
        machine_type_has_gpu: None,
        worker_kubernetes_version: None,
        api_server_addresses: &[],
        etcd_addresses: &[],
    };
    let once = || {
        let config = derive::nodeup_config(&derivation).unwrap();
        let mut inputs = Inputs {
            boot: boot.clone(),
            config,
            keysets: keysets.clone(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts: facts.clone(),
        };
        for path in inputs.wanted_manifests() {
            let file =
                path.rsplit_once("/manifests/").map_or(path.clone(), |(_, rest)| format!("manifests/{rest}"));
            inputs.manifests.insert(path, String::from_utf8(read(&file)).unwrap());
        }
        let started = Instant::now();
        let node = resolve(inputs).unwrap();
        let state = desired(&node).unwrap();
        let elapsed = started.elapsed();
        assert!(!state.is_empty());
        elapsed
    };
    median((0..50).map(|_| once()).collect())
}

fn render(store: &ExampleStore) -> Duration {
    let once = || {
        let started = Instant::now();
        let status = agent(store, "render").args(["-o", "json"]).stdout(Stdio::null()).status().unwrap();
        assert!(status.success());
        started.elapsed()
    };
    median((0..20).map(|_| once()).collect())
}

fn converge(store: &ExampleStore, root: &Path) {
    fs::create_dir(root).unwrap();
    let status =
        agent(store, "converge").arg("--root").arg(root).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
}

fn agent(store: &ExampleStore, verb: &str) -> Command {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_kops-agent"));
    let bucket = CONFIG_BASE.rsplit_once('/').unwrap().0;
    agent
        .env_clear()
        .arg(verb)
        .arg("--conf")
        .arg(store.kube_env(GROUP))
        .arg("--facts")
        .arg(store.facts(GROUP));
    agent
        .arg("--store-mirror")
        .arg(format!("{bucket}={}", store.cluster_folder().parent().unwrap().display()));
    agent.args(["--config-base", CONFIG_BASE]);
    agent
}

/// Makes kubelet large, and tells its new hash.
fn enlarge(files: &mut BTreeMap<String, Vec<u8>>) {
    let kubelet = files.keys().find(|path| path.ends_with("/amd64/kubelet")).unwrap().clone();
    let bytes = vec![0x5a; LARGE];
    let hash: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    files.insert(format!("{kubelet}.sha256"), hash.into_bytes());
    files.insert(kubelet, bytes);
}
