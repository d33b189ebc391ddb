//! Runs the blocks of shell of the pages that an operator follows step by step: as printed, in order, with a machine
//! of the example cluster instead of the operator's machine. Paths of the machine lead to a folder. Stand-ins replace
//! the programs of others, and accept every call. The module `kops` checks the commands and flags of kOps.

mod golden_image;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kops_agent_cluster::rollout::{PROGRAM_FILE, ProgramFile};
use kops_agent_tests::digest::sha256_hex;
use kops_agent_tests::example_cluster::leave_as_nodeup;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};
use tempfile::TempDir;

use super::commands::is_kops_agent;
use super::page::{Block, Page};
use super::repository::{Repository, checkout};
use crate::example::api_server::ApiServer;
use crate::example::{Ended, Machine, agent};
use crate::superseded::pinned;

/// Blocks that no test runs. Each entry has the page, a part of the block, and the reason.
const NOT_RUN: [(&str, &str, &str); 8] = [
    ("docs/rotate.md", "kops create keypair", A_ROTATION),
    ("docs/rotate.md", "kops promote keypair", A_ROTATION),
    ("docs/rotate.md", "kops distrust keypair", A_ROTATION),
    ("docs/upgrade.md", "fleet upgrade", "a controller leads the rollout: tests/cluster/tests/agents.rs"),
    ("docs/take-over.md", "takeover --check\n", "it asks an API server: tests/tests/controller/takeover.rs"),
    (
        "docs/take-over.md",
        "takeover --check --back\n",
        "it asks an API server: tests/tests/controller/takeover.rs",
    ),
    ("docs/monitoring.md", "promtool", "tests/prometheus/run runs promtool on these files"),
    ("docs/redhat.md", "ps -eZ", "only a kernel with SELinux knows these domains"),
];
const A_ROTATION: &str = "a controller leads the rollouts: tests/cluster/tests/rotation.rs";

/// Programs other than kops-agent that are replaced by stand-ins. A stand-in accepts every call.
const OTHERS: [&str; 17] = [
    "apt-get",
    "aws",
    "ausearch",
    "cloud-init",
    "crictl",
    "debmirror",
    "dnf",
    "getenforce",
    "image-builder",
    "journalctl",
    "kops",
    "kubectl",
    "packer",
    "restorecon",
    "rpm",
    "setenforce",
    "systemctl",
];
/// Ordinary programs with which a command on a page may begin.
const OF_THE_SHELL: [&str; 9] = ["cat", "chmod", "cp", "curl", "echo", "install", "mv", "sed", "sudo"];

/// The blocks without a language that begin with a program. No test reads such a block as shell.
pub fn untyped(page: &Page) -> Vec<&str> {
    let is_program =
        |word: &str| is_kops_agent(word) || OTHERS.contains(&word) || OF_THE_SHELL.contains(&word);
    let is_untyped = |block: &&Block| {
        block.language.is_empty() && block.text.split_whitespace().next().is_some_and(is_program)
    };
    page.blocks.iter().filter(is_untyped).map(|block| block.text.as_str()).collect()
}

