//! Shells and kubectl complete commands, with the names of the cluster's instance groups and Nodes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::example::api_server::ApiServer;
use crate::example::{Ended, Machine, agent};
use kops_agent_tests::example_store::NODES;

const VARIABLE: &str = "KOPS_AGENT_COMPLETE";

/// A command that loads `script` in bash. It prints the completions of the last word of `line`, one a line.
pub(crate) fn in_bash(script: &Path, line: &[&str]) -> Command {
    const COMPLETE: &str = "script=$1; shift; . \"$script\"\n\
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9\n\
        function=$(complete -p kops-agent); function=${function##*-F }; function=${function%% *}\n\
        \"$function\" kops-agent \"${COMP_WORDS[COMP_CWORD]}\" kops-agent; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.env_clear().args(["-c", COMPLETE, "bash"]).arg(script).args(line);
    bash
}

/// A folder with the program `kops-agent`, and a home directory.
struct Desk {
    folder: TempDir,
}

impl Desk {
    fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "home/.kube"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        symlink(agent(), folder.path().join("bin/kops-agent")).unwrap();
        Desk { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a `~/.kube/config` for the server at `url`. `user` has the fields of the kubeconfig's user.
    fn use_server(&self, url: &str, user: Value) {
        let text = json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": user}],
        });
        fs::write(self.path("home/.kube/config"), text.to_string()).unwrap();
    }

    fn with_environment(&self, mut command: Command) -> Ended {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        command.current_dir(self.path("home")).env("PATH", path).env("HOME", self.path("home"));
        Ended::from_command(&mut command)
    }

    /// Asks the program for the completions of the last word of `line`, as fish does.
    fn offered(&self, line: &[&str]) -> Vec<String> {
        let mut program = Command::new(agent());
        program.env_clear().env(VARIABLE, "fish").arg("--").arg("kops-agent").args(line);
        let ended = self.with_environment(program);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:#?}");
        ended.stdout.lines().map(str::to_owned).collect()
    }
}

fn node(name: &str, group: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"kops.k8s.io/instancegroup": group}}})
}

fn api_server() -> ApiServer {
    let other = json!({"metadata": {"name": "i-3"}});
    ApiServer::with_nodes(vec![
        node("i-1", "nodes"),
        node("i-2", "nodes"),
        node("i-0", "control-plane"),
        other,
    ])
}

#[test]
fn bash_completes_verbs_flags_values_and_live_names() {
    let desk = Desk::new();
    let server = api_server();
    desk.use_server(&server.url, json!({}));
    let script = desk.path("script");
    let mut completions = Command::new(agent());
    let printed = Ended::from_command(completions.args(["completions", "bash"]));
    printed.with(0, &[]);
    fs::write(&script, &printed.stdout).unwrap();
    for (line, completed) in [
        (&["kops-agent", "conver"][..], "converge\n"),
        (&["kops-agent", "verify", "--dee"], "--deep\n"),
        (&["kops-agent", "config", "as"], "assets\n"),
        (&["kops-agent", "plan", "--config-from", "cl"], "cluster-spec\n"),
        (&["kops-agent", "fleet", "plan", "--instance-group", ""], "control-plane\nnodes\n"),
        (&["kops-agent", "fleet", "rollout", "start", "--instance-group", "no"], "nodes\n"),
        // bash makes `=` a separate word.
        (&["kops-agent", "fleet", "plan", "--instance-group", "=", "no"], "nodes\n"),
        (&["kops-agent", "fleet", "plan", "--context", "=", "c", "--instance-group", "=", "no"], "nodes\n"),
        (&["kops-agent", "plan", "--config-from", "=", "cl"], "cluster-spec\n"),
        // bash splits the context's name at `@` and `:`, so the server is unknown.
        (&["kops-agent", "fleet", "plan", "--context", "c", "@", "d", "--instance-group", "no"], "\n"),
        (&["kops-agent", "fleet", "plan", "--context", "c", ":", "d", "--instance-group", "no"], "\n"),
        // The `config` commands read a state store, and not the cluster of the kubeconfig.
        (&["kops-agent", "config", "check", "--instance-group", "c"], "\n"),
        (&["kops-agent", "config", "assets", "--instance-group", "c"], "\n"),
        (&["kops-agent", "config", "derive", "--instance-group", "c"], "\n"),
        (&["kops-agent", "fleet", "plan", "--no-such"], "\n"),
    ] {
        let ended = desk.with_environment(in_bash(&script, line));
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), (completed, ""), "{line:?}");
    }
    fs::remove_file(desk.path("bin/kops-agent")).unwrap();
    let without_program = desk.with_environment(in_bash(&script, &["kops-agent", "conver"]));
    assert_eq!((without_program.stdout.as_str(), without_program.stderr.as_str()), ("\n", ""));
}

