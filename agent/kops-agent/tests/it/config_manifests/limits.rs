//! In CI, a pull request decides what is checked. So the number and the size of findings are limited, and so is the cost of reading a file.

use std::fmt::Write as _;

use super::{CLUSTER, GROUP, WRONG, check_files, expect};

fn repeated(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        writeln!(text, "{}", line(number)).unwrap();
        text
    })
}

#[test]
fn a_document_has_few_findings_of_each_severity() {
    let unknown = repeated(150, |number| format!("  unknown{number}: 1"));
    let group = format!("{GROUP}{unknown}  kubelet: {{maxPods: -5}}\n");
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]);
    expect(
        &ended,
        WRONG,
        &[
            "warning: ./g.yaml:11: spec.unknown0: is not read",
            "warning: ./g.yaml:1: 50 more warnings of this document are not listed\n",
            "error: ./g.yaml:161: spec.kubelet.maxPods: -5",
            "1 errors, 150 warnings\n",
        ],
    );
    let taints = repeated(150, |number| format!("  - {number}=b:No"));
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &format!("{GROUP}  taints:\n{taints}"))]);
    expect(
        &ended,
        WRONG,
        &[
            "error: ./g.yaml:12: spec.taints[0]: the effect \"No\" of the taint \"0=b:No\" is unknown",
            "error: ./g.yaml:1: 50 more errors of this document are not listed\n",
            "150 errors, 0 warnings\n",
        ],
    );
}

/// The check derives a node for each possible machine of a group and each possible Kubernetes version. Without a limit,
/// each derivation would report all wrong values of the group.
#[test]
fn a_group_has_few_problems_of_its_nodes() {
    const MORE: &str = "so the others are not listed; correct these first\n";
    let taints = repeated(2000, |number| format!("  - {number}=b:No"));
    let mirrors = repeated(2000, |number| format!("      'r {number}': []"));
    let group = format!("{GROUP}  containerd:\n    registryMirrors:\n{mirrors}  taints:\n{taints}");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        WRONG,
        &[
            &format!("error: ./g.yaml:7: spec: there are more than 1,000 problems, {MORE}"),
            &format!("warning: ./g.yaml:7: spec: there are more than 1,000 warnings, {MORE}"),
            "error: ./g.yaml:1: 901 more errors of this document are not listed\n",
            "1001 errors, 1001 warnings\n",
        ],
    );
}

#[test]
fn keys_that_occur_twice_give_few_warnings() {
    let twice = repeated(30, |number| format!("  a{number}: 1\n  a{number}: 1"));
    let group = GROUP.replace("spec:\n", &format!("x-unread:\n{twice}spec:\n"));
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group)]),
        0,
        &[
            "warning: ./g.yaml:9: x-unread.a0: occurs twice in its mapping",
            "warning: ./g.yaml:1: 20 more warnings of this document are not listed\n",
            "0 errors, 30 warnings\n",
        ],
    );
}

#[test]
fn a_finding_is_short() {
    let name = "k".repeat(1 << 20);
    let group = format!("{GROUP}  ? {name}\n  : 1\n  cloudLabels: {{? {name} : 1}}\n");
    let kind = format!("kind: {name}\n---\nkind: {name}\napiVersion: kops.k8s.io/v1alpha2\n");
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &group), ("x.yaml", &kind)]);
    expect(
        &ended,
        WRONG,
        &[
            "warning: ./g.yaml:7: spec.kkk",
            "k…: is not read",
            "error: ./g.yaml:13: spec.cloudLabels.kkk",
            "error: ./x.yaml:3: kind: kOps has no kind \"kkk",
        ],
    );
    assert!(ended.stdout.lines().all(|line| line.len() < 2500) && ended.stdout.len() < 10_000, "{ended:#?}");
}

/// Without limits, this check would take minutes: it would search the line of each finding, and compare each unknown
/// field with all known fields.
#[test]
fn a_large_document_costs_no_more_than_its_size() {
    let hooks = repeated(600, |number| format!("  - {{disabled: true, name: h{number}, unknown: 1}}"));
    let fields =
        repeated(600, |number| format!("  a{number}: {{cgroupDriver: x, podInfraContainerImage: y}}"));
    let unread = format!("x-unread: |\n{}", "  spec:\n".repeat(400_000));
    let group = GROUP.replace("spec:\n", &format!("{unread}spec:\n"));
    let ended = check_files(&[("c.yaml", CLUSTER), ("g.yaml", &format!("{group}  hooks:\n{hooks}{fields}"))]);
    // Each hook has one unknown field. Each field `a…` is unknown, and two fields below it are deprecated.
    expect(
        &ended,
        WRONG,
        &[
            "warning: ./g.yaml:400613: spec.a0: is not read",
            "./g.yaml:1: 2300 more warnings of this document are not listed\n",
        ],
    );
}

