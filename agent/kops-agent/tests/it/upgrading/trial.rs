//! A program that fails its trial, cannot be downloaded or is not the ordered one replaces nothing.

use std::fs;

use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::downloads::Fault;

use super::{Scene, script, script_that_follows};
use crate::superseded::hash;

#[test]
fn a_program_that_fails_its_trial_replaces_nothing() {
    let scene = Scene::new();
    let before = scene.sha256();
    let nothing = "exit 0";
    let changes = r#"echo '{"plan": {"steps": [{"resource": "file /etc/hosts"}]}}'; exit 4"#;
    let follows = |follow: &str| script_that_follows("0.9.0", follow, nothing);
    // This file looks as if a process was killed while it tried a program.
    fs::write(scene.program.with_file_name(".nodeup.kops-agent"), "tried").unwrap();
    let fails = "echo 'the state store is gone [KA2005]' >&2; exit 1";
    for (number, (program, expected)) in [
        (script("0.9.0", changes), "would change this node (file /etc/hosts)"),
        (
            script("0.9.0", fails),
            "`verify` of the new program fails: exit status: 1: the state store is gone [KA2005]",
        ),
        (script("0.9.0", "exit 4"), "the output of the new program's `verify` cannot be read"),
        (follows("echo \"unexpected argument '--check'\" >&2; exit 2"), "has no `fleet follow --check`"),
        (
            follows("echo 'thread main panicked' >&2; exit 101"),
            "`fleet follow` of the new program fails: exit status: 101: thread main panicked",
        ),
        (
            follows("echo 'error: the API server is silent [KA7001]' >&2; exit 1"),
            "because the API server does not answer (exit status: 1: error: the API server is silent [KA7001]); ",
        ),
        (follows("exit 3"), "`fleet follow` of the new program fails: exit status: 3"),
        (script("0.9.1", nothing), "does not have the version"),
        (b"#!/no/such/loader\n".to_vec(), "the new program does not start"),
        (b"no program".to_vec(), "the new program does not start"),
        (b"#!/bin/sh\nexit 7\n".to_vec(), "the new program does not start: exit status: 7"),
    ]
    .into_iter()
    .enumerate()
    {
        let url = scene.mirror.put(&format!("/{number}"), &program);
        let rollout = format!("r-{number}");
        scene.order(&rollout, "0.9.0", &url, &sha256_hex(&program));
        let problem = scene.problem(&rollout);
        assert!(problem.contains(expected), "{expected:?} is not in {problem:?}");
        assert_eq!(
            (scene.sha256(), scene.beside()),
            (before.clone(), vec!["nodeup".to_owned()]),
            "{problem}"
        );
    }

    let program = script("0.9.0", nothing);
    let url = scene.mirror.put("/other", &program);
    scene.order("other", "0.9.0", &url, &"a".repeat(64));
    let problem = scene.problem("other");
    assert!(problem.contains("cannot download") && problem.contains("SHA-256"), "{problem}");
    scene.order("missing", "0.9.0", &format!("{}/missing", scene.mirror.url()), &sha256_hex(&program));
    let problem = scene.problem("missing");
    assert!(problem.contains("/missing"), "{problem}");
    scene.mirror.break_path("/other", Fault::Claims(1 << 40));
    scene.order("large", "0.9.0", &url, &sha256_hex(&program));
    let problem = scene.problem("large");
    assert!(problem.contains("cannot download"), "{problem}");
    scene.order_until(
        "late",
        &hash(&fs::read_to_string(scene.program_file()).unwrap()),
        "2026-11-30T00:00:01Z",
    );
    let problem = scene.problem("late");
    assert!(problem.contains("has expired at 2026-11-30T00:00:01Z"), "{problem}");
    scene.order_hash("replayed", "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=");
    let problem = scene.problem("replayed");
    assert!(problem.contains("now has another kops-agent/program.yaml, for version 0.9.0"), "{problem}");
    fs::remove_file(scene.program_file()).unwrap();
    scene.order_hash("gone", "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=");
    let problem = scene.problem("gone");
    assert!(problem.contains("kops-agent/program.yaml"), "{problem}");
    assert_eq!((scene.sha256(), scene.beside()), (before, vec!["nodeup".to_owned()]));
}
