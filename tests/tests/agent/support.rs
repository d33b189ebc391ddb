//! A world for one test: a copy of the example store, its servers, and machines that the agent works on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_store::{BUCKET, CONFIG_BASE, ExampleStore, REGION, releases};
use kops_agent_tests::s3::S3Server;

/// Stands for the mirror in the store that all worlds are copied from; never resolves.
const NO_MIRROR: &str = "http://mirror.invalid";

/// The binary: the one that `KOPS_AGENT` names, or the one that cargo builds now.
pub fn kops_agent() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("KOPS_AGENT") {
        Some(binary) => PathBuf::from(binary),
        None => build(),
    })
}

fn build() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "kops-agent", "--bin", "kops-agent"])
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo build --package kops-agent failed");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .unwrap()
}

/// The agent with an environment of which nothing of the caller's is left.
pub fn agent() -> Command {
    let mut command = Command::new(kops_agent());
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
    command
}

/// A store, who serves it, and who serves what its cluster downloads.
pub struct World {
    folder: tempfile::TempDir,
    store: ExampleStore,
    /// The mirror that its Cluster names.
    pub downloads: Downloads,
    /// The server of its buckets.
    pub s3: S3Server,
}

impl World {
    /// The example, with its own mirror and S3 server.
    pub fn new() -> World {
        World::with_downloads(Downloads::start(&releases()).unwrap())
    }

    /// The example, with these downloads.
    pub fn with_downloads(downloads: Downloads) -> World {
        static EXAMPLE: OnceLock<tempfile::TempDir> = OnceLock::new();
        let example = EXAMPLE.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            ExampleStore::write(folder.path(), Some(NO_MIRROR)).unwrap();
            folder
        });
        let folder = tempfile::tempdir().unwrap();
        copy(example.path(), folder.path(), &downloads.url());
        let store = ExampleStore::at(folder.path());
        let s3 = S3Server::start(&store.buckets()).unwrap();
        World { folder, store, downloads, s3 }
    }

    /// A file of the cluster's folder in the store.
    pub fn store_file(&self, path: &str) -> PathBuf {
        self.store.cluster_folder().join(path)
    }

    /// Replaces text in a file of the store, which must have it.
    pub fn edit_store(&self, path: &str, old: &str, new: &str) {
        edit(&self.store_file(path), old, new);
    }

    /// A machine of this instance group that nobody has touched yet.
    pub fn machine(&self, group: &str) -> Machine<'_> {
        self.named_machine(group, group)
    }

    /// The same, where a test needs several of a group.
    pub fn named_machine(&self, group: &str, name: &str) -> Machine<'_> {
        let folder = self.folder.path().join("roots").join(name);
        fs::create_dir_all(&folder).unwrap();
        let machine = Machine { world: self, folder };
        fs::copy(self.store.kube_env(group), machine.kube_env()).unwrap();
        fs::copy(self.store.facts(group), machine.facts()).unwrap();
        machine
    }
}

fn copy(from: &Path, to: &Path, mirror: &str) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target, mirror);
        } else {
            let text = fs::read_to_string(entry.path()).unwrap();
            fs::write(target, text.replace(NO_MIRROR, mirror)).unwrap();
        }
    }
}

/// Replaces text in a file, which must have it.
pub fn edit(path: &Path, old: &str, new: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{} has no {old:?}", path.display());
    fs::write(path, text.replace(old, new)).unwrap();
}

/// A scratch root, and what its machine gets at boot.
pub struct Machine<'a> {
    world: &'a World,
    folder: PathBuf,
}

