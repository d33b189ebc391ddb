//! A stand-in for Compute Engine and an instance's metadata server, as far as the agent uses them: managed groups, templates and
//! instances. It can reject requests and fail ([`Mood`]).
//!
//! Source: the Compute Engine API v1 (`instanceGroupManagers`, `instanceTemplates`, `instances`, "Error codes").

mod answer;
pub mod tpm;

use std::collections::BTreeMap;

use crate::metadata::{Guard, Metadata};
use crate::stand_in_api::StandInApi;

/// The only project of the stand-in.
pub const PROJECT: &str = "my-project";
/// The zone of all groups and instances.
pub const ZONE: &str = "us-test1-a";
/// The metadata key whose value is the name of the cluster.
pub const CLUSTER_METADATA: &str = "cluster-name";
/// The key of a template's metadata whose value is the name of the instance group. An instance gets a copy of its template's metadata.
pub const INSTANCE_GROUP_METADATA: &str = "kops-k8s-io-instance-group-name";
/// The key of an instance's metadata whose value is the managed group that created the instance.
pub const CREATED_BY: &str = "created-by";

#[derive(Clone, Debug, Default)]
pub struct Template {
    pub metadata: BTreeMap<String, String>,
    pub tags: Vec<String>,
}

impl Template {
    /// The template of a cluster's worker group.
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
    /// For example `RUNNING` or `STOPPING`.
    pub status: String,
    /// The time of the instance's last start, in RFC 3339.
    pub last_start: String,
    pub metadata: BTreeMap<String, String>,
    pub network_ip: String,
    /// The external IPv6 ranges of the instance's network interface, each as `ADDRESS/LENGTH`.
    pub external_ipv6: Vec<String>,
    /// The public key that verifies signatures of the instance's TPM, in PEM. Empty if the instance has no TPM.
    pub signing_key: String,
    /// The managed group whose list contains the instance.
    pub group: Option<String>,
    /// The template from which the instance was created.
    pub template: String,
}

impl Instance {
    /// Sets an item of the instance's metadata. The instance itself could set it too.
    pub fn saying(mut self, key: &str, value: &str) -> Instance {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    pub fn with_external_ipv6(mut self, ranges: &[&str]) -> Instance {
        self.external_ipv6 = ranges.iter().map(|range| (*range).to_owned()).collect();
        self
    }
}

/// The metadata service's items for the instance with this name.
///
/// Source: Compute Engine, "Predefined metadata keys".
pub fn metadata(name: &str) -> Metadata {
    let below = "/computeMetadata/v1";
    Metadata::new(
        Guard::Header("metadata-flavor", "Google"),
        [
            (&format!("{below}/project/project-id"), PROJECT.to_owned()),
            (&format!("{below}/instance/zone"), format!("projects/123/zones/{ZONE}")),
            (&format!("{below}/instance/name"), name.to_owned()),
            (&format!("{below}/instance/hostname"), format!("{name}.{ZONE}.c.{PROJECT}.internal")),
        ],
    )
}

/// The way in which Compute Engine responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Answers 403 `rateLimitExceeded`.
    Throttling,
    /// Answers 503.
    Down,
    Forbidding,
    /// Rejects the token of the next request with 401. After this rejection, the mood is `Good`.
    Revoking,
    Redirecting,
}

#[derive(Debug)]
struct Group {
    base_instance_name: String,
    /// The template from which the group creates instances.
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

/// A running stand-in for Compute Engine. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Gce(StandInApi<State>);

impl Gce {
    /// Starts the stand-in without groups and instances.
    pub fn start() -> anyhow::Result<Gce> {
        let state = State { page: 500, ..State::default() };
        Ok(Gce(StandInApi::start("gce", state, |request, state| {
            let response = answer::answer(&request, &mut state.lock());
            async move { Some(response) }
        })?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// The environment variables with the addresses of Compute Engine and of the metadata server.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("GCE_METADATA_HOST", self.0.host()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{}/compute/v1/", self.0.url())),
        ]
    }

    /// Adds a group of a cluster as kOps does: a template, and a managed group that creates instances from this template.
    /// Returns the name of the managed group.
    pub fn put_group(&self, cluster: &str, name: &str) -> String {
        self.put_group_from(cluster, name, Template::of_group(cluster, name))
    }

    /// Like `put_group`, with this template.
    pub fn put_group_from(&self, cluster: &str, name: &str, template: Template) -> String {
        let named = format!("{name}-{}", cluster.replace('.', "-"));
        let mut state = self.0.state();
        state.templates.insert(named.clone(), template);
        let group = Group { base_instance_name: name.to_owned(), template: named.clone() };
        state.groups.insert(format!("a-{named}"), group);
        format!("a-{named}")
    }

    /// Creates a running instance with this name in a managed group.
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

    /// Adds or replaces an instance.
    pub fn put_instance(&self, name: &str, instance: Instance) {
        self.0.state().instances.insert(name.to_owned(), instance);
    }

    /// Replaces an instance with the result of `change`.
    pub fn change_instance(&self, name: &str, change: impl FnOnce(Instance) -> Instance) {
        let mut state = self.0.state();
        let changed = change(state.instances[name].clone());
        state.instances.insert(name.to_owned(), changed);
    }

    pub fn remove_instance(&self, name: &str) {
        self.0.state().instances.remove(name);
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Sets the maximum number of items on a page.
    pub fn set_page(&self, items: usize) {
        self.0.state().page = items;
    }

    /// All requests to Compute Engine so far, as the method names in Google's reference.
    pub fn calls(&self) -> Vec<String> {
        self.0.state().calls.clone()
    }

    /// The number of requests for the method with this name in Google's reference.
    pub fn calls_of(&self, action: &str) -> usize {
        self.0.state().calls.iter().filter(|call| *call == action).count()
    }

    /// The number of tokens that the metadata server has issued.
    pub fn tokens(&self) -> usize {
        self.0.state().tokens
    }
}
