//! What kOps has its channels pod do on a control-plane machine, or up to 1.35 protokube, for the service that takes its place: which
//! channels, and which labels this machine's Node gets. Of the pod both are in its arguments.
//!
//! Source: `buildPod` in upstream's `pkg/model/components/channels/model.go`, the flags in `channels/pkg/cmd/apply_channel.go`,
//! `BuildMandatoryControlPlaneLabels` in `pkg/nodelabels/builder.go`; `syncOnce` in `protokube/pkg/protokube/kube_boot.go` at v1.35.2.

use std::collections::BTreeMap;

use kops_agent_spec::{SpecError, parse_yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels::OF_ANY_CONTROL_PLANE;

const CONTAINER: &str = "kops-channels";
const VERBS: [&str; 2] = ["apply", "channel"];
/// Flags of the pod whose value may be the next argument.
const WITH_VALUE: [&str; 6] = ["interval", "kubeconfig", "node-labels", "node-name", "v", "vmodule"];

/// What is done on a machine in the pod's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSettings {
    /// URLs of the channels, in order: kOps' own, and those of `spec.addons`.
    pub channels: Vec<String>,
    /// The Node of this machine; empty where none is labelled.
    pub node_name: String,
    /// The labels that the Node gets.
    pub node_labels: BTreeMap<String, String>,
}

impl AddonSettings {
    /// What a pod with these containers does on the machine whose Node has this name.
    ///
    /// # Errors
    /// What is missing of its arguments, as a sentence without its subject.
    pub fn of_pod(containers: &[Value], node_name: &str) -> Result<AddonSettings, String> {
        let name = |container: &Value| container.get("name").and_then(Value::as_str).map(str::to_owned);
        let container = containers.iter().find(|container| name(container).as_deref() == Some(CONTAINER));
        let container = container.ok_or_else(|| format!("has no container {CONTAINER}"))?;
        let words = container.get("args").and_then(Value::as_array).into_iter().flatten();
        let arguments = Arguments::of(words.filter_map(Value::as_str));
        if arguments.channels.is_empty() {
            return Err(format!("has a container {CONTAINER} whose args name no channel"));
        }
        let is_labelled = arguments.flags.contains_key("node-name");
        let mut settings = AddonSettings { channels: arguments.channels, ..AddonSettings::default() };
        if is_labelled {
            let more = arguments.flags.get("node-labels").map(String::as_str).unwrap_or_default();
            settings = settings.labelling(node_name, more);
        }
        Ok(settings)
    }

    /// What protokube does with the channels of the node's configuration on the machine whose Node has this name.
    ///
    /// # Errors
    /// There is no channel; a sentence without its subject.
    pub fn of_protokube(channels: &[String], node_name: &str) -> Result<AddonSettings, String> {
        if channels.is_empty() {
            return Err("names no channel".to_owned());
        }
        let settings = AddonSettings { channels: channels.to_vec(), ..AddonSettings::default() };
        Ok(settings.labelling(node_name, ""))
    }

    /// The same with the labels of a control plane for this Node, and with more, as `--node-labels` has them: `a,b=c`.
    #[must_use]
    pub fn labelling(self, node_name: &str, more: &str) -> AddonSettings {
        let mandatory = OF_ANY_CONTROL_PLANE.into_iter().map(|label| (label.to_owned(), String::new()));
        let given = more.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (label, value) = pair.split_once('=').unwrap_or((pair, ""));
            (label.to_owned(), value.to_owned())
        });
        // As upstream's: what is mandatory wins.
        AddonSettings {
            node_name: node_name.to_owned(),
            node_labels: given.chain(mandatory).collect(),
            ..self
        }
    }

    /// Reads what [`AddonSettings::to_text`] has written.
    ///
    /// # Errors
    /// If it is no YAML, or a field has the wrong type.
    pub fn parse(text: &[u8], file: &str) -> Result<AddonSettings, SpecError> {
        parse_yaml(text, file)
    }

    /// As text, which is JSON, and so YAML.
    pub fn to_text(&self) -> String {
        // A struct of texts is always JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The labels that a Node with these lacks, or has with another value.
    pub fn missing_labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let wanted = self.node_labels.iter().filter(|(label, value)| labels.get(*label) != Some(*value));
        wanted.map(|(label, value)| (label.clone(), value.clone())).collect()
    }
}

/// A command line, as far as it says.
#[derive(Default)]
struct Arguments {
    channels: Vec<String>,
    flags: BTreeMap<String, String>,
}

impl Arguments {
    fn of<'a>(mut words: impl Iterator<Item = &'a str>) -> Arguments {
        let mut arguments = Arguments::default();
        let mut verbs = VERBS.iter().peekable();
        while let Some(word) = words.next() {
            let Some(flag) = word.strip_prefix('-') else {
                match verbs.next_if(|verb| **verb == word) {
                    Some(_) => {}
                    None => arguments.channels.push(word.to_owned()),
                }
                continue;
            };
            let flag = flag.trim_start_matches('-');
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value),
                None if WITH_VALUE.contains(&flag) => (flag, words.next().unwrap_or_default()),
                None => (flag, ""),
            };
            arguments.flags.insert(name.to_owned(), value.to_owned());
        }
        arguments
    }
}
