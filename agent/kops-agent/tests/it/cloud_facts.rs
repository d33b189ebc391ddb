//! The agent observes cloud facts itself, without a file of facts. It asks the metadata service and EC2, and uses what
//! an earlier run saved.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use crate::example::apart::apart;
use crate::example::{Ended, Machine};
use kops_agent_tests::ec2::{Ec2, InstanceType, Mood};
use kops_agent_tests::example_cluster;
use kops_agent_tests::example_store::{CONFIG_BASE, NODES};
use kops_agent_tests::imds;
use kops_agent_tests::loopback::LoopbackServer;
use nix::mount::{MsFlags, mount};

pub(crate) const INSTANCE: &str = "i-0d3a0c0ffee000002";
const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
const SMALL: InstanceType = InstanceType { interfaces: 3, addresses: 10, gpu: false };
const WITH_GPU: InstanceType = InstanceType { interfaces: 4, addresses: 15, gpu: true };

/// A worker on EC2. The test gives no facts file, so the agent observes the facts.
struct Worker {
    machine: Machine,
    ec2: Ec2,
}

impl Worker {
    fn new() -> Worker {
        let (machine, ec2) = (Machine::new(NODES), Ec2::start().unwrap());
        ec2.put_type("m5.large", SMALL);
        ec2.put_type("g5.xlarge", WITH_GPU);
        Worker { machine, ec2 }
    }

    /// A worker in a cluster with the Amazon VPC network plugin, where pods have addresses of the instance's
    /// interfaces.
    fn with_amazon_vpc() -> Worker {
        let worker = Worker::new();
        let edit = |old, new| worker.machine.cluster.edit("cluster-completed.spec", old, new).unwrap();
        edit("\n  networking:\n    cni: {}\n", "\n  networking:\n    amazonvpc: {}\n");
        worker
    }

    /// A worker in a cluster that wants NVIDIA's driver on GPU instances.
    fn with_nvidia() -> Worker {
        let worker = Worker::new();
        let edit = |old, new| worker.machine.cluster.edit("cluster-completed.spec", old, new).unwrap();
        edit("\n  containerd:\n", "\n  containerd:\n    nvidiaGPU: {enabled: true}\n");
        worker
    }

    /// Runs the agent on this worker with `instance_type`.
    fn run(&self, verb: &str, instance_type: &str) -> Ended {
        let imds = metadata(instance_type);
        let mut agent = Command::new(example::agent());
        agent.env_clear().envs(self.machine.cluster.environment()).envs(self.ec2.environment());
        agent.env_remove("AWS_EC2_METADATA_DISABLED");
        agent.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url()).env("HTTPS_PROXY", "http://127.0.0.1:1");
        agent.arg(verb).arg("--conf").arg(self.machine.cluster.store.kube_env(NODES));
        if verb != "facts" {
            agent.args(["--config-base", CONFIG_BASE]);
        }
        match verb {
            "facts" => {}
            "render" => _ = agent.args(["-o", "json"]),
            _ => _ = agent.arg("--root").arg(self.machine.root()),
        }
        Ended::from_command(&mut agent)
    }

    fn max_pods(&self) -> serde_yaml::Value {
        let config = fs::read_to_string(self.machine.root().join(&KUBELET_CONFIG[1..])).unwrap();
        serde_yaml::from_str::<serde_yaml::Value>(&config).unwrap()["maxPods"].clone()
    }
}

/// A metadata service for an instance of type `instance_type`.
pub(crate) fn metadata(instance_type: &str) -> LoopbackServer {
    let instance: imds::Instance = [
        ("instance-id", INSTANCE),
        ("instance-type", instance_type),
        ("placement/region", "eu-west-1"),
        ("placement/availability-zone", "eu-west-1a"),
        ("local-ipv4", "10.20.32.20"),
        ("local-hostname", "ip-10-20-32-20.eu-west-1.compute.internal"),
        ("mac", "02:00:0a:14:20:14"),
        ("autoscaling/target-lifecycle-state", "InService"),
    ]
    .map(|(item, answer)| (item.to_owned(), answer.to_owned()))
    .into();
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    imds::start(socket, BTreeMap::from([(IpAddr::from(Ipv4Addr::LOCALHOST), instance)])).unwrap()
}

