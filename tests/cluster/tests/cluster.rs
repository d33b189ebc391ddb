//! The cluster: machines that have only Debian and kOps' boot script. All are powered on at the same time.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kops_agent_machines::assets::assets;
use kops_agent_machines::instance::{self, hostname};
use kops_agent_machines::machine::{Ended, Machine};
use kops_agent_machines::network::{Family, Network};
use kops_agent_machines::{path_of, script};
use kops_agent_tests::ec2::Instance as Ec2Instance;
use kops_agent_tests::example_store::{CLUSTER, CONTROL_PLANE, NODES};
use kops_agent_tests::imds::{self, Instance, USER_DATA};
use kops_agent_tests::stand_ins::Releases;
use kops_agent_tests::sts::Principal;
use parking_lot::Mutex;
use serde_json::Value;
use tempfile::TempDir;

use crate::packages::{self, Packages};
use crate::store::{self, Store};
use crate::world::{World, apt_source};
use crate::{agent, programs};

/// The path at which kOps' boot script puts the agent.
pub const AGENT: &str = "/opt/kops/bin/nodeup";
/// The path at which kOps' boot script puts the boot config.
pub const BOOT_CONFIG: &str = "/opt/kops/conf/kube_env.yaml";
/// The group whose Nodes are tainted.
pub const BATCH: &str = "batch";

const LATER_DOWNLOADS: &str = "later-downloads";

pub struct Member {
    pub machine: Machine,
    /// The instance id, which is also the Node's name.
    pub id: &'static str,
    pub group: &'static str,
    pub address: IpAddr,
}

impl Member {
    pub fn is_control_plane(&self) -> bool {
        store::is_control_plane(self.group)
    }
}

/// The properties of a machine before it is powered on.
#[derive(Clone, Copy)]
pub struct Plan {
    pub name: &'static str,
    pub id: &'static str,
    pub group: &'static str,
    /// The number of the machine's address within the network's range of addresses.
    pub number: u8,
}

impl Plan {
    fn is_control_plane(&self) -> bool {
        store::is_control_plane(self.group)
    }
}

/// The machines of the test `blank_machines_become_a_cluster`.
pub const MACHINES: [Plan; 3] = [
    Plan { name: "control-plane", id: "i-0d3a0c0ffee000001", group: CONTROL_PLANE, number: 20 },
    Plan { name: "node", id: "i-0d3a0c0ffee000002", group: NODES, number: 21 },
    Plan { name: "batch", id: "i-0d3a0c0ffee000003", group: BATCH, number: 22 },
];

/// A machine that a scenario powers on later. At the start, the state store does not have its instance group.
pub const SPARE: Plan = Plan { name: "spare", id: "i-0d3a0c0ffee000004", group: "late", number: 23 };

/// The software of a cluster when its machines are powered on.
pub struct Software {
    pub releases: Releases,
    /// The version of kOps that wrote the state store. `None` means the kOps version of the example store.
    pub kops: Option<&'static str>,
    /// Publishes the downloads and images that the mirror and the registry lack. `folder` is a folder of the mirror.
    pub publish: fn(&Software, folder: &Path, world: &World),
    /// The packages of kops-agent that the user-data installs. `None` if kOps' boot script downloads kops-agent in nodeup's place.
    pub packages: Option<Packages>,
}

impl Software {
    /// Uses the programs of `tests/kube`, and the kOps version of the example store.
    pub fn newest() -> Software {
        Software { releases: assets().releases.clone(), kops: None, publish: |_, _, _| {}, packages: None }
    }
}

/// A cluster. Dropping it ends the machines first, and then the servers that they use.
pub struct Cluster {
    pub members: Vec<Member>,
    /// The path of kops-agent on the machines.
    pub program: &'static str,
    /// The time at which the machines were powered on.
    pub since: Instant,
    /// The time at which the machines were powered on, in seconds since the boot of the host. The machines' journals use this clock.
    pub powered_on: f64,
    /// The index of the control plane whose servers the test uses.
    asked: AtomicUsize,
    /// The time at which each Node was first seen Ready.
    seen: Mutex<BTreeMap<String, Instant>>,
    pub store: Store,
    pub world: World,
    pub network: Network,
    /// The files of the spare machine's group. At the start, the state store does not have them.
    late: Vec<(PathBuf, Vec<u8>)>,
    root: PathBuf,
    folder: TempDir,
}

