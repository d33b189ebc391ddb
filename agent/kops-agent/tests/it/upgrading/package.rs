//! The package manager replaces a program of a package. A stand-in for it copies the files of its packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use kops_agent_process::version;
use kops_agent_tests::digest::sha256_hex;
use serde_json::{Value, json};

use super::{CONTROLLER, REQUESTS, STATE, Scene, program_file, script};
use crate::cloud_facts::{metadata, on_ubuntu};
use crate::fleet_plan::point_to;
use crate::superseded::{hash, read};

/// The installed version of the package before a rollout orders a new version.
const BEFORE: &str = "0.0.1";
const NOTE: &str = "var/lib/kops-agent/program.json";

impl Scene {
    /// Writes a file of a package into the folder next to the machine's root.
    fn content(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.machine.folder().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Makes the program a file of the package kops-agent with the version `installed`. `offered` has the versions of
    /// the package in the repository, each with its program.
    fn package(&self, installed: Option<&str>, offered: &[(&str, &PathBuf)]) {
        let lists = self.machine.root().join("var/lib/dpkg/info");
        fs::create_dir_all(&lists).unwrap();
        let program = fs::canonicalize(&self.program).unwrap();
        fs::write(lists.join("kops-agent.list"), format!("/.\n{}\n", program.display())).unwrap();
        let offered = offered.iter().map(|(version, content)| {
            (format!("kops-agent={version}-1"), json!({"content": content, "path": program}))
        });
        let repository: serde_json::Map<String, Value> = offered.collect();
        self.change_state(|state| {
            let packages = state["packages"].as_array_mut().unwrap();
            packages.retain(|package| !package.as_str().unwrap().starts_with("kops-agent="));
            packages.extend(installed.map(|version| json!(format!("kops-agent={version}-1"))));
            state["repository"] = repository.into();
        });
    }

    fn change_state(&self, change: impl FnOnce(&mut Value)) {
        let mut state: Value = serde_json::from_str(&read(&self.machine, STATE)).unwrap();
        change(&mut state);
        fs::write(self.machine.root().join(STATE), state.to_string()).unwrap();
    }

    /// Makes the installation of the package fail while the program at nodeup's path contains `text`.
    fn refuse(&self, version: &str, text: &str) {
        let unit = format!("kops-agent={version}-1");
        let refusal = json!({"unit": unit, "path": "/opt/kops/bin/nodeup", "text": text});
        self.change_state(|state| state["refusals"] = json!([refusal]));
    }

    fn has_package(&self, version: &str) -> bool {
        let state: Value = serde_json::from_str(&read(&self.machine, STATE)).unwrap();
        state["packages"].as_array().unwrap().contains(&json!(format!("kops-agent={version}-1")))
    }

    fn replaced(&self, version: &str) -> usize {
        read(&self.machine, REQUESTS).matches(&format!("packages: replace kops-agent={version}-1\n")).count()
    }

    /// Runs `fleet follow` and waits for its end. The process ends by itself, so that systemd can start the installed
    /// program.
    fn followed(&self) -> ExitStatus {
        let own = fs::read(self.kubeconfig()).unwrap();
        point_to(&self.machine, &self.server);
        let ended = self.follow().0.wait().unwrap();
        fs::write(self.kubeconfig(), own).unwrap();
        ended
    }
}

#[test]
fn a_node_whose_packages_fail_keeps_its_version_or_gets_it_back() {
    let scene = Scene::new();
    let before = scene.sha256();
    let bytes = fs::read(&scene.program).unwrap();
    let old = scene.content("old", &bytes);
    let rebuilt = scene.content("rebuilt", &[&bytes[..], b"\n"].concat());
    drop(bytes);
    let program = script("0.9.0", "exit 0");
    let [new, other] = [scene.content("new", &program), scene.content("other", &script("0.9.0", "exit 1"))];
    let url = scene.mirror.put("/new", &program);
    let order = |rollout: &str| {
        scene.order(rollout, "0.9.0", &url, &sha256_hex(&program));
        let problem = scene.problem(rollout);
        assert_ne!(problem, "");
        problem
    };
    let is_as_before = || {
        let files = (scene.sha256(), scene.beside());
        assert_eq!(files, (before.clone(), vec!["nodeup".to_owned()]));
        assert!(scene.has_package(BEFORE));
    };

    scene.package(None, &[]);
    let problem = order("no-package");
    assert!(
        problem.contains("This package is not completely installed, is installed in two versions, or ")
            && problem.contains("Install version 0.9.0 of the package by hand"),
        "{problem}"
    );
    for (rollout, offered, missing) in [
        ("not-offered", (BEFORE, &old), "kops-agent 0.9.0-1"),
        ("no-way-back", ("0.9.0", &new), "kops-agent 0.0.1-1"),
    ] {
        scene.package(Some(BEFORE), &[offered]);
        let problem = order(rollout);
        let expected = format!("no package repository of this machine has {missing}, or ");
        let needed = "needs kops-agent 0.9.0-1 for the upgrade, and kops-agent 0.0.1-1 for a rollback";
        assert!(problem.contains(&expected) && problem.contains(needed), "{problem}");
        is_as_before();
    }
    let refusal = json!({"unit": "package lists", "path": "/opt/kops/bin/nodeup", "text": ""});
    scene.change_state(|state| state["refusals"] = json!([refusal]));
    let problem = order("unread");
    assert!(
        problem.contains("the package lists of this machine cannot be read: ")
            && problem.contains("Correct the repository, then run `kops-agent fleet rollout resume`"),
        "{problem}"
    );
    is_as_before();
    assert!(!scene.mirror.requests().iter().any(|line| line.contains("/new")), "it was downloaded");

    scene.package(Some(BEFORE), &[(BEFORE, &old), ("0.9.0", &new)]);
    scene.refuse("0.9.0", "");
    let problem = order("refused");
    assert!(
        problem.contains(
            "the previous version is restored; the package manager has not installed kops-agent 0.9.0-1: "
        ),
        "{problem}"
    );
    is_as_before();
    assert_eq!((scene.replaced("0.9.0"), scene.replaced(BEFORE)), (0, 0));

    scene.package(Some(BEFORE), &[(BEFORE, &old), ("0.9.0", &other)]);
    scene.change_state(|state| state["refusals"] = json!([]));
    let problem = order("other");
    assert!(
        problem.contains(
            "the previous version is restored; kops-agent 0.9.0-1 has another program than \
             kops-agent/program.yaml: "
        ),
        "{problem}"
    );
    is_as_before();
    assert_eq!((scene.replaced("0.9.0"), scene.replaced(BEFORE)), (1, 1));

    // The unit does not start while the new program is in place.
    scene.package(Some(BEFORE), &[(BEFORE, &old), ("0.9.0", &new)]);
    scene.run_before(CONTROLLER);
    let refusal = json!({"unit": CONTROLLER, "path": "/opt/kops/bin/nodeup", "text": "0.9.0 (test)"});
    scene.change_state(|state| state["refusals"] = json!([refusal]));
    let problem = order("service");
    assert!(
        problem.contains(CONTROLLER) && problem.contains("the previous version is restored"),
        "{problem}"
    );
    is_as_before();
    assert_eq!(scene.restarts(CONTROLLER), 1, "with the previous program");

    // The repository offers another build of the previous version.
    scene.package(Some(BEFORE), &[(BEFORE, &rebuilt), ("0.9.0", &other)]);
    scene.change_state(|state| state["refusals"] = json!([]));
    let problem = order("rebuilt");
    let expected = "the previous packages are installed, but have another program than before: the SHA-256 ";
    assert!(problem.contains(expected) && problem.contains(&before), "{problem}");
    assert!(scene.has_package(BEFORE) && scene.sha256() != before);

    // The installation of the previous package fails.
    scene.package(Some(BEFORE), &[(BEFORE, &old), ("0.9.0", &other)]);
    scene.refuse(BEFORE, "0.9.0 (test)");
    let problem = order("no-return");
    assert!(
        problem.contains(
            "the previous version is not restored (`install kops-agent=0.0.1-1` on the node restores it): "
        ),
        "{problem}"
    );
    assert!(scene.has_package("0.9.0"));
}

#[test]
fn a_node_takes_another_version_of_its_package() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        let scene = Scene::observing(&imds);
        let bytes = fs::read(&scene.program).unwrap();
        let new_bytes = [&bytes[..], b"\n"].concat();
        let sha256 = sha256_hex(&new_bytes);
        let [old, new] = [scene.content("old", &bytes), scene.content("new", &new_bytes)];
        let url = scene.mirror.put("/new", &new_bytes);
        drop((bytes, new_bytes));
        scene.run_before(CONTROLLER);
        scene.package(Some(BEFORE), &[(BEFORE, &old), (version::NUMBER, &new)]);
        scene.order("r-1", version::NUMBER, &url, &sha256);
        let ended = scene.end_for_successor();
        assert!(ended.success() && scene.sha256() == sha256, "{ended}");
        assert_eq!(scene.beside(), ["nodeup"]);
        assert!(scene.has_package(version::NUMBER) && !scene.has_package(BEFORE));
        assert_eq!((scene.restarts(CONTROLLER), scene.replaced(version::NUMBER)), (1, 1));

