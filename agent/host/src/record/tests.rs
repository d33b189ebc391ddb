use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use kops_agent_plan::diff::{Action, OwnedNow, Plan, Stage, Step};
use kops_agent_plan::resource::{DesiredState, Directory, File, Resource, Symlink, Unit};
use kops_agent_spec::digest::sha256_hex;

use super::*;
use crate::digests::{Depth, Digests};
use crate::root::{Entry, Root};

struct Machine {
    folder: tempfile::TempDir,
    root: Root,
    desired: DesiredState,
    record: Record,
}

fn step(resource: &Resource, action: Action) -> Step {
    Step { stage: Stage::Files, resource: resource.id(), action, changes: vec![] }
}

impl Machine {
    /// A machine with a file, a directory and a link. The agent has just made them in a finished run.
    fn settled() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let mut desired = DesiredState::default();
        desired.add(Directory::new("/etc/d"));
        desired.add(File::text("/etc/d/file", "text"));
        desired.add(Symlink { path: "/etc/link".into(), target: "d".into() });
        std::fs::create_dir_all(folder.path().join("etc/d")).unwrap();
        std::fs::write(folder.path().join("etc/d/file"), "text").unwrap();
        std::os::unix::fs::symlink("d", folder.path().join("etc/link")).unwrap();
        let steps = desired.iter().map(|(_, resource)| step(resource, Action::Create)).collect();
        let mut record = Record::default();
        record.claim(&root, &Plan { steps, ..Plan::default() }, &desired, &BTreeMap::new()).unwrap();
        record.settle(&root, &desired, &BTreeMap::new()).unwrap();
        Machine { folder, root, desired, record }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("etc/d/file")
    }

    fn now(&self, id: &str, depth: Depth) -> OwnedNow {
        let digests = Digests::default();
        let deep = (depth == Depth::Content).then_some(&digests);
        let owned = self.record.owned(&self.root, deep).unwrap();
        owned.into_iter().find(|(found, _)| found.to_string() == id).unwrap().1.now
    }
}

#[test]
fn a_written_record_recognizes_the_agents_files() {
    let machine = Machine::settled();
    machine.record.write(&machine.root).unwrap();
    assert_eq!(Record::read(&machine.root).unwrap(), machine.record);
    let path = machine.folder.path().join("var/lib/kops-agent/record.json");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for id in ["directory /etc/d", "file /etc/d/file", "symlink /etc/link"] {
        assert_eq!(machine.now(id, Depth::Touched), OwnedNow::AsLeft, "{id}");
        assert_eq!(machine.now(id, Depth::Content), OwnedNow::AsLeft, "{id}");
    }
}

