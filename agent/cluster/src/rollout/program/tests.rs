#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::super::testing::Cluster;
use super::super::{MaxUnavailable, Order, Phase, Rollout, State, Task};
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

/// A cluster whose nodes do not run the rollout's program, and whose state store has the rollout's program file.
fn cluster(groups: &[(&str, usize)]) -> Cluster {
    let mut cluster = Cluster::new(groups);
    cluster.rollout.program = Some(file("0.2.0").wanted());
    cluster.seen.program = Some(Ok(file("0.2.0")));
    cluster.members.iter_mut().for_each(|member| member.program = Some(sha256('0')));
    cluster
}

/// The node carries out its order, and then reports which program it runs.
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
    let wanted = [("amd64".to_owned(), sha256('a')), ("arm64".to_owned(), sha256('b'))];
    assert_eq!(file.wanted().sha256, BTreeMap::from(wanted));
    let one = format!("version: 0.2.0\nprograms: {{arm64: {{url: {URL}, sha256: {}}}}}", sha256('b'));
    assert_eq!(ProgramFile::parse(one.as_bytes(), "").unwrap().download(Architecture::Amd64), None);
}

#[test]
fn a_file_of_another_form_is_refused() {
    let text = text("0.2.0");
    for (old, new, expected) in [
        ("version: 0.2.0", "version: 0.2.0\nversion: 0.3.0", "duplicate"),
        ("version: 0.2.0", "version: ''", "is not a version such as 0.2.0"),
        ("version: 0.2.0", "version: 0.2.0 (abc)", "is not a version such as 0.2.0"),
        ("version: 0.2.0\n", "", "missing field"),
        ("version: 0.2.0", "version: 0.2.0\npackage: 0.2.0-1", "unknown field"),
        ("amd64:", "riscv64:", "unknown field"),
        ("sha256: a", "sha256: A", "is not a SHA-256"),
        (URL, "file:///tmp/kops-agent", "a URL has an unsupported scheme"),
        (URL, "https://user:sesame@mirror/kops-agent", "a URL has credentials"),
        (URL, "http://169.254.169.254/latest/user-data", "metadata service"),
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
    fn any_text_is_read_or_refused(text in any::<Vec<u8>>()) {
        let _ = ProgramFile::parse(&text, "");
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
fn no_order_of_a_program_names_the_authorities_that_a_policy_reads() {
    let mut cluster = cluster(&[("a", 1)]);
    cluster.policy = cluster.policy.with_policy("cluster: {follow: automatic}");
    cluster.of_name("a-00").runs = Some("b=".into());
    cluster.of_name("a-00").authorities = Some("old".into());
    cluster.seen.authorities.insert("a".into(), "new".into());
    let rollout = cluster.rollout.clone();
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.orders["a-00"].authorities, "");
    cluster.status = actions.status.unwrap();
    answer(&mut cluster, "a-00", &sha256('a'), "");
    let status = cluster.step_all(Some(&rollout)).status.unwrap();
    assert_eq!(status.phase, Phase::Done, "{status:?}");
    assert_eq!(status.without_authorities.nodes + status.groups["a"].other_authorities, 0);
}

#[test]
fn a_later_report_of_another_program_undoes_nothing() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-01"]);
    // An older program, installed by a package, changes only the annotation with the version. So the node's program is unknown.
    cluster.of_name("a-00").program = None;
    answer(&mut cluster, "a-01", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn after_a_resumption_a_node_that_has_failed_with_the_program_tries_again() {
    let mut cluster = cluster(&[("a", 1)]);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "its service has ended");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
    cluster.rollout.attempt = 2;
    assert_eq!(cluster.step(), ["a-00"], "it runs the program, and its service does not");
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
}

#[test]
fn an_order_ends_with_its_timeout_a_pause_and_an_abort() {
    let begun = || {
        let mut cluster = cluster(&[("a", 1)]);
        assert_eq!(cluster.step(), ["a-00"]);
        let order = Order::read(&cluster.of_name("a-00").order).unwrap();
        let until = kops_agent_spec::parse_timestamp(&order.until).unwrap();
        assert_eq!(until, cluster.now + time::Duration::seconds(600));
        cluster
    };
    let is_withdrawn = |cluster: &mut Cluster| {
        cluster.step();
        cluster.of_name("a-00").order.is_empty()
    };
    let mut late = begun();
    late.now += time::Duration::seconds(601);
    assert!(is_withdrawn(&mut late));
    assert_eq!(late.status.phase, Phase::Stopped);

    for state in [State::Paused, State::Aborted] {
        let mut cluster = begun();
        cluster.rollout.state = state;
        assert!(is_withdrawn(&mut cluster), "{state:?}");
        assert!(cluster.status.ordered.contains_key("a-00"), "{state:?}: until the order is gone");
        assert_eq!(cluster.step(), [""; 0]);
        assert!(cluster.status.ordered.is_empty(), "{state:?}");
    }

    let mut other = begun();
    let configuration = Rollout { id: "r-2".into(), program: None, ..other.rollout.clone() };
    other.status = Status::default();
    other.of_name("a-00").is_ready = false;
    assert_eq!(other.step_all(Some(&configuration)).withdrawn, ["a-00"]);
}

#[test]
fn only_nodes_that_have_carried_out_an_order_are_canaries() {
    let mut cluster = cluster(&[("a", 5)]);
    cluster.rollout.canary = 1;
    cluster.rollout.max_unavailable = MaxUnavailable::Nodes(5);
    cluster.of_name("a-00").program = Some(sha256('a'));
    cluster.of_name("a-01").program = None;
    assert_eq!(cluster.step(), ["a-02"]);
    assert_eq!((cluster.status.groups["a"].done, cluster.status.groups["a"].left_out), (1, 1));
    answer(&mut cluster, "a-02", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-03", "a-04"]);
    for node in ["a-03", "a-04"] {
        answer(&mut cluster, node, &sha256('a'), "");
    }
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    // The group should have 9 canaries, but only the node a-04 needs an order. The rollout does not wait for more canaries.
    cluster.rollout.id = "r-2".into();
    cluster.rollout.canary = 9;
    cluster.of_name("a-04").program = Some(sha256('0'));
    assert_eq!(cluster.step(), ["a-04"]);
}

#[test]
fn other_workers_wait_until_the_canaries_have_been_healthy_for_a_while() {
    let mut cluster = cluster(&[("a", 3), ("b", 1)]);
    cluster.rollout.canary = 1;
    cluster.rollout.observe = 300;
    cluster.rollout.max_unavailable = MaxUnavailable::Nodes(3);
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    answer(&mut cluster, "b-00", &sha256('a'), "");
    let wait = |cluster: &mut Cluster, seconds: i64, expected: &str| {
        cluster.now += time::Duration::seconds(seconds);
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Running);
        assert!(cluster.status.waits_for.contains(expected), "{}", cluster.status.waits_for);
    };
    wait(&mut cluster, 0, "the canaries: a-00 is upgraded, and is observed until 1970-01-01T00:05:00Z");
    cluster.of_name("b-00").is_healthy = false;
    wait(&mut cluster, 299, "a-00 is upgraded");
    cluster.of_name("b-00").is_healthy = true;
    wait(&mut cluster, 1, "b-00 is upgraded, and is observed until 1970-01-01T00:10:00Z");
    cluster.of_name("b-00").is_ready = false;
    wait(&mut cluster, 1, "b-00 is upgraded, and is not Ready");
    cluster.of_name("b-00").is_ready = true;
    wait(&mut cluster, 9, "is observed until 1970-01-01T00:10:10Z");
    wait(&mut cluster, 299, "is observed until 1970-01-01T00:10:10Z");
    cluster.now += time::Duration::seconds(1);
    assert_eq!(cluster.step(), ["a-01", "a-02"]);
    for node in ["a-01", "a-02"] {
        answer(&mut cluster, node, &sha256('a'), "");
    }
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    assert_eq!(cluster.status.canaries.keys().collect::<Vec<_>>(), ["a-00", "b-00"]);
}

#[test]
fn healthy_nodes_are_the_first_canaries_and_the_status_names_the_way_out_of_others() {
    let mut cluster = cluster(&[("a", 3)]);
    cluster.rollout.canary = 1;
    cluster.of_name("a-00").is_healthy = false;
    assert_eq!(cluster.step(), ["a-01"]);
    answer(&mut cluster, "a-01", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-02"], "the others follow, one at a time");
    answer(&mut cluster, "a-02", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-00"], "it was no obstacle, and has its turn");

    let mut cluster = self::cluster(&[("a", 2), ("b", 2)]);
    cluster.rollout.canary = 1;
    cluster.members.iter_mut().for_each(|member| member.is_healthy = false);
    assert_eq!(cluster.step(), ["a-00", "b-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    answer(&mut cluster, "b-00", &sha256('a'), "");
    cluster.of_name("b-00").is_healthy = true;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running);
    let waits = &cluster.status.waits_for;
    assert!(waits.contains("a-00 is upgraded, and reports a problem"), "{waits}");
    cluster.now += time::Duration::seconds(600);
    assert_eq!(cluster.step(), [""; 0], "no group begins after a failed canary");
    let failure = &cluster.status.groups["a"].failures["a-00"];
    assert!(
        failure.contains("it was never healthy for 0 s in a row") && failure.contains("converge"),
        "{failure}"
    );
    assert_eq!((cluster.status.phase, cluster.status.groups["a"].done), (Phase::Stopped, 0));
    // The operator repairs the node, and resumes.
    cluster.rollout.attempt = 2;
    cluster.of_name("a-00").is_healthy = true;
    assert_eq!(cluster.step(), ["a-01", "b-01"]);
}

#[test]
fn a_canary_that_is_healthy_for_moments_only_fails_in_time() {
    let mut cluster = cluster(&[("a", 2)]);
    (cluster.rollout.canary, cluster.rollout.observe) = (1, 300);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    for second in 0..10 {
        cluster.of_name("a-00").is_healthy = second % 2 == 0;
        assert_eq!(cluster.step(), [""; 0]);
        cluster.now += time::Duration::seconds(90);
    }
    cluster.of_name("a-00").is_healthy = true;
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Stopped);
}

#[test]
fn a_worker_that_forges_an_outcome_is_no_canary() {
    let mut cluster = cluster(&[("a", 3)]);
    cluster.rollout.canary = 1;
    // Root on a-00 reads the order of a different node, and reports an outcome of that order.
    let mut other = self::cluster(&[("a", 1)]);
    other.step();
    let order = Order::read(&other.of_name("a-00").order).unwrap();
    cluster.of_name("a-00").outcome = Some(order.outcome(""));
    assert_eq!(cluster.step(), ["a-01"], "an honest node must show that the program works");
    assert!(cluster.status.canaries.is_empty(), "{:?}", cluster.status.canaries);
    answer(&mut cluster, "a-01", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-02"]);
    // A node that has passed as a canary deletes its outcome and reports another program. The other nodes do not wait for this node.
    let canary = cluster.of_name("a-01");
    (canary.outcome, canary.program) = (None, Some(sha256('0')));
    answer(&mut cluster, "a-02", &sha256('a'), "");
    assert_eq!(cluster.step(), ["a-01"], "it takes its turn again");
}

#[test]
fn times_of_a_forged_status_stop_no_controller() {
    let mut cluster = cluster(&[("a", 2)]);
    (cluster.rollout.canary, cluster.rollout.observe) = (1, u32::MAX);
    assert_eq!(cluster.step(), ["a-00"]);
    for time in ["9999-12-31T23:59:59Z", "no time"] {
        let forged =
            Observation { attempt: 1, begun: time.into(), healthy_since: time.into(), has_passed: false };
        cluster.status.canaries.insert("a-00".into(), forged);
        cluster.step();
    }
}

#[test]
fn a_group_has_at_most_a_hundred_canaries() {
    let mut cluster = cluster(&[("a", 120)]);
    (cluster.rollout.canary, cluster.rollout.observe) = (120, 300);
    cluster.rollout.max_unavailable = MaxUnavailable::Nodes(120);
    for node in cluster.step() {
        answer(&mut cluster, &node, &sha256('a'), "");
    }
    cluster.step();
    assert_eq!(cluster.status.canaries.len(), 100);
}

#[test]
fn a_node_that_failed_in_an_earlier_rollout_gets_an_order_although_it_runs_the_program() {
    let mut cluster = cluster(&[("a", 2)]);
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "its service has ended");
    cluster.of_name("a-01").program = Some(sha256('a'));
    cluster.step();
    cluster.rollout.id = "r-2".into();
    assert_eq!(cluster.step(), ["a-00"]);
    answer(&mut cluster, "a-00", &sha256('a'), "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    // The outcome of a different task says nothing about the program.
    let other = Order {
        rollout: "r-0".into(),
        program: false,
        ..Order::read(&cluster.of_name("a-00").order).unwrap()
    };
    cluster.of_name("a-00").outcome = Some(other.outcome("kubelet is dead"));
    cluster.rollout.id = "r-3".into();
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Done);
    // The outcome of the different task does not replace the node's report that its program is unchecked.
    cluster.of_name("a-00").is_unchecked = true;
    cluster.rollout.id = "r-4".into();
    assert_eq!(cluster.step(), ["a-00"]);
}

#[test]
fn an_upgrade_that_only_waits_does_not_hold_configurations_of_the_policy() {
    let mut cluster = cluster(&[("a", 3)]);
    cluster.policy = cluster.policy.with_policy("cluster: {follow: automatic, checkPodsAfter: 0}");
    (cluster.rollout.canary, cluster.rollout.observe) = (1, 300);
    let rollout = cluster.rollout.clone();
    let step = |cluster: &mut Cluster| {
        let actions = cluster.step_all(Some(&rollout));
        (cluster.status, cluster.policy) = (actions.status.unwrap(), actions.policy);
        actions.orders.into_iter().map(|(node, order)| (node, order.task())).collect::<Vec<_>>()
    };
    let ordered = |node: &str, task| vec![(node.to_owned(), task)];
    cluster.seen.program = Some(Err(Failure::new(Kind::StoreNotFound, "the file does not exist")));
    assert_eq!(step(&mut cluster), ordered("a-00", Task::Configuration));
    assert_eq!(cluster.status.waits_for, "the file does not exist");
    cluster.act("a-00", "");
    cluster.seen.program = Some(Ok(file("0.2.0")));
    assert_eq!(step(&mut cluster), [], "no node begins for two reasons at once");
    assert_eq!(step(&mut cluster), ordered("a-00", Task::Program));
    assert_eq!(step(&mut cluster), [], "the policy waits for a node at work");
    answer(&mut cluster, "a-00", &sha256('a'), "");
    // The policy orders a new configuration for the observed canary. The outcome of this order replaces the outcome of the upgrade.
    cluster.seen.current.insert("a".into(), Ok("c=".into()));
    assert_eq!(step(&mut cluster), ordered("a-00", Task::Configuration));
    assert!(cluster.status.waits_for.contains("a-00 is upgraded, and is observed"), "{:?}", cluster.status);
    cluster.act("a-00", "");
    cluster.now += time::Duration::seconds(300);
    assert_eq!(step(&mut cluster), []);
    assert_eq!(step(&mut cluster), ordered("a-01", Task::Program), "a canary stays one");
}

#[test]
fn nodes_of_an_architecture_without_a_program_are_left_out() {
    let mut cluster = cluster(&[("a", 3)]);
    cluster.of_name("a-00").architecture = "s390x".into();
    cluster.of_name("a-01").architecture = String::new();
    assert_eq!(cluster.step(), ["a-01"]);
    assert_eq!(cluster.status.left_out.first, ["a-00"]);
}

#[test]
fn a_config_map_that_names_other_programs_than_the_file_orders_nothing() {
    let mut cluster = cluster(&[("a", 1)]);
    if let Some(program) = &mut cluster.rollout.program {
        program.sha256.insert("amd64".into(), sha256('0'));
    }
    cluster.of_name("a-00").program = Some(sha256('1'));
    assert_eq!(cluster.step(), [""; 0]);
    assert!(
        cluster.status.waits_for.contains("someone changed the ConfigMap"),
        "{}",
        cluster.status.waits_for
    );
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
    let counts = |group: &str| (cluster.status.groups[group].done, cluster.status.groups[group].left_out);
    assert_eq!([counts("a"), counts("masters")], [(1, 1), (1, 1)]);

    // A control plane that the rollout leaves out is not Ready. The other control planes wait for it.
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
        (
            Some(Err(Failure::new(Kind::StoreNotFound, "s3://c/kops-agent/program.yaml does not exist"))),
            "does not exist",
        ),
        (Some(Ok(file("0.3.0"))), "for version 0.3.0"),
    ] {
        cluster.seen.program = stored;
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Running);
        assert!(cluster.status.waits_for.contains(expected), "{}", cluster.status.waits_for);
    }
    cluster.seen.program = Some(Ok(file("0.2.0")));
    assert_eq!(cluster.step(), ["a-00"]);
    // A node with an order finishes, although the program file is missing now.
    cluster.seen.program = Some(Err(Failure::new(Kind::StoreNotFound, "gone")));
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
