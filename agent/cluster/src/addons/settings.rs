//! The settings of the service that replaces kOps' channels pod on a control-plane machine, or protokube up to kOps 1.35. The settings are
//! the channels, and the labels of this machine's Node. The channels pod has both in its arguments.
//!
//! Source: `buildPod` in upstream's `pkg/model/components/channels/model.go`, the flags in `channels/pkg/cmd/apply_channel.go`,
//! `BuildMandatoryControlPlaneLabels` in `pkg/nodelabels/builder.go`; `syncOnce` in `protokube/pkg/protokube/kube_boot.go` at v1.35.2.

use std::collections::BTreeMap;

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{SpecError, parse_yaml};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::labels::OF_ANY_CONTROL_PLANE;

const CONTAINER: &str = "kops-channels";
const VERBS: [&str; 2] = ["apply", "channel"];
/// Flags of the command in the channels pod. A flag's value may be the next argument.
const WITH_VALUE: [&str; 6] = ["interval", "kubeconfig", "node-labels", "node-name", "v", "vmodule"];

/// What the add-on service on this machine applies: the channels, and the labels of the machine's Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AddonSettings {
    /// URLs of the channels, in order: kOps' own channel, then the channels of `spec.addons`.
    pub channels: Vec<String>,
    /// The name of this machine's Node, which gets `node_labels`. Empty if no Node gets labels.
    pub node_name: String,
    pub node_labels: BTreeMap<String, String>,
}

impl AddonSettings {
    /// The settings from the containers of a channels pod. `node_name` is the Node of this machine. The text of an error begins
    /// with its verb, as in `has no container …`.
    pub fn of_pod(containers: &[Value], node_name: &str) -> Result<AddonSettings, Invalid> {
        let name = |container: &Value| container.get("name").and_then(Value::as_str).map(str::to_owned);
        let container = containers.iter().find(|container| name(container).as_deref() == Some(CONTAINER));
        let container = container.ok_or_else(|| Invalid::new(format!("has no container {CONTAINER}")))?;
        let words = container.get("args").and_then(Value::as_array).into_iter().flatten();
        let arguments = Arguments::from_words(words.filter_map(Value::as_str));
        if arguments.channels.is_empty() {
            return Err(Invalid::new(format!("has a container {CONTAINER} whose args name no channel")));
        }
        let is_labelled = arguments.flags.contains_key("node-name");
        let mut settings = AddonSettings { channels: arguments.channels, ..AddonSettings::default() };
        if is_labelled {
            let more = arguments.flags.get("node-labels").map(String::as_str).unwrap_or_default();
            settings = settings.labelling(node_name, more);
        }
        Ok(settings)
    }

    /// The settings of protokube, from the channels in the node's configuration. `node_name` is the Node of this machine. The text of an
    /// error has no subject, as in `names no channel`: the caller puts the name of the setting before it.
    pub fn of_protokube(channels: &[String], node_name: &str) -> Result<AddonSettings, Invalid> {
        if channels.is_empty() {
            return Err(Invalid::new("names no channel"));
        }
        let settings = AddonSettings { channels: channels.to_vec(), ..AddonSettings::default() };
        Ok(settings.labelling(node_name, ""))
    }

    /// Adds the labels of a control plane for this Node, and the labels in `more`, which has the form of `--node-labels`: `a,b=c`.
    #[must_use]
    pub fn labelling(self, node_name: &str, more: &str) -> AddonSettings {
        let mandatory = OF_ANY_CONTROL_PLANE.into_iter().map(|label| (label.to_owned(), String::new()));
        let given = more.split(',').filter(|pair| !pair.is_empty()).map(|pair| {
            let (label, value) = pair.split_once('=').unwrap_or((pair, ""));
            (label.to_owned(), value.to_owned())
        });
        // Mandatory labels override other labels, as in upstream.
        AddonSettings {
            node_name: node_name.to_owned(),
            node_labels: given.chain(mandatory).collect(),
            ..self
        }
    }

    /// Reads the output of [`AddonSettings::to_text`].
    pub fn parse(text: &[u8], file: &str) -> Result<AddonSettings, SpecError> {
        parse_yaml(text, file)
    }

    /// Formats the settings as JSON, which is also YAML.
    pub fn to_text(&self) -> String {
        // Serialization cannot fail, because the struct contains only texts.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// The settings' labels that are missing or different in `labels`.
    pub fn missing_labels(&self, labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let wanted = self.node_labels.iter().filter(|(label, value)| labels.get(*label) != Some(*value));
        wanted.map(|(label, value)| (label.clone(), value.clone())).collect()
    }
}

/// The parsed arguments of the channels pod.
#[derive(Default)]
struct Arguments {
    channels: Vec<String>,
    flags: BTreeMap<String, String>,
}

impl Arguments {
    fn from_words<'a>(mut words: impl Iterator<Item = &'a str>) -> Arguments {
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
