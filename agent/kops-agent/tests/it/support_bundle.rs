//! A support bundle, opened: what a report needs is in it, and nothing that is secret on the machine.

// A skipped test says so.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_store::CONTROL_PLANE;
use ruzstd::decoding::StreamingDecoder;

use crate::command_line::secrets;
use crate::example::{Ended, Machine, agent, keysets};

const PROXY: &str = "http://operator:pr0xy-passw0rd@127.0.0.1:1";
const DOCKER_CONFIG: &str =
    r#"{"auths":{"registry.example.com":{"auth":"cm9ib3Q6aHVzaC1odXNo","username":"robot"}}}"#;

/// Secrets that the machine has, besides those of the store.
const PLANTED: [&str; 10] = [
    "pr0xy-passw0rd",
    "cm9ib3Q6aHVzaC1odXNo",
    "hush-hush",
    "keystone-passw0rd",
    "of-the-environment",
    "of-the-kubelet",
    "q0F7c2VjcmV0LWtleS1vZi1hLXVzZXI1MjM0NTY3ODkw",
    "said-once-in-the-journal",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "known-to-no-store",
];
/// What a reader of the bundle looks for.
const HARMLESS: &str = "2026-11-23T06:08:44.123456+0000 ip-10-20-32-10 kubelet[1234]: E1123 06:08:44.123456    1234 \
                        kubelet.go:2902] \"Container runtime network not ready\"";

/// A control plane that has converged, with secrets wherever a machine may have some.
fn machine() -> Machine {
    let machine = Machine::of(CONTROL_PLANE);
    let file = machine.cluster.store.cluster_folder().join("secrets/dockerconfig");
    fs::write(file, format!("{{\"Data\":\"{}\"}}\n", STANDARD.encode(DOCKER_CONFIG))).unwrap();
    machine.run("converge", &[]).with(0, &[]);
    write(&machine, "etc/environment", &format!("https_proxy={PROXY}\nDEPLOY_TOKEN=of-the-environment\n"));
    write(
        &machine,
        "etc/sysconfig/kops-configuration",
        "OS_PASSWORD=\"keystone-passw0rd\"\nS3_REGION=eu-west-1\n",
    );
    write(&machine, "etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n");
    write(&machine, "var/lib/kops-agent/timeline.json", "{\"steps\": [{\"what\": \"apt\", \"took\": 7}]}");
    // What is secret in a plan is so where it changes, too.
    let tokens = machine.root().join("srv/kubernetes/kube-apiserver/known_tokens.csv");
    fs::write(&tokens, format!("{}# changed\n", fs::read_to_string(&tokens).unwrap())).unwrap();
    // What operators write into files of their own is not.
    let config = machine.root().join("etc/containerd/config.toml");
    fs::write(&config, format!("{}# known-to-no-store\n", fs::read_to_string(&config).unwrap())).unwrap();
    machine
}

