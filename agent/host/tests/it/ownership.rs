//! The agent removes its own resources that are no longer wanted. Resources that others made or changed stay.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};

use kops_agent_host::Depth;
use kops_agent_plan::diff::OwnedNow;
use kops_agent_plan::resource::{
    DesiredState, Directory, File, HostsEntry, KernelModule, Kind, Mode, PackageSource, ResourceId, Symlink,
    Unit,
};

use crate::support::{Machine, Mirror, state};

/// Temporary files of runs that were killed while they wrote resources of [`everything`].
const BEGUN: [&str; 4] = [
    "/etc/ours/.a.kops-agent",
    "/etc/.link.kops-agent",
    "/etc/.hosts.kops-agent",
    "/etc/systemd/system/.old.service.kops-agent",
];

fn everything() -> DesiredState {
    let mut state = DesiredState::default();
    state.add(Directory::new("/etc/ours"));
    state.add(Directory::new("/etc/shared"));
    state.add(File::text("/etc/ours/a", "a"));
    state.add(File::text("/etc/shared/b", "b"));
    state.add(File::text("/etc/edited", "before"));
    state.add(File::text("/etc/theirs", "ours now"));
    state.add(Symlink { path: "/etc/link".into(), target: "ours/a".into() });
    state.add(HostsEntry {
        hostname: "api.internal".into(),
        addresses: vec!["10.0.0.1".into()],
        ..HostsEntry::default()
    });
    state.add(Unit::new("old.service", "[Service]\nExecStart=/bin/true\n"));
    state
}

