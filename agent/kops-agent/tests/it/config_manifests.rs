//! `config check --manifests`: manifests as operators keep them, not completed by kOps.

mod as_kops_reads;
mod foreign_files;
mod limits;
mod links;

use std::fs;
use std::path::Path;
use std::process::Command;

use kops_agent_tests::example_store::{CONTROL_PLANE, NODES};
use serde_json::Value;
use tempfile::TempDir;

use crate::example::{Ended, Machine, agent};

const WRONG: i32 = 3;
const CLUSTER: &str = "\
apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata:
  name: c.example.com
spec:
  cloudProvider: aws
  channel: stable
  etcdClusters:
  - name: main
    etcdMembers: [{name: a, instanceGroup: control-plane}]
  kubernetesVersion: 1.34.2
  networking:
    cilium: {}
";
const GROUP: &str = "\
apiVersion: kops.k8s.io/v1alpha2
kind: InstanceGroup
metadata:
  labels:
    kops.k8s.io/cluster: c.example.com
  name: nodes
spec:
  image: ubuntu/ubuntu-noble-24.04-amd64-server
  machineType: m5.large
  role: Node
";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

fn command(folder: &Path, more: &[&str]) -> Command {
    let mut agent = Command::new(agent());
    agent.env_clear().current_dir(folder).args(["config", "check"]).args(more);
    agent
}

fn check(folder: &Path, more: &[&str]) -> Ended {
    Ended::from_command(command(folder, &["--manifests", ".", "--kops", "1.36"]).args(more))
}

fn check_files(files: &[(&str, &str)]) -> Ended {
    check(folder(files).path(), &[])
}

#[track_caller]
fn expect(ended: &Ended, code: i32, parts: &[&str]) {
    ended.with(code, &[]);
    for part in parts {
        assert!(ended.stdout.contains(part), "{part:?} is not in {ended:#?}");
    }
}

#[test]
fn manifests_without_a_mistake_give_no_finding() {
    let both = format!("{CLUSTER}---\n{GROUP}");
    let ended = check_files(&[("clusters/c/all.yaml", &both), ("README.md", "{"), (".git/x.yaml", "{")]);
    expect(
        &ended,
        0,
        &[
            "checked for kOps 1.36: 1 files, 1 clusters, 1 instance groups\n",
            "not checked: ./clusters/c/all.yaml:5: spec: checks that need the values of these fields, because kOps completes them: ",
            "spec.containerd.version",
            "0 errors, 0 warnings\n",
        ],
    );
    assert!(!ended.stdout.contains("spec.kubernetesVersion"), "{ended:#?}");
}

#[test]
fn a_wrong_value_is_reported_with_its_file_and_line() {
    for (cluster, group, told) in [
        (
            "",
            "  kubelet:\n    maxPods: -5\n",
            "error: ./group.yml:12: spec.kubelet.maxPods: -5 is refused by kubelet",
        ),
        (
            "",
            "  taints:\n  - a=b:NoSchedule\n  - a=b c:NoSchedule\n",
            "error: ./group.yml:13: spec.taints[1]: \"b c\" is no value",
        ),
        (
            "",
            "  hooks: [{name: x, roles: [Master]}, {name: z}]\n",
            "error: ./group.yml:11: spec.hooks[1]: has neither manifest",
        ),
        (
            "  sysctlParameters:\n  - a=1\n  - b\n",
            "",
            "error: ./cluster.yaml:16: spec.sysctlParameters[1]: \"b\" is not a setting",
        ),
        (
            "  kubelet:\n    featureGates:\n      None: \"true\"\n",
            "",
            "error: ./cluster.yaml:16: spec.kubelet.featureGates.None",
        ),
        (
            "  kubeAPIServer:\n    logFormat: xml\n",
            "",
            "error: ./cluster.yaml:15: spec.kubeAPIServer.logFormat: \"xml\"",
        ),
        (
            "  kubeScheduler:\n    logFormat: xml\n",
            "",
            "error: ./cluster.yaml:15: spec.kubeScheduler.logFormat: \"xml\"",
        ),
        (
            "  containerd:\n    logLevel: loud\n",
            "",
            "error: ./cluster.yaml:15: spec.containerd.logLevel: \"loud\"",
        ),
        (
            "  fileAssets:\n  - name: a\n    mode: '9'\n    content: hush\n",
            "",
            "error: ./cluster.yaml:16: spec.fileAssets[0].mode",
        ),
        (
            "  updatePolicy: never\n",
            "",
            "error: ./cluster.yaml:14: spec.updatePolicy: \"never\" is no update policy",
        ),
        ("", "  maxSizes: 3\n", "warning: ./group.yml:11: spec.maxSizes: is not read"),
        ("", "  kubelet: {maxPods: many}\n", "error: ./group.yml:11: spec.kubelet.maxPods: it is a string"),
        ("  sshAccess: none\n", "", "error: ./cluster.yaml:14: spec.sshAccess: it is a string"),
    ] {
        let files =
            [("cluster.yaml", &*format!("{CLUSTER}{cluster}")), ("group.yml", &*format!("{GROUP}{group}"))];
        let ended = check_files(&files);
        expect(&ended, if told.starts_with("error") { WRONG } else { 0 }, &[told]);
        let findings =
            ended.stdout.lines().filter(|line| line.starts_with("error") || line.starts_with("warning"));
        assert_eq!(findings.count(), 1, "{ended:#?}");
        assert!(!ended.stdout.contains("hush"), "{ended:#?}");
    }
}