impl Cluster {
    /// Powers on the machines in a network with addresses of this family. Returns as soon as each machine has a PID 1. `machines` must list
    /// the control planes first.
    pub fn power_on(suite: &str, machines: &'static [Plan], family: Family) -> Cluster {
        Cluster::power_on_with(suite, machines, family, &Software::newest())
    }

    /// Like [`Cluster::power_on`], with this software.
    pub fn power_on_with(
        suite: &str,
        machines: &'static [Plan],
        family: Family,
        software: &Software,
    ) -> Cluster {
        let root = PathBuf::from(script("machines/root", &[suite]).trim());
        let kube = PathBuf::from(script("kube/build", &[]).trim());
        let built = built(&kube);
        let plans = || machines.iter().chain([&SPARE]);
        let address_of = |plan: &Plan| family.address(plan.number);
        let network = Network::up(&plans().map(|plan| (plan.name, address_of(plan))).collect::<Vec<_>>());
        let folder = tempfile::tempdir().unwrap();
        let downloads = [built.join("downloads"), folder.path().join(LATER_DOWNLOADS)];
        fs::create_dir(&downloads[1]).unwrap();
        let mut mirror = vec![built.join("release")];
        mirror.extend(downloads.clone());
        let control_planes: Vec<_> = machines
            .iter()
            .filter(|plan| plan.is_control_plane())
            .map(|plan| (plan.group, address_of(plan)))
            .collect();
        let store = Store::write(folder.path(), software, downloads.clone(), &control_planes);
        let mut world =
            World::start(&network, folder.path(), &store.buckets(), &mirror, &root.join("packages"));
        (software.publish)(software, &downloads[1], &world);

        let mut told = BTreeMap::new();
        for plan in plans() {
            let address = address_of(plan);
            let role = if plan.is_control_plane() { "masters" } else { "nodes" };
            let principal = Principal::instance(&format!("{role}.{CLUSTER}"), plan.id);
            world.sts.put(&principal);
            let instance = Ec2Instance::of_group(CLUSTER, plan.group);
            let instance = match address {
                IpAddr::V4(address) => Ec2Instance { private_ip: address.to_string(), ..instance },
                IpAddr::V6(address) => instance.in_ipv6_only_subnet(address),
            };
            world.ec2.put(plan.id, instance);
            match family {
                _ if plan.is_control_plane() => world.ec2.permit(&principal.access_key),
                Family::Ipv6 => world.ec2.permit_prefixes(&principal.access_key),
                Family::Ipv4 => {}
            }
            // Workers get no access to the store.
            let environment = if plan.is_control_plane() { world.store_environment() } else { Vec::new() };
            let boot_config = store.update(plan.group);
            let user_data = match &software.packages {
                Some(packages) => packages.user_data(&boot_config, plan.is_control_plane(), &environment),
                None => user_data(&boot_config, &built.join("release"), &environment),
            };
            told.insert(address, instance_metadata(plan.id, address, &principal, user_data));
        }
        world.tell(&network, told);
        let late = store.take_group(SPARE.group);

        let root = root.join("rootfs");
        let (since, powered_on) = (Instant::now(), uptime());
        let members = std::thread::scope(|scope| {
            let starting: Vec<_> = machines
                .iter()
                .map(|plan| scope.spawn(|| power_on(plan, &network, &root, world.authority())))
                .collect();
            starting.into_iter().map(|member| member.join().unwrap()).collect()
        });
        Cluster {
            members,
            program: if software.packages.is_some() { packages::PROGRAM } else { AGENT },
            since,
            powered_on,
            asked: AtomicUsize::new(0),
            seen: Mutex::default(),
            store,
            world,
            network,
            late,
            root,
            folder,
        }
    }

