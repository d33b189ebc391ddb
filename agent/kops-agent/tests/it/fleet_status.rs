//! `fleet status` with Nodes that have arbitrary texts from their kubelets.

use std::process::Command;

use serde_json::{Value, json};

use crate::example::api_server::ApiServer;
use crate::example::{Ended, agent};

/// From this width on, Rust's formatting panics.
const TOO_WIDE: usize = 65_536;

#[test]
fn no_kubelet_ends_it_by_the_length_of_a_text() {
    let long = "x".repeat(TOO_WIDE);
    let condition = |kind: &str| json!({"type": kind, "status": "False", "reason": long, "message": long});
    let node = |name: &str, conditions: Value| {
        let metadata = json!({"name": name, "labels": {"kops.k8s.io/instancegroup": "nodes"}});
        json!({"metadata": metadata, "spec": {}, "status": {"conditions": conditions}})
    };
    let liar = node("i-1", json!([condition("KopsConfigured"), condition("Ready")]));
    let server = ApiServer::with_nodes(vec![liar, node("i-2", json!([]))]);
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = server.kubeconfig(folder.path());
    let status = |format: &str| {
        let mut status = Command::new(agent());
        status.env_clear().args(["fleet", "status", "-o", format, "--kubeconfig"]).arg(&kubeconfig);
        let ended = Ended::from_command(&mut status);
        ended.with(4, &[]);
        ended.stdout
    };
    let table = status("text");
    let lines: Vec<&str> =
        table.lines().filter(|line| line.contains(" i-1 ") || line.contains(" i-2 ")).collect();
    assert!(lines.len() == 2 && lines[0].contains("x…"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() < 4000), "{} bytes", table.len());
    let rows: Value = serde_json::from_str(&status("json")).unwrap();
    assert!(rows.to_string().contains(&long), "JSON has the whole text");
}
