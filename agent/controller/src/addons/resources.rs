//! How the API server serves a kind: by which plural, and in namespaces or not. What it has said is remembered until it is
//! forgotten, for definitions of kinds come with add-ons.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kops_agent_plan::addons::manifest::ObjectKind;
use kube::Client;
use kube::core::ApiResource;
use parking_lot::Mutex;

use crate::api_error::{ApiError, answer};

/// How a kind is served.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Its path on the API server.
    pub api: ApiResource,
    /// Whether its objects are in namespaces.
    pub is_namespaced: bool,
}

impl Resource {
    /// How a kind is served by this plural.
    pub fn of(kind: &ObjectKind, plural: &str, is_namespaced: bool) -> Resource {
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

/// The kinds that an API server serves.
pub struct Resources {
    client: Client,
    /// By `apiVersion`; what is not served is empty.
    known: Mutex<BTreeMap<String, Arc<Vec<APIResource>>>>,
}

impl Resources {
    /// Those of this client's API server.
    pub fn of(client: Client) -> Resources {
        Resources { client, known: Mutex::default() }
    }

    /// Has the API server asked again.
    pub fn forget(&self) {
        self.known.lock().clear();
    }

    /// How this kind is served; `None` where it is not.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub async fn find(&self, kind: &ObjectKind) -> Result<Option<Resource>, ApiError> {
        let served = self.served(&kind.api_version()).await?;
        // A subresource has the kind of what it is a part of, or another's.
        let found = served.iter().find(|one| one.kind == kind.kind && !one.name.contains('/'));
        Ok(found.map(|found| Resource::of(kind, &found.name, found.namespaced)))
    }

    /// The same of a kind in the version that the API server prefers, of those that have it.
    ///
    /// # Errors
    /// The API server cannot be asked.
    pub async fn find_preferred(&self, group: &str, kind: &str) -> Result<Option<Resource>, ApiError> {
        for version in self.versions(group).await? {
            let kind = ObjectKind { group: group.to_owned(), version, kind: kind.to_owned() };
            if let Some(found) = self.find(&kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// All kinds whose objects can be listed and deleted, each in the version that the API server prefers; and why some are not known.
    pub async fn all(&self) -> (Vec<Resource>, Vec<String>) {
        let (mut all, mut problems) = (Vec::new(), Vec::new());
        let groups = match answer(self.client.list_api_groups()).await {
            Ok(groups) => groups.groups,
            Err(error) => return (all, vec![format!("asking which kinds are served: {error}")]),
        };
        let preferred = groups.into_iter().filter_map(|group| Some(group.preferred_version?.group_version));
        for api_version in std::iter::once("v1".to_owned()).chain(preferred) {
            let served = match self.served(&api_version).await {
                Ok(served) => served,
                Err(error) => {
                    problems.push(format!("asking which kinds of {api_version} are served: {error}"));
                    continue;
                }
            };
            let can = |one: &APIResource, verb: &str| one.verbs.iter().any(|can| can == verb);
            let kinds =
                served.iter().filter(|one| !one.name.contains('/') && can(one, "list") && can(one, "delete"));
            all.extend(kinds.filter_map(|one| {
                let kind = ObjectKind::parse(&api_version, &one.kind)?;
                Some(Resource::of(&kind, &one.name, one.namespaced))
            }));
        }
        (all, problems)
    }

    /// The versions of a group, the preferred one first.
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