    /// Adds the spare machine's group to the state store, like `kops create instancegroup` and `kops update cluster`.
    pub fn add_group_of_spare(&self) {
        for (file, content) in &self.late {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
    }

    pub fn power_spare_on(&self) -> Member {
        power_on(&SPARE, &self.network, &self.root, self.world.authority())
    }

    /// The mirror's folder for files that are published after the machines were powered on.
    pub fn later_downloads(&self) -> PathBuf {
        self.folder.path().join(LATER_DOWNLOADS)
    }

    /// The control plane whose API server and bootstrap server the test uses.
    pub fn asked(&self) -> &Member {
        &self.members[self.asked.load(Ordering::Relaxed)]
    }

    /// From now on, the test uses the servers of this control plane.
    pub fn ask(&self, control_plane: &Member) {
        let number = self.members.iter().position(|member| member.id == control_plane.id).unwrap();
        self.asked.store(number, Ordering::Relaxed);
    }

    /// The machine of the control plane whose servers the test uses.
    pub fn control_plane(&self) -> &Machine {
        &self.asked().machine
    }

    pub fn control_planes(&self) -> &[Member] {
        &self.members[..self.number_of_control_planes()]
    }

    pub fn workers(&self) -> &[Member] {
        &self.members[self.number_of_control_planes()..]
    }

    fn number_of_control_planes(&self) -> usize {
        self.members.iter().filter(|member| member.is_control_plane()).count()
    }

    /// The first machine of an instance group.
    pub fn of_group(&self, group: &str) -> &Member {
        self.members.iter().find(|member| member.group == group).unwrap()
    }

    /// Runs kubectl on the control plane, with the administrator's kubeconfig.
    pub fn try_kubectl(&self, arguments: &[&str]) -> Ended {
        let kubectl = ["kubectl", "--kubeconfig", "/root/.kube/config", "--request-timeout=10s"];
        self.control_plane().try_run(&[&kubectl[..], arguments].concat())
    }

    /// Runs kubectl and returns its output. `None` if kubectl fails.
    pub fn kubectl(&self, arguments: &[&str]) -> Option<String> {
        let ended = self.try_kubectl(arguments);
        (ended.code == Some(0)).then_some(ended.stdout)
    }

    /// Runs kubectl and returns its output. Panics if kubectl fails.
    #[track_caller]
    pub fn run_kubectl(&self, arguments: &[&str]) -> String {
        let ended = self.try_kubectl(arguments);
        assert_eq!(ended.code, Some(0), "kubectl {arguments:?}: {ended:#?}");
        ended.stdout
    }

    /// Returns `Some` if the API server that the test uses is ready.
    pub fn is_ready(&self) -> Option<()> {
        (self.kubectl(&["get", "--raw=/readyz"]).as_deref() == Some("ok")).then_some(())
    }

    /// The UIDs of the members' Nodes. A Node that was deleted and created again has a new UID.
    pub fn uids(&self) -> Vec<String> {
        let uid = |member: &Member| self.get("node", member.id).unwrap()["metadata"]["uid"].to_string();
        self.members.iter().map(uid).collect()
    }

    #[track_caller]
    pub fn apply(&self, manifest: &str) {
        self.control_plane().write("/root/manifest.yaml", manifest);
        self.run_kubectl(&["apply", "--filename", "/root/manifest.yaml"]);
    }

    /// The time from `since` until a Node was first seen Ready. `None` if the Node is not Ready yet. Each call also records which other
    /// Nodes are Ready.
    pub fn ready_since(&self, node: &str, since: Instant) -> Option<Duration> {
        let mut seen = self.seen.lock();
        seen.retain(|_, at| *at > since);
        if !seen.contains_key(node) {
            let nodes: Value =
                serde_json::from_str(&self.kubectl(&["get", "nodes", "--output=json"])?).unwrap();
            for node in nodes["items"].as_array().unwrap().iter().filter(|node| has_condition(node, "Ready"))
            {
                let name = node["metadata"]["name"].as_str().unwrap().to_owned();
                seen.entry(name).or_insert_with(Instant::now);
            }
        }
        seen.get(node).map(|at| *at - since)
    }

    /// An object from the API server. `None` if the object does not exist or the API server does not respond.
    pub fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let said = self.kubectl(&["get", kind, name, "--output", "json"])?;
        Some(serde_json::from_str(&said).unwrap())
    }

