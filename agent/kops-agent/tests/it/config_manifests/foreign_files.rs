//! A folder of manifests also has files for other programs, templates, and files that cannot be read.

use std::os::unix::fs::symlink;

use super::{CLUSTER, GROUP, WRONG, check, check_files, command, expect, folder};
use crate::example::Ended;

/// Files that kOps cannot read, each with the beginning of its finding.
const FOREIGN: [(&str, &str, &str); 6] = [
    ("list.yaml", "- a\n- b\n", "list.yaml:1: it holds a list, but should be a YAML mapping"),
    ("tsconfig.json", "{\n // comment\n \"a\": 1,\n}\n", "tsconfig.json:3: it is not YAML: "),
    ("lines.json", "{\"a\":1}\n{\"b\":2}\n", "lines.json:1: it is not YAML: "),
    ("broken.yml", "a: [\n", "broken.yml:2: it is not YAML: "),
    // Manifests of other programs may contain kOps' labels.
    (
        "labels.yaml",
        "nodeSelector: {kops.k8s.io/instancegroup: nodes}\na: [\n",
        "labels.yaml:3: it is not YAML: ",
    ),
    ("jinja.yaml", "a: 1\n{% if x %}\nb: 2\n{% endif %}\n", "jinja.yaml: is a template; "),
];

#[test]
fn files_of_other_programs_are_no_errors() {
    let folder = folder(&[("c.yaml", CLUSTER), ("g.yaml", GROUP)]);
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    FOREIGN.iter().for_each(|(name, text, _)| write(name, text.as_bytes()));
    write("latin.yml", b"name: caf\xe9\n");
    write("big.json", &vec![b' '; (4 << 20) + 1]);
    write("large.yaml", &large("example.com/v1"));
    write("labels.yaml", b"nodeSelector:\n  kops.k8s.io/instancegroup: nodes\n a: [\n");
    write("cloudformation.yml", b"R:\n  T: !Ref X\n  S: !Sub \"a${x}\"\n");
    let ended = check(folder.path(), &[]);
    expect(
        &ended,
        0,
        &[
            "not checked: ./latin.yml: is not text in UTF-8\n",
            "not checked: ./labels.yaml:3: it is not YAML: ",
            "not checked: ./big.json: is larger than 4 MiB, so this check does not read it\n",
            "not checked: ./large.yaml: is larger than 4 MiB, so this check does not read it\n",
            "Cluster, InstanceGroup or SSHCredential of kOps: without kind (1)\n",
            "1 clusters, 1 instance groups\n",
            "0 errors, 0 warnings\n",
        ],
    );
    for (_, _, told) in FOREIGN {
        expect(&ended, 0, &[&format!("not checked: ./{told}")]);
    }
    // A file that the user names must be a manifest.
    for (name, _, told) in &FOREIGN[..5] {
        let flags = ["--kops", "1.36", "--manifests", "c.yaml", name];
        let ended = Ended::from_command(&mut command(folder.path(), &flags));
        expect(&ended, WRONG, &[&format!("error: {told}")]);
    }
}

/// A file that is too large to be parsed. Its last document has the `apiVersion` `api`.
fn large(api: &str) -> Vec<u8> {
    format!("{}---\napiVersion: {api}\n", "# a comment\n".repeat(400_000)).into_bytes()
}

#[test]
fn a_broken_manifest_of_kops_is_an_error() {
    let folder = folder(&[("c.yaml", CLUSTER), ("g.yaml", GROUP)]);
    std::fs::write(folder.path().join("large.yaml"), large("kops.k8s.io/v1alpha2")).unwrap();
    let told = "error: ./large.yaml: is larger than 4 MiB, so this check does not read it\n";
    expect(&check(folder.path(), &[]), WRONG, &[told]);
    let broken = GROUP.replace("  role: Node", "   role: Node");
    for (text, told) in [
        (broken.as_str(), "error: ./x.yaml:10: it is not YAML: "),
        (&format!("{CLUSTER}---\n- kops/v1alpha2\n"), "error: ./x.yaml:15: it holds a list"),
    ] {
        expect(&check_files(&[("g.yaml", GROUP), ("x.yaml", text)]), WRONG, &[told]);
    }
}

#[test]
fn a_group_of_a_missing_cluster_is_an_error_beside_files_of_other_programs() {
    let other = CLUSTER.replace("c.example.com", "d.example.com");
    let files = [("c.yaml", other.as_str()), ("g.yaml", GROUP), ("x.yaml", "- a\n")];
    expect(
        &check_files(&files),
        WRONG,
        &["names the cluster c.example.com, which is not among the manifests"],
    );
}

