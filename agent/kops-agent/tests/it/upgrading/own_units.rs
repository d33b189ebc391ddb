//! Another version may word its own units, its link and its completions differently. It writes them before it reports.

use std::fs;
use std::os::unix::fs::symlink;

use kops_agent_process::version;
use kops_agent_tests::digest::sha256_hex;

use super::{CONTROLLER, Scene, script};
use crate::cloud_facts::{metadata, on_ubuntu};
use crate::superseded::read;

pub(super) const TIMER: &str = "etc/systemd/system/kops-agent-verify.timer";
const LINK: &str = "usr/local/bin/kops-agent";

impl Scene {
    /// Writes a timer and a link as another version of the agent would write them, so this version reports drift.
    pub(super) fn reword_own_resources(&self) {
        let root = self.machine.root();
        fs::write(root.join(TIMER), "[Timer]\nOnCalendar=daily\n").unwrap();
        fs::remove_file(root.join(LINK)).unwrap();
        symlink("/usr/bin/kops-agent", root.join(LINK)).unwrap();
    }
}

#[test]
fn the_new_program_writes_its_own_units_before_it_reports() {
    on_ubuntu(|| {
        let imds = metadata("m5.large");
        for scene in [Scene::observing(&imds), Scene::superseded(&imds)] {
            let new = [&fs::read(&scene.program).unwrap()[..], b"\n"].concat();
            let (url, sha256) = (scene.mirror.put("/new", &new), sha256_hex(&new));
            drop(new);
            let (timer, link) =
                (read(&scene.machine, TIMER), fs::read_link(scene.machine.root().join(LINK)).unwrap());
            scene.reword_own_resources();
            assert_eq!(scene.agent(&["verify"]).output().unwrap().status.code(), Some(4));
            scene.order("r-1", version::NUMBER, &url, &sha256);
            let ended = scene.end_for_successor();
            assert!(ended.success() && scene.sha256() == sha256, "{ended}");
            assert_ne!(read(&scene.machine, TIMER), timer, "only the new program writes");

            assert_eq!(scene.problem_of_successor("r-1"), "");
            assert_eq!(read(&scene.machine, TIMER), timer);
            assert_eq!(fs::read_link(scene.machine.root().join(LINK)).unwrap(), link);
            let verified = scene.agent(&["verify"]).output().unwrap();
            assert!(verified.status.success(), "no report says Differs: {verified:?}");
        }
    });
}

#[test]
fn a_program_that_starts_a_service_of_another_mode_is_refused() {
    let scene = Scene::new();
    let before = scene.sha256();
    let step = format!(r#"{{"resource": "unit {CONTROLLER}", "action": "create"}}"#);
    let program = script("0.9.0", &format!(r#"echo '{{"plan": {{"steps": [{step}]}}}}'; exit 4"#));
    let url = scene.mirror.put("/new", &program);
    scene.order("r-1", "0.9.0", &url, &sha256_hex(&program));
    let problem = scene.problem("r-1");
    assert!(problem.contains(&format!("would change this node (unit {CONTROLLER})")), "{problem}");
    assert_eq!(scene.sha256(), before);
}
