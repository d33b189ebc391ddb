//! A support bundle has everything that a report needs, and no secret of the machine.

#![allow(clippy::unwrap_used)]

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
use crate::example::apart::with_mounts;
use crate::example::{Ended, Machine, copy_agent, keysets};

const PROXY: &str = "http://operator:pr0xy-passw0rd@127.0.0.1:1";
const DOCKER_CONFIG: &str =
    r#"{"auths":{"registry.example.com":{"auth":"cm9ib3Q6aHVzaC1odXNo","username":"robot"}}}"#;

/// Secrets that are on the machine and not in the store.
const PLANTED: [&str; 17] = [
    "rotated-since",
    "of-the-controller",
    "without-a-scheme",
    "of-a-bare-proxy",
    "pr0xy-passw0rd",
    "cm9ib3Q6aHVzaC1odXNo",
    "hush-hush",
    "keystone-passw0rd",
    "of-the-environment",
    "of-the-kubelet",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "known-to-no-store",
    "of-a-pod-on-disk",
    "of-a-registry",
    "dG9rZW4tb2YtYS1taXJyb3I=",
    "in-a-flow-table",
    "bare-token",
];
/// Secrets that are only in the last applied state (`APPLIED`), or only in the store (`WANTED`).
const APPLIED: &str = "of-a-pod-that-was-applied";
const WANTED: &str = "of-a-pod-that-is-wanted";
/// A mirror's configuration for containerd.
const HOSTS: &str = "password = \"of-a-registry\"\nauth = { password = \"in-a-flow-table\" }\n\
                     [host.\"https://mirror.example.com\".header]\nAuthorization = [\"Basic dG9rZW4tb2YtYS1taXJyb3I=\"]\n";
/// The value of a shell variable. It is no credential, so it may be in the bundle.
const CONTACT: &str = "operator@example.com";
/// A log line without secrets. It must stay in the bundle, because readers of the bundle need it.
const HARMLESS: &str = "2026-11-23T06:08:44.123456+0000 ip-10-20-32-10 kubelet[1234]: E1123 06:08:44.123456    1234 \
                        kubelet.go:2902] \"Container runtime network not ready\"";
const OF_BOOT_SCRIPT: &str =
    "2026-11-25T10:00:00.000001+0000 node cloud-init[612]: kops-agent: downloading https://m/nodeup";

/// A converged control plane with a secret in every place where a machine may have one.
fn machine() -> Machine {
    let machine = Machine::new(CONTROL_PLANE);
    let file = machine.cluster.store.cluster_folder().join("secrets/dockerconfig");
    fs::write(file, format!("{{\"Data\":\"{}\"}}\n", STANDARD.encode(DOCKER_CONFIG))).unwrap();
    let channels = machine.cluster.store.cluster_folder().join("manifests/channels/kops-channels.yaml");
    let pod = fs::read_to_string(&channels).unwrap();
    let with_token = |token: &str| {
        pod.replace("    env:\n", &format!("    env:\n    - name: HCLOUD_TOKEN\n      value: {token}\n"))
    };
    fs::write(&channels, with_token(APPLIED)).unwrap();
    machine.run("converge", &[]).with(0, &[]);
    // After the last run, an operator changed the token on the machine. The token in the store was changed to another
    // value.
    write(&machine, "etc/kubernetes/manifests/kops-channels.manifest", &with_token("of-a-pod-on-disk"));
    fs::write(&channels, with_token(WANTED)).unwrap();
    write(&machine, "etc/containerd/certs.d/_default/hosts.toml", HOSTS);
    // The cluster spec adds this file, and only root may read it.
    write(&machine, "etc/app/secret", "bare-token\n");
    fs::set_permissions(machine.root().join("etc/app/secret"), fs::Permissions::from_mode(0o400)).unwrap();
    let record = machine.root().join("var/lib/kops-agent/record.json");
    let mut claims: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    claims["resources"]["file /etc/app/secret"] = serde_json::json!({});
    fs::write(&record, claims.to_string()).unwrap();
    write(&machine, "etc/environment", &format!("https_proxy={PROXY}\nDEPLOY_TOKEN=of-the-environment\n"));
    write(
        &machine,
        "etc/sysconfig/kops-configuration",
        "OS_PASSWORD=\"keystone-passw0rd\"\nDEPLOY_TOKEN=rotated-since\nS3_REGION=eu-west-1\n",
    );
    write(&machine, "etc/sysconfig/kops-agent-controller", "A_TOKEN=of-the-controller\n");
    write(&machine, "etc/default/more", "HTTPS_PROXY=robot:without-a-scheme@proxy:3128\n");
    write(&machine, "etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\n");
    write(&machine, "var/lib/kops-agent/timeline.json", "{\"steps\": [{\"what\": \"apt\", \"took\": 7}]}");
    // A plan that changes a secret must not show the secret.
    let tokens = machine.root().join("srv/kubernetes/kube-apiserver/known_tokens.csv");
    fs::write(&tokens, format!("{}# changed\n", fs::read_to_string(&tokens).unwrap())).unwrap();
    // An operator added this text to a file. The store does not contain the text, but the bundle must hide it, too.
    let config = machine.root().join("etc/containerd/config.toml");
    fs::write(&config, format!("{}# known-to-no-store\n", fs::read_to_string(&config).unwrap())).unwrap();
    machine
}