/// The checks of manifests and of stores use the same rules. So both report the same mistake.
#[test]
fn a_mistake_in_a_store_is_the_same_mistake_in_its_manifests() {
    for (edited, problem) in [
        ("kubelet: {evictionHard: memory.available=100Mi}", "evictionHard: "),
        ("kubelet: {kubeReserved: {cpu: lots}}", "kubeReserved.cpu: \"lots\" is not a quantity"),
        ("nodeLabels: {'a b': c}", "nodeLabels: \"a b\" is no key"),
        ("volumeMounts: [{device: /dev/sdb, path: /x, filesystem: zfs}]", "olumeMounts[0]"),
        (
            "fileAssets: [{name: x, path: /etc/containerd/config.toml, content: x}]",
            "/etc/containerd/config.toml",
        ),
    ] {
        let machine = Machine::new(NODES);
        let store = machine.cluster.store.cluster_folder();
        let manifests = || -> TempDir {
            let read = |name: &str| fs::read_to_string(store.join(name)).unwrap();
            let groups = [NODES, CONTROL_PLANE].map(|group| read(&format!("instancegroup/{group}")));
            folder(&[("cluster.yaml", &read("config")), ("groups.yaml", &groups.join("---\n"))])
        };
        let of_manifests = |folder: &TempDir| {
            Ended::from_command(&mut command(folder.path(), &["--manifests", ".", "--kops", "1.37"]))
        };
        expect(&of_manifests(&manifests()), 0, &["0 errors, 0 warnings"]);
        crate::config::edit_role(&store.join("instancegroup/nodes"), edited);
        for ended in [crate::config::check_group(&machine, NODES), of_manifests(&manifests())] {
            expect(&ended, WRONG, &[problem]);
        }
    }
}

#[test]
fn a_value_that_only_some_versions_refuse_is_no_error_until_the_version_is_written() {
    // Kubernetes 1.32 removed this feature gate.
    let gates = "  kubelet:\n    featureGates: {CloudDualStackNodeIPs: \"true\"}\n";
    let absent = CLUSTER.replace("  kubernetesVersion: 1.34.2\n", "");
    let ended = check_files(&[("c.yaml", &format!("{absent}{gates}")), ("g.yaml", GROUP)]);
    expect(&ended, 0, &["because kOps completes them: spec.configBase, spec.kubernetesVersion", "0 errors"]);
    let ended = check_files(&[("c.yaml", &format!("{CLUSTER}{gates}")), ("g.yaml", GROUP)]);
    expect(&ended, WRONG, &["spec.kubelet.featureGates"]);
    // Every Kubernetes version refuses this value.
    let ended =
        check_files(&[("c.yaml", &format!("{absent}  kubelet: {{maxPods: -5}}\n")), ("g.yaml", GROUP)]);
    expect(&ended, WRONG, &["error: ./c.yaml:13: spec.kubelet.maxPods: -5"]);
}

#[test]
fn the_kops_release_decides_which_values_are_possible() {
    let cluster = CLUSTER.replace("1.34.2", "1.30.0");
    let files = [("c.yaml", &*cluster), ("g.yaml", GROUP)];
    let folder = folder(&files);
    let of = |kops: &str| {
        Ended::from_command(&mut command(folder.path(), &["--manifests", "c.yaml", "g.yaml", "--kops", kops]))
    };
    expect(&of("1.35.2"), 0, &["checked for kOps 1.35.2: 2 files"]);
    expect(&of("1.36"), WRONG, &["error: c.yaml:11: spec.kubernetesVersion: "]);
    expect(&of("1.99.0"), WRONG, &["warning: --kops: kOps 1.99.0 is newer than this kops-agent knows"]);
    for wrong in ["1.20.0", "newest", "2.0.0"] {
        of(wrong).with(
            2,
            &[
                &format!("--kops {wrong}: this version of kOps is not supported; use 1.34, 1.35, 1.36, 1.37"),
                "KA1001",
            ],
        );
    }
}

