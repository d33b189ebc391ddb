//! A small cluster: its state store, the servers that its machines use, and the machines.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::ec2::{Ec2, Instance as Ec2Instance};
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_keys::{Keyset, make_keysets};
use kops_agent_tests::example_store::{
    CLUSTER, CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES, REGION, releases_before_1_37,
};
use kops_agent_tests::imds;
use kops_agent_tests::kops_controller::{KopsController, Served};
use kops_agent_tests::loopback::LoopbackServer;
use kops_agent_tests::registry;
use kops_agent_tests::released_store;
use kops_agent_tests::s3::S3Server;
use kops_agent_tests::sts::{Principal, Sts};
use tempfile::TempDir;

use kops_agent_machines::assets::{self, Programs, assets};
use kops_agent_machines::instance::{self, hostname};
use kops_agent_machines::machine::{Ended, Machine};
use kops_agent_machines::network::{HOST, METADATA, Network};

/// The agent's path on machines: the path at which kOps' boot script installs nodeup.
pub const AGENT: &str = "/opt/kops/bin/nodeup";
pub const BOOT_CONFIG: &str = "/opt/kops/conf/kube_env.yaml";

/// The port of kops-controller's bootstrap server (`KopsControllerPort` in pkg/wellknownports).
const KOPS_CONTROLLER_PORT: u16 = 3988;

/// The path of the test pod's manifest on machines.
pub const POD: &str = "/root/pod.yaml";

pub const CONTROL_PLANE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 10));
const NODE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 99, 0, 11));
/// The name of the control plane's Node. On AWS, a Node has the instance id as its name.
pub const CONTROL_PLANE_NAME: &str = "i-0d3a0c0ffee000001";
/// The name of the worker's Node. See [`CONTROL_PLANE_NAME`].
pub const NODE_NAME: &str = "i-0d3a0c0ffee000002";

/// The version of kOps that wrote a cluster's store, and the programs on the cluster's machines.
pub struct Written {
    /// The version of kOps, or `None` for the version that the example store has.
    pub kops: Option<&'static str>,
    pub programs: Programs,
}

/// A cluster. Dropping it ends the machines first, and afterwards the servers that the machines use.
pub struct Cluster {
    pub control_plane: Machine,
    pub node: Machine,
    pub store: ExampleStore,
    pub downloads: Downloads,
    pub packages: Downloads,
    pub ec2: Ec2,
    pub sts: Sts,
    pub s3: S3Server,
    /// The servers for a worker that may not read the whole store. If set, the worker uses these servers and not [`Cluster::s3`].
    servers_of_worker: Option<ServersOfWorker>,
    _others: [LoopbackServer; 2],
    network: Network,
    _folder: TempDir,
}

/// The servers for a worker that may not read the whole store.
struct ServersOfWorker {
    kops_controller: KopsController,
    /// The stand-in for the state store. It denies access to the files that the worker's role may not read.
    s3: S3Server,
}

fn environment(s3: &S3Server) -> [String; 4] {
    s3.environment(REGION).map(|(name, value)| format!("{name}={value}"))
}

impl Cluster {
    /// Boots the machines of a cluster from the root file system of this Debian suite. Kubernetes is not installed on the machines yet.
    pub fn boot(suite: &str) -> Cluster {
        Cluster::boot_written(suite, &Written { kops: None, programs: Programs::newest() })
    }