#[test]
fn a_manifest_of_kops_has_a_limited_size() {
    let unknown = |count: usize| repeated(count, |number| format!("  unknown{number}: 1"));
    let cluster = format!("{CLUSTER}{}", unknown(6000));
    let told = "has more than 10,000 keys and values, unlike any manifest of kOps, so it is not checked\n";
    // The group belongs to the cluster in `c.yaml`, which is too large to be checked. This is no error of the group.
    expect(
        &check_files(&[
            ("c.yaml", &cluster),
            ("d.yaml", &CLUSTER.replace("c.example.com", "d")),
            ("g.yaml", GROUP),
        ]),
        WRONG,
        &[&format!("error: ./c.yaml:1: {told}"), "1 errors, 0 warnings\n"],
    );
    // A document as large as this `c.yaml` is only counted if its `apiVersion` belongs to another program.
    let other = cluster.replace("apiVersion: kops.k8s.io/v1alpha2", "apiVersion: example.com/v1");
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("x.yaml", &other)]),
        0,
        &["of kOps: Cluster (1)\n", "0 errors"],
    );
}

#[test]
fn a_file_has_few_documents() {
    let documents = |count: usize| "a: 1\n---\n".repeat(count);
    let told = "has more than 1,000 documents; split it into several files\n";
    for (text, code, finding) in [
        (documents(1000), 0, "of kOps: without kind (1000)\n".to_owned()),
        (documents(1001), 0, format!("not checked: ./x.yaml: {told}")),
        (documents(1000) + GROUP, WRONG, format!("error: ./x.yaml: {told}")),
    ] {
        expect(&check_files(&[("c.yaml", CLUSTER), ("x.yaml", &text)]), code, &[&finding]);
    }
}

#[test]
fn the_lines_before_a_document_do_not_raise_its_limits() {
    let text = format!("a: 1\n{}---\n{}", "\n".repeat(300_000), aliases());
    expect(
        &check_files(&[("c.yaml", CLUSTER), ("x.yaml", &text)]),
        WRONG,
        &["error: ./x.yaml:300003: its aliases expand to many times its size"],
    );
}

fn aliases() -> String {
    format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(100), "*a,".repeat(500))
}

/// A document that is too expensive for this check is an error, because kOps may read it. This also applies to a
/// document without the name of kOps' API in its text: YAML can escape the name, for example as
/// `"kops\x2fv1alpha2"`.
#[test]
fn a_document_that_costs_too_much_to_read_is_an_error() {
    let deep = format!("a: {}\n", "[".repeat(200));
    let directives: String = (0..20).map(|number| format!("%TAG !a{number}! x\n")).collect();
    let directives = format!("{directives}--- \na: 1\n");
    for (text, told) in [
        (&aliases(), "its aliases expand to many times its size"),
        (&deep, "its lists and mappings nest deeper than 100 levels"),
        (&directives, "it has more than 16 directives"),
        // A line such as `{{ end }}` in a block scalar does not make the whole file a template.
        (&format!("a: |\n  {{{{ end }}}}\n---\n{deep}"), "its lists and mappings nest deeper"),
        (&format!("a: \"{{{{ .b }}}}\"\n{deep}"), "its lists and mappings nest deeper"),
    ] {
        let ended = check_files(&[("c.yaml", CLUSTER), ("x.yaml", text)]);
        expect(&ended, WRONG, &["error: ./x.yaml:", told, "1 errors, 0 warnings\n"]);
    }
}

#[test]
fn few_values_from_a_template_are_left_out() {
    let group = |count: usize| {
        let hooks = repeated(count, |number| format!("  - {{name: h{number}, before: '{{{{ .x }}}}'}}"));
        let text = format!("{GROUP}  kubelet: {{maxPods: -5}}\n  hooks:\n{hooks}");
        check_files(&[("c.yaml", CLUSTER), ("g.yaml", &text)])
    };
    const REST: &str =
        "not checked: ./g.yaml:1: all other values of this document, because it cannot be read\n";
    let of_template = |ended: &crate::example::Ended| {
        ended.stdout.matches("before: its value comes from a template\n").count()
    };
    let ended = group(20);
    expect(&ended, WRONG, &["spec.kubelet.maxPods: -5"]);
    assert_eq!(of_template(&ended), 20, "{ended:#?}");
    let ended = group(40);
    expect(&ended, 0, &[REST]);
    assert_eq!(of_template(&ended), 21, "{ended:#?}");
}

#[test]
fn few_names_and_kinds_are_listed() {
    let clusters =
        repeated(12, |number| format!("{}---", CLUSTER.replace("c.example.com", &format!("c{number}"))));
    let kinds = repeated(70, |number| format!("kind: K{number:02}\n---"));
    expect(
        &check_files(&[("c.yaml", &clusters), ("g.yaml", GROUP), ("x.yaml", &kinds)]),
        WRONG,
        &[
            "which is not among the manifests; they have c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, and 2 more\n",
            "K58 (1), K59 (1), other kinds (10)\n",
        ],
    );
}

#[test]
fn names_in_messages_are_short() {
    let (long, shown) = ("n".repeat(1000), format!("{}…", "n".repeat(252)));
    let [cluster, group] = [CLUSTER, GROUP].map(|text| text.replace("c.example.com", &long));
    for (files, told) in [
        ([("c.yaml", cluster.as_str()), ("g.yaml", GROUP)], format!("they have {shown}\n")),
        ([("c.yaml", CLUSTER), ("g.yaml", &group)], format!("names the cluster {shown}, which is not")),
        ([("c.yaml", &cluster), ("d.yaml", &cluster)], format!("the Cluster {shown} is also in ./c.yaml:1;")),
    ] {
        expect(&check_files(&files), WRONG, &[&told]);
    }
}
