//! The current configurations of groups, as `kops update cluster --yes` wrote them last, and the program file.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kops_agent_cluster::bootstrap::node_config::nodeup_config_file;
use kops_agent_cluster::fleet::authorities_digest;
use kops_agent_cluster::labels::INSTANCE_GROUP;
use kops_agent_cluster::rollout::{PROGRAM_FILE, ProgramFile, Rank};
use kops_agent_plan::resolve::KUBERNETES_CA;
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failing as _, Failure, Kind};
use kops_agent_spec::{InstanceGroupRole, NodeupConfig};
use kops_agent_store::{Store, StoreError};
use tokio::time::timeout;

/// Timeout of reading one file.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The current configurations of groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Configurations {
    /// The hash of each group's configuration, or why the hash is unknown.
    pub(super) hashes: BTreeMap<String, Result<String, Failure>>,
    /// The digest of the authorities that new machines of a group trust. Only for groups whose configuration does not contain the
    /// authorities.
    pub(super) authorities: BTreeMap<String, String>,
    /// The program file, or why it is unknown. `None` if no decision depends on it.
    pub(super) program: Option<Result<ProgramFile, Failure>>,
}

impl Configurations {
    /// Combines the configurations of groups. kOps writes the cluster's authorities into the configurations of control planes and into the
    /// boot configs of workers, but not into the configurations of workers. If the authorities are unknown, the hash of a group of workers
    /// is an error. With a hash, a rollout would report nodes as done although they trust other authorities.
    fn new(configs: BTreeMap<String, (Rank, Result<Config, Failure>)>) -> Configurations {
        let authorities = authorities(&configs);
        let mut all = Configurations::default();
        for (group, (_, config)) in configs {
            let hash = match (config, &authorities) {
                (Ok(config), Err(failure)) if config.authorities.is_none() => Err(Failure::new(
                    failure.kind,
                    format!("the authorities that the nodes of this group must trust are unknown: {failure}"),
                )),
                (Ok(config), authorities) => {
                    if let (None, Ok(digest)) = (config.authorities, authorities) {
                        all.authorities.insert(group.clone(), digest.clone());
                    }
                    Ok(config.hash)
                }
                (Err(failure), _) => Err(failure),
            };
            all.hashes.insert(group, hash);
        }
        all
    }

    /// Merges these configurations with `earlier`. If the hash of a group is unknown now, the group keeps its last known authorities.
    pub(super) fn after(mut self, earlier: Configurations) -> Configurations {
        for (group, digest) in earlier.authorities {
            if self.hashes.get(&group).is_some_and(Result::is_err) {
                self.authorities.entry(group).or_insert(digest);
            }
        }
        self
    }
}

/// The digest of the authorities in the configurations of the control planes, or why the digest is unknown.
fn authorities(configs: &BTreeMap<String, (Rank, Result<Config, Failure>)>) -> Result<String, Failure> {
    let mut found: Option<(&str, &str)> = None;
    for (group, (_, config)) in configs.iter().filter(|(_, (rank, _))| *rank == Rank::ControlPlane) {
        let config = config.as_ref().map_err(Clone::clone)?;
        let digest = config.authorities.as_deref().ok_or_else(|| {
            let problem =
                format!("the configuration of the group {group} has no certificate of {KUBERNETES_CA}");
            Failure::new(Kind::FileUnreadable, problem)
        })?;
        match found {
            Some((other, others)) if others != digest => {
                let problem = format!(
                    "the configurations of the groups {other} and {group} have different certificates of \
                     {KUBERNETES_CA}; run `kops update cluster --yes`"
                );
                return Err(Failure::new(Kind::FileUnreadable, problem));
            }
            _ => found = Some((group.as_str(), digest)),
        }
    }
    let (_, digest) = found.ok_or_else(|| {
        Failure::new(Kind::NoGroup, format!("no control plane has the label {INSTANCE_GROUP}"))
    })?;
    Ok(digest.to_owned())
}

struct Config {
    hash: String,
    /// The digest of the cluster's authorities. `None` if only the boot config of the group's machines contains the authorities.
    authorities: Option<String>,
}

impl Config {
    fn parse(text: &[u8], url: &str) -> Result<Config, Failure> {
        let config =
            NodeupConfig::parse(text, url).map_err(|error| Failure::new(error.kind(), error.to_string()))?;
        let authorities = config.cas.get(KUBERNETES_CA).and_then(|bundle| authorities_digest(bundle));
        Ok(Config { hash: NodeupConfig::hash(text), authorities })
    }
}

#[derive(Clone)]
pub(super) struct Current {
    store: Arc<Store>,
    config_base: String,
}

impl Current {
    /// `config_base` is the cluster's folder in the store.
    pub(super) fn new(store: Arc<Store>, config_base: &str) -> Current {
        Current { store, config_base: config_base.trim_end_matches('/').to_owned() }
    }