#[tokio::test]
async fn resources_that_are_no_longer_wanted_are_removed() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("/etc")).unwrap();
    fs::write(machine.path("/etc/theirs"), "before the agent").unwrap();
    fs::write(machine.path("/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    machine.converge(&everything()).await.unwrap();
    fs::write(machine.path("/etc/shared/operators"), "").unwrap();
    fs::write(machine.path("/etc/edited"), "by hand").unwrap();

    let wanted = DesiredState::default();
    let plan = machine.plan(&machine.host(), &wanted);
    let steps: Vec<String> = plan.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(
        steps,
        [
            "unit old.service",
            "host api.internal",
            "symlink /etc/link",
            "file /etc/shared/b",
            "file /etc/ours/a",
            "directory /etc/shared",
            "directory /etc/ours",
        ]
    );
    let kept: Vec<String> = plan.kept.iter().map(|kept| kept.resource.to_string()).collect();
    assert_eq!(kept, ["file /etc/edited", "file /etc/theirs"]);

    let report = machine.converge(&wanted).await.unwrap();
    assert_eq!(report.summary.remove.number, 7);
    assert_eq!(machine.tree(), ["/etc/edited", "/etc/hosts", "/etc/shared/operators", "/etc/theirs"]);
    assert!(machine.path("/etc/shared").is_dir() && !machine.path("/etc/ours").exists());
    assert!(!machine.read("/etc/hosts").contains("api.internal"));
    assert!(machine.read("/etc/hosts").starts_with("127.0.0.1 localhost\n"));
    assert_eq!(machine.read("/etc/edited"), "by hand");
    let requests = machine.requests();
    let position = |request: &str| requests.iter().rposition(|found| found == request).unwrap();
    assert!(position("systemd: stop old.service") < position("systemd: disable old.service"));
    assert_eq!(requests.last().unwrap(), "systemd: daemon-reload");

    // The earlier plan reported the files that stay. The agent no longer owns these files, so this plan does not
    // report them.
    let plan = machine.plan(&machine.host(), &wanted);
    assert!(plan.is_empty() && plan.kept.is_empty(), "{plan:#?}");
}

#[tokio::test]
async fn temporary_files_of_a_killed_run_are_removed_with_unwanted_resources() {
    let machine = Machine::new();
    machine.converge(&everything()).await.unwrap();
    for path in BEGUN {
        fs::write(machine.path(path), "half").unwrap();
    }
    machine.converge(&DesiredState::default()).await.unwrap();
    assert_eq!(machine.leftovers(), [""; 0]);
    assert!(
        !machine.path("/etc/ours").exists(),
        "the directory still exists, perhaps because it was not empty"
    );
}

#[tokio::test]
async fn a_run_without_anything_to_do_writes_nothing() {
    let machine = Machine::new();
    machine.converge(&everything()).await.unwrap();
    let record = machine.path("/var/lib/kops-agent/record.json");
    let before = fs::metadata(&record).unwrap().modified().unwrap();
    machine.converge(&everything()).await.unwrap();
    assert_eq!(fs::metadata(&record).unwrap().modified().unwrap(), before);
}

#[tokio::test]
async fn an_untouched_file_is_read_only_on_request() {
    let machine = Machine::new();
    machine.converge(&everything()).await.unwrap();
    let id = ResourceId::new(Kind::File, "/etc/ours/a");
    let now = |depth| machine.host().with_depth(depth).owned().unwrap()[&id].now.clone();
    assert_eq!(now(Depth::Touched), OwnedNow::AsLeft);
    assert_eq!(now(Depth::Content), OwnedNow::AsLeft);
    fs::write(machine.path("/etc/ours/a"), "AA").unwrap();
    assert_eq!(now(Depth::Touched), OwnedNow::Changed(vec!["content".into()]));
}

#[tokio::test]
async fn modes_that_let_others_write_are_corrected() {
    let mut desired = everything();
    desired.add(KernelModule { name: "br_netfilter".into(), package: None });
    let machine = Machine::new();
    machine.converge(&desired).await.unwrap();
    let units = machine.requests();
    let paths = ["/etc/systemd/system/old.service", "/etc/modules-load.d/br_netfilter.conf"];
    let mode = |path: &str| machine.path(path).metadata().unwrap().mode() & 0o7777;
    for path in paths {
        fs::set_permissions(machine.path(path), fs::Permissions::from_mode(0o666)).unwrap();
    }
    assert_eq!(machine.host().status().unwrap().changed.len(), 2);
    machine.converge(&desired).await.unwrap();
    assert_eq!(paths.map(mode), [0o644; 2]);
    assert!(machine.host().status().unwrap().changed.is_empty());
    let news = &machine.requests()[units.len()..];
    assert!(!news.iter().any(|request| request.contains("start")), "nothing has to be restarted: {news:?}");
    assert!(machine.plan(&machine.host(), &desired).is_empty());
}

#[tokio::test]
async fn a_failure_is_recorded_until_a_run_succeeds() {
    let machine = Machine::new();
    let host = machine.host();
    host.note_failure(kops_agent_spec::failure::Kind::Other, "no network; plug it in").unwrap();
    assert_eq!(host.record().unwrap().failure.unwrap().problem, "no network; plug it in");
    machine.converge(&everything()).await.unwrap();
    let record = machine.host().record().unwrap();
    assert_eq!((record.failure, record.config_hash.as_str()), (None, "hash"));
    assert!(record.converged_since.is_some());
}

#[tokio::test]
async fn only_the_run_that_holds_the_lock_writes_the_record() {
    let machine = Machine::new();
    machine.converge(&everything()).await.unwrap();
    let at_work = machine.host();
    let lock = at_work.lock().unwrap();
    let error = machine
        .host()
        .note_failure(kops_agent_spec::failure::Kind::Other, "another kops-agent is running")
        .unwrap_err()
        .to_string();
    assert!(error.contains("another kops-agent is running"), "{error}");
    assert_eq!(machine.host().record().unwrap().failure, None);
    drop(lock);
    machine.host().note_failure(kops_agent_spec::failure::Kind::Other, "no network").unwrap();
}

struct Deaf;

impl kops_agent_host::Resetting for Deaf {
    fn doing(&self, _: &str) {}
}

#[tokio::test]
async fn a_reset_keeps_only_earlier_resources() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("/etc")).unwrap();
    fs::write(machine.path("/etc/theirs"), "before the agent").unwrap();
    let mut node = everything();
    node.add(Unit::new("kubelet.service", "[Service]\nExecStart=/bin/true\n"));
    node.add(Unit::new("containerd.service", "[Service]\nExecStart=/bin/true\n"));
    machine.converge(&node).await.unwrap();
    // Running components have written these files.
    fs::create_dir_all(machine.path("/var/lib/kubelet/pods/x")).unwrap();
    fs::write(machine.path("/var/lib/kubelet/pods/x/volume"), "").unwrap();
    fs::create_dir_all(machine.path("/etc/systemd/system")).unwrap();
    fs::write(machine.path("/etc/systemd/system/kops-configuration.service"), "").unwrap();
    // These are the temporary files of a killed run.
    for path in BEGUN.iter().chain(&["/etc/.theirs.kops-agent"]) {
        fs::write(machine.path(path), "half").unwrap();
    }

    let host = machine.host();
    let reset =
        host.plan_reset(&["kops-configuration.service", "absent.service"], &["/etc/absent"], &[]).unwrap();
    assert_eq!(
        reset.units,
        ["kops-configuration.service", "kubelet.service", "old.service", "containerd.service"]
    );
    assert_eq!(reset.kept, [ResourceId::new(Kind::File, "/etc/theirs")]);
    let told = fs::read_to_string(machine.path("/etc/ours/a")).unwrap();
    assert_eq!(told, "a", "planning changed a file");
    host.reset(&reset, &Deaf).unwrap();
    assert_eq!(machine.tree(), ["/etc/hosts", "/etc/theirs"]);
    assert_eq!(machine.leftovers(), [""; 0]);
    for gone in ["/etc/ours", "/var/lib/kubelet", "/var/lib/kops-agent", "/var/cache/nodeup"] {
        assert!(!machine.path(gone).exists(), "{gone}");
    }
    assert!(!machine.read("/etc/hosts").contains("api.internal"));
    // A second reset finds nothing to remove.
    let again = machine.host().plan_reset(&["kops-configuration.service"], &[], &[]).unwrap();
    assert_eq!((again.units, again.removed), (vec![], vec![]));
}

