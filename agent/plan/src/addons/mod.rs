//! Add-ons: what kOps' channels pod applies to a cluster, decided.
//!
//! A channel ([`Channel`]) is a document of the state store that names add-ons and their manifests. Of each name one entry is
//! chosen for the cluster's Kubernetes version ([`Channel::menu`]), held against the version that an annotation of its
//! namespace records ([`ChannelVersion`]), and found due or not ([`due`]). What a manifest holds and in which order it goes is
//! [`manifest`]'s, what may be deleted and when [`prune`]'s and [`serving`]'s, whether an object is well [`health`]'s, whose fields they are
//! [`managed_fields`]'. What a machine's pod would do besides, [`AddonSettings`] reads off its arguments.
//!
//! Annotations, selectors and rules are upstream's own, so that its channels pod can take over at any time, and back. Rules that differ
//! between kOps releases are those of the release that wrote kOps' own channel ([`cluster_folder`]).
//!
//! Source: upstream's `channels/pkg/{api,channels,cmd}` and `pkg/applylib`.

mod channel;
pub mod health;
pub mod managed_fields;
pub mod manifest;
mod menu;
pub mod object_diff;
pub mod pause;
pub mod prune;
pub mod serving;
mod settings;
mod spec;
mod update;
mod version;
mod version_range;

pub use channel::Channel;
pub use menu::{Addon, LeftOut, Menu, leave_to_last_channel};
pub use settings::AddonSettings;
pub use spec::{AddonSpec, NeedsRollingUpdate, PruneKind};
pub use update::{Due, NEEDS_UPDATE_ANNOTATION, due};
pub use version::{ANNOTATION_PREFIX, ChannelVersion, annotation, recorded};
pub use version_range::{ServerVersion, VersionRange};

/// By what name upstream applies an add-on's objects, and we do: the API server then sees one owner of their fields.
pub const FIELD_MANAGER: &str = "kops";

/// Where `kops update cluster` writes the channel of the add-ons that kOps has itself, below the cluster's folder in the store
/// (upstream: `pkg/model/components/channels/model.go`).
pub const BOOTSTRAP_CHANNEL: &str = "addons/bootstrap-channel.yaml";

/// Its URL. `base` is the cluster's folder.
pub fn bootstrap_channel(base: &str) -> String {
    format!("{}/{BOOTSTRAP_CHANNEL}", base.trim_end_matches('/'))
}

/// The cluster's folder in the store, where a URL is that of kOps' own channel. Which release wrote the channel is in that folder.
pub fn cluster_folder(channel: &str) -> Option<&str> {
    channel.strip_suffix(BOOTSTRAP_CHANNEL)?.strip_suffix('/')
}

#[cfg(test)]
mod tests;