#[test]
fn each_shell_gets_a_script_that_asks_the_program() {
    for (shell, parts) in [
        ("bash", &["complete -o nospace", "\"kops-agent\" -- "][..]),
        ("zsh", &["#compdef kops-agent\n", "$funcstack[1]\" = \"_kops-agent\"", "kops-agent -- "]),
        ("fish", &["complete --keep-order --exclusive --command kops-agent", "=fish kops-agent -- "]),
        ("elvish", &["edit:completion:arg-completer[kops-agent]"]),
    ] {
        let mut completions = Command::new(agent());
        let script = Ended::from_command(completions.args(["completions", shell]));
        script.with(0, &[]);
        for part in parts.iter().copied().chain([VARIABLE]) {
            assert!(script.stdout.contains(part), "no {part:?} in the script of {shell}: {}", script.stdout);
        }
    }
    // There is no script for PowerShell, because such a script would run the text that the user has typed.
    let mut powershell = Command::new(agent());
    Ended::from_command(powershell.args(["completions", "powershell"])).with(2, &["[KA1001]"]);
}

#[test]
fn names_have_their_groups_and_groups_their_number_of_nodes() {
    let desk = Desk::new();
    let server = api_server();
    desk.use_server(&server.url, json!({}));
    let groups = ["control-plane\t1 node", "nodes\t2 nodes"];
    assert_eq!(desk.offered(&["fleet", "reboot", "--instance-group", ""]), groups);
    let asked = server.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(asked[0].path.starts_with("/api/v1/nodes?"), "{asked:?}");

    let nodes = ["i-0\tcontrol-plane", "i-1\tnodes", "i-2\tnodes", "i-3"];
    let mut offered = desk.offered(&["addons", "run", "--node-name", ""]);
    offered.sort();
    assert_eq!(offered, nodes);

    // The typed `--kubeconfig` decides which server is asked.
    let folder = tempfile::tempdir_in(desk.path("home")).unwrap();
    let other = ApiServer::with_nodes(vec![node("i-9", "others")]);
    let kubeconfig = other.kubeconfig(folder.path());
    let of_home = format!("~/{}/kubeconfig", folder.path().file_name().unwrap().to_str().unwrap());
    for path in [kubeconfig.to_str().unwrap(), &of_home] {
        let line = ["fleet", "plan", "--kubeconfig", path, "--instance-group", ""];
        assert_eq!(desk.offered(&line), ["others\t1 node"], "{path}");
    }
    assert_eq!(desk.offered(&["fleet", "plan", "--context", "none", "--instance-group", ""]), [""; 0]);
}

/// Without an API server, a completion ends quickly and prints nothing.
#[test]
fn without_an_api_server_there_are_no_names_and_no_errors() {
    let desk = Desk::new();
    let line = ["fleet", "plan", "--instance-group", ""];
    assert_eq!(desk.offered(&line), [""; 0], "without a kubeconfig");
    fs::write(desk.path("home/.kube/config"), "{contexts: [").unwrap();
    assert_eq!(desk.offered(&line), [""; 0], "with a kubeconfig that is no YAML");
    desk.use_server("https://127.0.0.1:1", json!({}));
    assert_eq!(desk.offered(&line), [""; 0], "with a server that is down");

    // The kernel accepts the connection, but no program answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    desk.use_server(&format!("http://{}", silent.local_addr().unwrap()), json!({}));
    let began = Instant::now();
    assert_eq!(desk.offered(&line), [""; 0], "with a silent server");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(
        desk.offered(&["fleet", "plan", "--instance-g"]),
        ["--instance-group\tShow only this instance group; may be given more than once"]
    );
}

