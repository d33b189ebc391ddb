//! `doctor` on machines of the example cluster, each with one thing wrong.

#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use kops_agent_tests::downloads::Fault;
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CLUSTER, CONFIG_BASE, CONTROL_PLANE, NODES};
use kops_agent_tests::kops_controller::Mood;
use kops_agent_tests::loopback::LoopbackServer;
use kops_agent_tests::name_server::{NameFault, NameServer};
use nix::mount::{MsFlags, mount};
use serde_json::Value;

use crate::example::apart::{apart, with_mounts};
use crate::example::worker::{Worker, honest};
use crate::example::{Ended, Machine, agent};

const STOPS: i32 = 4;

const TCP: &str =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// A machine of `group` whose kernel and systemd cause no findings.
fn machine(group: &'static str) -> Machine {
    let machine = Machine::new(group);
    fs::create_dir_all(machine.root().join("run/systemd/system")).unwrap();
    write(&machine, "proc/net/tcp", TCP);
    write(&machine, "proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
    write(&machine, "proc/sys/vm/overcommit_memory", "0\n");
    write(&machine, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
    machine
}

fn write(machine: &Machine, path: &str, text: &str) {
    let path = machine.root().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

struct Diagnosis {
    ended: Ended,
    findings: Vec<Value>,
}

impl Diagnosis {
    fn from_command(call: &mut Command) -> Diagnosis {
        let ended = Ended::from_command(call.args(["-o", "json"]));
        let json: Value =
            serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"));
        let findings = json["findings"].as_array().unwrap().clone();
        let has_problem = findings.iter().any(|finding| finding["verdict"] == "problem");
        assert_eq!(json["stops"], has_problem, "{ended:#?}");
        assert_eq!(ended.code, if has_problem { STOPS } else { 0 }, "{ended:#?}");
        Diagnosis { ended, findings }
    }

    /// Asserts that `check` has a finding with `verdict` and the text `said`. A finding that is not `ok` must have
    /// advice.
    #[track_caller]
    fn has(&self, check: &str, verdict: &str, said: &str) {
        let finding = self.findings.iter().find(|finding| {
            finding["check"] == check
                && finding["verdict"] == verdict
                && finding["what"].as_str().unwrap().contains(said)
        });
        let finding =
            finding.unwrap_or_else(|| panic!("no {verdict} of {check} says {said:?}: {:#?}", self.ended));
        assert_eq!(finding["toDo"].is_string(), verdict != "ok", "{finding}");
    }

    fn verdicts(&self, check: &str) -> Vec<&str> {
        let of_check = self.findings.iter().filter(|finding| finding["check"] == check);
        of_check.map(|finding| finding["verdict"].as_str().unwrap()).collect()
    }
}

fn diagnosis(machine: &Machine) -> Diagnosis {
    Diagnosis::from_command(&mut machine.agent("doctor"))
}

#[test]
fn on_a_machine_that_is_as_it_should_be_nothing_stops_it_and_nothing_is_changed() {
    let machine = machine(CONTROL_PLANE);
    let before = machine.files();
    let found = diagnosis(&machine);
    for (check, said) in [
        ("boot config", "kube_env.yaml is a boot config"),
        ("store", "instancegroup/control-plane-eu-west-1a can be read"),
        ("configuration", "is valid"),
        ("downloads", "downloads are available"),
        ("time", "agrees with the clock of 127.0.0.1:"),
        ("cgroups", "cgroups v2"),
        ("modules", "br_netfilter"),
        ("ports", "no other program uses any"),
        ("systemd", "systemd runs"),
        ("packages", "no process holds"),
        ("swap", "there is no swap"),
        ("programs", "no program"),
    ] {
        found.has(check, "ok", said);
    }
    assert_eq!(found.ended.code, 0, "{:#?}", found.ended);
    assert_eq!(machine.files(), before);
    let root = machine.root();
    assert!(!root.join("var").exists(), "a look has made folders");
    let text = machine.run("doctor", &[]);
    text.with(0, &[]);
    let end = "stops this machine from becoming a node";
    assert!(text.stdout.contains("ok       systemd") && text.stdout.contains(end), "{text:#?}");
}

#[test]
fn an_unreadable_store_is_reported_with_the_reason() {
    let machine = machine(CONTROL_PLANE);
    let mut nowhere = machine.agent("doctor");
    let found = Diagnosis::from_command(
        nowhere.env("S3_ENDPOINT", "http://127.0.0.1:1").args(["--store-timeout", "1"]),
    );
    found.has("store", "problem", "the store cannot be reached");
    // The configuration is unknown because the store cannot be reached. Only the store is reported as a problem.
    assert_eq!(found.verdicts("configuration"), ["unknown"]);

    let found = Diagnosis::from_command(machine.agent("doctor").env("S3_SECRET_ACCESS_KEY", "n0t-the-key"));
    found.has("store", "problem", "SignatureDoesNotMatch");
    assert!(!found.ended.stdout.contains("n0t-the-key"), "{:#?}", found.ended);

    machine.cluster.s3.forbid(&format!("{CLUSTER}/instancegroup/{CONTROL_PLANE}"));
    let found = diagnosis(&machine);
    found.has("store", "problem", "access denied (403)");
    found.has("store", "ok", "cluster-completed.spec can be read");
    machine.cluster.s3.permit_all();

    let found = Diagnosis::from_command(
        &mut machine.agent_with_store("doctor", "s3://no-such-bucket/demo.example.com"),
    );
    found.has("store", "problem", "there is no bucket");
}

#[test]
fn a_wrong_configuration_is_reported_with_its_field() {
    let machine = machine(CONTROL_PLANE);
    let (ours, old) = ("kubernetesVersion: 1.34.2", "kubernetesVersion: 1.28.2");
    machine.cluster.edit("cluster-completed.spec", ours, old).unwrap();
    diagnosis(&machine).has("configuration", "problem", "spec.kubernetesVersion");
}

#[test]
fn doctor_checks_the_configuration_of_a_worker_without_a_store() {
    let worker = Worker::on(machine(NODES));
    let facts = worker.machine.cluster.store.facts(NODES);
    edit(&facts, "id: ubuntu\n  versionID: \"24.04\"", "id: rocky\n  versionID: \"8.10\"").unwrap();
    let server = worker.kops_controller();
    let diagnosis = || {
        let mut agent = worker.agent("doctor", &[server.url()], &worker.served.authority);
        Diagnosis::from_command(agent.args(["--store-timeout", "1"]))
    };
    let before = worker.machine.files();
    let found = diagnosis();
    found.has("configuration", "ok", "is valid");
    found.has("programs", "problem", "needs glibc 2.34");
    assert_eq!(server.asked(), honest(&[]), "a diagnosis asks for no certificates");
    assert_eq!(worker.machine.files(), before);

    server.answer_next(&[const { Mood::Refusing(403, "failed to verify token\n") }; 9]);
    let found = diagnosis();
    found.has("kops-controller", "ok", "answers at");
    found.has("configuration", "problem", "403 (failed to verify token)");
    server.answer_next(&[const { Mood::Refusing(409, "") }; 9]);
    diagnosis().has("configuration", "problem", "a Node of this machine's name is registered and Ready");
}

#[test]
fn a_containerd_that_the_machines_c_library_cannot_run() {
    let machine = machine(NODES);
    let (old, new) = ("id: ubuntu\n  versionID: \"24.04\"", "id: rocky\n  versionID: \"8.10\"");
    edit(&machine.cluster.store.facts(NODES), old, new).unwrap();
    let found = diagnosis(&machine);
    let unfit = "needs glibc 2.34, and this distribution has glibc 2.28, so containerd would not start";
    found.has("programs", "problem", unfit);
    assert!(found.ended.stdout.contains("spec.containerd.packages"), "{:#?}", found.ended);
}

/// `doctor` looks for devices only with the root `/`. So this test runs in a mount namespace with the devices of an EC2 instance.
#[test]
fn a_volume_with_a_missing_device_is_reported_with_the_links_to_present_devices() {
    const LINK: &str = "nvme-Amazon_Elastic_Block_Store_vol0123456789abcdef0";
    apart("", || {
        let machine = Machine::new(NODES);
        let volume =
            "  role: Node\n  volumeMounts: [{device: /dev/xvdd, filesystem: ext4, path: /mnt/data}]\n";
        machine.cluster.edit("instancegroup/nodes", "  role: Node\n", volume).unwrap();
        let (block, dev) = (machine.folder().join("block"), machine.folder().join("dev"));
        for disk in ["nvme0n1", "nvme1n1", "loop0"] {
            fs::create_dir_all(block.join(disk)).unwrap();
        }
        fs::create_dir_all(dev.join("disk/by-id")).unwrap();
        symlink("../../nvme1n1", dev.join("disk/by-id").join(LINK)).unwrap();
        fs::write(dev.join("null"), "").unwrap();
        let bind = |from: &Path, to: &Path| {
            mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).unwrap();
        };
        bind(Path::new("/dev/null"), &dev.join("null"));
        bind(&dev, Path::new("/dev"));
        bind(&block, Path::new("/sys/class/block"));
        let found = Diagnosis::from_command(&mut machine.agent_without_root("doctor"));
        let there = format!("this machine has /dev/nvme0n1, /dev/nvme1n1 ({LINK})");
        found.has("volumes", "problem", &format!("/dev/xvdd, the device of /mnt/data, is missing; {there}"));
        assert!(found.ended.stdout.contains("use its link in volumeMounts"), "{:#?}", found.ended);
    });
}

#[test]
fn without_a_boot_config_doctor_still_checks_the_machine() {
    let machine = machine(NODES);
    let mut call = Command::new(agent());
    call.env_clear().args(["doctor", "--conf", "/nonexistent", "--root"]).arg(machine.root());
    let found = Diagnosis::from_command(&mut call);
    found.has("boot config", "problem", "/nonexistent");
    found.has("swap", "ok", "there is no swap");
    Ended::from_command(Command::new(agent()).env_clear().args(["doctor", "--root", "/nonexistent"]))
        .with(1, &["/nonexistent"]);
}

#[test]
fn a_metadata_service_that_may_not_be_asked() {
    let machine = machine(CONTROL_PLANE);
    write(&machine, "etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n");
    let mut call = Command::new(agent());
    call.env_clear().envs(machine.cluster.environment()).env("AWS_EC2_METADATA_DISABLED", "true");
    call.arg("doctor").arg("--conf").arg(machine.cluster.store.kube_env(CONTROL_PLANE));
    call.args(["--config-base", CONFIG_BASE, "--root"]).arg(machine.root());
    let found = Diagnosis::from_command(&mut call);
    found.has("metadata", "problem", "AWS_EC2_METADATA_DISABLED is true");
    found.has("store", "ok", "can be read");
    found.has("configuration", "unknown", "AWS_EC2_METADATA_DISABLED is true");
}

#[test]
fn downloads_that_no_server_has() {
    let machine = machine(CONTROL_PLANE);
    let mirror = machine.downloads().url();
    let spec = machine.cluster.store.cluster_folder().join("cluster-completed.spec");
    edit(&spec, &mirror, &format!("{mirror}/elsewhere")).unwrap();
    let found = diagnosis(&machine);
    found.has("downloads", "problem", "kubelet cannot be downloaded");
    found.has("downloads", "problem", "404");
    edit(&spec, &format!("{mirror}/elsewhere"), "http://127.0.0.1:1").unwrap();
    diagnosis(&machine).has("downloads", "problem", "refused");
}

#[test]
fn present_files_are_not_to_be_downloaded() {
    let machine = machine(NODES);
    machine.run("converge", &[]).with(0, &[]);
    for path in machine.downloads().paths() {
        machine.downloads().break_path(&path, Fault::Status(404));
    }
    let found = diagnosis(&machine);
    assert_eq!(found.verdicts("downloads"), ["ok"], "{:#?}", found.ended);
    // The installed kubelet is not the wanted one, so the wanted one must be downloaded.
    fs::write(machine.root().join("usr/local/bin/kubelet"), "another").unwrap();
    let found = diagnosis(&machine);
    found.has("downloads", "problem", "kubelet cannot be downloaded");
    assert_eq!(found.verdicts("downloads"), ["problem", "ok"], "{:#?}", found.ended);
}

/// A mirror with every file. Its clock always shows `date`.
fn mirror_at(date: &'static str) -> LoopbackServer {
    let answer = move |_: Request<Incoming>| async move {
        let answer = Response::builder().header("date", date).body(Empty::<Bytes>::new());
        Ok::<_, Infallible>(answer.unwrap())
    };
    LoopbackServer::start("late", service_fn(answer)).unwrap()
}

#[test]
fn a_clock_that_is_wrong() {
    let machine = machine(CONTROL_PLANE);
    let mirror = mirror_at("Sun, 06 Nov 1994 08:49:37 GMT");
    machine.cluster.edit("cluster-completed.spec", &machine.downloads().url(), &mirror.url()).unwrap();
    // The clock of the store's server equals this machine's clock. The clock of the mirror is wrong.
    let found = diagnosis(&machine);
    found.has("time", "ok", "agrees with the clock of 127.0.0.1:");
    found.has("time", "warning", "the clock of 127.0.0.1:");

    let folder = machine.cluster.store.cluster_folder();
    let mut call = machine.agent("doctor");
    let found = Diagnosis::from_command(
        call.arg("--store-mirror").arg(format!("{CONFIG_BASE}={}", folder.display())),
    );
    found.has("time", "problem", "s ahead, compared with 127.0.0.1:");
}

#[test]
fn a_port_that_another_program_has() {
    let machine = machine(CONTROL_PLANE);
    let listens = |port: u16, inode: u32| {
        format!(
            "   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
        )
    };
    write(&machine, "proc/net/tcp", &format!("{TCP}{}{}", listens(10250, 77), listens(443, 78)));
    for (number, name, inode) in [(41, "nginx", 77), (42, "kube-apiserver", 78)] {
        write(&machine, &format!("proc/{number}/comm"), &format!("{name}\n"));
        let folder = machine.root().join(format!("proc/{number}/fd"));
        fs::create_dir_all(&folder).unwrap();
        symlink(format!("socket:[{inode}]"), folder.join("3")).unwrap();
    }
    let found = diagnosis(&machine);
    found.has("ports", "problem", "port 10250 of kubelet is used by nginx (process 41)");
    assert_eq!(found.verdicts("ports").len(), 1, "the API server may have its port: {:#?}", found.ended);
}

#[test]
fn swap_missing_cgroups_docker_and_a_missing_systemd_are_found() {
    let machine = machine(CONTROL_PLANE);
    write(&machine, "proc/swaps", "Filename\tType\n/swapfile  file 1 0 -2\n");
    write(&machine, "sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n");
    write(&machine, "proc/51/comm", "dockerd\n");
    write(&machine, "proc/52/comm", "kubelet\n");
    write(&machine, "proc/52/cgroup", "0::/system.slice/snap.kubelet.service\n");
    fs::remove_dir(machine.root().join("run/systemd/system")).unwrap();
    let found = diagnosis(&machine);
    found.has("swap", "problem", "/swapfile is used as swap");
    found.has("cgroups", "problem", "without memory, pids");
    found.has("programs", "warning", "Docker runs (process 51)");
    found.has("programs", "problem", "snap.kubelet.service");
    found.has("systemd", "problem", "systemd does not run this machine");
    fs::remove_dir_all(machine.root().join("proc")).unwrap();
    fs::remove_dir_all(machine.root().join("sys")).unwrap();
    let found = diagnosis(&machine);
    for check in ["swap", "cgroups", "programs", "ports", "sysctls"] {
        assert_eq!(found.verdicts(check), ["unknown"], "{check}: {:#?}", found.ended);
    }
}

/// Runs in its own mount namespace. The root is a file system that is full first, and read-only later.
#[test]
fn a_disk_that_has_no_room() {
    let machine = Machine::new(CONTROL_PLANE);
    let script = r#"
        mount -t tmpfs -o size=400k small "$ROOT" || exit 99
        "$@"; echo "first $?"
        mount -o remount,size=1g,nr_inodes=2 "$ROOT" || mount -o remount,size=1g "$ROOT" || exit 99
        mount -o remount,ro "$ROOT" || exit 99
        "$@"; echo "second $?"
    "#;
    let Some(mut run) = with_mounts(&machine.agent("doctor"), script) else { return };
    let ended = Ended::from_command(run.env("ROOT", machine.root()));
    ended.with(0, &[]);
    let (first, second) = ended.stdout.split_once("first 4\n").unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(
        first.contains("PROBLEM  disk") && first.contains("/var/cache/nodeup has 0 MB free"),
        "{ended:#?}"
    );
    assert!(second.contains("PROBLEM  disk") && second.contains("mounted read-only"), "{ended:#?}");
    assert!(second.ends_with("second 4\n"), "{ended:#?}");
}

/// Runs in its own network namespace, because port 53 must be free. This needs root.
#[test]
fn missing_names_differ_from_failures_of_the_name_server() {
    const MIRROR: &str = "mirror.test";
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        let machine = machine(NODES);
        let url = machine.downloads().url();
        machine.cluster.edit("cluster-completed.spec", &url, &url.replace("127.0.0.1", MIRROR)).unwrap();
        let diagnose = |fault| {
            let _names = NameServer::start(fault, &[(MIRROR, 1000)]).unwrap();
            diagnosis(&machine)
        };
        let found = diagnose(NameFault::NoSuchName);
        found.has("dns", "problem", "mirror.test (downloads): the name mirror.test cannot be resolved: the name server says that there is no such name");
        found.has("dns", "ok", "(the API server) has an address");
        let found = diagnose(NameFault::CannotTell);
        found.has("dns", "unknown", "the address of mirror.test (downloads) is unknown");
        let _names = NameServer::start(NameFault::CannotTell, &[]).unwrap();
        let found = diagnosis(&machine);
        found.has("dns", "ok", "mirror.test (downloads) has an address");
        assert_eq!(found.ended.code, 0, "{:#?}", found.ended);
    });
}
