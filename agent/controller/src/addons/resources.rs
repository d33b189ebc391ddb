//! How the API server serves a kind: its plural, and whether it is namespaced. Answers are cached until `forget`, because add-ons
//! bring new kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kops_agent_cluster::addons::manifest::ObjectKind;
use kube::Client;
use kube::core::ApiResource;
use parking_lot::Mutex;

use kops_agent_kube::api_error::{ApiError, answer};

/// How the API server serves a kind.
#[derive(Clone, Debug)]
pub struct Resource {
    pub api: ApiResource,
    pub is_namespaced: bool,
}

impl Resource {
    pub fn new(kind: &ObjectKind, plural: &str, is_namespaced: bool) -> Resource {
        let api = ApiResource {
            group: kind.group.clone(),
            version: kind.version.clone(),
            api_version: kind.api_version(),
            kind: kind.kind.clone(),
            plural: plural.to_owned(),
        };
        Resource { api, is_namespaced }
    }
}

/// The kinds that an API server serves, with a cache.
pub struct Resources {
    client: Client,
    /// The cached kinds by `apiVersion`. If the API server does not serve a version, the version's list is empty.
    known: Mutex<BTreeMap<String, Arc<Vec<APIResource>>>>,
}

impl Resources {
    pub fn new(client: Client) -> Resources {
        Resources { client, known: Mutex::default() }
    }

    /// Clears the cache. The next lookup asks the API server.
    pub fn forget(&self) {
        self.known.lock().clear();
    }

    /// Finds how the API server serves a kind; `None` if the API server does not serve the kind.
    pub async fn find(&self, kind: &ObjectKind) -> Result<Option<Resource>, ApiError> {
        let served = self.served(&kind.api_version()).await?;
        // A subresource has the kind of its parent or of another resource. Only the name of a subresource contains a slash.
        let found = served.iter().find(|one| one.kind == kind.kind && !one.name.contains('/'));
        Ok(found.map(|found| Resource::new(kind, &found.name, found.namespaced)))
    }

    /// Finds a kind in the versions of a group. Returns the kind in the first version that has it. The API server's preferred version comes
    /// first.
    pub async fn find_preferred(&self, group: &str, kind: &str) -> Result<Option<Resource>, ApiError> {
        for version in self.versions(group).await? {
            let kind = ObjectKind { group: group.to_owned(), version, kind: kind.to_owned() };
            if let Some(found) = self.find(&kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Returns all kinds whose objects can be listed and deleted, each in the API server's preferred version. Also returns why some API
    /// versions could not be read.
    pub async fn all(&self) -> (Vec<Resource>, Vec<String>) {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        let groups = match answer(self.client.list_api_groups()).await {
            Ok(groups) => groups.groups,
            Err(error) => return (all, vec![format!("listing the served API groups: {error}")]),
        };
        let preferred = groups.into_iter().filter_map(|group| Some(group.preferred_version?.group_version));
        for api_version in std::iter::once("v1".to_owned()).chain(preferred) {
            let served = match self.served(&api_version).await {
                Ok(served) => served,
                Err(error) => {
                    problems.push(format!("listing the served kinds of {api_version}: {error}"));
                    continue;
                }
            };
            let can = |one: &APIResource, verb: &str| one.verbs.iter().any(|can| can == verb);
            let kinds =
                served.iter().filter(|one| !one.name.contains('/') && can(one, "list") && can(one, "delete"));
            all.extend(kinds.filter_map(|one| {
                let kind = ObjectKind::parse(&api_version, &one.kind)?;
                Some(Resource::new(&kind, &one.name, one.namespaced))
            }));
        }
        (all, problems)
    }

    /// The versions of a group, the preferred version first.
    async fn versions(&self, group: &str) -> Result<Vec<String>, ApiError> {
        if group.is_empty() {
            return Ok(vec!["v1".to_owned()]);
        }
        let groups = answer(self.client.list_api_groups()).await?.groups;
        let Some(group) = groups.into_iter().find(|one| one.name == group) else { return Ok(Vec::new()) };
        let preferred = group.preferred_version.map(|version| version.version);
        let mut versions: Vec<String> = group.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        Ok(versions)
    }

    async fn served(&self, api_version: &str) -> Result<Arc<Vec<APIResource>>, ApiError> {
        let known = self.known.lock().get(api_version).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let listed = match api_version.contains('/') {
            true => answer(self.client.list_api_group_resources(api_version)).await,
            false => answer(self.client.list_core_api_resources(api_version)).await,
        };
        let served = match listed {
            Ok(listed) => Arc::new(listed.resources),
            Err(error) if error.is_not_found() => Arc::default(),
            Err(error) => return Err(error),
        };
        self.known.lock().insert(api_version.to_owned(), served.clone());
        Ok(served)
    }
}