#[tokio::test]
async fn the_status_shows_drift_and_failures() {
    let machine = Machine::new();
    let status = || machine.host().status().unwrap();
    assert!(!status().converged, "the machine has not converged yet");
    machine.converge(&everything()).await.unwrap();
    assert!(status().converged);
    assert_eq!(status().units[0].name, "old.service");

    fs::write(machine.path("/etc/edited"), "by hand").unwrap();
    fs::remove_file(machine.path("/etc/link")).unwrap();
    let changed: Vec<String> =
        status().changed.iter().map(|drift| format!("{}: {}", drift.resource, drift.how.join(" "))).collect();
    assert_eq!(changed, ["file /etc/edited: content", "symlink /etc/link: gone"]);
    assert!(!status().converged);

    machine.converge(&everything()).await.unwrap();
    assert!(status().converged);
    machine.host().note_failure(kops_agent_spec::failure::Kind::Other, "no network").unwrap();
    assert!(
        status().converged && status().failure.is_some(),
        "a run that failed and changed nothing is no drift"
    );
}

#[tokio::test]
async fn a_create_only_log_does_not_drift() {
    let machine = Machine::new();
    let mut state = everything();
    state.add(File { create_only: true, ..File::text("/var/log/kube-proxy.log", "") });
    machine.converge(&state).await.unwrap();
    let log = machine.path("/var/log/kube-proxy.log");
    fs::write(&log, "a line\n").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(machine.plan(&machine.host(), &state).is_empty());
    assert_eq!(machine.host().drift().unwrap(), []);
    fs::remove_file(&log).unwrap();
    assert_eq!(machine.host().drift().unwrap().len(), 1, "the removed log is drift");
    assert!(!machine.plan(&machine.host(), &state).is_empty());
}