        // The state is as if the process was killed before the package manager finished.
        scene.package(None, &[(BEFORE, &old), (version::NUMBER, &new)]);
        let ended = scene.followed();
        assert!(ended.success() && scene.has_package(version::NUMBER), "{ended}");
        assert_eq!(scene.annotation("kops-agent/followed"), Value::Null, "only the next process answers");
        assert_eq!(scene.replaced(version::NUMBER), 2);

        assert_eq!(scene.problem_of_successor("r-1"), "");
        assert_eq!(scene.annotation("kops-agent/program")["sha256"], sha256.as_str());
        assert_eq!(scene.replaced(version::NUMBER), 2);

        // A later check fails. Its message names the package that restores the previous version.
        fs::remove_file(scene.program_file()).unwrap();
        let file = program_file(version::NUMBER, &url, &sha256);
        scene.order_hash("r-2", &hash(&file));
        let problem = scene.problem("r-2");
        let back = format!("install kops-agent=0.0.1-1 && {} converge ", scene.program.display());
        assert!(problem.starts_with(&format!("the new program is in place (`{back}")), "{problem}");
    });
}

#[test]
fn a_killed_switch_to_a_package_with_another_program_goes_back() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        let scene = Scene::observing(&imds);
        let bytes = fs::read(&scene.program).unwrap();
        let [ordered, other] = ["\n", "\n\n"].map(|end| [&bytes[..], end.as_bytes()].concat());
        let (before, sha256) = (scene.sha256(), sha256_hex(&ordered));
        let old = scene.content("old", &bytes);
        let [new, other] = [scene.content("new", &ordered), scene.content("other", &other)];
        let url = scene.mirror.put("/new", &ordered);
        drop((bytes, ordered));
        scene.order("r-1", version::NUMBER, &url, &sha256);
        // The note looks as if the process was killed after the installation, before it read the installed program.
        let file = hash(&fs::read_to_string(scene.program_file()).unwrap());
        let packages = json!([{"name": "kops-agent", "version": "0.0.1-1"}]);
        let note = json!({
            "sha256": sha256, "file": file, "previous": before, "packages": packages, "is_unfinished": true
        });
        fs::write(scene.machine.root().join(NOTE), note.to_string()).unwrap();
        scene.package(Some(version::NUMBER), &[(BEFORE, &old), (version::NUMBER, &other)]);
        let placed = scene.program.with_file_name("placed");
        // `cp` writes the program: the kernel does not start a file that this process has open for writing.
        assert!(Command::new("cp").arg(&other).arg(&placed).status().unwrap().success());
        fs::rename(placed, &scene.program).unwrap();

        let ended = scene.followed();
        assert!(ended.success() && scene.sha256() == before, "{ended}");
        assert!(scene.has_package(BEFORE));
        assert_eq!(scene.annotation("kops-agent/followed"), Value::Null, "the previous program answers");

        // The operator corrects the repository. Then the previous program executes the order.
        scene.package(Some(BEFORE), &[(BEFORE, &old), (version::NUMBER, &new)]);
        let ended = scene.end_for_successor();
        assert!(ended.success() && scene.sha256() == sha256, "{ended}");
        assert_eq!(scene.problem_of_successor("r-1"), "");
    });
}
