#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::super::testing::Cluster;
use super::super::{Order, Phase, Task};
use super::*;

const URL: &str = "https://mirror.example.com/kops-agent-linux-amd64";

fn sha256(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn text(version: &str) -> String {
    let [amd64, arm64] = [sha256('a'), sha256('b')];
    format!(
        "version: {version}\nprograms:\n  amd64: {{url: {URL}, sha256: {amd64}}}\n  arm64: {{url: s3://b/arm64, sha256: {arm64}}}\n"
    )
}

fn file(version: &str) -> ProgramFile {
    ProgramFile::parse(text(version).as_bytes(), "program.yaml").unwrap()
}

/// A cluster whose nodes report another program than the rollout's, and whose state store has the rollout's program file.
fn cluster(groups: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new(groups);
    cluster.rollout.program = Some(file("0.2.0").wanted());
    cluster.seen.program = Some(Ok(file("0.2.0")));
    cluster.members.iter_mut().for_each(|member| member.program = Some(sha256('0')));
    cluster
}

/// The node carries out its order, and reports which program it runs then.
fn answer(cluster: &mut Cluster, node: &str, runs: &str, problem: &str) {
    let member = cluster.of_name(node);
    member.program = Some(runs.to_owned());
    member.outcome = Some(Order::read(&member.order).unwrap().outcome(problem));
}

#[test]
fn the_file_names_a_program_for_each_architecture() {
    let file = file("0.2.0");
    let download = |architecture| file.download(architecture).unwrap().url.clone();
    assert_eq!(file.version, "0.2.0");
    assert_eq!([Architecture::Amd64, Architecture::Arm64].map(download), [URL, "s3://b/arm64"]);
    assert_eq!(file.hash, NodeupConfig::hash(text("0.2.0").as_bytes()));
    assert_eq!(file.wanted().sha256, BTreeSet::from([sha256('a'), sha256('b')]));
    let one = format!("version: 0.2.0\nprograms: {{arm64: {{url: {URL}, sha256: {}}}}}", sha256('b'));
    assert_eq!(ProgramFile::parse(one.as_bytes(), "").unwrap().download(Architecture::Amd64), None);
}

#[test]
fn a_file_of_another_form_is_refused() {
    let text = text("0.2.0");
    for (old, new, expected) in [
        ("version: 0.2.0", "version: 0.2.0\nversion: 0.3.0", "duplicate"),
        ("version: 0.2.0", "version: ''", "is not one such as 0.2.0"),
        ("version: 0.2.0", "version: 0.2.0 (abc)", "is not one such as 0.2.0"),
        ("version: 0.2.0\n", "", "missing field"),
        ("version: 0.2.0", "version: 0.2.0\npackage: 0.2.0-1", "unknown field"),
        ("amd64:", "riscv64:", "unknown field"),
        ("sha256: a", "sha256: A", "is not a SHA-256"),
        (URL, "mirror/kops-agent", "has no scheme"),
        (URL, "file:///tmp/kops-agent", "is not one of a server"),
        (URL, "FILE:///tmp/kops-agent", "is not one of a server"),
        (URL, "https://user:sesame@mirror/kops-agent", "has credentials"),
        (URL, "https://mirror/kops-agent?token=sesame", "has a query"),
        (URL, "https:///kops-agent", "names no host"),
        (URL, "https://mirror", "names no host or no file"),
        (URL, "http://169.254.169.254/latest/user-data", "metadata service"),
        (URL, "'http://[fe80::1]/x'", "metadata service"),
        (URL, "'http://[fd00:ec2::254]/x'", "metadata service"),
        (URL, "'http://[::ffff:169.254.169.254]/x'", "metadata service"),
        (URL, "http://2852039166/x", "metadata service"),
        (URL, "http://169.254.43518/x", "metadata service"),
        (URL, "http://0xa9fea9fe/x", "metadata service"),
        (URL, "http://metadata.google.internal./x", "metadata service"),
        (URL, "'https://mirror\\x/y'", "character that is not allowed"),
    ] {
        let refused = ProgramFile::parse(text.replacen(old, new, 1).as_bytes(), "p.yaml").unwrap_err();
        assert_eq!(refused.kind, Kind::ProgramFileWrong);
        let refused = refused.to_string();
        assert!(
            refused.contains("the program file p.yaml is wrong: ") && refused.contains(expected),
            "{refused}"
        );
        assert!(!refused.contains("sesame"), "{refused}");
    }
    let none = ProgramFile::parse(b"version: 0.2.0\nprograms: {}", "").unwrap_err().to_string();
    assert!(none.contains("names no architecture"), "{none}");
    let long = format!("{text}# {}", "x".repeat(LARGEST_PROGRAM_FILE));
    let long = ProgramFile::parse(long.as_bytes(), "").unwrap_err().to_string();
    assert!(long.contains("more than 16384 bytes"), "{long}");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<Vec<u8>>(), url in ".{0,80}") {
        let _ = ProgramFile::parse(&text, "");
        let _ = check_url(&url);
    }
}