/// A folder in which a page's blocks of shell run.
struct Walk {
    page: Page,
    folder: TempDir,
    /// Paths on the page. In this test, each path is replaced by the path beside it.
    places: Vec<(&'static str, PathBuf)>,
    /// The numbers of the blocks that ran.
    done: RefCell<BTreeSet<usize>>,
}

impl Walk {
    fn new(page: &str) -> Walk {
        let folder = tempfile::tempdir().unwrap();
        let walk = Walk { page: Page::read(page), folder, places: vec![], done: RefCell::default() };
        for name in ["bin", "home", "released"] {
            fs::create_dir(walk.path(name)).unwrap();
        }
        for name in OTHERS {
            walk.stand_in(name, "");
        }
        walk.stand_in("sudo", r#"exec "$@""#);
        // The stand-in for curl copies the files of a release by their names, and prints the file of a `file://` URL. For
        // every other URL, it prints the file `served`.
        let download = format!(
            "for url; do :; done\ncase $url in\n*/releases/download/*) exec cp -- {}/\"${{url##*/}}\" . ;;\n\
             file://*) exec cat \"${{url#file://}}\" ;;\nesac\nexec cat {}",
            walk.path("released").display(),
            walk.path("served").display()
        );
        fs::write(walk.path("served"), "").unwrap();
        walk.stand_in("curl", &download);
        walk
    }

    /// A walk in which `kops-agent` always acts on `node`, whatever paths the page has.
    fn on(page: &str, node: &Machine) -> Walk {
        let mut walk = Walk::new(page);
        let kubeconfig = ApiServer::start().kubeconfig(walk.folder.path());
        program(&walk.path("bin/kops-agent"), &agent_of(node, &kubeconfig));
        walk.places = vec![
            ("/opt/kops/conf/kube_env.yaml", node.cluster.store.kube_env(CONTROL_PLANE)),
            ("/srv/kubernetes", node.root().join("srv/kubernetes")),
        ];
        walk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a program that adds its call to the file `asked`, and then runs `script`.
    fn stand_in(&self, name: &str, script: &str) {
        let asked = self.path("asked");
        program(&self.path("bin").join(name), &format!("echo \"{name} $*\" >>{}\n{script}", asked.display()));
    }

    /// The recorded calls of a program, one a line.
    fn asked(&self, name: &str) -> String {
        let asked = fs::read_to_string(self.path("asked")).unwrap_or_default();
        let of_program = |line: &&str| line.split(' ').next() == Some(name);
        asked.lines().filter(of_program).map(|line| format!("{line}\n")).collect()
    }

    /// The numbers of the shell blocks that contain `part`.
    fn with(&self, part: &str) -> Vec<usize> {
        let is_one = |block: &Block| block.language == "sh" && block.text.contains(part);
        (0..self.page.blocks.len()).filter(|number| is_one(&self.page.blocks[*number])).collect()
    }

    /// Runs the only shell block that contains `part`.
    fn run(&self, part: &str) -> Ended {
        let [number] = self.with(part)[..] else { panic!("{}: not one block has {part:?}", self.page.name) };
        self.run_block(number)
    }

    fn run_block(&self, number: usize) -> Ended {
        self.done.borrow_mut().insert(number);
        let block = self.page.blocks[number].text.clone();
        let script = self
            .places
            .iter()
            .fold(block, |script, (path, place)| script.replace(path, place.to_str().unwrap()));
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.path("bin").display());
        let mut shell = Command::new("bash");
        shell.env_clear().env("PATH", path).args(["-euo", "pipefail", "-c", &script]);
        let ended = Ended::from_command(shell.current_dir(self.path("home")));
        assert!(ended.code == 0, "{}: {script}{ended:#?}", self.page.name);
        ended
    }

    /// Runs all remaining blocks in their order, except those in `NOT_RUN`. Fails if a block looks like shell but is
    /// not marked as `sh`.
    fn run_the_rest(&self) {
        let untyped = untyped(&self.page);
        assert!(untyped.is_empty(), "{}: blocks of shell without `sh`: {untyped:#?}", self.page.name);
        let left = |part: &str| -> usize {
            let [number] = self.with(part)[..] else {
                panic!("{}: NOT_RUN names {part:?}, which is not in one block", self.page.name)
            };
            assert!(!self.done.borrow().contains(&number), "{}: {part:?} runs", self.page.name);
            number
        };
        let of_page = NOT_RUN.iter().filter(|(page, ..)| *page == self.page.name);
        let left: BTreeSet<usize> = of_page.map(|(_, part, _)| left(part)).collect();
        for number in self.with("") {
            if !left.contains(&number) && !self.done.borrow().contains(&number) {
                self.run_block(number);
            }
        }
    }

    /// The first block of the page that is in `language` and begins with `begin`.
    fn block(&self, language: &str, begin: &str) -> &str {
        let mut blocks = self.page.blocks.iter();
        let block = blocks.find(|block| block.language == language && block.text.starts_with(begin));
        &block.unwrap_or_else(|| panic!("{} shows no {language} with {begin}", self.page.name)).text
    }
}

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script that runs the agent for this machine, and confirms `reset`. `fleet`, `doctor` and `config assets --check`
/// may exit with 4, because the example cluster has problems.
fn agent_of(node: &Machine, kubeconfig: &Path) -> String {
    let store = &node.cluster.store;
    let variables: String =
        node.cluster.environment().iter().map(|(name, value)| format!("export {name}='{value}'\n")).collect();
    let [agent, root, facts, conf, kubeconfig] =
        [&agent(), node.root(), &store.facts(CONTROL_PLANE), &store.kube_env(CONTROL_PLANE), kubeconfig]
            .map(|path| path.display().to_string());
    format!(
        "{variables}export HTTPS_PROXY=http://127.0.0.1:1\n\
         case $1 in\n\
         --version) exec {agent} \"$@\" ;;\n\
         config) {agent} \"$@\" || [ $? = 4 ]; exit ;;\n\
         status) exec {agent} \"$@\" --root {root} ;;\n\
         reset) exec {agent} \"$@\" --root {root} --yes ;;\n\
         fleet) {agent} \"$@\" --kubeconfig {kubeconfig} || [ $? = 4 ]; exit ;;\n\
         esac\n\
         case \"$*\" in *--conf*) ;; *) set -- \"$@\" --conf {conf} ;; esac\n\
         [ \"$1\" = render ] || set -- \"$@\" --root {root}\n\
         set -- \"$@\" --facts {facts} --config-base {CONFIG_BASE}\n\
         [ \"$1\" = doctor ] || exec {agent} \"$@\"\n\
         {agent} \"$@\" || [ $? = 4 ]"
    )
}

fn converged() -> Machine {
    let node = Machine::new(CONTROL_PLANE);
    node.run("converge", &[]).with(0, &[]);
    node
}

/// The example control plane after a run of nodeup.
fn left_by_nodeup() -> Machine {
    let node = converged();
    leave_as_nodeup(node.root()).unwrap();
    node
}

/// Every file below a folder, with its content and modification time.
fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, about) = (entry.path(), entry.path().symlink_metadata().unwrap());
        if about.is_dir() {
            files.extend(snapshot(&path));
        }
        let content = if about.is_file() { fs::read(&path).unwrap() } else { vec![] };
        files.insert(path, (content, about.modified().unwrap()));
    }
    files
}

