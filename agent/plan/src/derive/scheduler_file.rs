//! kube-scheduler's configuration file. It is the user's object, if the cluster's additional objects have one, combined with the settings
//! of the cluster's spec (upstream: `pkg/model/components/kubescheduler/model.go`).

use serde_json::{Map, Value, json};

use super::Inputs;
use crate::resolve::Problems;
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{FileAssetSpec, KubeSchedulerConfig};
use kops_agent_spec::{go_yaml, yaml};

const PATH: &str = "/var/lib/kube-scheduler/config.yaml";
const KUBECONFIG: &str = "/var/lib/kube-scheduler/kubeconfig";
const GROUP: &str = "kubescheduler.config.k8s.io/";
const KIND: &str = "KubeSchedulerConfiguration";
const STORE_FILE: &str = "clusteraddons/default";

/// The configuration file of kube-scheduler. Control planes and dedicated API servers get this file.
pub(super) fn scheduler_file(inputs: &Inputs<'_>, problems: &mut Problems) -> Option<FileAssetSpec> {
    if !inputs.runs_api_server() {
        return None;
    }
    let mut config = problems.keep(STORE_FILE, user_config(inputs))?;
    let connection = config.entry("clientConnection").or_insert_with(|| json!({}));
    let Value::Object(connection) = connection else {
        problems.add(STORE_FILE, format!("clientConnection of the {KIND} must be a mapping"));
        return None;
    };
    connection.insert("kubeconfig".to_owned(), KUBECONFIG.into());
    if let Some(scheduler) = kube_scheduler(inputs) {
        if let Some(qps) = &scheduler.qps {
            let number = qps.as_f64().ok_or_else(|| {
                Invalid::new(format!("{:?} is not a quantity; use a quantity such as 50 or 1500m", qps.0))
            });
            let number = problems.keep("spec.kubeScheduler.qps", number)?;
            connection.insert("qps".to_owned(), number.into());
        }
        if scheduler.burst != 0 {
            connection.insert("burst".to_owned(), scheduler.burst.into());
        }
    }
    let content = go_yaml::value_to_string(&Value::Object(config));
    Some(FileAssetSpec { path: PATH.to_owned(), content, ..FileAssetSpec::default() })
}

/// Returns the settings from the user's own spec, because kOps moves two settings into kube-scheduler's configuration file, and removes
/// them from the completed spec.
fn kube_scheduler<'a>(inputs: &Inputs<'a>) -> Option<&'a KubeSchedulerConfig> {
    inputs.user_cluster.unwrap_or(inputs.cluster).spec.kube_scheduler.as_ref()
}

fn user_config(inputs: &Inputs<'_>) -> Result<Map<String, Value>, Invalid> {
    let mut configs = Vec::new();
    for document in yaml::documents::<Value>(inputs.cluster_addons.unwrap_or_default()) {
        let object = document.map_err(|error| format!("it cannot be read: {error}"))?;
        if let Value::Object(object) = object
            && is_scheduler_config(&object)
        {
            configs.push(object);
        }
    }
    match configs.len() {
        0 => Ok(Map::from_iter([
            ("apiVersion".to_owned(), format!("{GROUP}v1").into()),
            ("kind".to_owned(), KIND.into()),
        ])),
        1 => Ok(configs.remove(0)),
        count => Err(Invalid::new(format!("it holds {count} objects of kind {KIND}; keep one"))),
    }
}

fn is_scheduler_config(object: &Map<String, Value>) -> bool {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    text("apiVersion").starts_with(GROUP) && text("kind") == KIND
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::derive::testing::Store;

    fn file(cluster: &str, addons: &str) -> Result<String, Problems> {
        let store = Store::new(cluster, "role: Master");
        let mut problems = Problems::default();
        let file = scheduler_file(&Inputs { cluster_addons: Some(addons), ..store.inputs() }, &mut problems);
        problems.unless_any(file.map(|file| file.content).unwrap_or_default())
    }

    #[test]
    fn without_settings_the_file_names_only_the_kubeconfig() {
        assert_eq!(
            file("", "").unwrap(),
            "apiVersion: kubescheduler.config.k8s.io/v1\nclientConnection:\n  kubeconfig: /var/lib/kube-scheduler/kubeconfig\nkind: KubeSchedulerConfiguration\n"
        );
    }

    #[test]
    fn the_users_object_is_kept_and_completed() {
        let addons = "kind: ConfigMap\n---\n# mine\napiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\nclientConnection: {qps: 1, burst: 2}\nparallelism: 16\n";
        assert_eq!(
            file("kubeScheduler: {qps: 1500m, burst: 20}", addons).unwrap(),
            "apiVersion: kubescheduler.config.k8s.io/v1beta3\nclientConnection:\n  burst: 20\n  kubeconfig: /var/lib/kube-scheduler/kubeconfig\n  qps: 1.5\nkind: KubeSchedulerConfiguration\nparallelism: 16\n"
        );
        assert!(file("kubeScheduler: {qps: 100}", "").unwrap().contains("\n  qps: 100\n"));
    }

    #[test]
    fn two_scheduler_configurations_are_a_problem() {
        let one = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
        let problems = file("", &format!("{one}---\n{one}")).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "clusteraddons/default: it holds 2 objects of kind KubeSchedulerConfiguration; keep one"
        );
    }

    #[test]
    fn a_wrong_quantity_names_its_field() {
        assert!(
            file("kubeScheduler: {qps: many}", "")
                .unwrap_err()
                .to_string()
                .starts_with("spec.kubeScheduler.qps: ")
        );
    }
}
