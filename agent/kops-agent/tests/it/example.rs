//! A machine of the example cluster, on which a test runs the agent.

// Items are `pub` for the other modules of this test binary, and not every test uses each item.
#![allow(dead_code, unreachable_pub)]

pub mod apart;
pub mod api_server;
pub mod kubelet;
pub mod listener;
pub mod worker;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_cluster::ExampleCluster;
use kops_agent_tests::example_keys::{Keyset, make_keysets};
use kops_agent_tests::example_store::{CONFIG_BASE, releases_before_1_37};
use kops_agent_tests::program::kops_agent;
use tempfile::TempDir;

pub fn agent() -> PathBuf {
    kops_agent(env!("CARGO_BIN_EXE_kops-agent"))
}

/// Copies the program with `cp`. If this process wrote the file, a child of another test could inherit the open file,
/// and the copy would not start ("Text file busy").
pub fn copy_agent(to: &Path) {
    assert!(Command::new("cp").arg(agent()).arg(to).status().unwrap().success());
}

/// A server with the example cluster for one test, and the scratch root of one machine of the cluster.
pub struct Machine {
    pub cluster: ExampleCluster,
    group: &'static str,
    folder: TempDir,
    root: PathBuf,
}

impl Machine {
    pub fn new(group: &'static str) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ExampleCluster::start(&folder.path().join("cluster"), keysets()).unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        Machine { cluster, group, folder, root }
    }

    /// Also serves the downloads of a store that kOps before 1.37 wrote.
    pub fn serve_downloads_before_1_37(&self) {
        for (path, content) in releases_before_1_37().stand_ins().unwrap() {
            self.downloads().publish(&path, &content);
        }
    }

    /// Renames the cluster to `demo.k8s.local`, and keeps the URLs of its store. kOps up to 1.36 publishes the names
    /// of a cluster with such a name by gossip.
    pub fn publish_names_by_gossip(&self) {
        const RENAME: &str = "s/demo\\.example\\.com/demo.k8s.local/g; s#\\(//[^/]*/\\)demo\\.k8s\\.local#\\1demo.example.com#g";
        let store = &self.cluster.store;
        let mut rename = Command::new("find");
        rename.args([store.cluster_folder(), store.kube_env(self.group)]);
        rename.args(["-type", "f", "-not", "-path", "*/pki/*", "-not", "-path", "*/secrets/*"]);
        rename.args(["-exec", "sed", "--in-place", RENAME, "{}", "+"]);
        assert!(rename.status().unwrap().success());
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn set_root(&mut self, root: PathBuf) {
        self.root = root;
    }

    /// A folder for files of this test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn downloads(&self) -> &Downloads {
        self.cluster.downloads.as_ref().unwrap()
    }

    /// A command of the agent for this machine. The caller adds arguments.
    pub fn agent(&self, verb: &str) -> Command {
        self.agent_with_store(verb, CONFIG_BASE)
    }

    pub fn agent_with_store(&self, verb: &str, config_base: &str) -> Command {
        let mut agent = self.call(verb, config_base);
        agent.arg("--root").arg(self.root());
        agent
    }

    pub fn agent_without_root(&self, verb: &str) -> Command {
        self.call(verb, CONFIG_BASE)
    }

    /// A command with an https proxy at an address where nothing listens. So a test cannot reach the publishers if a
    /// mirror fails.
    fn call(&self, verb: &str, config_base: &str) -> Command {
        let mut agent = self.cluster.agent(&agent(), verb, self.group, config_base);
        agent.env("HTTPS_PROXY", "http://127.0.0.1:1");
        agent
    }

    /// The output of `render`, as JSON.
    pub fn state(&self, flags: &[&str]) -> String {
        let ended = Ended::from_command(self.agent_without_root("render").args(["-o", "json"]).args(flags));
        ended.with(0, &[]);
        ended.stdout
    }

    pub fn run(&self, verb: &str, flags: &[&str]) -> Ended {
        Ended::from_command(self.agent(verb).args(flags))
    }

    /// The paths of all files below the root, except the agent's own files.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        collect(&self.root, &self.root, &mut files);
        files.retain(|file| {
            !file.starts_with("var/lib/kops-agent/") && !file.starts_with("var/cache/nodeup/")
        });
        files.sort();
        files
    }

    /// The files in the download cache, by name.
    pub fn cached(&self) -> Vec<String> {
        let mut files = Vec::new();
        let cache = self.root.join("var/cache/nodeup");
        collect(&cache, &cache, &mut files);
        files
    }
}

/// The result of a command: exit code and output.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn from_command(command: &mut Command) -> Ended {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let code = output.status.code().unwrap_or_else(|| panic!("{}: {stderr}", output.status));
        Ended { code, stdout, stderr }
    }

    /// Asserts the exit code, and that standard error contains all `parts`.
    #[track_caller]
    pub fn with(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {self:#?}");
        }
    }
}

/// The keysets of all tests in this binary. They are made only once, because this takes longer than all else in a
/// test.
pub fn keysets() -> &'static [Keyset] {
    static KEYSETS: OnceLock<Vec<Keyset>> = OnceLock::new();
    KEYSETS.get_or_init(|| make_keysets().unwrap())
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            collect(root, &path, files);
        } else {
            files.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}