#[test]
fn every_test_that_covers_a_block_is_there() {
    let tests = NOT_RUN.iter().flat_map(|(.., why)| why.split(' ')).filter(|word| word.starts_with("tests/"));
    let lost: Vec<&str> = tests.filter(|test| !checkout().join(test).is_file()).collect();
    assert!(lost.is_empty(), "NOT_RUN names tests that do not exist: {lost:?}");
}

/// The commands before `converge` change nothing. The commands in "Go back" remove all files of kops-agent.
#[test]
fn try_md_works_as_printed() {
    let node = left_by_nodeup();
    let mut walk = Walk::on("docs/try.md", &node);
    walk.places.push(("/var/lib/kops-agent", node.root().join("var/lib/kops-agent")));
    fs::rename(walk.path("bin/kops-agent"), walk.path("released/kops-agent-linux-amd64")).unwrap();
    let sums = Command::new("sh")
        .args(["-c", "sha256sum kops-agent-linux-amd64 >SHA256SUMS"])
        .current_dir(walk.path("released"))
        .status();
    assert!(sums.unwrap().success());

    assert_eq!(walk.run("grep").stdout, "reads the state store\n");
    assert_eq!(walk.run("curl").stdout, "kops-agent-linux-amd64: OK\n");

    let before = snapshot(node.root());
    let plan = walk.run("kops-agent plan --conf /opt/kops/conf/kube_env.yaml\n");
    // The page does not show the diffs of the plan.
    let lines = plan.stdout.lines().filter(|line| !line.starts_with("      "));
    let shown: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(shown, walk.block("text", "kernel"), "{plan:#?}");
    assert_eq!(shown, Walk::new("README.md").block("text", "kernel"));
    assert!(snapshot(node.root()) == before, "a plan changed the machine");
    assert_eq!(walk.asked("systemctl"), "");

    let converged = walk.run("kops-agent converge");
    assert!(converged.stdout.contains("converged    since "), "{converged:#?}");
    assert!(converged.stdout.ends_with("Nothing to do: this node is as it should be.\n"), "{converged:#?}");

    walk.run("rm -r");
    assert_eq!(walk.asked("systemctl"), "systemctl restart kops-configuration.service\n");
    assert!(!node.root().join("var/lib/kops-agent").exists());
    assert_eq!(fs::read_dir(walk.path("home")).unwrap().count(), 0);
    walk.run_the_rest();
}

