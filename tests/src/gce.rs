//! Compute Engine and an instance's metadata server as the agent asks them, for as long as its value lives: managed
//! groups, templates, instances, refusals, and moods.
//!
//! Source: the Compute Engine API v1 (`instanceGroupManagers`, `instanceTemplates`, `instances`, "Error codes").

mod answer;
pub mod tpm;

use std::collections::BTreeMap;

use crate::metadata::{Guard, Metadata};
use crate::stand_in_api::StandInApi;

/// The project that this is.
pub const PROJECT: &str = "my-project";
/// The zone that all of it is in.
pub const ZONE: &str = "us-test1-a";
/// The key of metadata with the name of the cluster.
pub const CLUSTER_METADATA: &str = "cluster-name";
/// The key of a template's metadata with the name of the instance group.
pub const INSTANCE_GROUP_METADATA: &str = "kops-k8s-io-instance-group-name";
/// The key of an instance's metadata with the managed group that made it.
pub const CREATED_BY: &str = "created-by";

#[derive(Clone, Debug, Default)]
pub struct Template {
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
}

impl Template {
    /// That of a group of workers of a cluster.
    pub fn of_group(cluster: &str, group: &str) -> Template {
        let metadata =
            [(CLUSTER_METADATA, cluster), (INSTANCE_GROUP_METADATA, group), ("user-data", "#!/bin/bash")];
        Template {
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            tags: vec![format!("{}-k8s-io-role-node", cluster.replace('.', "-"))],
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Instance {
    pub id: u64,
    /// `RUNNING`, `STOPPING`, …
    pub status: String,
    /// When it was started last, in RFC 3339.
    pub last_start: String,
    pub metadata: BTreeMap<String, String>,
    pub network_ip: String,
    /// The external IPv6 ranges of its network interface, each as `ADDRESS/LENGTH`.
    pub external_ipv6: Vec<String>,
    /// The key with which its TPM signs, in PEM; empty where it has none.
    pub signing_key: String,
    /// The managed group that lists it.
    pub group: Option<String>,
    /// The template that it was made from.
    pub template: String,
}

impl Instance {
    /// The same with other metadata, as it may write it itself.
    pub fn saying(mut self, key: &str, value: &str) -> Instance {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same with these external IPv6 ranges.
    pub fn with_external_ipv6(mut self, ranges: &[&str]) -> Instance {
        self.external_ipv6 = ranges.iter().map(|range| (*range).to_owned()).collect();
        self
    }
}

/// What the metadata server tells the instance of this name.
///
/// Source: Compute Engine, "Predefined metadata keys".
pub fn metadata(name: &str) -> Metadata {
    let below = "/computeMetadata/v1";
    Metadata::of(
        Guard::Header("metadata-flavor", "Google"),
        [
            (&format!("{below}/project/project-id"), PROJECT.to_owned()),
            (&format!("{below}/instance/zone"), format!("projects/123/zones/{ZONE}")),
            (&format!("{below}/instance/name"), name.to_owned()),
            (&format!("{below}/instance/hostname"), format!("{name}.{ZONE}.c.{PROJECT}.internal")),
        ],
    )
}

/// How Compute Engine is to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// That it is asked too much.
    Throttling,
    /// With an error of its own.
    Down,
    Forbidding,
    /// That it does not take this token any more, once.
    Revoking,
    Redirecting,
}

#[derive(Debug)]
struct Group {
    base_instance_name: String,
    /// The template it makes instances from.
    template: String,
}

#[derive(Debug, Default)]
struct State {
    templates: BTreeMap<String, Template>,
    groups: BTreeMap<String, Group>,
    instances: BTreeMap<String, Instance>,
    mood: Mood,
    page: usize,
    calls: Vec<String>,
    tokens: usize,
}

/// A running Compute Engine; dropping it stops it.
#[derive(Debug)]
pub struct Gce(StandInApi<State>);

impl Gce {
    /// Starts without anything in it.
    ///
    /// # Errors
    /// If there is no free port or no thread to be had.
    pub fn start() -> anyhow::Result<Gce> {
        let state = State { page: 500, ..State::default() };
        Ok(Gce(StandInApi::start("gce", state, |request, state| {
            let response = answer::answer(&request, &mut state.lock());
            async move { Some(response) }
        })?))
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The variables by which it is found.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("GCE_METADATA_HOST", self.0.host()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{}/compute/v1/", self.0.url())),
        ]
    }

    /// Adds a group of a cluster as kOps does: a template, and a managed group that makes instances from it, whose name
    /// this gives.
    pub fn put_group(&self, cluster: &str, name: &str) -> String {
        self.put_group_from(cluster, name, Template::of_group(cluster, name))
    }

    /// The same, with this template.
    pub fn put_group_from(&self, cluster: &str, name: &str, template: Template) -> String {
        let named = format!("{name}-{}", cluster.replace('.', "-"));
        let mut state = self.0.state();
        state.templates.insert(named.clone(), template);
        let group = Group { base_instance_name: name.to_owned(), template: named.clone() };
        state.groups.insert(format!("a-{named}"), group);
        format!("a-{named}")
    }

    /// Has a managed group make a running instance of that name.
    pub fn create_instance(&self, group: &str, name: &str) -> Instance {
        let mut state = self.0.state();
        let template = state.groups[group].template.clone();
        let mut metadata = state.templates[&template].metadata.clone();
        let created_by = format!("projects/123/zones/{ZONE}/instanceGroupManagers/{group}");
        metadata.insert(CREATED_BY.to_owned(), created_by);
        let id = state.instances.len() as u64 + 7_000_000_000_000_000_000;
        let instance = Instance {
            id,
            status: "RUNNING".into(),
            last_start: "2026-01-02T03:04:05.678-07:00".into(),
            metadata,
            network_ip: "10.0.0.1".into(),
            external_ipv6: Vec::new(),
            signing_key: String::new(),
            group: Some(group.to_owned()),
            template,
        };
        state.instances.insert(name.to_owned(), instance.clone());
        instance
    }

    /// Adds an instance, or changes it.
    pub fn put_instance(&self, name: &str, instance: Instance) {
        self.0.state().instances.insert(name.to_owned(), instance);
    }

    /// Makes something else of an instance.
    pub fn change_instance(&self, name: &str, change: impl FnOnce(Instance) -> Instance) {
        let mut state = self.0.state();
        let changed = change(state.instances[name].clone());
        state.instances.insert(name.to_owned(), changed);
    }

    pub fn remove_instance(&self, name: &str) {
        self.0.state().instances.remove(name);
    }

    /// Answers like this from now on.
    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Gives at most so many items on a page from now on.
    pub fn set_page(&self, items: usize) {
        self.0.state().page = items;
    }

    /// What was asked so far, each as Google's reference names it.
    pub fn calls(&self) -> Vec<String> {
        self.0.state().calls.clone()
    }

    /// How often one was asked.
    pub fn calls_of(&self, action: &str) -> usize {
        self.0.state().calls.iter().filter(|call| *call == action).count()
    }

    /// How many tokens the metadata server gave.
    pub fn tokens(&self) -> usize {
        self.0.state().tokens
    }
}