/// The user waits for the completion, so a failed request is not retried.
#[test]
fn a_server_that_refuses_is_asked_once() {
    let desk = Desk::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    desk.use_server(&format!("http://{}", listener.local_addr().unwrap()), json!({}));
    let (told, asked) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            // Counting one request for each connection is enough, because each retry would use a new connection.
            let request = lines.take_while(|line| !line.is_empty()).last();
            let _ = told.send(request);
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    assert_eq!(desk.offered(&["fleet", "plan", "--instance-group", ""]), [""; 0]);
    let asked: Vec<_> = asked.try_iter().collect();
    assert_eq!(asked.len(), 1, "{asked:?}");
}

/// Kubernetes allows no names with shell characters. If a server sent such a name, the shell would insert it into the
/// user's command line.
#[test]
fn names_that_a_shell_could_run_are_not_offered() {
    let desk = Desk::new();
    let names = ["$(reboot)", "a;b", "a b", "", "a\tb", "good.example-1_x"];
    let nodes =
        names.iter().map(|name| node(name, "nodes")).chain([node("i-9", "`reboot`"), node("i-8", "a'")]);
    let server = ApiServer::with_nodes(nodes.collect());
    desk.use_server(&server.url, json!({}));
    assert_eq!(desk.offered(&["addons", "run", "--node-name", ""]), ["good.example-1_x\tnodes"]);
    assert_eq!(desk.offered(&["fleet", "plan", "--instance-group", ""]), ["nodes\t1 node"]);
}

/// A login program may ask the user for input, or call a cloud.
#[test]
fn no_login_program_is_run() {
    let desk = Desk::new();
    let server = api_server();
    let (ran, program) = (desk.path("ran"), desk.path("login"));
    fs::write(&program, format!("echo ran >{}\n", ran.display())).unwrap();
    desk.use_server(
        &server.url,
        json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "/bin/sh", "args": [program],
        }}),
    );
    assert_eq!(desk.offered(&["fleet", "plan", "--instance-group", ""]), [""; 0]);
    assert!(!ran.exists());
    assert!(server.asked().is_empty());
}

#[test]
fn kubectl_completes_the_plugin() {
    let desk = Desk::new();
    let server = api_server();
    desk.use_server(&server.url, json!({}));
    let plugin = desk.path("bin/kubectl_complete-kops_agent");
    symlink(agent(), &plugin).unwrap();
    fs::create_dir(desk.path("home/folder")).unwrap();
    for (words, said) in [
        (&["fleet", "plan", "--instance-group", "n"][..], "nodes\t2 nodes\n:4\n"),
        (&["fleet", "plan", "--kubeconfig", "fo"], "folder/\n:6\n"),
        (&["no", "such", "verb"], ":4\n"),
    ] {
        let mut complete = Command::new(&plugin);
        complete.env_clear().args(words);
        let ended = desk.with_environment(complete);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, said, ""), "{words:?}");
    }
}

#[test]
fn the_variable_of_completions_changes_no_other_call() {
    for value in ["", "0", "bash"] {
        let mut version = Command::new(agent());
        let ended = Ended::from_command(version.env(VARIABLE, value).arg("--version"));
        ended.with(0, &[]);
        assert!(ended.stdout.starts_with("kops-agent "), "{ended:#?}");
    }
    // Commands that change the machine also ignore the variable if the argument `--` is missing.
    let machine = Machine::new(NODES);
    let ended = Ended::from_command(machine.agent("converge").env(VARIABLE, "bash"));
    ended.with(0, &[]);
    assert!(machine.root().join("etc/containerd/config.toml").exists(), "{ended:#?}");

    for (shell, words) in [
        ("tcsh", &["--", "kops-agent", ""][..]),
        ("powershell", &["--", "kops-agent", ""]),
        ("fish", &["--"]),
    ] {
        let mut wrong = Command::new(agent());
        let ended = Ended::from_command(wrong.env(VARIABLE, shell).args(words));
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (1, "", ""), "{shell}");
    }
}