/// `kops update cluster` applies the new fileRepository only to the group `canary`. The spec gets its old
/// fileRepository back before a machine is replaced.
#[test]
fn canary_md_works_as_printed() {
    const PREFIX: &str =
        "kops edit cluster --set spec.assets.fileRepository=https://s3.eu-west-1.amazonaws.com/mirror-bucket";
    let node = converged();
    let walk = Walk::on("docs/canary.md", &node);
    walk.run_the_rest();
    let calls = [
        "kops create instancegroup canary --role node --subnet eu-west-1a --edit=false",
        "kops edit instancegroup canary --set spec.minSize=1 --set spec.maxSize=1",
        "kops get cluster -o yaml",
        &format!("{PREFIX}/kops-agent-1"),
        "kops update cluster --instance-group canary",
        "kops update cluster --instance-group canary --yes",
        &format!("{PREFIX}/kops"),
        "kops rolling-update cluster --instance-group canary --yes",
    ];
    assert_eq!(walk.asked("kops").lines().collect::<Vec<_>>(), calls);

    let policy: serde_json::Value = serde_json::from_str(walk.block("json", "{")).unwrap();
    let statements = policy["Statement"].as_array().unwrap();
    for statement in statements {
        assert_eq!(statement["Action"], "s3:GetObject", "{statement:#}");
        assert_eq!(statement["Resource"], "arn:aws:s3:::mirror-bucket/*", "{statement:#}");
        assert_eq!(statement["Condition"].as_object().unwrap().len(), 1, "{statement:#}");
    }
    let conditions: Vec<_> = statements.iter().map(|statement| &statement["Condition"]).collect();
    assert!(conditions[0]["StringEquals"]["aws:SourceVpce"].is_string(), "{policy:#}");
    assert!(conditions[1]["IpAddress"]["aws:SourceIp"].is_string(), "{policy:#}");
    assert_eq!(conditions.len(), 2, "{policy:#}");
}

/// The page's commands replace the program of a boot script, and keep the previous program. The `program.yaml` on the
/// page is valid.
#[test]
fn upgrade_md_works_as_printed() {
    let node = converged();
    let mut walk = Walk::on("docs/upgrade.md", &node);
    let bin = walk.path("opt");
    fs::create_dir(&bin).unwrap();
    walk.places.push(("/opt/kops/bin", bin.clone()));
    program(&bin.join("nodeup"), "echo old");
    program(&walk.path("home/kops-agent"), "echo new");
    walk.run("nodeup.new");
    let says = |name: &str| Ended::from_command(&mut Command::new(bin.join(name))).stdout;
    assert_eq!((says("nodeup"), says("nodeup.previous")), ("new\n".to_owned(), "old\n".to_owned()));
    assert_eq!(walk.asked("systemctl"), "systemctl restart kops-configuration.service\n");

    let file = walk.block("yaml", "# program.yaml\n");
    let programs = ProgramFile::parse(file.as_bytes(), "program.yaml").unwrap().wanted().sha256;
    assert_eq!(programs.into_keys().collect::<Vec<_>>(), ["amd64", "arm64"]);
    walk.run("aws s3 cp");
    assert_eq!(walk.asked("aws"), format!("aws s3 cp program.yaml s3://STORE/CLUSTER/{PROGRAM_FILE}\n"));
    walk.run_the_rest();
}