#[test]
fn manifests_that_do_not_belong_together_are_reported() {
    let other = CLUSTER.replace("c.example.com", "d.example.com");
    let of_other = GROUP.replace("c.example.com", "e.example.com");
    let without_label = GROUP.replace("  labels:\n    kops.k8s.io/cluster: c.example.com\n", "");
    let label = "metadata.labels.kops.k8s.io/cluster";
    for (files, code, told) in [
        (vec![("g.yaml", GROUP)], 0, format!("not checked: ./g.yaml:5: {label}: only the names and types of this group's fields")),
        (
            vec![("c.yaml", CLUSTER), ("g.yaml", &of_other)],
            WRONG,
            format!("error: ./g.yaml:5: {label}: names the cluster e.example.com, which is not among the manifests; they have c.example.com"),
        ),
        (vec![("c.yaml", CLUSTER), ("d.yaml", &other), ("g.yaml", GROUP)], 0, "2 clusters, 1 instance groups".into()),
        (
            vec![("c.yaml", CLUSTER), ("g.yaml", &without_label)],
            0,
            format!("warning: ./g.yaml:3: {label}: is not set, so this check uses the cluster c.example.com"),
        ),
        (
            vec![("c.yaml", CLUSTER), ("d.yaml", &other), ("g.yaml", &without_label)],
            0,
            format!("not checked: ./g.yaml:3: {label}: only the names and types of this group's fields are checked, because it has no label"),
        ),
        (
            vec![("c.yaml", CLUSTER), ("g.yaml", GROUP), ("h/g.yaml", GROUP)],
            WRONG,
            "error: ./h/g.yaml:6: metadata.name: the InstanceGroup nodes is also in ./g.yaml:1; remove one of them".into(),
        ),
        (
            vec![("c.yaml", CLUSTER), ("d.yaml", CLUSTER)],
            WRONG,
            "error: ./d.yaml:4: metadata.name: the Cluster c.example.com is also in ./c.yaml:1".into(),
        ),
        (
            vec![("c.yaml", CLUSTER), ("x.yaml", "a: 1\n---\n# for kops.k8s.io/v1alpha2\nb: [\n")],
            WRONG,
            "error: ./x.yaml:5: it is not YAML: ".into(),
        ),
        (
            vec![("c.yaml", CLUSTER), ("x.yaml", "kind: ConfigMap\napiVersion: v1\n")],
            0,
            "not checked: documents that are no Cluster, InstanceGroup or SSHCredential of kOps: ConfigMap (1)".into(),
        ),
        (vec![("x.yaml", "kind: ConfigMap\napiVersion: v1\n")], WRONG, "error: no file has a Cluster, an InstanceGroup".into()),
    ] {
        expect(&check_files(&files), code, &[&told]);
    }
}

#[test]
fn paths_without_manifests_are_refused() {
    let empty = folder(&[("README.md", "")]);
    check(empty.path(), &[]).with(
        WRONG,
        &[". has no manifests; the names of manifest files end with .yaml, .yml or .json", "KA1002"],
    );
    let of = |flags: &[&str]| Ended::from_command(&mut command(empty.path(), flags));
    of(&["--kops", "1.36", "--manifests", "none"])
        .with(2, &["--manifests none: no such file or folder", "KA1001"]);
    of(&["--manifests", "."]).with(2, &["--kops <VERSION>"]);
    of(&["--kops", "1.36"]).with(2, &["--manifests <DIR|FILE>"]);
    of(&["--kops", "1.36", "--manifests", ".", "--config-base", "s3://a/b"])
        .with(2, &["cannot be used with"]);
}

#[test]
fn a_template_is_not_checked() {
    let template = format!("{CLUSTER}---\n{GROUP}{{{{ if .more }}}}\n  maxSize: many\n{{{{ end }}}}\n");
    let ended = check_files(&[("t.yaml", &template), ("g.yaml", &GROUP.replace("nodes", "more"))]);
    expect(
        &ended,
        0,
        &[
            "not checked: ./t.yaml: is a template; render it",
            "its cluster c.example.com is not among the checked manifests",
        ],
    );
    // A template action in the content of a file asset is no mistake, because the program that reads the file may
    // need it.
    let cluster = format!(
        "{CLUSTER}  updatePolicy: \"{{{{ .policy }}}}\"\n  fileAssets: [{{name: a, content: \"{{{{ .x }}}}\"}}]\n"
    );
    let ended =
        check_files(&[("c.yaml", &cluster), ("g.yaml", &format!("{GROUP}  kubelet: {{maxPods: -5}}\n"))]);
    expect(
        &ended,
        WRONG,
        &[
            "not checked: ./c.yaml:14: spec.updatePolicy: its value comes from a template",
            "error: ./g.yaml:11: spec.kubelet.maxPods",
        ],
    );
    assert_eq!(ended.stdout.matches("error: ").count(), 1, "{ended:#?}");
}