/// Makes the agent observe an Ubuntu machine, whatever distribution runs the test.
pub(crate) fn on_ubuntu(act: impl FnOnce() + Send) {
    on("ID=ubuntu\nVERSION_ID=\"24.04\"\n", act);
}

/// Makes the agent observe a machine whose `os-release` is `distribution`.
fn on(distribution: &str, act: impl FnOnce() + Send) {
    let folder = tempfile::tempdir().unwrap();
    let os_release = folder.path().join("os-release");
    fs::write(&os_release, distribution).unwrap();
    apart("", || {
        mount(Some(&os_release), "/etc/os-release", None::<&Path>, MsFlags::MS_BIND, None::<&Path>).unwrap();
        act();
    });
}

#[test]
fn pods_are_limited_by_the_instance_type_also_if_ec2_refuses_later() {
    on_ubuntu(|| {
        let worker = Worker::with_amazon_vpc();
        worker.run("converge", "m5.large").with(0, &[]);
        assert_eq!(worker.max_pods(), 29);
        assert_eq!(worker.ec2.calls().len(), 1);

        worker.ec2.set_mood(Mood::Forbidding);
        let rebooted = worker.run("converge", "m5.large");
        rebooted.with(0, &[]);
        assert!(rebooted.stdout.starts_with("Nothing to do"), "{rebooted:#?}");
        assert_eq!(worker.ec2.calls().len(), 1, "asked again for what was told");

        worker
            .run("converge", "g5.xlarge")
            .with(1, &["instance type g5.xlarge", "ec2:DescribeInstanceTypes"]);
        assert_eq!(worker.max_pods(), 29, "decided by another instance type");
        worker.ec2.set_mood(Mood::Good);
        worker.run("converge", "g5.xlarge").with(0, &[]);
        assert_eq!(worker.max_pods(), 58);
    });
}

#[test]
fn a_node_that_ec2_does_not_tell_about_is_not_decided_without_it() {
    on_ubuntu(|| {
        for worker in [Worker::with_amazon_vpc(), Worker::with_nvidia()] {
            worker.ec2.set_mood(Mood::Forbidding);
            let refused = worker.run("converge", "m5.large");
            refused.with(1, &["UnauthorizedOperation", "the permission ec2:DescribeInstanceTypes"]);
            assert_eq!(worker.machine.files(), [""; 0]);
        }
    });
}

#[test]
fn a_gpu_gets_its_driver() {
    on_ubuntu(|| {
        let worker = Worker::with_nvidia();
        for (instance_type, has_driver) in [("m5.large", false), ("g5.xlarge", true)] {
            let rendered = worker.run("render", instance_type);
            rendered.with(0, &[]);
            assert_eq!(rendered.stdout.contains("nvidia-container-toolkit"), has_driver, "{instance_type}");
        }
    });
}

#[test]
fn a_gpu_whose_driver_nothing_installs_is_refused_by_name() {
    on("ID=rocky\nVERSION_ID=\"9.4\"\n", || {
        let worker = Worker::with_nvidia();
        worker.run("render", "m5.large").with(0, &[]);
        let refused = worker.run("converge", "g5.xlarge");
        refused.with(3, &["nothing installs NVIDIA's driver on this distribution", "an image of Ubuntu"]);
        assert_eq!(worker.machine.files(), [""; 0]);
    });
}

/// The facts say that the image already contains the driver.
#[test]
fn a_gpu_with_the_driver_of_the_image_is_reported() {
    let worker = Worker::with_nvidia();
    let facts = worker.machine.cluster.store.facts(NODES);
    let (old, new) =
        ("id: ubuntu\n  versionID: \"24.04\"\n", "id: debian\n  versionID: \"12\"\nnvidiaRuntime: true\n");
    example_cluster::edit(&facts, old, new).unwrap();
    example_cluster::edit(&facts, "    gpu: false\n", "    gpu: true\n").unwrap();
    let told =
        ["pods use the GPU through the image's own NVIDIA driver and /usr/bin/nvidia-container-runtime"];
    for verb in ["plan", "converge"] {
        worker.machine.run(verb, &[]).with(0, &told);
    }
}

