//! A machine that nodeup made a node. The agent takes it over without a restart, guards necessary restarts, and adopts
//! files on request. Each program can overwrite the other's files later.
#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Machine, Mirror, noon, tar_gz};
use kops_agent_host::health::{Health, HealthTimings, unhealthy};
use kops_agent_host::system::commands::Commands;
use kops_agent_host::{Error, Host, Resetting, Silent};
use kops_agent_plan::diff::diff_with_owned;
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::*;
use kops_agent_spec::failure::Failure;

const LIB: &str = "/lib/systemd/system/kubelet.service";
const ETC: &str = "/etc/systemd/system/kubelet.service";
const KUBELET_CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.manifest";
const FLAGS: &str = "/etc/sysconfig/kubelet";
const UNIT: &str = "[Unit]\nAfter=containerd.service\n\n[Service]\nExecStart=/usr/local/bin/kubelet\n";

fn node(max_pods: &str) -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::text(KUBELET_CONFIG, format!("kind: KubeletConfiguration\nmaxPods: {max_pods}\n")));
    state.add(File::text(FLAGS, "DAEMON_ARGS=\"--a=1 --b=2\"\n"));
    state.add(File::text("/etc/sysctl.d/99-k8s-general.conf", "# ours\nvm.a = 1\n").on_change(&["load"]));
    state.add(File::text("/srv/kubernetes/kube-scheduler/key", "key"));
    state.add(File::text(
        MANIFEST,
        "kind: Pod\nmetadata: {name: kube-scheduler, namespace: kube-system}\nspec: {containers: [{name: a}], \
         volumes: [{name: k, hostPath: {path: /srv/kubernetes/kube-scheduler}}]}\n",
    ));
    state.add(Unit::new("kubelet.service", UNIT).restarted_by_files([KUBELET_CONFIG, FLAGS]));
    state.add(Unit::existing("chrony.service").restarted_by_files(["/etc/chrony/chrony.conf"]));
    state
}

fn write(machine: &Machine, path: &str, text: impl AsRef<[u8]>) {
    fs::create_dir_all(machine.path(path).parent().unwrap()).unwrap();
    fs::write(machine.path(path), text).unwrap();
}

