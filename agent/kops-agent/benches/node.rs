//! Benchmarks of the agent's time and memory, each with a limit: `cargo bench -p kops-agent`.
//!
//! The benchmark decides every node of the conformance corpus, if the corpus is present, and the example cluster's
//! control plane. A separate process renders that control plane from a local store and converges it, with small and
//! with large downloads. The benchmark fails if a number reaches twice its limit.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kops_agent_plan::derive::{self, KnownHashes};
use kops_agent_plan::desired::desired;
use kops_agent_plan::resolve::{Inputs, resolve};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::kops_release::KopsRelease;
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, Keyset, NodeupConfig, parse_yaml};
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_keys::make_keysets;
use kops_agent_tests::example_store::{CONFIG_BASE, ExampleStore, releases};
use nix::sys::resource::{UsageWho, getrusage};

const GROUP: &str = "control-plane-eu-west-1a";
const LARGE: usize = 256 << 20;
const MIB: f64 = 1024.0 * 1024.0;
/// The limits of the measurements, in ms and MiB.
const DECIDE_MS: f64 = 10.0;
const RENDER_MS: f64 = 60.0;
const PEAK_MIB: f64 = 24.0;
/// The benchmark fails if a measurement reaches this multiple of its limit.
const FAILS_AT: f64 = 2.0;
/// With this argument, the benchmark only runs the program in the next argument, and prints that program's peak memory.
const PEAK_OF: &str = "--peak-of";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == PEAK_OF) {
        return print_peak_of(Command::new(&arguments[1]).args(&arguments[2..]));
    }
    let folder = tempfile::tempdir().unwrap();
    let keysets = make_keysets().unwrap();
    let mut report = Report::start();

    match corpus().map(|corpus| decide_all(&corpus)) {
        Some(mut times) => {
            times.sort();
            let (slowest, name) = times.last().unwrap();
            println!("{} nodes of the corpus; the slowest is {name}", times.len());
            report.line("decide any of them, from parsed spec (ms)", millis(*slowest), DECIDE_MS);
        }
        None => println!("no conformance corpus beside this checkout: its nodes were not decided"),
    }

    let small = Downloads::start(&releases()).unwrap();
    let store =
        ExampleStore::write_with_keys(&folder.path().join("small"), Some(&small.url()), &keysets).unwrap();
    report.line("decide, from parsed spec (ms)", millis(decide(&store)), DECIDE_MS);
    report.line("render, whole process, local store (ms)", millis(render(&store)), RENDER_MS);
    let peak = converge(&store, &folder.path().join("small-root"));
    report.line("converge, small downloads, peak memory (MiB)", peak, PEAK_MIB);

    let mut files = releases().stand_ins().unwrap();
    enlarge(&mut files);
    let large = Downloads::start_with(files).unwrap();
    let store =
        ExampleStore::write_with_keys(&folder.path().join("large"), Some(&large.url()), &keysets).unwrap();
    let peak = converge(&store, &folder.path().join("large-root"));
    report.line("converge, a 256 MiB download, peak memory (MiB)", peak, PEAK_MIB);
    report.end()
}

/// Prints measurements, and remembers the worst ratio of a measurement to its limit.
struct Report {
    worst: f64,
}

impl Report {
    fn start() -> Report {
        println!("{:48} {:>10} {:>10} {:>7}", "", "measured", "at most", "ratio");
        Report { worst: 0.0 }
    }

    fn line(&mut self, what: &str, measured: f64, at_most: f64) {
        let ratio = measured / at_most;
        println!("{what:48} {measured:>10.2} {at_most:>10.2} {ratio:>7.2}");
        self.worst = self.worst.max(ratio);
    }