fn write(machine: &Machine, path: &str, text: &str) {
    let path = machine.root().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The secrets of the store, in the forms that programs print. No program prints a key that is encoded in base64 twice,
/// so pieces of such a text are left out.
fn secrets_of_store(machine: &Machine) -> Vec<String> {
    let keys: Vec<String> = keysets().iter().map(|keyset| STANDARD.encode(&keyset.private_key)).collect();
    let is_part = |secret: &String| keys.iter().any(|key| key.contains(secret.as_str()));
    secrets(machine).into_iter().filter(|secret| !is_part(secret)).collect()
}

/// The secrets of the store, except the keys that are not on this machine. The agent cannot know that such a key is
/// secret, because no file on the machine contains the key.
fn secrets_of_machine(machine: &Machine) -> Vec<String> {
    let read = |file: &String| fs::read(machine.root().join(file)).unwrap_or_default();
    let files: Vec<String> =
        machine.files().iter().map(|file| String::from_utf8_lossy(&read(file)).into_owned()).collect();
    let is_here = |text: &str| files.iter().any(|file| file.contains(text));
    let elsewhere = keysets().iter().filter(|keyset| !is_here(keyset.private_key.trim()));
    let elsewhere: Vec<String> = elsewhere
        .flat_map(|keyset| [keyset.private_key.clone(), STANDARD.encode(&keyset.private_key)])
        .collect();
    assert!(elsewhere.len() < 2 * keysets().len(), "this machine has no key");
    let secrets = secrets_of_store(machine).into_iter();
    secrets.filter(|secret| !elsewhere.iter().any(|key| key.contains(secret.as_str()))).collect()
}

/// Stand-ins for the programs of systemd. Their output is full of secrets.
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
        "{HARMLESS}\n{OF_BOOT_SCRIPT}\n{keys}\n{middle}\n{}\ncurl --proxy {PROXY} https://x/?X-Amz-Signature=0f1e2d3c4b5a69788796a5b4c3d2e1f0\n\
         found keystone-passw0rd and of-the-environment; of-the-kubelet\n\
         rotated-since, of-the-controller and without-a-scheme\n\
         of-a-bare-proxy asks {CONTACT}\n\
         of-a-pod-on-disk, {APPLIED}, {WANTED} and of-a-registry\n\
         dG9rZW4tb2YtYS1taXJyb3I= and in-a-flow-table with bare-token\n\
         {DOCKER_CONFIG} hush-hush\n{}\n{HARMLESS}\n",
        secrets_of_store(machine).join("\n"),
        machine.cluster.s3.secret_access_key(),
    );
    let units = "Id=kubelet.service\nActiveState=active\nEnvironment=KUBELET_SETTING=of-the-kubelet \"BOOTSTRAP_TOKEN=of-the-kubelet\"\n\
                 EnvironmentFiles=/etc/default/more (ignore_errors=yes)\n";
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
    call.env("HTTPS_PROXY", PROXY)
        .env("HTTP_PROXY", "robot:of-a-bare-proxy@proxy:3128")
        .env("EMAIL", CONTACT);
    call.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    call.arg("--out").arg(out);
    call
}