    /// Like [`Cluster::boot`], with the store and programs of `written`.
    pub fn boot_written(suite: &str, written: &Written) -> Cluster {
        let root = PathBuf::from(kops_agent_machines::script("machines/root", &[suite]).trim());
        let network = Network::up(&[("control-plane", CONTROL_PLANE_ADDRESS), ("node", NODE_ADDRESS)]);
        let folder = tempfile::tempdir().unwrap();
        let downloads = Downloads::start_on(network.listen(HOST, 0), written.downloads()).unwrap();
        let packages =
            Downloads::start_on(network.listen(HOST, 0), package_files(&root.join("packages"))).unwrap();
        let registry_socket = network.listen(HOST, 0);
        let registry_address = registry_socket.local_addr().unwrap();
        let registry = registry::start(registry_socket, assets().images.clone()).unwrap();
        let instances = [(CONTROL_PLANE_ADDRESS, CONTROL_PLANE_NAME), (NODE_ADDRESS, NODE_NAME)];
        let instances = instances.map(|(address, id)| (address, instance::metadata(address, id)));
        let metadata = imds::start(network.listen(METADATA, 80), instances.into()).unwrap();

        let store = ExampleStore::write_with_keys(folder.path(), Some(&downloads.url()), keysets()).unwrap();
        adapt(&store, written, &format!("http://{registry_address}"));
        let s3 = S3Server::start_on(network.listen(HOST, 0), &store.buckets()).unwrap();

        let ec2 = Ec2::start_on(network.listen(HOST, 0)).unwrap();
        for (id, group) in [(CONTROL_PLANE_NAME, CONTROL_PLANE), (NODE_NAME, NODES)] {
            ec2.put(id, Ec2Instance::of_group(CLUSTER, group));
        }
        let sts = Sts::start_on(network.listen(HOST, 0)).unwrap();
        // The control plane's role has access to EC2.
        let of_control_plane = Principal::instance(&format!("masters.{CLUSTER}"), CONTROL_PLANE_NAME);
        sts.put(&Principal {
            access_key: "AKIDEXAMPLE".into(),
            secret: "secret".into(),
            session_token: String::new(),
            ..of_control_plane
        });

        let boot = |name: &'static str, group: &str, address: IpAddr, id: &str| {
            let hostname = hostname(address, id);
            let option = format!("--hostname={hostname}");
            Machine::boot(name, &network.namespace(name), &root.join("rootfs"), &[&option], |files| {
                install(files, &store, group, (address, &hostname), &packages.url());
            })
        };
        let (control_plane, node) = std::thread::scope(|scope| {
            let node = scope.spawn(|| boot("node", NODES, NODE_ADDRESS, NODE_NAME));
            let control_plane =
                boot("control-plane", CONTROL_PLANE, CONTROL_PLANE_ADDRESS, CONTROL_PLANE_NAME);
            (control_plane, node.join().unwrap())
        });
        Cluster {
            control_plane,
            node,
            store,
            downloads,
            packages,
            ec2,
            sts,
            s3,
            servers_of_worker: None,
            _others: [registry, metadata],
            network,
            _folder: folder,
        }
    }

    /// Limits the rate of the traffic to each machine. `rate` is in the syntax of tc(8), such as `1gbit`.
    pub fn limit_links(&self, rate: &str) {
        for machine in [&self.control_plane, &self.node] {
            self.network.limit(machine.name(), rate);
        }
    }

    /// The environment variables that give an agent access to the state store, as `NAME=VALUE`.
    pub fn environment(&self) -> [String; 4] {
        environment(&self.s3)
    }

    /// The URL of the cluster's folder in the state store.
    pub fn config_base(&self) -> &'static str {
        CONFIG_BASE
    }

    /// Restricts the worker as kOps does. A stand-in for kops-controller serves this configuration to the worker. The worker's role may
    /// not read the `forbidden` folders and files of the cluster in the state store.
    pub fn restrict_the_worker(&mut self, nodeup_config: String, forbidden: &[&str]) {
        let authority = keysets().iter().find(|keyset| keyset.name == "kubernetes-ca").unwrap().clone();
        let served = Served {
            authority,
            node_name: NODE_NAME.into(),
            nodeup_config,
            docker_config: "{}".into(),
            boot_config: None,
            kops_version: None,
            program: None,
        };
        let socket = self.network.listen(HOST, KOPS_CONTROLLER_PORT);
        let kops_controller = KopsController::start_on(socket, served).unwrap();
        let s3 = S3Server::start_on(self.network.listen(HOST, 0), &self.store.buckets()).unwrap();
        let forbidden: Vec<String> = forbidden.iter().map(|path| format!("{CLUSTER}/{path}")).collect();
        s3.forbid_below(&forbidden.iter().map(String::as_str).collect::<Vec<_>>());
        self.servers_of_worker = Some(ServersOfWorker { kops_controller, s3 });
    }

    pub fn kops_controller(&self) -> &KopsController {
        &self.servers_of_worker.as_ref().unwrap().kops_controller
    }

    /// Runs a command of the agent on a machine, as an operator does.
    pub fn agent(&self, machine: &Machine, verb: &str, flags: &[&str]) -> Ended {
        let of_worker = self.servers_of_worker.as_ref().filter(|_| machine.name() == self.node.name());
        let environment = environment(of_worker.map_or(&self.s3, |servers| &servers.s3));
        let mut command = vec!["env"];
        command.extend(environment.iter().map(String::as_str));
        command.extend(match of_worker {
            // The worker proves its identity to kops-controller with its role's key.
            Some(_) => &["AWS_ACCESS_KEY_ID=AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY=secret", AGENT][..],
            None => &[AGENT],
        });
        command.extend([verb, "--conf", BOOT_CONFIG]);
        if of_worker.is_none() {
            // The boot config of a worker does not contain the state store's URL.
            command.extend(["--config-base", CONFIG_BASE]);
        }
        command.extend(flags);
        // In most tests, no server gives disruption slots, so the run must not wait for a slot.
        if matches!(verb, "converge" | "verify") && !flags.contains(&"--max-unavailable") {
            command.extend(["--max-unavailable", "0"]);
        }
        machine.try_run(&command)
    }

    /// Calls nodeup as kOps' boot script does after the download. The call installs nodeup's unit, and this unit converges the machine.
    /// Standard error goes to the file `said` on the machine.
    pub fn start_as_user_data_does(&self, machine: &Machine, said: &str) -> Ended {
        let environment = self.environment();
        let mut command = vec!["sh", "-c", "said=$0; exec env \"$@\" 2>$said", said];
        command.extend(environment.iter().map(String::as_str));
        let conf = format!("--conf={BOOT_CONFIG}");
        // Without `--retries=0`, the agent retries without end, like nodeup.
        command.extend([AGENT, "--install-systemd-unit", &conf, "--v=2", "--retries=0"]);
        machine.try_run(&command)
    }

    /// Derives the configuration of a group from the store, on this machine, as `kops update cluster` does.
    pub fn derive(&self, machine: &Machine, group: &str) -> String {
        let environment = self.environment();
        let derive = [AGENT, "config", "derive", "--config-base", CONFIG_BASE, "--instance-group", group];
        let command: Vec<&str> =
            ["env"].into_iter().chain(environment.iter().map(String::as_str)).chain(derive).collect();
        machine.run(&command)
    }

    /// Runs kubectl with the administrator's kubeconfig, and returns its output. `None` if kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Option<String> {
        let kubectl = ["kubectl", "--kubeconfig", "/root/.kube/config", "--request-timeout=10s"];
        let ended = self.control_plane.try_run(&[&kubectl[..], arguments].concat());
        (ended.code == Some(0)).then_some(ended.stdout)
    }

    /// Replaces the only occurrence of `old` in the cluster's spec by `new`.
    pub fn edit_spec(&self, old: &str, new: &str) {
        edit(&self.store.cluster_folder().join("cluster-completed.spec"), old, new).unwrap();
    }
}

