//! Commands about a cluster find the API server as kubectl does: several files, a context, and a program that logs in.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::example::api_server::ApiServer;
use crate::example::{self, Ended};

/// Writes a kubeconfig, and returns its path.
fn file(folder: &Path, name: &str, text: &Value) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text.to_string()).unwrap();
    path
}

/// Two kubeconfig files. The first has a context, and the second has the cluster and the user of this context. The
/// user logs in by a program.
fn two_files(folder: &Path, server: &str) -> String {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "of-the-program"},
    });
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "interactiveMode": "Never",
        "args": ["-c", format!("echo '{credential}'")],
    });
    let first = json!({
        "current-context": "wrong",
        "contexts": [
            {"name": "wrong", "context": {"cluster": "wrong", "user": "wrong"}},
            {"name": "right", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "wrong", "cluster": {"server": "http://127.0.0.1:1"}}],
    });
    let second = json!({
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"exec": exec}}],
    });
    let [first, second] = [file(folder, "first", &first), file(folder, "second", &second)];
    format!("{}:{}:{}", folder.join("absent").display(), first.display(), second.display())
}

#[test]
fn several_files_a_context_and_a_program_lead_to_the_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = ApiServer::start();
    let files = two_files(folder.path(), &server.url);
    fs::write(folder.path().join("channel.yaml"), "kind: Addons\nmetadata: {name: empty}\nspec: {}\n")
        .unwrap();
    let store = format!("s3://channels={}", folder.path().display());
    let of_addons = ["--channel", "s3://channels/channel.yaml", "--store-mirror", &store];
    for (verb, flags, code) in
        [("fleet status", &[][..], 4), ("fleet plan", &[], 0), ("addons status", &of_addons, 0)]
    {
        let mut agent = Command::new(example::agent());
        agent
            .env_clear()
            .env("KUBECONFIG", &files)
            .args(verb.split(' '))
            .args(["--context", "right"])
            .args(flags);
        Ended::from_command(&mut agent).with(code, &[]);
        let asked = server.asked();
        assert!(!asked.is_empty(), "{verb} asks nothing");
        for request in asked {
            assert_eq!(request.authorization, "Bearer of-the-program", "{verb}: {request:?}");
        }
    }
    let mut agent = Command::new(example::agent());
    agent.env_clear().env("KUBECONFIG", &files).args(["fleet", "status", "--context", "none"]);
    Ended::from_command(&mut agent).with(1, &["there is no context \"none\"", "[KA7006]"]);
}