#[test]
fn rotate_md_works_as_printed() {
    let (node, _) = pinned(CONTROL_PLANE, "control-plane");
    let walk = Walk::on("docs/rotate.md", &node);
    let signer = walk.run("openssl").stdout;
    assert!(signer.contains("kubernetes-ca") && signer.contains("Authority Key Identifier"), "{signer}");
    walk.run_the_rest();
}

/// The check of a mirror finds a wrong file and a missing file.
#[test]
fn air_gapped_md_works_as_printed() {
    let node = Machine::new(CONTROL_PLANE);
    let mut walk = Walk::on("docs/air-gapped.md", &node);
    walk.places.push(("s3://BUCKET/CLUSTER", CONFIG_BASE.into()));
    let apt = walk.path("apt");
    fs::create_dir(&apt).unwrap();
    walk.places.push(("/etc/apt", apt.clone()));
    for name in ["right", "wrong"] {
        fs::write(walk.path(name), name).unwrap();
    }
    let download = |name: &str| format!("file://{}", walk.path(name).display());
    walk.run(">assets.txt");
    let list = walk.path("home/assets.txt");
    let listed = fs::read_to_string(&list).unwrap();
    assert!(listed.contains("/linux/amd64/kubelet\n"), "{listed}");
    let packages = walk.run("$1 == \"package\"").stdout;
    assert!(packages.lines().any(|name| name == "libseccomp2"), "{packages}");
    walk.run("--simulate");
    let simulated = walk.asked("apt-get");
    assert!(simulated.starts_with("apt-get update\napt-get install --simulate "), "{simulated}");
    assert!(simulated.contains(" libseccomp2"), "{simulated}");
    let files = ["right", "wrong", "missing"]
        .map(|name| format!("file {} {}\n", sha256_hex(b"right"), download(name)));
    let unhashed = format!("file - {}\n", download("wrong"));
    fs::write(&list, files.concat() + &unhashed + "image - registry.example.com/pause:3.10\n").unwrap();
    let asked = walk.run("--check").stdout;
    assert!(asked.lines().any(|line| line.starts_with("ok file ")), "{asked}");
    let checked = walk.run("sha256sum");
    let [right, wrong, missing] = ["right", "wrong", "missing"].map(download);
    assert_eq!(checked.stdout, format!("ok {right}\nWRONG {wrong}\nWRONG {missing}\n"), "{checked:#?}");
    walk.run("kops-agent doctor");
    node.run("converge", &[]).with(0, &[]);
    walk.run_the_rest();
    assert_eq!(walk.asked("crictl"), "crictl pull registry.example.com/pause:3.10\n");
    let sources = fs::read_to_string(apt.join("sources.list")).unwrap();
    assert!(
        sources.lines().count() == 2 && sources.lines().all(|line| line.starts_with("deb [signed-by=/usr/")),
        "{sources}"
    );
}

