//! Free text of users is in no output of any verb. Fields with a meaning of their own are in all outputs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::example_store::CONTROL_PLANE;
use serde_json::Value;

use crate::example::{Ended, Machine, agent, keysets};
use crate::support_bundle::open;

/// Number of fields that may contain free text or a secret.
const PLACES: usize = 12;
const TYPED: [&str; 3] = [
    "--authorization-rbac-super-user=typed-super-user",
    "--concurrent-serviceaccount-token-syncs=7",
    "--kubeconfig=/var/lib/kube-controller-manager/kubeconfig",
];

/// Recognizable texts, one for each field, and different in each round of the test. Neither a text nor the name of its
/// field looks like a secret.
fn marks(round: usize) -> [String; PLACES] {
    std::array::from_fn(|place| format!("plain-words-{round}-{place}-here"))
}

/// Writes the [`marks`] of a round into the store's files. Each mark goes into a different field.
fn specify(machine: &Machine, round: usize) {
    let m = marks(round);
    let edited = |path: &str, edits: &[(&str, String)]| {
        let file = machine.cluster.store.cluster_folder().join(path);
        let original = file.with_extension("original");
        if !original.exists() {
            fs::copy(&file, &original).unwrap();
        }
        let text = fs::read_to_string(original).unwrap();
        let text = edits.iter().fold(text, |text, (old, new)| {
            assert!(text.contains(old), "{old:?} is not in {path}");
            text.replacen(old, new, 1)
        });
        fs::write(file, text).unwrap();
    };
    let env = |mark: &str| format!("    env:\n    - name: A_NAME\n      value: {mark}\n");
    let encoded = STANDARD.encode(format!("level: high\nword: {}\n", m[1]));
    let own = format!(
        "spec:\n  fileAssets:\n  - name: a\n    path: /etc/app/settings.conf\n    mode: \"0644\"\n    content: |\n      level = high\n      word = {}\n  \
         - name: b\n    path: /etc/app/more.conf\n    isBase64: true\n    content: {encoded}\n  hooks:\n  - name: raw.service\n    \
         useRawManifest: true\n    manifest: |\n      [Service]\n      Type=oneshot\n      Environment=WORD={}\n      ExecStart=/bin/true\n  \
         - name: section\n    manifest: |\n      Type=oneshot\n      ExecStart=/bin/echo {}\n  - name: run\n    execContainer:\n      image: \
         docker.io/library/busybox:latest\n      command: [echo, {}]\n      environment: {{A_NAME: {}}}\n",
        m[0], m[2], m[3], m[4], m[5]
    );
    let addition = "'plugins.\"io.containerd.cri.v1.images\".registry.configs.\"r.example.com\".auth.word'";
    edited(
        "cluster-completed.spec",
        &[
            ("spec:\n", own),
            (
                "  containerd:\n",
                format!(
                    "  containerd:\n    configAdditions:\n      {addition}: {}\n    registryMirrors:\n      r.example.com: ['https://robot:{}@m.example.com']\n",
                    m[6], m[7]
                ),
            ),
            (
                "  kubeAPIServer:\n",
                format!("  kubeAPIServer:\n{}    authorizationRbacSuperUser: typed-super-user\n", env(&m[8])),
            ),
            (
                "  kubeControllerManager:\n",
                "  kubeControllerManager:\n    concurrentServiceaccountTokenSyncs: 7\n".into(),
            ),
        ],
    );
    edited("manifests/etcd/main-control-plane-eu-west-1a.yaml", &[("    env:\n", env(&m[9]))]);
    edited("manifests/channels/kops-channels.yaml", &[("    env:\n", env(&m[10]))]);
    let login = format!(
        "{{\"auths\":{{\"r.example.com\":{{\"auth\":\"{}\"}}}}}}",
        STANDARD.encode(format!("robot:{}", m[11]))
    );
    let secret = format!("{{\"Data\":\"{}\"}}\n", STANDARD.encode(login));
    fs::write(machine.cluster.store.cluster_folder().join("secrets/dockerconfig"), secret).unwrap();
}

/// Undoes [`specify`]: restores the store's original files, and removes the registry logins.
fn unspecify(machine: &Machine) {
    for path in [
        "cluster-completed.spec",
        "manifests/etcd/main-control-plane-eu-west-1a.yaml",
        "manifests/channels/kops-channels.yaml",
    ] {
        let file = machine.cluster.store.cluster_folder().join(path);
        fs::copy(file.with_extension("original"), file).unwrap();
    }
    fs::remove_file(machine.cluster.store.cluster_folder().join("secrets/dockerconfig")).unwrap();
}