#[test]
fn keys_from_a_template_are_not_checked() {
    const KEY: &str = "its key comes from a template, so this check does not know which field it is, or whether it occurs twice\n";
    let keys = "  {{ .a }}: 1\n  {{ .b }}: 2\n";
    let group = format!(
        "{GROUP}{keys}  kubelet:\n    featureGates:\n      {{{{ .a }}}}: \"true\"\n      {{{{ .b }}}}: \"true\"\n      None: \"true\"\n"
    );
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]);
    expect(
        &ended,
        WRONG,
        &[
            &format!("not checked: ./g.yaml:11: spec.{{{{ .a }}}}: {KEY}"),
            &format!("not checked: ./g.yaml:12: spec.{{{{ .b }}}}: {KEY}"),
            &format!("not checked: ./g.yaml:15: spec.kubelet.featureGates.{{{{ .a }}}}: {KEY}"),
            &format!("not checked: ./g.yaml:16: spec.kubelet.featureGates.{{{{ .b }}}}: {KEY}"),
            "error: ./g.yaml:17: spec.kubelet.featureGates.None: is no feature gate",
            "1 errors, 0 warnings\n",
        ],
    );
    // Both keys consist of the same template action, so the template renders the same key twice.
    let twice = "  {{ .a }}: 1\n  {{ .a }}: 2\n";
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &format!("{GROUP}{twice}"))]),
        0,
        &["warning: ./g.yaml:12: spec.{{ .a }}: occurs twice in its mapping", "0 errors, 1 warnings\n"],
    );
    // A key that comes from a template may become the cluster's label or a required field. So neither counts as
    // missing.
    let with_label = GROUP.replace("kops.k8s.io/cluster:", "{{ .label }}:");
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &with_label)]);
    expect(&ended, 0, &["0 errors, 0 warnings\n"]);
    assert!(!ended.stdout.contains("g.yaml"), "{ended:#?}");
    let with_role = GROUP.replace("  role: Node\n", "  {{ .field }}: Node\n");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &with_role)]),
        0,
        &[
            "not checked: ./g.yaml:7: spec.role: it is missing, unless a key from a template is this field\n",
            "0 errors, 0 warnings\n",
        ],
    );
}

#[test]
fn a_cluster_without_groups_is_checked_for_the_roles_that_it_will_have() {
    let cluster =
        format!("{CLUSTER}  kubeControllerManager:\n    logFormat: xml\n  kubelet:\n    maxPods: -5\n");
    let ended = check_files(&[("c.yaml", &cluster)]);
    expect(
        &ended,
        WRONG,
        &["./c.yaml:15: spec.kubeControllerManager.logFormat", "./c.yaml:17: spec.kubelet.maxPods"],
    );
}

#[test]
fn no_output_has_a_key_or_a_text_of_the_user() {
    let credential = "apiVersion: kops.k8s.io/v1alpha2\nkind: SSHCredential\nmetadata:\n  name: admin\n  labels: {kops.k8s.io/cluster: \
                      c.example.com}\nspec:\n  publicKey: [hush]\n";
    let group =
        format!("{GROUP}  hooks:\n  - name: a\n    execContainer: {{image: '', environment: {{A: hush}}}}\n");
    let folder = folder(&[("c.yaml", CLUSTER), ("g.yaml", &group), ("s.yaml", credential)]);
    for format in ["text", "json", "github"] {
        let ended = check(folder.path(), &["-o", format]);
        expect(&ended, WRONG, &["spec.publicKey", "spec.hooks[0].execContainer.image"]);
        assert!(!ended.stdout.contains("hush") && !ended.stderr.contains("hush"), "{ended:#?}");
    }
}

#[test]
fn programs_and_github_get_each_finding_with_its_place() {
    let group = format!("{GROUP}  maxSizes: 3\n  kubelet:\n    maxPods: -5\n");
    let folder = folder(&[("c.yaml", CLUSTER), ("g,1.yaml", &group)]);
    let ended = check(folder.path(), &["-o", "json"]);
    ended.with(WRONG, &[]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["schemaVersion"], 1);
    assert_eq!(found["checked"]["instanceGroups"], 1);
    assert_eq!(
        (&found["errors"][0]["file"], &found["errors"][0]["line"]),
        (&"./g,1.yaml".into(), &13.into())
    );
    assert!(found["notChecked"][0]["problem"].as_str().unwrap().contains("spec.kubeDNS"), "{found}");
    let ended = check(folder.path(), &["-o", "github"]);
    expect(
        &ended,
        WRONG,
        &[
            "\n::error file=g%2C1.yaml,line=13,title=spec.kubelet.maxPods::spec.kubelet.maxPods: -5 is refused by kubelet",
            "\n::warning file=g%2C1.yaml,line=11,title=spec.maxSizes::spec.maxSizes: is not read",
            "\n::notice file=c.yaml,line=5,title=spec::",
        ],
    );
}