/// The keys of all clusters. They are made only once, because this takes seconds.
fn keysets() -> &'static [Keyset] {
    static KEYSETS: OnceLock<Vec<Keyset>> = OnceLock::new();
    KEYSETS.get_or_init(|| make_keysets().unwrap())
}

/// Debian packages. The key is the URL path at which apt requests a package of a flat repository. A package with a tilde in its name has
/// two paths, because only newer versions of apt escape tildes.
fn package_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let spellings = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap().replace('%', "%25").replace('+', "%2b");
        let content = fs::read(entry.path()).unwrap();
        [name.replace('~', "%7e"), name].map(|name| (format!("/./{name}"), content.clone()))
    };
    fs::read_dir(folder).unwrap().flat_map(|entry| spellings(entry.unwrap())).collect()
}

impl Written {
    /// The store of a version of kOps that is older than the version of the example store.
    pub fn by(kops: &'static str, mut programs: Programs) -> Written {
        programs.releases.cni_plugins = releases_before_1_37().cni_plugins;
        Written { kops: Some(kops), programs }
    }

    fn downloads(&self) -> BTreeMap<String, Vec<u8>> {
        let mut downloads = self.programs.downloads();
        downloads.extend(self.kops.into_iter().flat_map(released_store::downloads));
        downloads
    }

    /// containerd's settings for a test machine, as `spec.containerd.configAdditions`. containerd must not lower the OOM score of pods,
    /// because the test host may forbid it. kOps 1.34 and 1.35 write the configuration format of containerd 1 for every version of
    /// containerd.
    fn containerd_settings(&self) -> String {
        let is_of_1 = self.programs.releases.containerd.starts_with("1.");
        let plugin = match is_of_1 || self.kops.is_some_and(|kops| kops < "1.36") {
            true => "io.containerd.grpc.v1.cri",
            false => "io.containerd.cri.v1.runtime",
        };
        let mut settings = format!("      plugins.\"{plugin}\".restrict_oom_score_adj: \"true\"\n");
        if is_of_1 {
            // Without this setting, Debian's containerd looks for CNI plugins in a different folder than kOps.
            settings.push_str(&format!("      plugins.\"{plugin}\".cni.bin_dir: /opt/cni/bin\n"));
        }
        settings
    }
}