    /// Reads the current configurations of these groups. Also reads the program file if a decision depends on it.
    pub(super) async fn read(
        &self,
        groups: BTreeMap<String, Rank>,
        depends_on_program: bool,
    ) -> Configurations {
        let configs = groups.into_iter().map(|(group, rank)| async move {
            let config = self.config(&group, rank).await;
            (group, (rank, config))
        });
        let configs = Configurations::new(join_all(configs).await.into_iter().collect());
        let program = if depends_on_program { Some(self.program_file().await) } else { None };
        Configurations { program, ..configs }
    }

    /// The program file of the state store, or why it is unknown.
    async fn program_file(&self) -> Result<ProgramFile, Failure> {
        let url = format!("{}/{PROGRAM_FILE}", self.config_base);
        let text = self.file(&url).await.map_err(|failure| {
            let problem =
                format!("{failure}; copy the program file that was given to `fleet upgrade` to that URL");
            Failure::new(failure.kind, problem)
        })?;
        ProgramFile::parse(&text, &url)
    }

    async fn config(&self, group: &str, rank: Rank) -> Result<Config, Failure> {
        let role = match rank {
            Rank::ControlPlane => InstanceGroupRole::ControlPlane,
            Rank::ApiServer => InstanceGroupRole::APIServer,
            Rank::Worker => InstanceGroupRole::Node,
        };
        let file = nodeup_config_file(role, group).ok_or_else(|| {
            Failure::new(Kind::NoGroup, format!("{group:?} is not a valid name of an instance group"))
        })?;
        let url = format!("{}/{file}", self.config_base);
        self.file(&url).await.and_then(|text| Config::parse(&text, &url))
    }

    async fn file(&self, url: &str) -> Result<Vec<u8>, Failure> {
        match timeout(TIMEOUT, self.store.read(url)).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error @ StoreError::NotFound { .. })) => {
                Err(Failure::new(error.kind(), format!("{url} does not exist")))
            }
            Ok(Err(error)) => Err(Failure::new(error.kind(), error_text(&error.into()))),
            Err(_) => {
                Err(Failure::new(Kind::StoreUnreachable, format!("the store does not return {url} in time")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "nodeupconfig.yaml";

    fn config(authorities: &str) -> Result<Config, Failure> {
        let certificate =
            |name: char| format!("-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----\n");
        let cas: String = authorities.chars().map(certificate).collect();
        let cas = match authorities {
            "" => String::new(),
            _ => format!("CAs: {{{KUBERNETES_CA}: {cas:?}}}\n"),
        };
        Config::parse(format!("ClusterName: c.example.com\n{cas}").as_bytes(), URL)
    }

    fn digest(authorities: &str) -> Option<String> {
        config(authorities).ok()?.authorities
    }

    /// The configurations of these control planes and of a group of workers. The configuration of the workers has no authorities, because
    /// the boot config of the workers has them.
    fn with(control_planes: Vec<Result<Config, Failure>>) -> Configurations {
        let control_planes = control_planes.into_iter().enumerate();
        let mut configs: BTreeMap<String, (Rank, Result<Config, Failure>)> = control_planes
            .map(|(number, config)| (format!("masters-{number}"), (Rank::ControlPlane, config)))
            .collect();
        configs.insert("nodes".to_owned(), (Rank::Worker, config("")));
        Configurations::new(configs)
    }

    #[test]
    fn workers_must_trust_the_authorities_in_the_configurations_of_the_control_planes() {
        let all = with(vec![config("ab"), config("ba")]);
        assert!(all.hashes.values().all(Result::is_ok), "{:?}", all.hashes);
        assert_eq!(all.authorities.get("nodes"), digest("ab").as_ref());
        assert_eq!(all.authorities.len(), 1, "the hash of a control plane covers its authorities");
        assert_ne!(digest("a"), digest("ab"));
    }

    #[test]
    fn without_these_authorities_the_configuration_of_a_worker_is_not_known() {
        let known = with(vec![config("a")]);
        for (control_planes, expected) in [
            (vec![], "no control plane has the label"),
            (vec![config("")], "masters-0 has no certificate of kubernetes-ca"),
            (vec![config("a"), config("b")], "masters-0 and masters-1 have different certificates"),
            (
                vec![config("a"), Err(Failure::new(Kind::StoreUnreachable, "the store is gone"))],
                "unknown: the store is gone",
            ),
            (vec![Config::parse(b"CAs: [", URL)], URL),
        ] {
            let all = with(control_planes);
            let problem = all.hashes.get("nodes").and_then(|hash| hash.as_ref().err());
            assert!(problem.is_some_and(|problem| problem.to_string().contains(expected)), "{problem:?}");
            assert_eq!(all.authorities, BTreeMap::new());
            assert_eq!(all.after(known.clone()).authorities, known.authorities, "the last known ones stay");
        }
        let now = with(vec![config("b")]);
        assert_eq!(now.clone().after(known), now);
    }
}