#[tokio::test]
async fn a_repository_is_removed_with_its_key_and_an_earlier_one_stays() {
    const KEY: &[u8] =
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQINBF\n-----END PGP PUBLIC KEY BLOCK-----\n";
    let keys = Mirror::start_with(BTreeMap::from([("/a.asc".to_owned(), KEY.to_vec())])).unwrap();
    let mut state = DesiredState::default();
    for name in ["ours", "theirs"] {
        state.add(PackageSource {
            name: name.into(),
            keyring: format!("{}/a.asc", keys.url()),
            sources: vec!["deb https://packages.example.com ./".into()],
        });
    }
    let machine = Machine::new();
    let lists = machine.path("/etc/apt/sources.list.d");
    fs::create_dir_all(&lists).unwrap();
    fs::write(lists.join("theirs.list"), "deb https://other.example.com ./\n").unwrap();
    machine.converge(&state).await.unwrap();
    assert!(machine.path("/etc/apt/keyrings/ours.asc").exists() && lists.join("ours.list").exists());

    let plan = machine.plan(&machine.host(), &DesiredState::default());
    let steps: Vec<String> = plan.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(steps, ["package-source ours"]);
    assert_eq!(plan.kept[0].why, "it was there before kops-agent");
    machine.converge(&DesiredState::default()).await.unwrap();
    assert!(!machine.path("/etc/apt/keyrings/ours.asc").exists() && !lists.join("ours.list").exists());
    assert!(machine.path("/etc/apt/keyrings/theirs.asc").exists() && lists.join("theirs.list").exists());
}

#[tokio::test]
async fn an_unreadable_record_does_not_turn_a_node_into_a_new_machine() {
    let machine = Machine::new();
    let node = state([File::text("/etc/one", "1"), File::text("/etc/two", "2")]);
    machine.converge(&node).await.unwrap();
    std::fs::write(machine.path("/var/lib/kops-agent/record.json"), "{\"configHash\": \"h").unwrap();
    let status = machine.host().status().unwrap();
    assert!(!status.converged && status.failure.unwrap().problem.contains("record.json cannot be read"));
    let error = machine.host().plan_reset(&[], &[], &[]).unwrap_err().to_string();
    assert!(error.contains("write a new one with `kops-agent converge`"), "{error}");

    // Neither a failed run nor an interrupted run repairs the record.
    machine.host().note_failure(kops_agent_spec::failure::Kind::Other, "no network").unwrap();
    let error = machine.host().plan_reset(&[], &[], &[]).unwrap_err().to_string();
    assert!(error.contains("record.json cannot be read"), "{error}");
    let mut interrupted = node.clone();
    interrupted.add(File::text("/etc/rules", "new"));
    // The timeout drops the run at its first wait, which is between two stages.
    assert!(tokio::time::timeout(std::time::Duration::ZERO, machine.converge(&interrupted)).await.is_err());
    let error = machine.host().plan_reset(&[], &[], &[]).unwrap_err().to_string();
    assert!(error.contains("no run has finished since"), "{error}");

    machine.converge(&state([File::text("/etc/one", "1")])).await.unwrap();
    assert_eq!(machine.read("/etc/two"), "2", "a file of unknown origin stays");
    assert_eq!(machine.read("/var/lib/kops-agent/record.unreadable-1"), "{\"configHash\": \"h");
    assert!(machine.host().status().unwrap().converged);
}

/// A kubeconfig of the login user, and a file of root.
fn with_kubeconfig() -> DesiredState {
    let mut state = DesiredState::default();
    let folder = Directory::new("/home/admin/.kube").mode(Mode(0o700));
    state.add(Directory { owner: "admin".into(), group: "admin".into(), ..folder });
    state.add(File::text("/home/admin/.kube/config", "kubeconfig").mode(Mode(0o400)).owned_by("admin"));
    state.add(File::text("/etc/ours", "ours"));
    state
}