/// Also checks that the page's drop-in for kops-agent-controller.service only adds one flag to the unit's command.
#[test]
fn monitoring_md_works_as_printed() {
    let node = converged();
    let mut walk = Walk::on("docs/monitoring.md", &node);
    let (units, metrics) = (walk.path("units"), walk.path("metrics"));
    walk.places.push(("/etc/systemd/system", units.clone()));
    walk.places.push(("/var/lib/prometheus/node-exporter", metrics.clone()));
    let values: serde_yaml::Value = serde_yaml::from_str(walk.block("yaml", "extraArgs:")).unwrap();
    let (argument, mount) = (&values["extraArgs"][0], &values["extraHostVolumeMounts"][0]);
    let folder = argument.as_str().unwrap().strip_prefix("--collector.textfile.directory=");
    assert_eq!(folder, Some("/var/lib/prometheus/node-exporter"));
    assert_eq!((mount["hostPath"].as_str(), mount["mountPath"].as_str()), (folder, folder));
    walk.run("install -d");
    let mut status = Command::new(agent());
    let written = Ended::from_command(
        status.env_clear().args(["status", "-o", "prometheus", "--root"]).arg(node.root()),
    );
    fs::write(metrics.join("kops-agent.prom"), &written.stdout).unwrap();
    fs::write(walk.path("served"), &written.stdout).unwrap();
    let shown = walk.run("kops-agent.prom").stdout;
    let last = shown.lines().last().unwrap();
    assert!(last.starts_with("kops_agent_converged{config_hash=") && last.ends_with(" 1"), "{last}");

    let unit = checkout().join("units/kops-agent-controller.service");
    walk.stand_in("systemctl", &format!("case $1 in cat) cat {} ;; esac", unit.display()));
    fs::write(walk.path("served"), "kops_agent_build_info{} 1\n").unwrap();
    walk.run("health-listen");
    let drop_in = fs::read_to_string(units.join("kops-agent-controller.service.d/metrics.conf")).unwrap();
    let own = fs::read_to_string(unit).unwrap();
    let own = own.lines().find(|line| line.starts_with("ExecStart=/")).unwrap();
    let start = format!("{own} --health-listen 0.0.0.0:3985");
    assert_eq!(drop_in, format!("[Service]\nExecStart=\n{start}\n"));
    let mut call = Command::new(agent());
    call.args(start.split(' ').skip(1)).arg("--no-such-flag-of-any-page");
    Ended::from_command(&mut call).with(2, &["unexpected argument '--no-such-flag-of-any-page'"]);
    walk.run_the_rest();
}

/// Step 2 of the page makes control-plane mode a service, and adds the DNS name of kops-controller to the manifest of the
/// API server.
#[test]
fn take_over_md_works_as_printed() {
    let node = converged();
    let mut walk = Walk::on("docs/take-over.md", &node);
    let (sysconfig, applied) = (walk.path("sysconfig"), walk.path("applied"));
    fs::create_dir(&sysconfig).unwrap();
    let manifests = checkout().join("packaging/kubernetes");
    walk.places.extend([
        ("/etc/sysconfig", sysconfig.clone()),
        ("/etc/environment", node.root().join("etc/environment")),
        ("packaging/kubernetes", manifests.clone()),
    ]);
    walk.stand_in("kubectl", &format!("case $* in 'apply -f -') cat >{} ;; esac", applied.display()));
    walk.run_the_rest();

    let rbac = manifests.join("rbac.yaml");
    let calls = [
        format!("kubectl diff -f {}", rbac.display()),
        format!("kubectl apply -f {}", rbac.display()),
        r#"kubectl -n kube-system patch daemonset kops-controller -p {"spec": {"template": {"spec": {"nodeSelector": {"kops-agent": "has-taken-over"}}}}}"#.to_owned(),
        "kubectl apply -f -".to_owned(),
    ];
    assert_eq!(walk.asked("kubectl").lines().collect::<Vec<_>>(), calls);
    let settings = fs::read_to_string(sysconfig.join("kops-agent-controller")).unwrap();
    assert_eq!(settings, "KOPS_AGENT_LABELS_FROM=tags\n");
    assert!(node.root().join("etc/systemd/system/kops-agent-controller.service").is_file());
    let pod = node.root().join("etc/kubernetes/manifests/kube-apiserver.manifest");
    for pod in [pod, applied] {
        let pod = fs::read_to_string(pod).unwrap();
        assert!(pod.contains("kops-controller.internal.demo.example.com"), "{pod}");
    }
}

/// Also checks that the page names only threads that the agent or tokio starts.
#[test]
fn redhat_md_works_as_printed() {
    let node = converged();
    let walk = Walk::on("docs/redhat.md", &node);
    walk.run_the_rest();
    let (_, named) = walk.page.text.split_once("have other names in `comm`: ").unwrap();
    let (named, _) = named.split_once(". ").unwrap();
    let repository = Repository::of_this_checkout();
    // tokio names its own threads, so they are not in the sources.
    let own = named.split(", ").map(|name| name.trim_matches('`')).filter(|name| *name != "tokio-");
    let lost: Vec<&str> = own.filter(|name| !repository.has_thread(name)).collect();
    assert!(lost.is_empty(), "no source starts these threads: {lost:?}");
}
