//! kOps is upgraded under a live node, release by release, and then downgraded. The node stays as it is while it is
//! superseded. With its next user-data it converges in one step.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use kops_agent_tests::released_store::write_as;
use kops_agent_tests::stand_ins::{ARCHITECTURES, script};
use serde_json::Value;

use crate::example::{Ended, Machine, agent};

/// The kOps releases of an upgrade and of the following downgrade.
const WAY: [&str; 7] = ["1.34.3", "1.35.2", "1.36.2", "1.37.0", "1.36.2", "1.35.2", "1.34.3"];
/// The kOps releases through which a gossip cluster is upgraded and then downgraded.
const WAY_OF_GOSSIP: [&str; 5] = ["1.34.3", "1.35.2", "1.36.2", "1.35.2", "1.34.3"];
/// Files that a control plane has only if protokube applies add-ons, that is up to kOps 1.35.
const OF_PROTOKUBE: [&str; 4] = [
    "etc/systemd/system/protokube.service",
    "etc/sysconfig/protokube",
    "opt/kops/bin/channels",
    "opt/kops/bin/protokube",
];
/// The pod that applies add-ons since kOps 1.36.
const OF_CHANNELS: &str = "etc/kubernetes/manifests/kops-channels.manifest";
/// The service of the agent that applies add-ons in place of protokube and kOps' channels pod.
const OF_SERVICE: &str = "etc/systemd/system/kops-agent-addons.service";
/// The files of the store that differ between kOps releases.
const OF_RELEASE: [&str; 2] = ["cluster-completed.spec", "manifests/channels/kops-channels.yaml"];