    fn end(&self) -> ExitCode {
        if self.worst < FAILS_AT {
            return ExitCode::SUCCESS;
        }
        println!("a ratio of {:.2} is too much: something has become slow or large", self.worst);
        ExitCode::FAILURE
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs a command and prints its peak memory, in MiB.
///
/// The kernel also counts the memory that the process had before `exec`. So the parent process must be small.
fn print_peak_of(command: &mut Command) -> ExitCode {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    // `max_rss` is in KiB.
    println!("{}", getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() as f64 * 1024.0 / MIB);
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The shortest time of several tries. Other load on the machine only lengthens a try.
fn shortest(tries: u32, once: impl Fn() -> Duration) -> Duration {
    (0..tries).map(|_| once()).min().unwrap()
}

/// How long kops-agent takes to derive the desired state of a node from these inputs.
fn time_to_decide(inputs: &Inputs) -> Duration {
    let inputs = inputs.clone();
    let started = Instant::now();
    let node = resolve(inputs).unwrap();
    let state = desired(&node).unwrap();
    let elapsed = started.elapsed();
    assert!(!state.is_empty());
    elapsed
}

/// Adds the manifests that the configuration names to the inputs. The manifests are files in the cluster's folder.
fn add_manifests(inputs: &mut Inputs, cluster_folder: &Path) {
    for path in inputs.wanted_manifests() {
        let file =
            path.rsplit_once("/manifests/").map_or(path.clone(), |(_, rest)| format!("manifests/{rest}"));
        let text = fs::read_to_string(cluster_folder.join(file)).unwrap();
        inputs.manifests.insert(path, text);
    }
}

/// The conformance corpus: `shared/conformance` in the folder of this crate or in a folder above it.
fn corpus() -> Option<PathBuf> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.map(|folder| folder.join("shared/conformance")).find(|folder| folder.join("cases").is_dir())
}

/// For each node of the conformance corpus, the time to derive its desired state, and its name.
fn decide_all(corpus: &Path) -> Vec<(Duration, String)> {
    let cases = fs::read_dir(corpus.join("cases")).unwrap().map(|case| case.unwrap().path());
    cases
        .map(|case| {
            let inputs = inputs_of_case(corpus, &case);
            let time = shortest(10, || time_to_decide(&inputs));
            (time, case.file_name().unwrap().display().to_string())
        })
        .collect()
}

fn inputs_of_case(corpus: &Path, case: &Path) -> Inputs {
    let boot = BootConfig::from_user_data(&fs::read(case.join("kube_env.yaml")).unwrap()).unwrap();
    let name = case.file_name().unwrap().to_str().unwrap();
    let fixture = corpus.join("stores").join(name.split("--").next().unwrap());
    let buckets = fs::read_dir(fixture).unwrap().map(|bucket| bucket.unwrap().path());
    let cluster_folder = buckets
        .map(|bucket| bucket.join(&boot.cluster_name))
        .find(|folder| folder.join("igconfig").is_dir())
        .unwrap();
    let config = cluster_folder
        .join("igconfig")
        .join(boot.instance_group_role.folder())
        .join(&boot.instance_group_name)
        .join("nodeupconfig.yaml");
    let mut config = NodeupConfig::parse(&fs::read(config).unwrap(), "nodeupconfig.yaml").unwrap();
    if let Some(server) = &boot.config_server {
        config.cas.entry("kubernetes-ca".into()).or_insert_with(|| server.ca_certificates.clone());
    }
    let facts: Facts = parse_yaml(&fs::read(case.join("facts.yaml")).unwrap(), "facts").unwrap();
    let mut inputs = Inputs {
        boot,
        config,
        keysets: BTreeMap::new(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts,
        kops_version: None,
        archives: Default::default(),
    };
    for id in inputs.wanted_keysets() {
        let file = cluster_folder.join("pki/private").join(&id).join("keyset.yaml");
        inputs.keysets.insert(id.clone(), Keyset::parse(&fs::read(file).unwrap(), &id).unwrap());
    }
    let has = |secret: &String| cluster_folder.join("secrets").join(secret).is_file();
    inputs.secret_names = inputs.wanted_secrets().into_iter().filter(has).collect();
    add_manifests(&mut inputs, &cluster_folder);
    inputs
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
        release: KopsRelease::NEWEST,
        kops_version: None,
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
    let config = derive::nodeup_config(&derivation).unwrap();
    let mut inputs = Inputs {
        boot,
        config,
        keysets: keysets.clone(),
        secret_names: BTreeSet::new(),
        manifests: BTreeMap::new(),
        facts,
        kops_version: None,
        archives: Default::default(),
    };
    add_manifests(&mut inputs, &cluster_folder);
    shortest(50, || time_to_decide(&inputs))
}

fn render(store: &ExampleStore) -> Duration {
    let once = || {
        let started = Instant::now();
        let status = agent(store, "render").args(["-o", "json"]).stdout(Stdio::null()).status().unwrap();
        assert!(status.success());
        started.elapsed()
    };
    shortest(20, once)
}

/// Converges, and returns the peak memory, in MiB.
fn converge(store: &ExampleStore, root: &Path) -> f64 {
    fs::create_dir(root).unwrap();
    let mut agent = agent(store, "converge");
    agent.arg("--root").arg(root);
    let mut watched = Command::new(std::env::current_exe().unwrap());
    watched.env_clear().arg(PEAK_OF).arg(agent.get_program()).args(agent.get_args());
    let output = watched.output().unwrap();
    assert!(output.status.success(), "converging failed");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
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

/// Replaces the content of the kubelet file by `LARGE` bytes, and updates the hash file.
fn enlarge(files: &mut BTreeMap<String, Vec<u8>>) {
    let kubelet = files.keys().find(|path| path.ends_with("/amd64/kubelet")).unwrap().clone();
    let bytes = vec![0x5a; LARGE];
    let hash = sha256_hex(&bytes);
    files.insert(format!("{kubelet}.sha256"), hash.into_bytes());
    files.insert(kubelet, bytes);
}
