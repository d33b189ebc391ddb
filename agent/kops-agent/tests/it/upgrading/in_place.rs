//! A failure after the switch to the new program reports how to restore the previous program. The Node shows the failure until a check
//! of the program succeeds.

use std::fs;

use kops_agent_process::version;
use kops_agent_tests::digest::sha256_hex;
use serde_json::Value;

use super::Scene;
use super::own_units::TIMER;
use crate::cloud_facts::{metadata, on_ubuntu};
use crate::superseded::read;

impl Scene {
    /// The beginning of the problem that a node reports if the new program is already in place. It contains the command that restores the
    /// previous version.
    fn way_back(&self) -> String {
        let (program, conf) = (self.program.display(), self.conf.display());
        format!(
            "the new program is in place (`mv {program}.previous {program} && {program} converge --conf {conf} && systemctl restart \
             kops-agent-follow.service` restores the previous version); "
        )
    }

    /// The field `unchecked` in the annotation about the program: true if the check of the program has not succeeded.
    /// Null if the annotation has no such field.
    fn unchecked(&self) -> Value {
        self.annotation("kops-agent/program")["unchecked"].clone()
    }
}

#[test]
fn a_program_in_place_that_would_change_the_node_writes_nothing() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        let scene = Scene::observing(&imds);
        let sha256 = scene.sha256();
        fs::copy(&scene.program, scene.program.with_file_name("nodeup.previous")).unwrap();
        scene.reword_own_resources();
        fs::write(scene.machine.root().join("etc/containerd/config.toml"), "").unwrap();
        scene.order("r-1", version::NUMBER, "https://mirror.example.com/x", &sha256);
        let problem = scene.problem_of_successor("r-1");
        assert!(problem.starts_with(&(scene.way_back() + "kops-agent would change this node")), "{problem}");
        assert!(problem.contains("config.toml"), "{problem}");
        assert!(read(&scene.machine, TIMER).contains("daily"));
        assert_eq!(scene.unchecked(), true);

        let converged = scene.agent(&["converge"]).output().unwrap();
        assert!(converged.status.success(), "{converged:?}");
        scene.order("r-2", version::NUMBER, "https://mirror.example.com/x", &sha256);
        assert_eq!(scene.problem_of_successor("r-2"), "");
        assert_eq!(scene.unchecked(), Value::Null);
    });
}

#[test]
fn a_successor_that_cannot_begin_its_check_tells_the_way_back() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        let scene = Scene::observing(&imds);
        let new = [&fs::read(&scene.program).unwrap()[..], b"\n"].concat();
        let (url, sha256) = (scene.mirror.put("/new", &new), sha256_hex(&new));
        drop(new);
        scene.order("r-1", version::NUMBER, &url, &sha256);
        let ended = scene.end_for_successor();
        assert!(ended.success() && scene.sha256() == sha256, "{ended}");
        fs::remove_file(scene.program_file()).unwrap();
        let problem = scene.problem("r-1");
        assert!(problem.starts_with(&scene.way_back()) && problem.contains("program.yaml"), "{problem}");
        assert_eq!(scene.unchecked(), true);

        // The next order fails before it replaces the program.
        scene.order_hash("r-2", "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=");
        let problem = scene.problem("r-2");
        assert!(!problem.contains("in place") && problem.contains("program.yaml"), "{problem}");
    });
}