fn write(machine: &Machine, path: &str, text: &str) {
    let path = machine.root().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Programs that stand in for systemd's, whose answers are full of secrets.
fn programs(machine: &Machine) -> PathBuf {
    let folder = machine.folder().join("bin");
    fs::create_dir(&folder).unwrap();
    let keys: String = keysets().iter().map(|keyset| keyset.private_key.as_str()).collect();
    let middle: String = keysets()[0]
        .private_key
        .lines()
        .skip(5)
        .map(|line| format!("ip-10-20-32-10 x[1]: {line}\n"))
        .collect();
    let journal = format!(
        "{HARMLESS}\n{keys}\n{middle}\n{}\ncurl --proxy {PROXY} https://x/?X-Amz-Signature=0f1e2d3c4b5a69788796a5b4c3d2e1f0\n\
         found q0F7c2VjcmV0LWtleS1vZi1hLXVzZXI1MjM0NTY3ODkw, keystone-passw0rd and of-the-environment; of-the-kubelet\n\
         Authorization: Bearer said-once-in-the-journal\n{DOCKER_CONFIG} hush-hush\n{}\n{HARMLESS}\n",
        secrets(machine).join("\n"),
        machine.cluster.s3.secret_access_key(),
    );
    let units = "Id=kubelet.service\nActiveState=active\nEnvironment=KUBELET_SETTING=of-the-kubelet \"BOOTSTRAP_TOKEN=of-the-kubelet\"\n";
    for (name, text) in [("journalctl", journal.as_str()), ("systemctl", units)] {
        fs::write(folder.join(format!("{name}.txt")), text).unwrap();
        let script = folder.join(name);
        fs::write(&script, "#!/bin/sh\nexec cat \"$0.txt\"\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn bundle(machine: &Machine, out: &Path, path: &Path) -> Command {
    let mut call = machine.agent("support-bundle");
    call.env("HTTPS_PROXY", PROXY).env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    call.arg("--out").arg(out);
    call
}

/// The files of a bundle, by name.
fn open(bundle: &Path) -> BTreeMap<String, String> {
    let packed = fs::read(bundle).unwrap();
    let mut tar = Vec::new();
    StreamingDecoder::new(packed.as_slice()).unwrap().read_to_end(&mut tar).unwrap();
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mode().unwrap()), (0, 0, 0o600));
        let path = entry.path().unwrap().to_str().unwrap().to_owned();
        let (folder, name) = path.split_once('/').unwrap();
        assert!(folder.starts_with("kops-agent-support-"), "{path}");
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(name.to_owned(), text);
    }
    files
}

#[test]
fn what_a_report_needs_is_in_it_and_nothing_secret() {
    let machine = machine();
    let (out, path) = (machine.folder().join("bundle.tar.zst"), programs(&machine));
    let before = machine.files();
    let ended = Ended::of(&mut bundle(&machine, &out, &path));
    ended.with(0, &[]);
    assert!(ended.stdout.starts_with(out.to_str().unwrap()), "{ended:#?}");
    assert_eq!(machine.files(), before);
    let metadata = fs::metadata(&out).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, nix::unistd::geteuid().as_raw()));

    let files = open(&out);
    for (name, said) in [
        ("MANIFEST", "journal/kubelet.txt: "),
        ("status.json", "\"converged\""),
        ("record.json", "\"configHash\""),
        ("applied.json", "\"instanceGroup\": \"control-plane-eu-west-1a\""),
        ("plan.json", "known_tokens.csv"),
        ("facts.json", "\"arch\": \"amd64\""),
        ("timeline.json", "\"took\": 7"),
        ("doctor.json", "\"verdict\""),
        ("versions.txt", env!("CARGO_PKG_VERSION")),
        ("units.txt", "Variables=KUBELET_SETTING BOOTSTRAP_TOKEN"),
        ("journal/kops-agent.txt", HARMLESS),
        ("journal/kops-configuration.txt", HARMLESS),
        ("journal/kubelet.txt", HARMLESS),
        ("journal/containerd.txt", HARMLESS),
    ] {
        let file =
            files.get(name).unwrap_or_else(|| panic!("{name} is not in {:?}: {ended:#?}", files.keys()));
        assert!(file.contains(said), "{said:?} is not in {name}: {file}");
    }
    assert!(!files["MANIFEST"].contains("not in it"), "{}", files["MANIFEST"]);
    for name in ["status.json", "record.json", "applied.json", "plan.json", "facts.json", "doctor.json"] {
        serde_json::from_str::<serde_json::Value>(&files[name])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    let mut all = secrets(&machine);
    all.extend(PLANTED.map(str::to_owned));
    all.extend([machine.cluster.s3.secret_access_key().to_owned(), STANDARD.encode(DOCKER_CONFIG)]);
    for keyset in keysets() {
        all.extend(
            keyset
                .private_key
                .lines()
                .filter(|line| line.len() > 20 && !line.starts_with("---"))
                .map(str::to_owned),
        );
    }
    let journal = fs::read_to_string(path.join("journalctl.txt")).unwrap();
    assert!(
        all.iter().filter(|secret| journal.contains(secret.as_str())).count() > 100,
        "little was planted"
    );
    for (name, text) in &files {
        assert!(!text.contains("BEGIN RSA PRIVATE KEY"), "{name}: {text}");
        for secret in &all {
            assert!(!text.contains(secret.as_str()), "{secret} is in {name}: {text}");
        }
    }
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(all.iter().all(|secret| !said.contains(secret.as_str())), "{ended:#?}");
}