/// A machine whose user made `~/.kube` a link to /etc.
fn linked() -> Machine {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("/home/admin")).unwrap();
    fs::create_dir_all(machine.path("/etc")).unwrap();
    fs::set_permissions(machine.path("/etc"), fs::Permissions::from_mode(0o755)).unwrap();
    let link = machine.path("/home/admin/.kube");
    symlink("/etc", &link).unwrap();
    lchown(&link, Some(4711), Some(4711)).unwrap();
    chown(machine.path("/home/admin"), Some(4711), Some(4711)).unwrap();
    machine
}

#[tokio::test]
async fn nothing_is_written_chowned_or_removed_through_a_users_link() {
    if !nix::unistd::geteuid().is_root() {
        // Only root can change owners. agent/host/src/root/tests.rs has the tests that need no root.
        return;
    }
    let machine = linked();
    let is_untouched = |names: &[&str]| {
        let etc = fs::metadata(machine.path("/etc")).unwrap();
        assert_eq!((etc.mode() & 0o7777, etc.uid()), (0o755, 0));
        let mut found: Vec<_> =
            fs::read_dir(machine.path("/etc")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        found.sort();
        assert_eq!(found, names);
        assert!(machine.path("/home/admin/.kube").is_symlink());
    };
    let plan = machine.plan(&machine.host(), &with_kubeconfig());
    let id = ResourceId::new(Kind::Directory, "/home/admin/.kube");
    let told = format!("{:?}", plan.step(&id).unwrap().changes);
    assert!(told.contains("a symbolic link to /etc that a user other than root can change"), "{told}");

    // The run changes everything except the linked folder and its content. The next run reports the same error.
    for _ in 0..2 {
        let error = machine.error(&with_kubeconfig()).await;
        assert!(error.contains("everything else is as it should be"), "{error}");
        assert!(error.contains("/home/admin/.kube is a link to /etc that a user other than root"), "{error}");
        is_untouched(&["ours"]);
    }
    assert_eq!(machine.read("/etc/ours"), "ours");

    // The link's target, /etc, already has a file `config` of another user.
    fs::write(machine.path("/etc/config"), "kubeconfig").unwrap();
    let host = machine.host();
    let reset = host.plan_reset(&[], &[], &[]).unwrap();
    struct Deaf;
    impl kops_agent_host::Resetting for Deaf {
        fn doing(&self, _: &str) {}
    }
    host.reset(&reset, &Deaf).unwrap();
    is_untouched(&["config"]);
    assert_eq!(machine.read("/etc/config"), "kubeconfig");
}

#[tokio::test]
async fn a_folder_that_a_user_replaces_by_a_link_is_not_followed() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let machine = linked();
    let link = machine.path("/home/admin/.kube");
    fs::remove_file(&link).unwrap();
    machine.converge(&with_kubeconfig()).await.unwrap();
    assert_eq!(machine.read("/home/admin/.kube/config"), "kubeconfig");
    // The user moves the folder of the kubeconfig, and puts a link in its place.
    fs::rename(&link, machine.path("/home/admin/mine")).unwrap();
    symlink("/etc", &link).unwrap();
    lchown(&link, Some(4711), Some(4711)).unwrap();
    fs::write(machine.path("/etc/config"), "of root").unwrap();

    // Neither a change nor a removal goes through the link.
    let error = machine.error(&with_kubeconfig()).await;
    assert!(error.contains("a link to /etc that a user other than root"), "{error}");
    let mut without = DesiredState::default();
    without.add(File::text("/etc/ours", "ours"));
    machine.converge(&without).await.unwrap();
    assert_eq!(machine.read("/etc/config"), "of root");
    assert_eq!(fs::metadata(machine.path("/etc")).unwrap().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn a_link_of_root_counts_as_a_folder() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("/data/home")).unwrap();
    symlink("data/home", machine.path("/home")).unwrap();
    machine.converge(&with_kubeconfig()).await.unwrap();
    assert_eq!(machine.read("/data/home/admin/.kube/config"), "kubeconfig");
    assert!(machine.plan(&machine.host(), &with_kubeconfig()).is_empty());
}