#[test]
fn an_unreadable_file_is_reported_and_the_check_goes_on() {
    let folder = folder(&[("c.yaml", CLUSTER), ("g.yaml", &format!("{GROUP}  kubelet: {{maxPods: -5}}\n"))]);
    symlink("nowhere.yaml", folder.path().join("gone.yaml")).unwrap();
    symlink("loop.yaml", folder.path().join("loop.yaml")).unwrap();
    expect(
        &check(folder.path(), &[]),
        WRONG,
        &[
            "error: ./gone.yaml: cannot be read: No such file or directory",
            "error: ./loop.yaml: cannot be read: Too many levels of symbolic links",
            "error: ./g.yaml:11: spec.kubelet.maxPods",
        ],
    );
}

#[test]
fn a_pipe_is_refused() {
    let folder = folder(&[("c.yaml", CLUSTER)]);
    let pipe = folder.path().join("pipe.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // A pipe in a folder is not read as a manifest.
    expect(&check(folder.path(), &[]), 0, &["1 files, 1 clusters"]);
    let named =
        Ended::from_command(&mut command(folder.path(), &["--kops", "1.36", "--manifests", "pipe.yaml"]));
    named.with(2, &["--manifests pipe.yaml: is neither a file nor a folder", "KA1001"]);
}

#[test]
fn an_action_hides_no_mistake_and_no_other_value() {
    // This file is no template, because `{{.State}}` belongs to the user's script. So the wrong indentation is an
    // error.
    let broken = format!(
        "{GROUP}  hooks:\n  - name: h\n    manifest: |\n      ExecStart=docker inspect --format '{{{{.State}}}}' x\n   bad: x\n"
    );
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &broken)]),
        WRONG,
        &["error: ./g.yaml:15: it is not YAML: "],
    );
    // Values that come from a template are not checked. All other values are checked.
    let group = format!(
        "{GROUP}  minSize: {{{{ .min }}}}\n  maxSize: \"{{{{ .max }}}}\"\n  kubelet:\n    maxPods: -5\n"
    );
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        WRONG,
        &[
            "not checked: ./g.yaml:11: spec.minSize: its value comes from a template\n",
            "not checked: ./g.yaml:12: spec.maxSize: its value comes from a template\n",
            "error: ./g.yaml:14: spec.kubelet.maxPods: -5 is refused by kubelet",
            "1 errors, 0 warnings\n",
        ],
    );
    let group = GROUP.replace("role: Node", "role: \"{{ .role }}\"");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        0,
        &[
            "not checked: ./g.yaml:10: spec.role: its value comes from a template\n",
            "not checked: ./g.yaml:1: all other values of this document, because it cannot be read\n",
        ],
    );
}

#[test]
fn names_from_a_template_are_neither_equal_nor_missing() {
    let [cluster, group] = [CLUSTER, GROUP].map(|text| text.replace("c.example.com", "{{ .cluster }}"));
    let wrong = format!("{group}  kubelet: {{maxPods: -5}}\n");
    let told = "error: ./g.yaml:11: spec.kubelet.maxPods: -5";
    expect(&check_files(&[("c.yaml", &cluster), ("g.yaml", &wrong)]), WRONG, &[told, "1 errors, 0 warnings"]);
    expect(
        &check_files(&[("c.yaml", &cluster), ("d.yaml", &cluster), ("g.yaml", &wrong), ("h.yaml", &group)]),
        0,
        &[
            "2 clusters, 2 instance groups\n",
            "not checked: ./g.yaml:5: metadata.labels.kops.k8s.io/cluster: only the names and types of this group's fields are checked, \
             because a template sets this label or the name of a cluster\n",
        ],
    );
}

#[test]
fn a_version_or_cloud_from_a_template_leaves_other_fields_checked_or_reported() {
    let wrong = format!("{GROUP}  kubelet: {{maxPods: -5}}\n");
    let version = CLUSTER.replace("1.34.2", "\"{{ .version }}\"");
    expect(
        &check_files(&[("c.yaml", &version), ("g.yaml", &wrong)]),
        WRONG,
        &[
            "not checked: ./c.yaml:11: spec.kubernetesVersion: its value comes from a template\n",
            "error: ./g.yaml:11: spec.kubelet.maxPods: -5",
        ],
    );
    let cloud = CLUSTER.replace("cloudProvider: aws", "cloudProvider: {{ .cloud }}");
    expect(
        &check_files(&[("c.yaml", &cloud), ("g.yaml", &wrong)]),
        0,
        &[
            "not checked: ./c.yaml:6: spec.cloudProvider: its value comes from a template\n",
            "spec.cloudProvider: only the names and types of this cluster's fields are checked",
            "not checked: ./g.yaml:5: metadata.labels.kops.k8s.io/cluster: only the names and types of this group's fields are checked, \
             because its cluster c.example.com names no known cloud\n",
        ],
    );
}
