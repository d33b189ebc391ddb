//! Files, directories and links, and the content of files.

use std::collections::BTreeSet;

use kops_agent_spec::go_yaml::is_zero;
use serde::{Deserialize, Serialize};
use serde_with::apply;

use super::Mode;
use kops_agent_spec::redaction::decoded_base64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Text without secrets.
    Text(String),
    /// Bytes without secrets, encoded in standard base64.
    Base64(String),
    /// A downloaded file, or a member of a downloaded archive.
    Asset(AssetContent),
    /// The PEM certificate of the named [`Certificate`](super::Certificate).
    Certificate(String),
    /// The PEM private key of the named [`Certificate`](super::Certificate).
    PrivateKey(String),
    /// The PEM certificates of the authority that signs the named [`Certificate`](super::Certificate).
    Ca(String),
    /// A kubeconfig that authenticates with the named [`Certificate`](super::Certificate).
    Kubeconfig(Kubeconfig),
    /// Text with secrets: the concatenated pieces.
    SecretText(Vec<SecretPiece>),
}

impl Content {
    /// The text, if the content is plain text or text in base64. `None` for every other content.
    pub fn in_clear(&self) -> Option<String> {
        match self {
            Content::Text(text) => Some(text.clone()),
            Content::Base64(encoded) => decoded_base64(encoded),
            _ => None,
        }
    }
}

/// The source of a file that is downloaded.
#[apply(_ => #[serde(default, skip_serializing_if = "is_zero")])]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetContent {
    /// The publisher's URL, or the mirror's URL if the cluster names a mirror.
    #[serde_with(skip_apply)]
    pub url: String,
    /// Mirror URLs of the download. If `url` fails, the agent tries them in this order.
    pub mirrors: Vec<String>,
    /// Lower-case hexadecimal SHA-256 of the bytes at the URL. `None` if only the publisher knows the hash.
    pub sha256: Option<String>,
    /// Path of a file inside the archive at the URL. `None` if the download is the file itself.
    pub member: Option<String>,
}

/// The content of a kubeconfig. The kubeconfig's certificate authority is the signer of `certificate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubeconfig {
    /// Name of the client [`Certificate`](super::Certificate).
    pub certificate: String,
    /// URL of the API server.
    pub server: String,
}

/// The part of a text that is free text of the specification ([`kops_agent_spec::free_text`]). Outputs hide this part and show all other
/// parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FreeText {
    /// The whole text: a file or a unit that a user adds.
    Whole,
    /// The values of environment variables in a pod's manifest.
    Variables,
    /// The numbers of the lines that are free text, from 0. All other lines are public. If the agent did not write the file that is now on
    /// the node, these numbers do not apply to that file. Outputs then show only its lines that equal a public line of this text.
    Lines(BTreeSet<usize>),
}

/// A part of a [`Content::SecretText`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretPiece {
    /// Text without secrets.
    Text(String),
    /// The decoded bytes of `secrets/<name>` in the state store.
    Secret(String),
    /// Variables that kOps sets in the agent's environment. The piece is the value of the first variable that has a value. The piece is
    /// empty if no variable has a value.
    Environment(Vec<String>),
    /// A line `NAME=value` for a variable that kOps sets in the agent's environment. The value can be empty. If the variable `given` has no
    /// value, the line is left out.
    EnvironmentLine {
        name: String,
        /// The line is written only if this variable has a value.
        given: String,
    },
    /// The PEM private key of one item of a keyset in the state store.
    KeysetPrivateKey {
        /// The keyset's name, as in `pki/private/<keyset>/keyset.yaml`.
        keyset: String,
        id: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Absolute path on the node.
    pub path: String,
    pub mode: Mode,
    pub owner: String,
    /// Owning group. If it is `None`, an existing file keeps its group, and a new file gets root's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Whether the file is written only if it does not exist yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub create_only: bool,
    /// Commands to run, in order, after the file has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_change: Vec<Vec<String>>,
    pub content: Content,
    /// The part of the text that outputs hide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_text: Option<FreeText>,
}

impl File {
    /// Makes a file that root owns and that all users can read.
    pub fn new(path: impl Into<String>, content: Content) -> File {
        File {
            path: path.into(),
            mode: Mode::FILE,
            owner: "root".into(),
            group: Some("root".into()),
            create_only: false,
            on_change: Vec::new(),
            content,
            free_text: None,
        }
    }

    /// Makes a file with this text that root owns and that all users can read.
    pub fn text(path: impl Into<String>, text: impl Into<String>) -> File {
        File::new(path, Content::Text(text.into()))
    }

    pub fn mode(self, mode: Mode) -> File {
        File { mode, ..self }
    }

    /// Marks a part of the text as free text.
    pub fn with_free_text(self, free_text: FreeText) -> File {
        File { free_text: Some(free_text), ..self }
    }

    /// Sets the owner. If `user` is not root, an existing file keeps its group, as in upstream (`EnsureFileOwner` in
    /// upup/pkg/fi/files_owner.go).
    pub fn owned_by(self, user: &str) -> File {
        File { owner: user.into(), group: (user == "root").then(|| user.into()), ..self }
    }

    pub fn group(self, group: &str) -> File {
        File { group: Some(group.into()), ..self }
    }

    /// Makes the agent write the file only if no file exists at the path.
    pub fn create_only(self) -> File {
        File { create_only: true, ..self }
    }

    /// Adds a command to run after the file has changed.
    pub fn on_change(mut self, command: &[&str]) -> File {
        self.on_change.push(command.iter().map(|word| (*word).to_owned()).collect());
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Absolute path on the node.
    pub path: String,
    pub mode: Mode,
    pub owner: String,
    pub group: String,
}

impl Directory {
    /// Makes a directory that root owns and that all users can enter.
    pub fn new(path: impl Into<String>) -> Directory {
        Directory { path: path.into(), mode: Mode::EXECUTABLE, owner: "root".into(), group: "root".into() }
    }

    pub fn mode(self, mode: Mode) -> Directory {
        Directory { mode, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symlink {
    /// Absolute path on the node.
    pub path: String,
    pub target: String,
}