/// Asserts that `text` contains no mark of any round, plain or in base64.
#[track_caller]
fn without_marks(what: &str, text: &str) {
    for mark in (1..=2).flat_map(marks) {
        let encoded = STANDARD.encode(format!("level: high\nword: {mark}\n"));
        let login = STANDARD.encode(format!("robot:{mark}"));
        for text_of_mark in [mark, encoded, login] {
            assert!(!text.contains(&text_of_mark), "{text_of_mark} is in {what}: {text}");
        }
    }
}

#[track_caller]
fn said(ended: &Ended, what: &str, codes: &[i32]) -> String {
    assert!(codes.contains(&ended.code), "{what}: {ended:#?}");
    let said = format!("{}{}", ended.stdout, ended.stderr);
    without_marks(what, &said);
    said
}

#[test]
fn free_text_is_in_no_output_and_typed_fields_are() {
    let machine = Machine::new(CONTROL_PLANE);
    specify(&machine, 1);
    for flags in [&["-v", "8"][..], &["-o", "json"], &["--summary"]] {
        let plan = said(&machine.run("plan", flags), &format!("plan {flags:?}"), &[0]);
        if flags != ["--summary"] {
            for typed in TYPED {
                assert!(plan.contains(typed), "{typed} is not in plan {flags:?}: {plan}");
            }
            assert!(plan.contains("/etc/app/settings.conf") && plan.contains("[***]"), "{plan}");
        }
    }
    said(&machine.run("converge", &["-v", "8"]), "converge", &[0]);
    for (manifest, mode) in [
        ("kube-apiserver", 0o600),
        ("kube-controller-manager", 0o644),
        ("etcd-main-control-plane-eu-west-1a", 0o440),
        ("kops-channels", 0o644),
    ] {
        let file = machine.root().join(format!("etc/kubernetes/manifests/{manifest}.manifest"));
        let metadata = fs::metadata(file).unwrap_or_else(|error| panic!("{manifest}: {error}"));
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{manifest}");
    }

    specify(&machine, 2);
    for (verb, codes) in [("plan", [0]), ("verify", [4])] {
        for flags in [&["-v", "8"][..], &["-o", "json"]] {
            let told = said(&machine.run(verb, flags), &format!("{verb} {flags:?}"), &codes);
            // The output shows a masked diff of the etcd manifest, and the names of the user's files.
            for part in [
                "etcd-main-control-plane-eu-west-1a.manifest",
                "- name: A_NAME",
                "-      value: '[***]'",
                "+      value: '[***]'",
                "/etc/app/more.conf",
                "raw.service",
            ] {
                assert!(told.contains(part), "{part:?} is not in {verb} {flags:?}: {told}");
            }
        }
    }
    for question in [
        "/etc/app/settings.conf",
        "/etc/app/more.conf",
        "/etc/containerd/config.toml",
        "/etc/containerd/certs.d/r.example.com/hosts.toml",
        "/etc/kubernetes/manifests/kube-apiserver.manifest",
        "/etc/kubernetes/manifests/etcd-main-control-plane-eu-west-1a.manifest",
        "/etc/kubernetes/manifests/kops-channels.manifest",
        "/root/.docker/config.json",
        "raw.service",
        "section.service",
        "run.service",
        "A_NAME",
        "WORD",
    ] {
        for flags in [&[][..], &["-o", "json"]] {
            let ended = Ended::from_command(machine.agent_without_root("explain").arg(question).args(flags));
            said(&ended, &format!("explain {question}"), &[0, 1]);
        }
    }
    let explained = Ended::from_command(machine.agent_without_root("explain").arg("/etc/app/settings.conf"));
    assert!(explained.stdout.contains("fileAssets.0.content"), "where it comes from is told: {explained:#?}");
    for (verb, arguments) in
        [("render", &["-o", "json"][..]), ("config dump", &[]), ("config dump", &["-o", "json"])]
    {
        let told = said(&Ended::from_command(machine.agent_without_root(verb).args(arguments)), verb, &[0]);
        assert!(told.contains("typed-super-user"), "{verb}: {told}");
    }
    let bin = machine.folder().join("bin");
    fs::create_dir(&bin).unwrap();
    let journal: String =
        (1..=2).flat_map(marks).map(|mark| format!("kubelet[1]: a program said {mark}\n")).collect();
    for (name, text) in [("journalctl", journal.as_str()), ("systemctl", "Id=kubelet.service\n")] {
        fs::write(bin.join(format!("{name}.txt")), text).unwrap();
        fs::write(bin.join(name), "#!/bin/sh\nexec cat \"$0.txt\"\n").unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let out = machine.folder().join("bundle.tar.zst");
    let mut call = machine.agent("support-bundle");
    call.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).arg("--out").arg(&out);
    said(&Ended::from_command(&mut call), "support-bundle", &[0]);
    let files = open(&out);
    for (name, text) in &files {
        without_marks(name, text);
    }
    assert!(
        files["journal/kubelet.txt"].contains("a program said [***]"),
        "{}",
        files["journal/kubelet.txt"]
    );
    assert!(
        files["plan.json"].contains("etcd-main-control-plane-eu-west-1a.manifest"),
        "{}",
        files["plan.json"]
    );

    said(&machine.run("converge", &["-v", "8"]), "converge again", &[0]);
    let mut status = Command::new(agent());
    status.args(["status", "-o", "json", "--root"]).arg(machine.root());
    said(&Ended::from_command(&mut status), "status", &[0, 4]);
    unspecify(&machine);
    said(&machine.run("plan", &["-v", "8"]), "a plan without free text", &[0]);
    said(&machine.run("converge", &["-v", "8"]), "converge without free text", &[0]);
}