/// A machine in a cluster whose kOps release changes.
struct Upgraded {
    machine: Machine,
    group: &'static str,
    /// The boot config without a pinned configuration.
    boot: String,
    /// The files of [`OF_RELEASE`] as the newest kOps writes them.
    of_newest: Vec<(PathBuf, String)>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Upgraded {
    fn new(group: &'static str) -> Upgraded {
        Upgraded::on(Machine::new(group), group)
    }

    fn of_gossip_cluster(group: &'static str) -> Upgraded {
        let machine = Machine::new(group);
        machine.publish_names_by_gossip();
        Upgraded::on(machine, group)
    }

    fn on(machine: Machine, group: &'static str) -> Upgraded {
        machine.serve_downloads_before_1_37();
        for (version, arch) in WAY.iter().flat_map(|version| ARCHITECTURES.map(|arch| (version, arch))) {
            for program in ["protokube", "channels"] {
                let path = format!("/binaries/kops/{version}/linux/{arch}/{program}");
                machine.downloads().publish(&path, &script(program, version, arch));
            }
        }
        let boot = fs::read_to_string(machine.cluster.store.kube_env(group)).unwrap();
        let store = machine.cluster.store.cluster_folder();
        let of_newest =
            OF_RELEASE.map(|path| (store.join(path), fs::read_to_string(store.join(path)).unwrap()));
        Upgraded { machine, group, boot, of_newest: of_newest.into(), environment: vec![] }
    }

    /// Makes the agent's own service apply add-ons on this machine.
    fn with_service(self) -> Upgraded {
        Upgraded { environment: vec![("KOPS_AGENT_ADDONS", "true")], ..self }
    }

    fn run(&self, verb: &str) -> Ended {
        Ended::from_command(self.machine.agent(verb).envs(self.environment.iter().copied()))
    }

    /// Changes the store as `kops update cluster --yes` of kOps `version` does. Returns the hash of the group's
    /// configuration.
    fn update_cluster(&self, version: &str) -> String {
        for (file, text) in &self.of_newest {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        write_as(&self.machine.cluster.store, version).unwrap();
        let mut derive = Command::new(agent());
        derive.env_clear().envs(self.machine.cluster.environment()).env("HTTPS_PROXY", "http://127.0.0.1:1");
        derive.args(["config", "derive", "--config-base", CONFIG_BASE, "--instance-group", self.group]);
        let derived = Ended::from_command(&mut derive);
        derived.with(0, &[]);
        self.machine.cluster.store.write_nodeup_config(self.group, &derived.stdout).unwrap()
    }

    /// Gives the machine user-data that pins the configuration `hash`.
    fn pin(&self, hash: &str) {
        let boot = format!("{}NodeupConfigHash: {hash}\n", self.boot);
        fs::write(self.machine.cluster.store.kube_env(self.group), boot).unwrap();
    }

    fn status(&self) -> Value {
        let mut status = Command::new(agent());
        status.env_clear().stdin(Stdio::null()).args(["status", "-o", "json", "--root"]);
        let ended = Ended::from_command(status.arg(self.machine.root()));
        ended.with(0, &[]);
        serde_json::from_str(&ended.stdout).unwrap()
    }

    /// Every file with its content. Files with certificates or keys are treated as empty, because each run issues new
    /// ones.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let content = |path: &String| fs::read(self.machine.root().join(path)).unwrap_or_default();
        let files = self.machine.files().into_iter().map(|path| (path.clone(), content(&path)));
        let is_issued =
            |path: &str| path.contains("kubeconfig") || path.ends_with(".crt") || path.ends_with(".key");
        files.map(|(path, content)| if is_issued(&path) { (path, vec![]) } else { (path, content) }).collect()
    }

    fn requests(&self) -> String {
        fs::read_to_string(self.machine.root().join("var/lib/kops-agent/recorded/requests.txt"))
            .unwrap_or_default()
    }

    /// Converges. Returns the requests of this run, for example to systemd.
    fn converge(&self) -> String {
        let before = self.requests();
        self.run("converge").with(0, &[]);
        self.requests().strip_prefix(&before).unwrap().to_owned()
    }

    /// Converges at each release in `way`. `at` checks the node and the requests of the run.
    fn goes(&self, way: &[&'static str], at: impl Fn(&str, &BTreeMap<String, Vec<u8>>, &str)) {
        let mut last: Option<(&str, String)> = None;
        let mut seen: BTreeMap<&str, BTreeMap<String, Vec<u8>>> = BTreeMap::new();
        for version in way.iter().copied() {
            let hash = self.update_cluster(version);
            // For most workers, kOps 1.35 and 1.36 write the same configuration. Then the hash does not change, and
            // the node is not superseded.
            if let Some((before, _)) = last.filter(|(_, hash_before)| *hash_before != hash) {
                let files = self.files();
                self.run("converge").with(0, &["rolling-update"]);
                assert!(self.files() == files, "{before} to {version}: a superseded node was changed");
                let status = self.status();
                assert_eq!(status["superseded"]["by"], hash.as_str(), "{before} to {version}: {status}");
                assert_eq!(status["writtenBy"]["version"], before, "{status}");
            }
            self.pin(&hash);
            let asked = self.converge();
            let status = self.status();
            assert_eq!(
                (&status["converged"], &status["superseded"]),
                (&true.into(), &Value::Null),
                "{version}"
            );
            assert_eq!(status["configHash"], hash.as_str(), "{version}");
            let again = self.run("converge");
            assert!(again.stdout.contains("Nothing to do"), "{version}: {again:#?}");
            let files = self.files();
            at(version, &files, &asked);
            let first = seen.entry(version).or_insert_with(|| files.clone());
            let differs: Vec<&String> = first
                .keys()
                .chain(files.keys())
                .filter(|path| first.get(*path) != files.get(*path))
                .collect();
            assert!(differs.is_empty(), "{version}, there and back: {differs:?}");
            last = Some((version, hash));
        }
    }
}

#[test]
fn protokube_leaves_a_control_plane_in_one_step_and_comes_back() {
    let control_plane = Upgraded::new(CONTROL_PLANE);
    control_plane.goes(&WAY, |version, files, asked| {
        let has_protokube = version < "1.36";
        for path in OF_PROTOKUBE {
            assert_eq!(files.contains_key(path), has_protokube, "{version}: {path}");
        }
        assert_eq!(files.contains_key(OF_CHANNELS), !has_protokube, "{version}");
        assert!(files.contains_key("var/lib/kops/kubeconfig"), "{version}");
        let position = |request: &str| asked.lines().position(|line| line == request);
        let [stop, disable, start] =
            ["stop", "disable", "start"].map(|verb| position(&format!("systemd: {verb} protokube.service")));
        assert!(has_protokube || start.is_none(), "{version}: {asked}");
        assert_eq!(stop.is_some(), disable.is_some(), "{version}: {asked}");
        assert!(stop.is_none() || (version == "1.36.2" && stop < disable), "{version}: {asked}");
    });
    let all = control_plane.requests();
    let count =
        |verb: &str| all.lines().filter(|line| *line == format!("systemd: {verb} protokube.service")).count();
    assert_eq!((count("stop"), count("disable"), count("enable")), (1, 1, 2), "{all}");
}

#[test]
fn a_worker_goes_through_all_releases_and_back() {
    Upgraded::new(NODES).goes(&WAY, |version, files, _| {
        assert!(OF_PROTOKUBE.iter().all(|path| !files.contains_key(*path)), "{version}");
    });
}

/// If the new kOps release uses another program for add-ons, the old program is removed, even if nodeup installed it.
/// Otherwise two programs would apply add-ons. Other files of nodeup stay.
#[test]
fn protokube_and_its_successor_leave_a_control_plane_that_nodeup_made() {
    const NODEUPS: &str = "etc/logrotate.d/etcd-leases";
    for (before, after) in [("1.35.2", "1.36.2"), ("1.36.2", "1.35.2")] {
        let control_plane = Upgraded::new(CONTROL_PLANE);
        control_plane.pin(&control_plane.update_cluster(before));
        control_plane.converge();
        // Without the agent's record, the machine is like a machine that nodeup made.
        fs::remove_dir_all(control_plane.machine.root().join("var/lib/kops-agent")).unwrap();
        control_plane.converge();
        let old = control_plane.files();

        control_plane.pin(&control_plane.update_cluster(after));
        let asked = control_plane.converge();
        let files = control_plane.files();
        for path in OF_PROTOKUBE.iter().chain([&OF_CHANNELS]) {
            assert_ne!(old.contains_key(*path), files.contains_key(*path), "{before} to {after}: {path}");
        }
        let stops = asked.lines().any(|line| line == "systemd: stop protokube.service");
        assert_eq!(stops, after == "1.36.2", "{asked}");
        // Only the configuration of kOps 1.35 has this file, but the file also stays after the upgrade.
        assert!(files.contains_key(NODEUPS), "{before} to {after}");
        let again = control_plane.machine.run("converge", &[]);
        assert!(again.stdout.contains("Nothing to do"), "{again:#?}");
    }
}

/// The flags of protokube in its unit.
fn flags(files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let unit = String::from_utf8(files[OF_PROTOKUBE[0]].clone()).unwrap();
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/opt/kops/bin/protokube "));
    line.unwrap().split(' ').map(str::to_owned).collect()
}

fn has(flags: &[String], flag: &str) -> bool {
    flags.iter().any(|found| found.starts_with(flag))
}

fn stops_protokube(asked: &str) -> bool {
    ["stop", "disable"].iter().any(|verb| asked.contains(&format!("systemd: {verb} protokube.service")))
}

#[test]
fn protokube_stays_on_a_gossip_cluster_and_leaves_add_ons_to_the_pod_of_1_36() {
    let control_plane = Upgraded::of_gossip_cluster(CONTROL_PLANE);
    control_plane.goes(&WAY_OF_GOSSIP, |version, files, asked| {
        let applies_addons = version < "1.36";
        let flags = flags(files);
        assert!(has(&flags, "--gossip=true"), "{version}: {flags:?}");
        for flag in ["--channels=", "--bootstrap-master-node-labels=true", "--master=true"] {
            assert_eq!(has(&flags, flag), applies_addons, "{version}: {flags:?}");
        }
        assert_eq!(files.contains_key("opt/kops/bin/channels"), applies_addons, "{version}");
        assert_eq!(files.contains_key(OF_CHANNELS), !applies_addons, "{version}");
        assert!(!stops_protokube(asked), "{version}: {asked}");
    });

    // kOps 1.37 has no gossip, so the run fails and changes no file.
    let before = control_plane.files();
    control_plane.pin(&control_plane.update_cluster("1.37.0"));
    control_plane.run("converge").with(3, &["demo.k8s.local", "gossip, which kOps 1.37 does not support"]);
    assert!(control_plane.files() == before);
}

#[test]
fn protokube_stays_on_a_worker_of_a_gossip_cluster() {
    Upgraded::of_gossip_cluster(NODES).goes(&WAY_OF_GOSSIP, |version, files, asked| {
        let flags = flags(files);
        assert!(has(&flags, "--gossip=true") && !has(&flags, "--master=true"), "{version}: {flags:?}");
        assert!(!stops_protokube(asked), "{version}: {asked}");
    });
}

/// dns-controller publishes names, and protokube writes these names into `/etc/hosts`. Each name has the addresses of
/// all control planes.
#[test]
fn addresses_that_protokube_has_from_gossip_stay() {
    for version in ["1.34.3", "1.36.2"] {
        let control_plane = Upgraded::of_gossip_cluster(CONTROL_PLANE);
        control_plane.pin(&control_plane.update_cluster(version));
        control_plane.converge();
        let file = control_plane.machine.root().join("etc/hosts");
        let own = fs::read_to_string(&file).unwrap();
        let published = own.replace("127.0.0.1\tapi.", "10.20.0.11\tapi.");
        assert_ne!(published, own, "{version}");
        fs::write(&file, &published).unwrap();
        for verb in ["verify", "converge"] {
            control_plane.run(verb).with(0, &[]);
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), published, "{version}");
        fs::write(&file, "").unwrap();
        control_plane.converge();
        assert!(fs::read_to_string(&file).unwrap().contains("127.0.0.1\tapi."), "{version}");
    }
}

#[test]
fn the_service_applies_add_ons_through_all_releases() {
    Upgraded::new(CONTROL_PLANE).with_service().goes(&WAY, |version, files, _| {
        assert!(files.contains_key(OF_SERVICE), "{version}");
        for path in OF_PROTOKUBE.iter().chain([&OF_CHANNELS]) {
            assert!(!files.contains_key(*path), "{version}: {path}");
        }
    });
}

/// If the agent's service applies add-ons, protokube still runs gossip, and etcd-manager manages the volumes of etcd.
#[test]
fn where_the_service_applies_add_ons_protokube_keeps_gossip_through_all_releases() {
    let control_plane = Upgraded::of_gossip_cluster(CONTROL_PLANE).with_service();
    control_plane.goes(&WAY_OF_GOSSIP, |version, files, asked| {
        assert!(files.contains_key(OF_SERVICE), "{version}");
        assert!(
            !files.contains_key("opt/kops/bin/channels") && !files.contains_key(OF_CHANNELS),
            "{version}"
        );
        let flags = flags(files);
        assert!(has(&flags, "--gossip=true"), "{version}: {flags:?}");
        for flag in ["--channels", "--bootstrap-master-node-labels", "--master", "--node-name"] {
            assert!(!has(&flags, flag), "{version}: {flags:?}");
        }
        assert!(!stops_protokube(asked), "{version}: {asked}");
    });
}
