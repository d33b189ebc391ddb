//! Decides what kOps' channels pod would do in a cluster.
//!
//! A channel ([`Channel`]) is a document in the state store that lists add-ons and their manifests. [`Channel::menu`] selects one entry for
//! each add-on name, for the cluster's Kubernetes version. [`due`] compares the entry with the version that an annotation of its namespace
//! records ([`ChannelVersion`]), and decides whether there is something to do.
//!
//! [`manifest`] reads the objects and their apply order. [`prune`] and [`serving`] decide which objects are deleted, and when. [`health`]
//! decides whether an object is healthy. [`managed_fields`] takes over fields of other managers. [`AddonSettings`] has the pod's arguments.
//! [`Report`], [`Difference`], [`Removal`] and [`Row`] are what commands about add-ons show.
//!
//! Annotations, selectors and rules are upstream's, so upstream's channels pod and kops-agent can replace each other at any time. Some
//! rules differ between kOps releases. The release that wrote kOps' own channel decides ([`cluster_folder`]).
//!
//! Source: upstream's `channels/pkg/{api,channels,cmd}` and `pkg/applylib`.

mod channel;
pub mod health;
mod images;
pub mod managed_fields;
pub mod manifest;
mod menu;
pub mod object_diff;
pub mod pause;
pub mod prune;
mod reports;
mod rows;
pub mod serving;
mod settings;
mod spec;
mod update;
mod version;
mod version_range;

pub use channel::Channel;
pub use images::collect_images;
pub use menu::{Addon, LeftOut, Menu, leave_to_last_channel};
pub use reports::{Changed, Difference, Recreation, RecreationState, Removal, Report};
pub use rows::{Row, State};
pub use settings::AddonSettings;
pub use spec::{AddonSpec, NeedsRollingUpdate, PruneKind};
pub use update::{Due, NEEDS_UPDATE_ANNOTATION, due};
pub use version::{ANNOTATION_PREFIX, ChannelVersion, annotation, recorded};
pub use version_range::{ServerVersion, VersionRange};

/// The field manager for add-on objects. Upstream uses the same name, so the API server sees a single owner of the fields.
pub const FIELD_MANAGER: &str = "kops";

/// The path of kOps' own channel in the cluster's folder of the store. `kops update cluster` writes it (upstream:
/// `pkg/model/components/channels/model.go`).
pub const BOOTSTRAP_CHANNEL: &str = "addons/bootstrap-channel.yaml";

/// The URL of kOps' own channel. `base` is the cluster's folder.
pub fn bootstrap_channel(base: &str) -> String {
    format!("{}/{BOOTSTRAP_CHANNEL}", base.trim_end_matches('/'))
}

/// The cluster's folder in the store, if the URL is the URL of kOps' own channel. A file in this folder contains the version of the kOps
/// release that wrote the channel.
pub fn cluster_folder(channel: &str) -> Option<&str> {
    channel.strip_suffix(BOOTSTRAP_CHANNEL)?.strip_suffix('/')
}

#[cfg(test)]
mod tests;