#[test]
fn changes_by_others_are_reported() {
    let machine = Machine::settled();
    std::fs::write(machine.file(), "another text").unwrap();
    std::fs::set_permissions(machine.file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let changed = |how: &[&str]| OwnedNow::Changed(how.iter().map(|how| (*how).to_owned()).collect());
    assert_eq!(machine.now("file /etc/d/file", Depth::Touched), changed(&["content", "mode"]));
    std::fs::remove_file(machine.file()).unwrap();
    assert_eq!(machine.now("file /etc/d/file", Depth::Touched), OwnedNow::Gone);
    std::fs::create_dir(machine.file()).unwrap();
    assert_eq!(machine.now("file /etc/d/file", Depth::Touched), changed(&["type"]));
    std::fs::remove_file(machine.folder.path().join("etc/link")).unwrap();
    std::os::unix::fs::symlink("e", machine.folder.path().join("etc/link")).unwrap();
    assert_eq!(machine.now("symlink /etc/link", Depth::Touched), changed(&["target"]));
}

#[test]
fn a_rewrite_with_the_same_bytes_is_no_change() {
    let machine = Machine::settled();
    std::fs::remove_file(machine.file()).unwrap();
    std::fs::write(machine.file(), "text").unwrap();
    std::fs::set_permissions(machine.file(), std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(machine.now("file /etc/d/file", Depth::Touched), OwnedNow::AsLeft);
}

#[test]
fn an_earlier_resource_never_becomes_the_agents_own() {
    let mut machine = Machine::settled();
    let mut record = Record::default();
    let file = File::text("/etc/d/file", "text").into();
    let plan = Plan { steps: vec![step(&file, Action::Change)], ..Plan::default() };
    record.claim(&machine.root, &plan, &machine.desired, &BTreeMap::new()).unwrap();
    record.settle(&machine.root, &machine.desired, &BTreeMap::new()).unwrap();
    machine.record = record;
    let owned = machine.record.owned(&machine.root, None).unwrap();
    assert!(owned.values().all(|owned| owned.was_there), "resources that others changed or made: {owned:#?}");
}

#[test]
fn a_unit_written_over_a_packages_unit_is_the_agents_own() {
    let mut machine = Machine::settled();
    let unit: Resource = Unit::new("a.service", "[Service]\n").into();
    machine.desired.add(unit.clone());
    // systemd knows the unit from the package's file, so the step does not create it.
    let plan = Plan { steps: vec![step(&unit, Action::Change)], ..Plan::default() };
    machine.record.claim(&machine.root, &plan, &machine.desired, &BTreeMap::new()).unwrap();
    std::fs::create_dir_all(machine.folder.path().join("etc/systemd/system")).unwrap();
    std::fs::write(machine.folder.path().join("etc/systemd/system/a.service"), "[Service]\n").unwrap();
    machine.record.settle(&machine.root, &machine.desired, &BTreeMap::new()).unwrap();
    let owned = machine.record.owned(&machine.root, None).unwrap();
    assert!(!owned[&unit.id()].was_there);
    // Now an earlier run of the agent has written the existing file.
    machine.record.claim(&machine.root, &plan, &machine.desired, &BTreeMap::new()).unwrap();
    assert!(!machine.record.owned(&machine.root, None).unwrap()[&unit.id()].was_there);
}

#[test]
fn files_and_links_of_an_interrupted_run_count_as_unchanged() {
    let mut machine = Machine::settled();
    let mut desired = DesiredState::default();
    desired.add(File::text("/etc/d/file", "another"));
    desired.add(Symlink { path: "/etc/link".into(), target: "e".into() });
    let steps = desired.iter().map(|(_, resource)| step(resource, Action::Change)).collect();
    let written = BTreeMap::from([("/etc/d/file".to_owned(), sha256_hex(b"another"))]);
    let plan = Plan { steps, ..Plan::default() };
    machine.record.claim(&machine.root, &plan, &desired, &written).unwrap();
    for text in ["text", "another"] {
        std::fs::write(machine.file(), text).unwrap();
        assert_eq!(machine.now("file /etc/d/file", Depth::Touched), OwnedNow::AsLeft, "{text}");
    }
    std::fs::write(machine.file(), "anothe").unwrap();
    assert_ne!(machine.now("file /etc/d/file", Depth::Touched), OwnedNow::AsLeft);
    for (target, is_ours) in [("d", true), ("e", true), ("f", false)] {
        let link = machine.folder.path().join("etc/link");
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
        let now = machine.now("symlink /etc/link", Depth::Touched);
        assert_eq!(now == OwnedNow::AsLeft, is_ours, "{target}");
    }
}

#[test]
fn resources_that_are_no_longer_desired_are_forgotten() {
    let mut machine = Machine::settled();
    machine.record.settle(&machine.root, &DesiredState::default(), &BTreeMap::new()).unwrap();
    assert_eq!(machine.record.claims().count(), 0);
}

#[test]
fn the_hash_of_a_file_is_known_until_it_is_touched() {
    let machine = Machine::settled();
    let metadata = |machine: &Machine| {
        let (dir, name) = machine.root.parent("/etc/d/file").unwrap().unwrap();
        match dir.entry(&name).unwrap().unwrap() {
            Entry::File(metadata) => metadata,
            _ => panic!("not a file"),
        }
    };
    let known = machine.record.known_sha256("/etc/d/file", &metadata(&machine));
    assert_eq!(known, Some(sha256_hex(b"text").as_str()));
    std::fs::write(machine.file(), "tex").unwrap();
    assert_eq!(machine.record.known_sha256("/etc/d/file", &metadata(&machine)), None);
}
