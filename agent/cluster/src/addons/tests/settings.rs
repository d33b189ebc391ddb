//! Tests of the settings from the channels pod's arguments and from protokube's channels.

use std::collections::BTreeMap;

use kops_agent_spec::invalid::Invalid;
use serde_json::{Value, json};

use super::super::AddonSettings;

const BOOTSTRAP: &str = "s3://clusters/c.example.com/addons/bootstrap-channel.yaml";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

fn settings(args: &Value) -> Result<AddonSettings, Invalid> {
    let containers =
        [json!({"name": "a-sidecar", "args": ["x"]}), json!({"name": "kops-channels", "args": args})];
    AddonSettings::of_pod(&containers, "i-1")
}

fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_pods_arguments_give_channels_and_labels() {
    let pod = settings(&json!([
        "apply",
        "channel",
        "--v=4",
        "--yes",
        "--interval=1m0s",
        format!("--node-labels={CONTROL_PLANE}"),
        "--node-name=$(NODE_NAME)",
        BOOTSTRAP,
        "https://example.com/more.yaml",
    ]))
    .unwrap();
    assert_eq!(pod.channels, [BOOTSTRAP, "https://example.com/more.yaml"]);
    assert_eq!(pod.node_name, "i-1", "the name of the Node is not the pod's to say");
    let wanted = labels(&[
        ("kops.k8s.io/kops-controller-pki", ""),
        (CONTROL_PLANE, ""),
        ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ]);
    assert_eq!(pod.node_labels, wanted);
    assert_eq!(AddonSettings::parse(pod.to_text().as_bytes(), "settings.json").unwrap(), pod);
}

#[test]
fn mandatory_labels_override_labels_of_the_arguments() {
    let pod = settings(&json!([
        "apply",
        "channel",
        "--node-name",
        "x",
        "--node-labels",
        format!("node-role.kops.k8s.io/kops-channel,foo=bar,{CONTROL_PLANE}=no,"),
        "--yes",
        BOOTSTRAP,
    ]))
    .unwrap();
    assert_eq!(pod.channels, [BOOTSTRAP]);
    let given =
        ["node-role.kops.k8s.io/kops-channel", "foo", CONTROL_PLANE].map(|label| &pod.node_labels[label]);
    assert_eq!(given, ["", "bar", ""]);
    assert_eq!(pod.node_labels.len(), 5, "an empty label is none: {:?}", pod.node_labels);
}

#[test]
fn a_pod_without_a_node_name_labels_no_node() {
    let pod = settings(&json!(["apply", "channel", "--node-labels=a", BOOTSTRAP])).unwrap();
    assert_eq!((pod.node_name.as_str(), pod.node_labels.len()), ("", 0));
}

#[test]
fn a_pod_without_channels_is_rejected() {
    assert!(
        AddonSettings::of_pod(&[json!({"name": "a"})], "i-1")
            .unwrap_err()
            .to_string()
            .contains("no container")
    );
    for args in [json!(["apply", "channel", "--yes"]), json!(null), json!("x")] {
        assert!(settings(&args).unwrap_err().to_string().contains("name no channel"), "{args}");
    }
}

#[test]
fn protokubes_settings_have_the_channels_and_the_mandatory_labels() {
    let channels = [BOOTSTRAP.to_owned(), "https://example.com/more.yaml".to_owned()];
    let of_protokube = AddonSettings::of_protokube(&channels, "i-1").unwrap();
    let of_pod = settings(&json!(["apply", "channel", "--node-name=x", BOOTSTRAP, channels[1]])).unwrap();
    assert_eq!(of_protokube, of_pod);
    assert!(AddonSettings::of_protokube(&[], "i-1").unwrap_err().to_string().contains("no channel"));
}

#[test]
fn missing_and_different_labels_are_reported_as_missing() {
    let settings = AddonSettings::default().labelling("i-1", "a=1");
    let all = settings.node_labels.clone();
    assert_eq!(settings.missing_labels(&labels(&[("other", "")])), all);
    let mut there = all;
    assert!(settings.missing_labels(&there).is_empty());
    there.insert("a".into(), "2".into());
    assert_eq!(settings.missing_labels(&there), labels(&[("a", "1")]));
}