/// A Debian machine with the recorded unit states `units`.
fn debian(units: &str) -> Machine {
    let machine = Machine::new();
    write(&machine, "/etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
    let state = machine.path("/var/lib/kops-agent/recorded/state.json");
    write(&machine, "/var/lib/kops-agent/recorded/state.json", format!("{{\"units\": {{{units}}}}}"));
    fs::set_permissions(state, fs::Permissions::from_mode(0o600)).unwrap();
    machine
}

const RUNNING: &str = "\"kubelet.service\": {\"enabled\": true, \"running\": true}, \
                       \"chrony.service\": {\"enabled\": true, \"running\": true}";

/// A Debian machine after a run of nodeup. Its files are equivalent to the agent's files but have other texts.
fn made_by_nodeup() -> Machine {
    let machine = debian(RUNNING);
    write(
        &machine,
        KUBELET_CONFIG,
        "# nodeup's\nkind: KubeletConfiguration\nmaxPods: 1\nsyncFrequency: 0s\n",
    );
    write(&machine, FLAGS, "DAEMON_ARGS=\"--b=2 --a=1\"\n");
    write(&machine, "/etc/sysctl.d/99-k8s-general.conf", "# nodeup's\nvm.a = 1\n");
    write(&machine, "/srv/kubernetes/kube-scheduler/key", "key");
    let Some(Resource::File(File { content: Content::Text(pod), .. })) =
        node("1").get(&ResourceId::new(Kind::File, MANIFEST)).cloned()
    else {
        panic!("no manifest")
    };
    write(&machine, MANIFEST, format!("{pod}status: {{}}\n"));
    write(&machine, LIB, format!("# nodeup's\n{UNIT}"));
    write(&machine, "/lib/systemd/system/chrony.service", "the package's");
    machine
}

fn requests(machine: &Machine) -> Vec<String> {
    let path = machine.path("/var/lib/kops-agent/recorded/requests.txt");
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn equivalent_files_stay_and_nothing_is_restarted() {
    let machine = made_by_nodeup();
    let before: BTreeMap<String, String> =
        machine.tree().into_iter().map(|path| (path.clone(), machine.read(&path))).collect();
    assert!(machine.plan(&machine.host(), &node("1")).is_empty());
    machine.converge(&node("1")).await.unwrap();
    let after: BTreeMap<String, String> =
        machine.tree().into_iter().map(|path| (path.clone(), machine.read(&path))).collect();
    assert_eq!(after, before);
    assert_eq!(requests(&machine), [""; 0]);

    // After the first run, the agent detects changes by comparison with the record.
    assert!(machine.plan(&machine.host(), &node("1")).is_empty());
    machine.converge(&node("2")).await.unwrap();
    assert_eq!(requests(&machine), ["systemd: daemon-reload", "systemd: restart kubelet.service"]);
    assert!(machine.read(KUBELET_CONFIG).contains("maxPods: 2"));
    assert!(machine.read(LIB).starts_with("# nodeup's"), "the equivalent file of nodeup is unchanged");
    assert!(!machine.path(ETC).exists());
    assert!(machine.plan(&machine.host(), &node("2")).is_empty());
    // The agent reverts a manual change, even a change without effect.
    for path in [KUBELET_CONFIG, LIB, FLAGS] {
        write(&machine, path, format!("# by hand\n{}", machine.read(path)));
    }
    let asked = requests(&machine).len();
    machine.converge(&node("2")).await.unwrap();
    assert_eq!(
        requests(&machine)[asked..],
        ["systemd: daemon-reload"],
        "the files are equivalent, so nothing restarts"
    );
    assert_eq!(machine.read(LIB), UNIT);
    assert!(!machine.read(FLAGS).contains("by hand") && !machine.read(KUBELET_CONFIG).contains("by hand"));
}

#[tokio::test]
async fn after_a_failed_first_run_the_next_run_still_sees_nodeups_machine() {
    let machine = made_by_nodeup();
    machine.host().note_failure(kops_agent_spec::failure::Kind::Other, "no network").unwrap();
    assert!(machine.plan(&machine.host(), &node("1")).is_empty());
    // A run is interrupted after it wrote files. The next run restarts only the components that have read the old
    // files.
    let mut interrupted = node("2");
    interrupted.add(File::text("/etc/rules", "new").on_change(&["load-rules"]));
    let host = machine.host().with_commands(Arc::new(Failing));
    assert!(machine.converge_with(&host, &interrupted).await.is_err());
    assert!(machine.read(KUBELET_CONFIG).contains("maxPods: 2"));
    machine.converge(&node("2")).await.unwrap();
    let restarts: Vec<String> =
        requests(&machine).into_iter().filter(|request| request.contains("restart")).collect();
    assert_eq!(restarts, ["systemd: restart kubelet.service"]);
}

struct Failing;

impl Commands for Failing {
    fn run(&self, command: &[String]) -> Result<(), Error> {
        Err(Error::Command { command: command.join(" "), outcome: "fails".into() })
    }
}

/// A kubelet that is healthy only with `maxPods: 1`.
struct Picky(std::path::PathBuf);

#[async_trait::async_trait]
impl Health for Picky {
    async fn ask(&self, check: &Check) -> Result<(), Failure> {
        let config = fs::read_to_string(&self.0).unwrap_or_default();
        let is_asked = matches!(check, Check::Answers { url } if url.contains(":10248/"));
        if is_asked && config.contains("maxPods: 2") { Err(unhealthy("refused")) } else { Ok(()) }
    }

    fn pod_uid(&self, _pod: &StaticPod, _socket: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    fn last_words(&self, _resource: &ResourceId) -> Vec<String> {
        Vec::new()
    }
}

#[tokio::test]
async fn the_first_run_on_a_working_node_is_rolled_back_if_kubelet_is_unhealthy() {
    let machine = made_by_nodeup();
    let timings = HealthTimings {
        timeout: Duration::from_millis(60),
        pause: Duration::from_millis(2),
        steady: Duration::from_millis(6),
        unnoticed: Duration::from_secs(60),
        restarted: Duration::ZERO,
    };
    let picky = || -> Host {
        let host = Host::scratch(machine.root.path()).unwrap().with_clock(noon);
        host.with_health(Arc::new(Picky(machine.path(KUBELET_CONFIG)))).with_health_timings(timings)
    };
    let before = machine.read(KUBELET_CONFIG);
    let error = machine.converge_with(&picky(), &node("2")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert!(error.to_string().contains("rolled back to what was there before kops-agent"), "{error}");
    assert_eq!(machine.read(KUBELET_CONFIG), before);
    // The rollback restored nodeup's files. They are equivalent to this desired state, so the run keeps them.
    machine.converge_with(&picky(), &node("1")).await.unwrap();
    assert_eq!(machine.read(KUBELET_CONFIG), before);
}

#[tokio::test]
async fn a_unit_of_an_earlier_version_moves_to_upstreams_path() {
    // Earlier versions of the agent wrote the unit into /etc on every distribution.
    let machine = debian("");
    fs::remove_file(machine.path("/etc/os-release")).unwrap();
    machine.converge(&node("1")).await.unwrap();
    assert_eq!(machine.read(ETC), UNIT);
    write(&machine, "/etc/os-release", "ID=debian\n");
    write(&machine, LIB, "what nodeup left");
    let asked = requests(&machine).len();

    let plan = machine.plan(&machine.host(), &node("1"));
    let told = kops_agent_plan::diff::text::plan(
        &plan,
        kops_agent_plan::diff::text::Style { colour: false, diffs: true },
    );
    assert!(told.contains(&format!("unit kubelet.service: path {ETC} -> {LIB}")), "{told}");
    machine.converge(&node("1")).await.unwrap();
    assert_eq!(machine.read(LIB), UNIT);
    assert!(!machine.path(ETC).exists());
    assert!(!requests(&machine)[asked..].iter().any(|request| request.contains("start ")));
    assert!(
        requests(&machine)
            .ends_with(&["systemd: enable kubelet.service".into(), "systemd: daemon-reload".into()])
    );
    assert!(machine.plan(&machine.host(), &node("1")).is_empty());
    assert_eq!(machine.host().drift().unwrap(), []);

    machine.converge(&DesiredState::default()).await.unwrap();
    assert_eq!(machine.read(LIB), "what nodeup left", "the earlier file is restored");
}

#[tokio::test]
async fn an_operators_unit_in_etc_stays() {
    let machine = debian("");
    write(&machine, ETC, "an operator's");
    machine.converge(&node("1")).await.unwrap();
    assert_eq!(machine.read(ETC), "an operator's");
    assert_eq!(machine.read(LIB), UNIT);
    assert!(machine.plan(&machine.host(), &node("1")).is_empty());
}

struct Deaf;

impl Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

#[tokio::test]
async fn a_reset_restores_the_unit_of_a_package() {
    let machine = debian("");
    write(&machine, LIB, "a package's");
    write(&machine, "/lib/systemd/system/chrony.service", "the package's");
    machine.converge(&node("1")).await.unwrap();
    assert_eq!(machine.read(LIB), UNIT);
    let host = machine.host();
    let reset = host.plan_reset(&[], &[], &[]).unwrap();
    host.reset(&reset, &Deaf).unwrap();
    assert_eq!(machine.read(LIB), "a package's");
    assert_eq!(machine.read("/lib/systemd/system/chrony.service"), "the package's");
}

#[tokio::test]
async fn matching_resources_are_adopted_on_request_and_removed_by_a_reset() {
    let machine = made_by_nodeup();
    let adopting = || machine.host().adopting(true);
    machine.converge(&node("1")).await.unwrap();
    let kept = machine.host().plan_reset(&[], &[], &[]).unwrap().kept;
    assert!(kept.contains(&ResourceId::new(Kind::Unit, "kubelet.service")), "{kept:?}");

    let plan = |host: &Host| {
        let adoptable = host.adoptable(&node("2")).unwrap();
        let observed = host.observe(&node("2"), &machine.store).unwrap();
        diff_with_owned(&node("2"), &observed, &host.owned().unwrap()).adopting(adoptable)
    };
    let adopted = plan(&adopting());
    let names: Vec<String> = adopted.adopted.iter().map(ToString::to_string).collect();
    assert!(
        names.contains(&"unit kubelet.service".to_owned()) && names.contains(&format!("file {MANIFEST}"))
    );
    assert!(!names.contains(&format!("file {KUBELET_CONFIG}")), "a differing file is not adopted: {names:?}");
    assert!(
        !names.contains(&"unit chrony.service".to_owned()),
        "a unit of a package is not adopted: {names:?}"
    );
    assert!(plan(&machine.host()).adopted.is_empty());
    let host = adopting();
    host.apply(&adopted, &node("2"), &machine.store, &machine.downloads, &Silent, support::SCOPE)
        .await
        .unwrap();
    assert!(plan(&adopting()).adopted == [ResourceId::new(Kind::File, KUBELET_CONFIG)]);

    // A run removes resources that are no longer wanted. A reset removes all resources.
    let mut fewer = DesiredState::default();
    for (_, resource) in node("2").iter().filter(|(id, _)| id.name != MANIFEST) {
        fewer.add(resource.clone());
    }
    machine.converge(&fewer).await.unwrap();
    assert!(!machine.path(MANIFEST).exists());
    let host = machine.host();
    host.reset(&host.plan_reset(&[], &[], &[]).unwrap(), &Deaf).unwrap();
    assert!(!machine.path(LIB).exists() && !machine.path(FLAGS).exists());
    assert!(machine.path("/lib/systemd/system/chrony.service").exists());
}

#[tokio::test]
async fn a_program_is_recognized_by_its_archive_wherever_that_is() {
    let archive = tar_gz(&[("bin/ctr", b"#!/bin/sh\n")]);
    let sha256 = kops_agent_spec::digest::sha256_hex(&archive);
    let mirror = Mirror::start_with(BTreeMap::from([("/a.tar.gz".to_owned(), archive.clone())])).unwrap();
    let mut state = node("1");
    let asset = AssetContent {
        url: format!("{}/a.tar.gz", mirror.url()),
        mirrors: vec![],
        sha256: Some(sha256.clone()),
        member: Some("bin/ctr".into()),
    };
    state.add(File::new("/usr/bin/ctr", Content::Asset(asset)).mode(Mode::EXECUTABLE));
    let machine = || {
        let machine = made_by_nodeup();
        write(&machine, "/usr/bin/ctr", b"#!/bin/sh\n");
        fs::set_permissions(machine.path("/usr/bin/ctr"), fs::Permissions::from_mode(0o755)).unwrap();
        machine
    };
    // nodeup keeps downloaded archives in its cache.
    let with_cache = machine();
    write(&with_cache, &format!("/var/cache/nodeup/sha256:{sha256}_a.tar.gz"), &archive);
    assert!(with_cache.plan(&with_cache.host(), &state).is_empty());
    with_cache.converge(&state).await.unwrap();
    fs::remove_dir_all(with_cache.path("/var/cache/nodeup")).unwrap();
    assert!(with_cache.plan(&with_cache.host(), &state).is_empty(), "the origin of the program is recorded");
    assert_eq!(mirror.requests(), [""; 0]);
    // With a damaged archive in the cache, the agent cannot identify the program.
    let damaged = machine();
    write(&damaged, &format!("/var/cache/nodeup/sha256:{sha256}_a.tar.gz"), &archive[1..]);
    assert!(!damaged.plan(&damaged.host(), &state).is_empty());
    // If the archive is not in the cache, the agent downloads the archive to identify the program.
    let without = machine();
    without.host().recognize_programs(&state, &without.downloads, &Silent).await.unwrap();
    assert!(without.plan(&without.host(), &state).is_empty());
    let other = machine();
    write(&other, "/usr/bin/ctr", b"#!/bin/bash\n");
    other.host().recognize_programs(&state, &other.downloads, &Silent).await.unwrap();
    assert!(other.plan(&other.host(), &state).step(&ResourceId::new(Kind::File, "/usr/bin/ctr")).is_some());
}
