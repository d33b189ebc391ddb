//! Units of systemd, as resources of a node.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{FreeText, Kind, ResourceId};

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// The unit's name with its suffix (`kubelet.service`).
    pub name: String,
    /// The unit file. `None` if the distribution includes the unit, so that the agent manages only its state.
    pub text: Option<String>,
    /// Whether the unit starts at boot.
    pub enabled: bool,
    pub running: bool,
    /// Whether the agent manages only the unit's text. If so, systemd decides whether the unit starts at boot and whether it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub text_only: bool,
    /// The resources whose change restarts the unit. A change of the unit's own text always restarts it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarted_by: Vec<ResourceId>,
    /// The part of the text that outputs hide.
    #[serde(default)]
    pub free_text: Option<FreeText>,
}

impl Unit {
    /// Makes a unit with this text. The unit is enabled and running.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Unit {
        Unit { text: Some(text.into()), ..Unit::existing(name) }
    }

    /// The desired state of a unit whose unit file the distribution includes: enabled and running.
    pub fn existing(name: impl Into<String>) -> Unit {
        Unit {
            name: name.into(),
            text: None,
            enabled: true,
            running: true,
            text_only: false,
            restarted_by: Vec::new(),
            free_text: None,
        }
    }

    /// Marks a part of the text as free text.
    pub fn with_free_text(self, free_text: FreeText) -> Unit {
        Unit { free_text: Some(free_text), ..self }
    }

    /// Adds files whose change restarts the unit.
    pub fn restarted_by_files<I: IntoIterator<Item = S>, S: Into<String>>(mut self, paths: I) -> Unit {
        self.restarted_by.extend(paths.into_iter().map(|path| ResourceId::new(Kind::File, path)));
        self
    }
}
