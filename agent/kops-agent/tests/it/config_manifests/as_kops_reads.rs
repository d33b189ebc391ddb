//! Manifests are read as kOps reads them: by Go's reader of YAML 1.1, and with kOps' kinds and types.

use super::{CLUSTER, GROUP, WRONG, check_files, expect};

#[test]
fn merge_keys_and_booleans_of_yaml_1_1_are_read() {
    let cluster = format!(
        "{CLUSTER}    kindnet: {{networkPolicies: no}}\n  metricsServer: {{enabled: yes}}\n  certManager: {{enabled: On}}\n  kubeProxy: {{enabled: off}}\n"
    )
    .replace("    cilium: {}\n", "");
    let base = "x-base: &base\n  role: Node\n  minSize: 1\n";
    let without_role = GROUP.strip_suffix("  role: Node\n").unwrap();
    let group = without_role.replace("spec:\n", &format!("{base}spec:\n  <<: *base\n"));
    let ended =
        check_files(&[("c.yaml", &cluster), ("g.yaml", &format!("{group}  kubelet: {{maxPods: -5}}\n"))]);
    expect(&ended, WRONG, &["spec.kubelet.maxPods: -5 is refused by kubelet", "1 errors, 0 warnings"]);
    // In quotes, `yes` is a string.
    let quoted = format!("{CLUSTER}  metricsServer: {{enabled: 'yes'}}\n");
    expect(
        &check_files(&[("c.yaml", &quoted)]),
        WRONG,
        &["error: ./c.yaml:14: spec.metricsServer.enabled: it is a string, but should be true or false"],
    );
}

#[test]
fn a_byte_order_mark_is_no_content() {
    let group = format!("\u{feff}{GROUP}  kubelet: {{maxPods: -5}}\n");
    let ended = check_files(&[("c.yaml", &format!("\u{feff}{CLUSTER}")), ("g.yaml", &group)]);
    expect(&ended, WRONG, &["error: ./g.yaml:11: spec.kubelet.maxPods", "1 errors, 0 warnings"]);
}

#[test]
fn numbers_and_booleans_are_no_strings_for_kops() {
    const IN_QUOTES: &str = "but should be a string; put it in quotes\n";
    for (cluster, group, told) in [
        ("1.35", "", "./c.yaml:11: spec.kubernetesVersion: it is a fraction, "),
        ("1.34.2", "  cloudLabels: {a: 1}\n", "./g.yaml:11: spec.cloudLabels.a: it is a number, "),
        ("1.34.2", "  nodeLabels: {a: yes}\n", "./g.yaml:11: spec.nodeLabels.a: it is true or false, "),
        ("1.34.2", "  maxPrice: 0.1\n", "./g.yaml:11: spec.maxPrice: it is a fraction, "),
    ] {
        let files =
            [("c.yaml", &*CLUSTER.replace("1.34.2", cluster)), ("g.yaml", &*format!("{GROUP}{group}"))];
        expect(&check_files(&files), WRONG, &[&format!("error: {told}{IN_QUOTES}"), "1 errors, "]);
    }
    // A float without a fraction is accepted as a whole number, and a quantity may be in quotes.
    let group = format!("{GROUP}  minSize: 1.0\n  kubelet: {{kubeReserved: {{cpu: '1'}}}}\n");
    expect(&check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]), 0, &["0 errors, 0 warnings"]);
}

#[test]
fn a_wrong_type_says_that_the_rest_of_its_document_is_not_checked() {
    let group = format!("{GROUP}  taints: ['a=b:Bad']\n  kubelet:\n    maxPods: many\n");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        WRONG,
        &[
            "error: ./g.yaml:13: spec.kubelet.maxPods: it is a string, but should be a whole number\n",
            "not checked: ./g.yaml:1: all other values of this document, because it cannot be read\n",
        ],
    );
}

#[test]
fn kinds_and_plugins_that_kops_does_not_have_are_reported() {
    let group = GROUP.replace("kind: InstanceGroup", "kind: InstanceGroups");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        WRONG,
        &[
            "error: ./g.yaml:2: kind: kOps has no kind \"InstanceGroups\"; write Cluster, InstanceGroup or SSHCredential\n",
        ],
    );
    let group = GROUP.replace("kind: InstanceGroup\n", "");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        WRONG,
        &["error: ./g.yaml:1: kind: is missing; write"],
    );
    let keyset = "apiVersion: kops.k8s.io/v1alpha2\nkind: Keyset\n";
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("k.yaml", keyset)]),
        0,
        &["SSHCredential of kOps: Keyset (1)"],
    );
    let cluster = CLUSTER.replace("cilium", "cillium");
    expect(
        &check_files(&[("c.yaml", &cluster)]),
        0,
        &["warning: ./c.yaml:13: spec.networking.cillium: is not read: misspelled"],
    );
}

#[test]
fn a_version_that_kops_refuses_is_one_error_for_that_kops() {
    for (version, told) in [
        ("1.25.0", "Kubernetes 1.25.0 is not supported; supported are 1.31 and newer with kOps 1.36"),
        ("latest", "\"latest\" is no Kubernetes version; supported are 1.31 and newer with kOps 1.36"),
    ] {
        let group = format!("{GROUP}  kubelet: {{maxPods: -5}}\n");
        let files = [("c.yaml", &*CLUSTER.replace("1.34.2", version)), ("g.yaml", &*group)];
        expect(
            &check_files(&files),
            WRONG,
            &[
                &format!("error: ./c.yaml:11: spec.kubernetesVersion: {told}"),
                "error: ./g.yaml:11: spec.kubelet.maxPods",
                "2 errors, ",
            ],
        );
    }
}

#[test]
fn each_finding_is_at_the_place_and_in_the_words_of_the_user() {
    let cluster = format!("{CLUSTER}  kubeAPIServer:\n    oidcIssuerURL: http://x\n    oidcClientID: a\n");
    let group = format!("{GROUP}  kubelet:\n    taints: ['a=b:NoSchedule']\n  taints:\n  - c=d:No\n");
    expect(
        &check_files(&[("c.yaml", &cluster), ("g.yaml", &group)]),
        WRONG,
        &[
            "error: ./c.yaml:15: spec.kubeAPIServer.oidcIssuerURL: \"http://x\" is refused by kube-apiserver",
            "error: ./g.yaml:14: spec.taints[0]: the effect \"No\" of the taint \"c=d:No\" is unknown",
            "2 errors, 0 warnings",
        ],
    );
}

#[test]
fn texts_that_kops_reads_otherwise_than_their_user_are_warned_of() {
    let twice = CLUSTER.replace("  channel: stable\n", "  channel: stable\n  channel: alpha\n");
    expect(
        &check_files(&[("c.yaml", &format!("{twice}--- # the nodes\n{GROUP}"))]),
        0,
        &[
            "warning: ./c.yaml:8: spec.channel: occurs twice in its mapping, and kOps uses the last value; remove one of them\n",
            "warning: ./c.yaml:16: kOps does not read this document, because kOps splits a file only at lines that are exactly `---`; correct \
             the line before it\n",
            "0 errors, 2 warnings\n",
        ],
    );
    // In c.yaml, only a comment precedes `--- # begin`, so kOps reads the whole file. x.yaml is for another program, so
    // its line `--- # x` causes no warning.
    let files = [
        ("c.yaml", &*format!("# the cluster\n--- # begin\n{CLUSTER}")),
        ("x.yaml", "a: 1\na: 2\n--- # x\nb: 1\n"),
    ];
    expect(&check_files(&files), 0, &["0 errors, 0 warnings\n"]);
}
