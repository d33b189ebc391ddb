//! Static pods with credentials in their manifests: kOps writes tokens of clouds and keys of stores into the manifest
//! of kops-channels.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use crate::example::{Ended, Machine};
use kops_agent_tests::example_store::CONTROL_PLANE;
use serde_json::{Value, json};

const MANIFEST: &str = "/etc/kubernetes/manifests/kops-channels.manifest";
/// The tokens before and after the rotation. Neither their form nor their context (quotes, a name) marks them as
/// secret.
const BEFORE: &str = "before rotation: of-the-cloud";
const AFTER: &str = "after-rotation-of-the-cloud";

/// Sets `HCLOUD_TOKEN` to `token` in the kops-channels manifest in the store.
fn rotate(machine: &Machine, token: &str) {
    let file = machine.cluster.store.cluster_folder().join("manifests/channels/kops-channels.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let (before, after) = text.split_once("    env:\n").unwrap();
    let after = match after.strip_prefix("    - name: HCLOUD_TOKEN\n") {
        Some(rest) => rest.split_once('\n').unwrap().1,
        None => after,
    };
    let variable = format!("    - name: HCLOUD_TOKEN\n      value: '{token}'\n");
    fs::write(&file, format!("{before}    env:\n{variable}{after}")).unwrap();
}

fn on_disk(machine: &Machine) -> PathBuf {
    machine.root().join(&MANIFEST[1..])
}

/// Asserts that neither standard output nor standard error contains a token. Returns both outputs as one text.
#[track_caller]
fn without_tokens(ended: &Ended) -> String {
    let said = format!("{}{}", ended.stdout, ended.stderr);
    for token in [BEFORE, AFTER] {
        assert!(!said.contains(token), "{token:?} is in {ended:#?}");
    }
    said
}

#[test]
fn a_token_that_is_rotated_is_shown_nowhere_and_that_it_is_rotated_is() {
    let machine = Machine::new(CONTROL_PLANE);
    rotate(&machine, BEFORE);
    for (verb, flags) in
        [("plan", &["-v", "8"][..]), ("plan", &["-o", "json"][..]), ("converge", &["-v", "8"][..])]
    {
        let ended = machine.run(verb, flags);
        ended.with(0, &[]);
        without_tokens(&ended);
    }
    let metadata = fs::metadata(on_disk(&machine)).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o600);
    assert!(fs::read_to_string(on_disk(&machine)).unwrap().contains(BEFORE), "kubelet needs it");

    rotate(&machine, AFTER);
    for (verb, code) in [("plan", 0), ("verify", 4)] {
        for flags in [&["-v", "8"][..], &["-o", "json"]] {
            let ended = machine.run(verb, flags);
            ended.with(code, &[]);
            let said = without_tokens(&ended);
            for part in [MANIFEST, "- name: HCLOUD_TOKEN", "-      value: '[***]'", "+      value: '[***]'"] {
                assert!(said.contains(part), "{part:?} is not in {ended:#?}");
            }
        }
    }
    for (verb, arguments) in [
        ("explain", &[MANIFEST][..]),
        ("explain", &["HCLOUD_TOKEN"][..]),
        ("render", &["-o", "json"][..]),
        ("config dump", &[][..]),
    ] {
        let ended = Ended::from_command(machine.agent_without_root(verb).args(arguments));
        ended.with(0, &[]);
        assert!(without_tokens(&ended).contains("HCLOUD_TOKEN"), "{ended:#?}");
    }
    assert!(machine.state(&["--show-secrets"]).contains(AFTER));
    without_tokens(&machine.run("converge", &["-v", "8"]));
    without_tokens(&machine.run("status", &["-o", "json"]));
}

/// nodeup and older agents write a manifest that all users can read. After a change of only the mode, kubelet reads
/// the manifest again and keeps the pod (Kubernetes' pkg/kubelet/config/file_linux.go).
#[test]
fn a_manifest_that_all_may_read_is_closed_where_it_is_and_nothing_is_restarted() {
    let machine = Machine::new(CONTROL_PLANE);
    rotate(&machine, BEFORE);
    machine.run("converge", &[]).with(0, &[]);
    fs::set_permissions(on_disk(&machine), fs::Permissions::from_mode(0o644)).unwrap();
    let before = fs::metadata(on_disk(&machine)).unwrap();

    let plan = machine.run("plan", &[]);
    assert!(plan.stdout.contains(&format!("~ file {MANIFEST}: mode 0644 -> 0600\n")), "{plan:#?}");
    assert!(plan.stdout.ends_with("Plan: 1 file changes. Restarts: none.\n"), "{plan:#?}");
    let ended = machine.run("converge", &["-v", "8"]);
    ended.with(0, &[]);
    assert!(ended.stdout.contains("Converged: 1 file changed. Restarted: none.\n"), "{ended:#?}");
    let after = fs::metadata(on_disk(&machine)).unwrap();
    assert_eq!(after.permissions().mode() & 0o7777, 0o600);
    let written =
        |metadata: &fs::Metadata| (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len());
    assert_eq!(written(&after), written(&before), "it was written anew");
    machine.run("verify", &[]).with(0, &[]);
}

#[test]
fn a_static_pod_that_a_change_restarts_is_counted_and_named() {
    let machine = Machine::new(CONTROL_PLANE);
    let first: Value =
        serde_json::from_str(&machine.run("plan", &["--summary", "-o", "json"]).stdout).unwrap();
    assert_eq!(first["schemaVersion"], 1);
    assert_eq!(first["summary"]["restarts"], json!([]), "what does not run is started, and not restarted");
    assert!(first["summary"]["create"].as_u64().unwrap() > 50 && first["steps"].is_null(), "{first:#}");
    machine.run("converge", &[]).with(0, &[]);

    let level = |number: u8| format!("    logLevel: {number}\n    requestheaderAllowedNames:\n");
    machine.cluster.edit("cluster-completed.spec", &level(2), &level(4)).unwrap();
    let summary = "Plan: 1 file changes. Restarts: static pod kube-apiserver.\n";
    let plan = machine.run("plan", &[]);
    plan.with(0, &[]);
    assert!(plan.stdout.ends_with(summary), "{plan:#?}");
    assert_eq!(machine.run("plan", &["--summary"]).stdout, summary);
    let restarts = json!(["static pod kube-apiserver"]);
    for (verb, place) in [("plan", "/summary"), ("verify", "/plan/summary"), ("converge", "/summary")] {
        let ended = machine.run(verb, &["-o", "json"]);
        let json: Value = serde_json::from_str(&ended.stdout).unwrap();
        let summary = json.pointer(place).unwrap_or_else(|| panic!("{json:#}"));
        assert_eq!((&summary["restarts"], &summary["restart"]), (&restarts, &json!(1)), "{verb}");
        assert_eq!(json["schemaVersion"], 1, "{verb}");
    }
    machine.cluster.edit("cluster-completed.spec", &level(4), &level(2)).unwrap();
    let converged = machine.run("converge", &[]);
    let told = "Converged: 1 file changed. Restarted: static pod kube-apiserver.\n";
    assert!(converged.stdout.ends_with(told), "{converged:#?}");
}
