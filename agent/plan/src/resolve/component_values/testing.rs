//! Nodes whose components have the settings of a test.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use kops_agent_spec::kops_release::Told;

use crate::resolve::testing::resolved;
use crate::resolve::{Inputs, Problem};

pub(super) const API_SERVER: &str = "APIServerConfig.KubeAPIServer";
pub(super) const CONTROLLER_MANAGER: &str = "ControlPlaneConfig.KubeControllerManager";
pub(super) const SCHEDULER: &str = "ControlPlaneConfig.KubeScheduler";
pub(super) const KUBE_PROXY: &str = "KubeProxy";

/// The refusals and the warnings of a component's settings on a control plane with this Kubernetes version.
fn found(version: &str, settings: &str, set: &str) -> [Vec<String>; 2] {
    let node = resolved(|inputs| {
        change(version, settings, set, inputs);
        if version < "1.32" {
            // The newest kOps release does not support these Kubernetes versions, but kOps 1.35 supports 1.29 and newer.
            inputs.kops_version = Some(Told::by_version_file("1.35.2".into()));
            inputs.config.uses_legacy_gossip = Some(false);
        }
    });
    // kOps 1.35 needs more downloads than the test's configuration has. The problems of the missing downloads are
    // filtered out, because only the problems of `settings` are tested.
    let (refusals, warnings) = match node {
        Ok(node) => (node.refusals, node.warnings),
        Err(problems) => (problems.iter().cloned().collect(), problems.warnings().to_vec()),
    };
    let of_settings = |found: Vec<Problem>| {
        let of_settings = found.iter().filter(|problem| problem.field.starts_with(settings));
        of_settings.map(ToString::to_string).collect()
    };
    [of_settings(refusals), of_settings(warnings)]
}

fn change(version: &str, settings: &str, set: &str, inputs: &mut Inputs) {
    let mut config = serde_json::to_value(&inputs.config).unwrap();
    config["KubernetesVersion"] = json!(version);
    config["KubeProxy"] = json!({});
    for (path, image) in [
        (API_SERVER, "kube-apiserver"),
        (CONTROLLER_MANAGER, "kube-controller-manager"),
        (SCHEDULER, "kube-scheduler"),
        (KUBE_PROXY, "kube-proxy"),
    ] {
        at(&mut config, path)["image"] = json!(format!("registry.k8s.io/{image}:v{version}"));
    }
    let more: Value = serde_yaml::from_str(set).unwrap();
    at(&mut config, settings).as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    inputs.config = serde_json::from_value(config).unwrap();
}

fn at<'a>(config: &'a mut Value, path: &str) -> &'a mut Value {
    config.pointer_mut(&format!("/{}", path.replace('.', "/"))).unwrap()
}

pub(super) fn refused(version: &str, settings: &str, set: &str) -> Vec<String> {
    let [refusals, _] = found(version, settings, set);
    refusals
}

/// Asserts that each setting has one refusal. The second text of a case is the field of the refusal.
#[track_caller]
pub(super) fn assert_refused(version: &str, settings: &str, cases: &[(&str, &str)]) {
    for (set, field) in cases {
        let told = refused(version, settings, set);
        let start = format!("{settings}.{field}: ");
        assert!(told.len() == 1 && told[0].starts_with(&start), "{set}: {told:?}");
    }
}

#[track_caller]
pub(super) fn assert_accepted(version: &str, settings: &str, cases: &[&str]) {
    for set in cases {
        assert_eq!(found(version, settings, set), [[""; 0], [""; 0]], "{set}");
    }
}

/// Asserts that each setting has one warning and no refusal. The second text of a case is the field of the
/// warning.
#[track_caller]
pub(super) fn assert_warned(version: &str, settings: &str, cases: &[(&str, &str)]) {
    for (set, field) in cases {
        let [refusals, told] = found(version, settings, set);
        let start = format!("{settings}.{field}: ");
        assert!(refusals.is_empty(), "{set}: {refusals:?}");
        assert!(told.len() == 1 && told[0].starts_with(&start), "{set}: {told:?}");
    }
}