/// Changes the example cluster so that it can run on test machines.
fn adapt(store: &ExampleStore, written: &Written, registry: &str) {
    let folder = store.cluster_folder();
    let example = kops_agent_tests::example_store::releases();
    let releases = &written.programs.releases;
    // The images contain the programs of `tests/kube`, even if the machine's kubelet is older than these programs.
    let of_images = &assets().releases.kubernetes;
    for file in [
        "cluster-completed.spec",
        "config",
        "manifests/channels/kops-channels.yaml",
        "manifests/static/kube-apiserver-healthcheck.yaml",
    ] {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace(&example.kubernetes, of_images);
        let [of_images, of_kubelet] =
            [of_images, &releases.kubernetes].map(|version| format!("kubernetesVersion: {version}\n"));
        let text = text.replace(&of_images, &of_kubelet);
        let text = text.replace(&example.containerd, &releases.containerd);
        fs::write(&path, text.replace(&example.runc, &releases.runc)).unwrap();
    }
    let spec = folder.join("cluster-completed.spec");
    // Without this change, kubelet would evict pods if the disk of the test host is full.
    let text = fs::read_to_string(&spec).unwrap();
    let disk = ",nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<10%,imagefs.inodesFree<5%";
    assert_eq!(text.matches(disk).count(), 2, "the example's spec has no such eviction setting any more");
    fs::write(&spec, text.replace(disk, "")).unwrap();
    let containerd = format!(
        "  containerd:\n    configAdditions:\n{}    registryMirrors:\n      registry.k8s.io:\n      - {registry}\n",
        written.containerd_settings()
    );
    edit(&spec, "  containerd:\n", &containerd).unwrap();
    edit(&spec, "  kubeProxy:\n", "  kubeProxy:\n    enabled: false\n").unwrap();
    // The cluster has one control plane, so leader election is useless. On a slow disk, a component could lose its lease and exit.
    let text = fs::read_to_string(&spec).unwrap();
    assert_eq!(
        text.matches("leaderElect: true").count(),
        3,
        "the example's spec has no such setting for leader election any more"
    );
    fs::write(&spec, text.replace("leaderElect: true", "leaderElect: false")).unwrap();
    edit(&folder.join("instancegroup/nodes"), "m7g.large", "m6i.large").unwrap();
    for (name, client, peer) in [("main", 4001, 2380), ("events", 4002, 2381)] {
        let path = folder.join(format!("manifests/etcd/{name}-{CONTROL_PLANE}.yaml"));
        fs::write(path, assets::etcd_pod("registry.k8s.io", name, client, peer)).unwrap();
    }
    if let Some(kops) = written.kops {
        released_store::write_as(store, kops).unwrap();
    }
}

/// Writes the files that a machine has at boot in addition to the files of its distribution.
fn install(
    files: &Path,
    store: &ExampleStore,
    group: &str,
    (address, hostname): (IpAddr, &str),
    packages: &str,
) {
    let write = |path: &str, text: &str| instance::write(files, path, text);
    write(BOOT_CONFIG, &fs::read_to_string(store.kube_env(group)).unwrap());
    let agent = files.join(AGENT.trim_start_matches('/'));
    fs::create_dir_all(agent.parent().unwrap()).unwrap();
    fs::copy(crate::agent(), &agent).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();

    // Network files: host names, the package repository, and the CNI configuration for pod addresses.
    let hosts = format!(
        "127.0.0.1 localhost\n{address} {hostname}\n{CONTROL_PLANE_ADDRESS} api.internal.{CLUSTER}\n"
    );
    write("/etc/hosts", &hosts);
    write("/etc/resolv.conf", "nameserver 169.254.169.253\n");
    write("/etc/apt/sources.list", &format!("deb [trusted=yes] {packages} ./\n"));
    write("/etc/cni/net.d/10-test.conflist", &pod_network(address));
    instance::share_host(files);
    write(POD, &pod());
    crate::service::install(files);
}

/// A pod for the worker. It tolerates all taints, because this cluster has no cloud controller, which would remove the taint of a new
/// Node.
fn pod() -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: example
spec:
  containers:
  - image: registry.k8s.io/pause:3.10.1
    name: pause
  nodeSelector:
    kubernetes.io/hostname: {NODE_NAME}
  terminationGracePeriodSeconds: 0
  tolerations:
  - operator: Exists
"
    )
}

/// The CNI configuration that a network add-on would write on a node: a bridge with the node's own address range.
fn pod_network(address: IpAddr) -> String {
    let address = address.to_string();
    let (_, last) = address.rsplit_once('.').unwrap();
    format!(
        r#"{{"cniVersion": "0.4.0", "name": "test", "plugins": [{{"type": "bridge", "bridge": "pods", "isGateway": true,
            "ipam": {{"type": "host-local", "subnet": "100.96.{last}.0/24", "routes": [{{"dst": "0.0.0.0/0"}}]}}}}]}}"#
    )
}