#[test]
fn a_part_that_cannot_be_had_costs_no_other() {
    let machine = Machine::of(CONTROL_PLANE);
    let out = machine.folder().join("bundle.tar.zst");
    let empty = machine.folder().join("empty");
    fs::create_dir(&empty).unwrap();
    let mut call = machine.agent("support-bundle");
    call.env("S3_ENDPOINT", "http://127.0.0.1:1").env("PATH", &empty).args(["--store-patience", "1"]);
    let ended = Ended::of(call.arg("--out").arg(&out));
    ended.with(
        0,
        &["plan.json is not in the bundle: ", "the store cannot be reached", "journalctl is not installed"],
    );
    let files = open(&out);
    for (name, why) in [
        ("plan.json", "the store cannot be reached"),
        ("record.json", "record.json is not on this machine"),
        ("timeline.json", "timeline.json is not on this machine"),
        ("applied.json", "nothing has been applied"),
        ("journal/kubelet.txt", "journalctl is not installed"),
        ("units.txt", "systemctl is not installed"),
    ] {
        assert!(!files.contains_key(name), "{name}");
        let manifest = &files["MANIFEST"];
        let line = manifest.lines().find(|line| line.starts_with(&format!("{name}: not in it: ")));
        assert!(line.is_some_and(|line| line.contains(why)), "{name}: {manifest}");
    }
    for name in ["status.json", "facts.json", "doctor.json", "versions.txt"] {
        assert!(files.contains_key(name), "{name}: {:?}", files.keys());
    }
    assert!(!machine.root().join("var").exists(), "a look has made folders");
}

#[test]
fn nothing_is_written_over() {
    let machine = Machine::of(CONTROL_PLANE);
    let out = machine.folder().join("bundle.tar.zst");
    fs::write(&out, "mine").unwrap();
    let call = |out: &Path| Ended::of(machine.agent("support-bundle").arg("--out").arg(out));
    call(&out).with(1, &["is there already"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "mine");
    call(Path::new("/no/such/folder/x")).with(1, &["/no/such/folder is no folder"]);
}

/// What is secret can be kept out only by a user that may read it.
#[test]
fn without_root_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("kops-agent");
    fs::copy(agent(), &program).unwrap();
    let out = folder.path().join("bundle.tar.zst");
    let mut call = Command::new(&program);
    call.arg("support-bundle").arg("--out").arg(&out).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        call.uid(65534);
    }
    Ended::of(&mut call).with(1, &["only root may read the secrets of this machine", "run as root"]);
    assert!(!out.exists());
}

#[test]
fn a_file_system_without_room_is_told_with_what_to_do() {
    let machine = Machine::of(CONTROL_PLANE);
    let may_mount = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
    if !may_mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: it needs a mount namespace, and this machine gives none");
        return;
    }
    let full = machine.folder().join("full");
    fs::create_dir(&full).unwrap();
    let call = machine.agent("support-bundle");
    let mut run = Command::new("unshare");
    let script = "mount -t tmpfs -o size=4k full \"$FULL\" && exec \"$@\"";
    run.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    run.arg(call.get_program()).args(call.get_args()).arg("--out").arg(full.join("bundle.tar.zst"));
    run.envs(call.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Ended::of(run.env("FULL", &full));
    ended.with(1, &["writing the bundle", "--out names a file elsewhere", "No space left on device"]);
}