    /// Waits until `is_so` is true for an object.
    #[track_caller]
    pub fn until(&self, what: &str, kind: &str, name: &str, is_so: impl Fn(&Value) -> bool) {
        self.control_plane().until(what, || self.get(kind, name).filter(&is_so).map(drop));
    }
}

fn power_on(plan: &'static Plan, network: &Network, root: &Path, authority: &str) -> Member {
    let address = network.family().address(plan.number);
    let hostname = format!("--hostname={}", hostname(address, plan.id));
    let namespace = network.namespace(plan.name);
    let machine = Machine::power_on(plan.name, &namespace, root, &[&hostname], |files| {
        install(files, plan, address, root, authority);
    });
    Member { machine, id: plan.id, group: plan.group, address }
}

/// Whether a condition of an object is True.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

/// Builds the files of the mirror, and returns their folder. The folder contains `downloads/`, and `release/` with the agent under test in
/// nodeup's place.
fn built(kube: &Path) -> PathBuf {
    let printed = Command::new(path_of("../vm-tests/lib/built"))
        .arg(agent())
        .env("VM_TESTS_KUBE", kube)
        .env("VM_TESTS_TARGET", programs())
        .output()
        .unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    PathBuf::from(String::from_utf8(printed.stdout).unwrap().trim())
}

/// kOps' boot script for a machine with this boot config.
fn user_data(boot_config: &str, release: &Path, environment: &[String]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let conf = folder.path().join("kube_env.yaml");
    fs::write(&conf, boot_config).unwrap();
    let mut command = Command::new(path_of("../vm-tests/lib/kops-user-data"));
    command.arg("--conf").arg(&conf).arg("--release").arg(release);
    command.args(["--mirror", &format!("http://{}", crate::world::MIRROR)]);
    for variable in environment {
        command.args(["--env", variable]);
    }
    let printed = command.output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    String::from_utf8(printed.stdout).unwrap()
}

fn instance_metadata(id: &str, address: IpAddr, principal: &Principal, user_data: String) -> Instance {
    let mut told = instance::metadata(address, id);
    told.insert(USER_DATA.to_owned(), user_data);
    told.extend(imds::credentials_of(principal));
    told
}

/// Writes the files that a cloud's image has in addition to Debian's packages: network files, the unit that runs user-data, and the trusted
/// CAs.
fn install(files: &Path, plan: &Plan, address: IpAddr, root: &Path, authority: &str) {
    let write = |path: &str, text: &str| instance::write(files, path, text);
    let hostname = hostname(address, plan.id);
    write("/etc/hosts", &format!("127.0.0.1 localhost\n{address} {hostname}\n"));
    write("/etc/resolv.conf", &format!("nameserver {}\n", Family::new(address).host()));
    write("/etc/apt/sources.list", &apt_source());
    let trusted = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
    write("/etc/ssl/certs/ca-certificates.crt", &format!("{trusted}{authority}"));
    instance::share_host(files);
    // Outside this test, an operator sets these variables in an image or in user-data.
    let mut environment = "KOPS_AGENT_ROLLOUTS=true\n".to_owned();
    if plan.is_control_plane() {
        environment.push_str("KOPS_AGENT_CONTROLLER=true\nKOPS_AGENT_ADDONS=true\n");
    }
    if address.is_ipv6() {
        // Without this variable, the machine would use the IPv4 address of EC2's metadata service.
        environment.push_str("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6\n");
    }
    write("/etc/environment", &environment);
    let script = fs::read_to_string(path_of("../vm-tests/lib/user-data")).unwrap();
    write("/usr/local/sbin/user-data", &script);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(files.join("usr/local/sbin/user-data"), mode).unwrap();
    let unit = fs::read_to_string(path_of("../vm-tests/lib/user-data.service")).unwrap();
    write("/etc/systemd/system/user-data.service", &unit);
    let wants = files.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("../user-data.service", wants.join("user-data.service")).unwrap();
}

/// Seconds since the boot of this host's kernel, which the machines share.
fn uptime() -> f64 {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    uptime.split(' ').next().unwrap().parse().unwrap()
}