/// The files of a bundle, by name.
pub(crate) fn open(bundle: &Path) -> BTreeMap<String, String> {
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
fn a_bundle_has_all_files_of_a_report_and_no_secret() {
    let machine = machine();
    let (out, path) = (machine.folder().join("bundle.tar.zst"), programs(&machine));
    let before = machine.files();
    let ended = Ended::from_command(&mut bundle(&machine, &out, &path));
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
        ("journal/cloud-init.txt", OF_BOOT_SCRIPT),
        ("journal/kubelet.txt", HARMLESS),
        ("journal/kubelet.txt", CONTACT),
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

    let mut all = secrets_of_store(&machine);
    all.extend(PLANTED.map(str::to_owned));
    all.extend([APPLIED, WANTED].map(str::to_owned));
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

/// A bundle of a machine whose store cannot be reached. Also returns the output of the command.
fn without_store(machine: &Machine, out: &str) -> (BTreeMap<String, String>, Ended) {
    let out = machine.folder().join(out);
    let path = machine.folder().join("bin");
    let mut call = bundle(machine, &out, &path);
    let ended =
        Ended::from_command(call.env("S3_ENDPOINT", "http://127.0.0.1:1").args(["--store-timeout", "1"]));
    ended.with(0, &[]);
    (open(&out), ended)
}

#[test]
fn without_a_store_journals_need_the_secrets_kept_from_earlier_runs() {
    let machine = machine();
    programs(&machine);
    let state = machine.root().join("var/lib/kops-agent");
    let (record, applied, begun) =
        (state.join("record.json"), state.join("applied.json"), state.join("begun.json"));
    let without_hash = {
        let mut record: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
        record["configHash"] = "".into();
        record.to_string()
    };
    let kept = fs::read(&applied).unwrap();
    let secrets: Vec<String> =
        secrets_of_machine(&machine).into_iter().chain(PLANTED.map(str::to_owned)).collect();
    fs::rename(&applied, &begun).unwrap();
    let (files, ended) = without_store(&machine, "only-begun");
    assert!(files["journal/kubelet.txt"].contains(HARMLESS), "{ended:#?}");
    for (file, text) in &files {
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{secret} is in {file}: {text}");
        }
    }
    // If the saved state is missing, the agent does not know which parts of the files are secret.
    let cases: [(&str, &dyn Fn()); 3] = [
        ("first-converge", &|| {
            fs::remove_file(&begun).unwrap();
            fs::write(&record, &without_hash).unwrap();
        }),
        ("corrupt-state", &|| fs::write(&applied, &kept[..kept.len() / 2]).unwrap()),
        ("corrupt-record", &|| fs::write(&record, "{").unwrap()),
    ];
    for (name, make) in cases {
        make();
        let (files, ended) = without_store(&machine, name);
        ended.with(
            0,
            &["journal/kubelet.txt is not in the bundle: the secrets of this machine are not known"],
        );
        for (file, text) in &files {
            for secret in &secrets {
                assert!(!text.contains(secret.as_str()), "{name}: {secret} is in {file}: {text}");
            }
        }
    }

    // Without these files, the agent does not know which texts are secret, and other files may contain these texts.
    for folder in ["srv", "etc/kubernetes", "root", "var/lib"] {
        let folder = machine.root().join(folder);
        if folder.ends_with("var/lib") {
            for name in ["kubelet", "kubectl", "kube-proxy", "kube-scheduler", "kube-controller-manager"] {
                let _ = fs::remove_dir_all(folder.join(name));
            }
        } else {
            let _ = fs::remove_dir_all(folder);
        }
    }
    let (files, ended) = without_store(&machine, "nothing-known");
    ended.with(0, &["journal/kubelet.txt is not in the bundle: the secrets of this machine are not known"]);
    assert!(!files.keys().any(|name| name.starts_with("journal/")), "{:?}", files.keys());
    assert!(files.contains_key("units.txt") && files.contains_key("facts.json"), "{:?}", files.keys());
}

/// The disk comes from another machine, so it is not trusted. The bundle has no file outside of the disk, even if a
/// link on the disk leads to the file. Nothing on the disk can block the command.
#[test]
fn a_disk_of_a_stranger_takes_nothing_of_this_machine_and_no_time() {
    let machine = Machine::new(CONTROL_PLANE);
    programs(&machine);
    let outside = machine.folder().join("outside");
    fs::write(&outside, "{\"of\": \"this-machine\"}").unwrap();
    for path in ["etc/os-release", "var/lib/kops-agent/record.json", "var/lib/kops-agent/timeline.json"] {
        write(&machine, path, "");
        fs::remove_file(machine.root().join(path)).unwrap();
        std::os::unix::fs::symlink(&outside, machine.root().join(path)).unwrap();
    }
    nix::unistd::mkfifo(&machine.root().join("etc/environment"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let (files, ended) = without_store(&machine, "bundle");
    ended.with(0, &["no regular file"]);
    for (name, text) in &files {
        assert!(!text.contains("this-machine"), "{name}: {text}");
    }
    assert!(files["MANIFEST"].contains("timeline.json: not in it: "), "{}", files["MANIFEST"]);
}

#[test]
fn a_part_that_cannot_be_had_costs_no_other() {
    let machine = Machine::new(CONTROL_PLANE);
    let out = machine.folder().join("bundle.tar.zst");
    let empty = machine.folder().join("empty");
    fs::create_dir(&empty).unwrap();
    let mut call = machine.agent("support-bundle");
    call.env("S3_ENDPOINT", "http://127.0.0.1:1").env("PATH", &empty).args(["--store-timeout", "1"]);
    let ended = Ended::from_command(call.arg("--out").arg(&out));
    ended.with(
        0,
        &["plan.json is not in the bundle: ", "the store cannot be reached", "systemctl is not installed"],
    );
    let files = open(&out);
    for (name, why) in [
        ("plan.json", "the store cannot be reached"),
        ("record.json", "record.json is not on this machine"),
        ("timeline.json", "timeline.json is not on this machine"),
        ("applied.json", "nothing has been applied"),
        ("journal/kubelet.txt", "may be in its journal: systemctl is not installed"),
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
fn journals_are_left_out_if_systemd_does_not_list_the_environments_of_units() {
    let machine = machine();
    let programs = programs(&machine);
    fs::write(programs.join("systemctl"), "#!/bin/sh\necho 'Connection timed out' >&2\nexit 1\n").unwrap();
    let out = machine.folder().join("bundle.tar.zst");
    Ended::from_command(&mut bundle(&machine, &out, &programs))
        .with(0, &["its journal: systemctl: Connection timed out"]);
    let files = open(&out);
    assert!(!files.keys().any(|name| name.starts_with("journal/")), "{:?}", files.keys());
    assert!(files.contains_key("facts.json") && files.contains_key("plan.json"), "{:?}", files.keys());
}

#[test]
fn nothing_is_written_over() {
    let machine = Machine::new(CONTROL_PLANE);
    let out = machine.folder().join("bundle.tar.zst");
    fs::write(&out, "mine").unwrap();
    let call = |out: &Path| Ended::from_command(machine.agent("support-bundle").arg("--out").arg(out));
    call(&out).with(1, &["already exists"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "mine");
    call(Path::new("/no/such/folder/x")).with(1, &["/no/such/folder is not a directory"]);
}

/// A user who may not read the secrets cannot remove them from a bundle. So the command requires root.
#[test]
fn without_root_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("kops-agent");
    copy_agent(&program);
    let out = folder.path().join("bundle.tar.zst");
    // `/..` is `/`.
    for root in ["/", "/.."] {
        let mut call = Command::new(&program);
        call.args(["support-bundle", "--root", root, "--out"]).arg(&out).current_dir("/");
        if nix::unistd::geteuid().is_root() {
            call.uid(65534);
        }
        Ended::from_command(&mut call)
            .with(1, &["only root may read the secrets of this machine", "run as root"]);
        assert!(!out.exists(), "{root}");
    }
}

#[test]
fn a_full_file_system_is_reported_with_what_to_do() {
    let machine = Machine::new(CONTROL_PLANE);
    let full = machine.folder().join("full");
    fs::create_dir(&full).unwrap();
    let script = "mount -t tmpfs -o size=4k full \"$FULL\" && exec \"$@\"";
    let mut call = machine.agent("support-bundle");
    call.arg("--out").arg(full.join("bundle.tar.zst"));
    let Some(mut run) = with_mounts(&call, script) else { return };
    let ended = Ended::from_command(run.env("FULL", &full));
    ended.with(1, &["writing the bundle", "name a file elsewhere with --out", "No space left on device"]);
}