impl Machine<'_> {
    /// Its boot config.
    pub fn kube_env(&self) -> PathBuf {
        self.folder.join("kube_env.yaml")
    }

    /// What is observed on it.
    pub fn facts(&self) -> PathBuf {
        self.folder.join("facts.yaml")
    }

    /// Its root; not made before the agent does.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A file below its root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// The text of a file below its root.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The permissions of a file below its root.
    pub fn mode(&self, path: &str) -> u32 {
        fs::metadata(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}")).mode() & 0o7777
    }

    /// The agent's command, which reads the store over S3.
    pub fn command(&self, command: &str, more: &[&str]) -> Command {
        let mut agent = agent();
        agent.envs(self.world.s3.environment(REGION));
        self.give_arguments(&mut agent, command, more);
        agent
    }

    /// The agent's command, which reads the store from its folder.
    pub fn command_on_folder(&self, command: &str, more: &[&str]) -> Command {
        let mut agent = agent();
        self.give_arguments(&mut agent, command, more);
        let bucket = self.world.store.buckets().join(BUCKET);
        agent.arg("--store-mirror").arg(format!("s3://{BUCKET}={}", bucket.display()));
        agent
    }

    fn give_arguments(&self, agent: &mut Command, command: &str, more: &[&str]) {
        agent.arg(command).arg("--conf").arg(self.kube_env()).arg("--facts").arg(self.facts());
        // A worker's boot config names only its config server, and that is another store.
        agent.args(["--config-base", CONFIG_BASE]);
        if command != "render" {
            agent.arg("--root").arg(self.root());
        }
        agent.args(more);
    }

    /// Converges, and fails the test unless the agent does.
    pub fn converge(&self) -> Ended {
        run(&mut self.command("converge", &[])).expect_code(0)
    }

    /// Everything below its root that the agent vouches for: not the cache, nor its own notes.
    pub fn tree(&self) -> Tree {
        let mut tree = tree(&self.root());
        tree.retain(|path, _| !["/var/cache", "/var/lib/kops-agent"].iter().any(|own| path.starts_with(own)));
        tree
    }
}

/// How the agent ended and what it said.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Ended {
    /// Fails the test unless it ended so.
    pub fn expect_code(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }

    /// Fails the test unless its standard error has all of these.
    pub fn expect_said(self, texts: &[&str]) -> Ended {
        for text in texts {
            assert!(self.stderr.contains(text), "does not say {text:?}:\n{}", self.stderr);
        }
        self
    }

    /// Fails the test if it blames a bug, or says a thing twice in one line.
    pub fn expect_plain_words(self) -> Ended {
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }
}

/// Runs to the end.
pub fn run(command: &mut Command) -> Ended {
    ended(command.output().unwrap())
}

/// What a finished process said; -1 stands for a signal.
pub fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// What is at each path, with all that a needless write would change.
pub type Tree = BTreeMap<String, Entry>;

/// One thing of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Permissions.
    pub mode: u32,
    /// Inode and time of the last change, in nanoseconds: writing the same again changes them.
    pub identity: (u64, i128),
    /// What it is, and what is in it.
    pub content: Content,
}

/// What something of a tree is.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Directory,
    /// A regular file.
    File(Vec<u8>),
    /// A symbolic link.
    Link(PathBuf),
    /// Neither.
    Other,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Content::Directory => f.write_str("directory"),
            Content::File(bytes) => write!(f, "file {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)])),
            Content::Link(target) => write!(f, "link {}", target.display()),
            Content::Other => f.write_str("other"),
        }
    }
}

/// Everything below a folder; nothing where there is none.
pub fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let kind = metadata.file_type();
            let content = if kind.is_dir() {
                folders.push(path.clone());
                Content::Directory
            } else if kind.is_symlink() {
                Content::Link(fs::read_link(&path).unwrap())
            } else if kind.is_file() {
                Content::File(fs::read(&path).unwrap())
            } else {
                assert!(!kind.is_block_device());
                Content::Other
            };
            // A directory's time changes with what is in it, and that is looked at by itself.
            let nanoseconds = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
            let time = if kind.is_dir() { 0 } else { nanoseconds };
            let entry = Entry { mode: metadata.mode() & 0o7777, identity: (metadata.ino(), time), content };
            tree.insert(format!("/{}", path.strip_prefix(root).unwrap().display()), entry);
        }
    }
    tree
}

/// Fails the test unless both have the same paths, permissions and contents, whenever they were written.
pub fn expect_same(one: &Tree, other: &Tree, but: impl Fn(&str) -> bool) {
    let paths: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    let differences: Vec<String> = paths
        .into_iter()
        .filter(|path| !but(path))
        .filter_map(|path| {
            let of = |tree: &Tree| tree.get(path).map(|entry| (entry.mode, entry.content.clone()));
            (of(one) != of(other)).then(|| format!("{path}: {:?} and {:?}", of(one), of(other)))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