#[test]
fn nodes_take_the_program_in_the_order_of_a_rollout() {
    let mut cluster = cluster(&[("a", 3), ("masters", 2)]);
    cluster.rollout.canary = 1;
    for node in ["masters-00", "masters-01", "a-00", "a-01", "a-02"] {
        assert_eq!(cluster.step(), [node]);
        let order = Order::read(&cluster.of_name(node).order).unwrap();
        assert_eq!((order.task(), &order.hash), (Task::Program, &file("0.2.0").hash));
        assert_eq!(cluster.step(), [""; 0]);
        cluster.of_name(node).program = Some(sha256('a'));
        assert_eq!(cluster.step(), [""; 0], "its services may still fail");
        answer(&mut cluster, node, &sha256('a'), "");
    }
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn a_node_that_runs_the_program_gets_no_order() {
    let mut cluster = cluster(&[("a", 2)]);
    cluster.of_name("a-00").program = Some(sha256('b'));
    assert_eq!(cluster.step(), ["a-01"]);
    answer(&mut cluster, "a-01", &sha256('0'), "the plan differs");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    assert_eq!(cluster.status.groups["a"].failures["a-01"], "the plan differs");
    cluster.rollout.attempt = 2;
    assert_eq!(cluster.step(), ["a-01"]);
}

#[test]
fn an_answer_of_a_node_that_runs_another_program_proves_nothing() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('0'), "");
    assert_eq!(cluster.step(), [""; 0]);
    cluster.now += time::Duration::seconds(601);
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
}

#[test]
fn nodes_that_do_not_report_their_program_are_left_out_and_named() {
    let mut cluster = cluster(&[("a", 2), ("b", 1), ("masters", 2)]);
    cluster.rollout.instance_groups = ["a", "masters"].map(str::to_owned).into();
    for node in ["masters-00", "a-01", "b-00"] {
        cluster.of_name(node).program = None;
    }
    assert_eq!(cluster.step(), ["masters-01"]);
    assert_eq!(cluster.status.left_out.first, ["a-01", "masters-00"]);
    answer(&mut cluster, "masters-01", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.phase, cluster.status.left_out.nodes), (Phase::Done, 2));

    // A left-out control plane that is not Ready still holds the others.
    cluster.of_name("masters-01").program = Some(sha256('0'));
    cluster.of_name("masters-00").is_ready = false;
    cluster.rollout.id = "r-2".into();
    assert_eq!(cluster.step(), [""; 0]);
    assert!(cluster.status.waits_for.contains("masters-00 is not Ready"), "{}", cluster.status.waits_for);
}

#[test]
fn no_node_begins_unless_the_state_store_has_the_file() {
    let mut cluster = cluster(&[("a", 2)]);
    for (stored, expected) in [
        (None, "was not read"),
        (Some(Err("s3://c/kops-agent/program.yaml does not exist".to_owned())), "does not exist"),
        (Some(Ok(file("0.3.0"))), "of version 0.3.0"),
    ] {
        cluster.seen.program = stored;
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Running);
        assert!(cluster.status.waits_for.contains(expected), "{}", cluster.status.waits_for);
    }
    cluster.seen.program = Some(Ok(file("0.2.0")));
    assert_eq!(cluster.step(), ["a-00"]);
    // A node at work finishes although the file is gone.
    cluster.seen.program = Some(Err("gone".into()));
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!((cluster.status.groups["a"].done, cluster.status.groups["a"].failed), (1, 0));
}

#[test]
fn workers_do_not_wait_for_control_planes_outside_of_the_rollout() {
    let mut cluster = cluster(&[("a", 2), ("b", 1), ("masters", 1)]);
    cluster.rollout.instance_groups = ["a".to_owned()].into();
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-01"]);
    answer(&mut cluster, "a-01", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    assert_eq!(cluster.status.groups.keys().collect::<Vec<_>>(), ["a"]);
}