#[test]
fn your_own_texts_are_shown_on_request_and_no_secret_of_the_store() {
    let machine = Machine::new(CONTROL_PLANE);
    specify(&machine, 1);
    machine.run("converge", &[]).with(0, &[]);
    specify(&machine, 2);
    let [before, after] = [marks(1), marks(2)];
    for (verb, has_before) in [("plan", true), ("config dump", false)] {
        let mut call = if has_before { machine.agent(verb) } else { machine.agent_without_root(verb) };
        let ended = Ended::from_command(call.arg("--show-secrets"));
        ended.with(0, &[]);
        for place in [0, 2, 3, 4, 5, 6] {
            assert!(ended.stdout.contains(&after[place]), "{place} is not in {verb}: {}", ended.stdout);
        }
        assert_eq!(ended.stdout.contains(&before[0]), has_before, "{verb}: {}", ended.stdout);
        assert!(!ended.stdout.contains(&STANDARD.encode(format!("robot:{}", after[11]))), "{verb}");
        for keyset in keysets() {
            // The first lines of a private key contain the modulus, which certificates contain too. So the test searches
            // for the middle line, which is in no certificate.
            let lines: Vec<&str> = keyset.private_key.lines().collect();
            assert!(
                !ended.stdout.contains(lines[lines.len() / 2]),
                "the key of {} is in {verb}",
                keyset.name
            );
        }
    }
    let ended = Ended::from_command(machine.agent_without_root("explain").args([
        "/etc/app/settings.conf",
        "--show-secrets",
        "-o",
        "json",
    ]));
    ended.with(0, &[]);
    let lines: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(lines.to_string().contains(&after[0]), "{lines:#}");
}

#[test]
fn an_error_in_free_text_is_reported_without_the_text() {
    let machine = Machine::new(CONTROL_PLANE);
    let own = "spec:\n  fileAssets:\n  - name: a\n    path: /etc/a\n    isBase64: true\n    content: plain words, no base64\n";
    machine.cluster.edit("cluster-completed.spec", "\nspec:\n", &format!("\n{own}")).unwrap();
    let ended = machine.run("plan", &[]);
    ended.with(3, &["FileAssets[0].content"]);
    assert!(!ended.stderr.contains("plain words"), "{ended:#?}");
}

#[test]
fn a_flag_that_is_not_set_has_the_default_of_its_program() {
    let machine = Machine::new(CONTROL_PLANE);
    let explained = |question: &str| Ended::from_command(machine.agent_without_root("explain").arg(question));
    assert_eq!(explained("--max-pods").stdout, "--max-pods is not set; kubelet's default applies\n");
    explained("--no-such-flag").with(1, &["this node has nothing with the name --no-such-flag"]);
    let plugins = explained("--enable-admission-plugins");
    plugins.with(0, &[]);
    for (entry, index) in [("DefaultStorageClass", 0), ("ValidatingAdmissionWebhook", 10)] {
        let at = plugins
            .stdout
            .find(&format!("\n        {entry}\n"))
            .unwrap_or_else(|| panic!("{}", plugins.stdout));
        let origin = plugins.stdout[at..].lines().nth(2).unwrap();
        assert!(origin.ends_with(&format!("spec.kubeAPIServer.enableAdmissionPlugins.{index}")), "{origin}");
    }
    let of_root = Ended::from_command(
        machine.agent_without_root("explain").args(["--max-pods", "--root"]).arg(machine.root()),
    );
    of_root.with(0, &[]);
}