#[test]
fn a_driver_in_the_image_is_found_and_reported() {
    let told = "pods use the GPU through the image's own NVIDIA driver and /usr/bin/nvidia-container-runtime";
    on("ID=rocky\nVERSION_ID=\"9.4\"\n", || {
        let worker = Worker::with_nvidia();
        let bin = worker.machine.folder().join("bin");
        fs::create_dir(&bin).unwrap();
        mount(Some(&bin), "/usr/bin", None::<&Path>, MsFlags::MS_BIND, None::<&Path>).unwrap();
        fs::write(bin.join("nvidia-smi"), "").unwrap();
        worker.run("plan", "g5.xlarge").with(3, &["nothing installs NVIDIA's driver on this distribution"]);
        fs::write(bin.join("nvidia-container-runtime"), "").unwrap();
        let planned = worker.run("plan", "g5.xlarge");
        planned.with(0, &[told, "kops-agent installs neither"]);
        assert!(!planned.stdout.contains("package nvidia"), "{planned:#?}");
        let without_gpu = worker.run("plan", "m5.large");
        without_gpu.with(0, &[]);
        assert!(!without_gpu.stderr.contains(told), "{without_gpu:#?}");
    });
}

#[test]
fn ec2_is_asked_only_where_something_depends_on_it() {
    on_ubuntu(|| {
        let worker = Worker::new();
        worker.run("converge", "m5.large").with(0, &[]);
        let set = Worker::with_amazon_vpc();
        let edit = |file, old, new| set.machine.cluster.edit(file, old, new).unwrap();
        edit("instancegroup/nodes", "  role: Node\n", "  kubelet: {maxPods: 42}\n  role: Node\n");
        set.run("converge", "m5.large").with(0, &[]);
        assert_eq!(set.max_pods(), 42);
        assert_eq!([worker.ec2.calls(), set.ec2.calls()], [[0; 0], [0; 0]]);
    });
}

#[test]
fn facts_are_shown_completely_or_with_a_note_of_missing_ones() {
    on_ubuntu(|| {
        let worker = Worker::new();
        let shown = worker.run("facts", "g5.xlarge");
        shown.with(0, &[]);
        let facts: serde_yaml::Value = serde_yaml::from_str(&shown.stdout).unwrap();
        let aws = &facts["cloud"]["aws"];
        assert_eq!(aws["networkInterfaces"]["max"], 4);
        assert_eq!(aws["networkInterfaces"]["ipv4PerInterface"], 15);
        assert_eq!(aws["gpu"], true);

        worker.ec2.set_mood(Mood::Forbidding);
        let shown = worker.run("facts", "g5.xlarge");
        shown.with(0, &["the facts lack networkInterfaces and gpu", "ec2:DescribeInstanceTypes"]);
        assert!(shown.stdout.contains("instanceID") && !shown.stdout.contains("gpu"), "{shown:#?}");
    });
}

#[test]
fn a_group_that_holds_its_instances_hears_of_each_that_is_ready() {
    on_ubuntu(|| {
        let worker = Worker::new();
        let requests = || {
            let file = worker.machine.root().join("var/lib/kops-agent/recorded/requests.txt");
            let requests = fs::read_to_string(file).unwrap();
            requests.lines().filter(|line| line.starts_with("cloud: ") && line.ends_with(" is ready")).count()
        };
        worker.run("converge", "m5.large").with(0, &[]);
        assert_eq!(requests(), 0);

        let edit = |old, new| worker.machine.cluster.edit("instancegroup/nodes", old, new).unwrap();
        edit("  role: Node\n", "  warmPool: {enableLifecycleHook: true}\n  role: Node\n");
        worker.run("converge", "m5.large").with(0, &[]);
        assert_eq!(requests(), 1);
        worker.run("converge", "m5.large").with(0, &[]);
        assert_eq!(requests(), 1, "it was told since the machine was started");
        // Changed boot IDs simulate a reboot. After a reboot, only the Auto Scaling group knows whether the lifecycle
        // hook still waits for the instance. So the agent tells the group again that the instance is ready.
        let file = worker.machine.root().join("var/lib/kops-agent/facts.json");
        let mut remembered: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        for boot in ["readyIn", "toldIn"] {
            assert!(remembered[boot].is_string(), "{remembered}");
            remembered[boot] = "an earlier boot".into();
        }
        fs::write(&file, remembered.to_string()).unwrap();
        worker.run("converge", "m5.large").with(0, &[]);
        assert_eq!(requests(), 2);
    });
}
