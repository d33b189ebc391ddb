//! Answers a verified machine: the configuration of its group, and certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use kops_agent_cluster::bootstrap::certificates::{self, Asker, Offer};
use kops_agent_cluster::bootstrap::message::{BootstrapRequest, BootstrapResponse, Bytes, ServedNodeConfig};
use kops_agent_cluster::bootstrap::node_config::{is_dns_name, nodeup_config_file};
use kops_agent_cluster::rollout::{LARGEST_PROGRAM_FILE, PROGRAM_FILE};
use kops_agent_source::cluster_files;
use kops_agent_spec::kops_release::has_constant_proofs;
use kops_agent_spec::{InstanceGroupRole, Secret, parse_yaml};
use parking_lot::Mutex as StdMutex;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::time::timeout;

use super::boot_configs::BootConfigs;
use super::cached::Cached;
use super::derived_configs::{self, DerivedConfigs, no_node_config};
use super::keystore::{Keys, Keystore};
use kops_agent_cloud::verify::{Answer, Refusal, VerifiedNode};
use kops_agent_net::random;
use kops_agent_process::output::{error_text, one_line};
use kops_agent_store::{Store, StoreError};

/// The only secret that this server gives to nodes.
const DOCKER_CONFIG: &str = "dockerconfig";
/// Timeout of reading a file of the store. A machine waits 15 seconds for the answer to its request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The TTL of a cached file. If a hundred machines of a group start together, they cause one read.
const FILE_TTL: Duration = Duration::from_secs(5);

/// The limits of deriving a configuration that kOps has not written. A request to a publisher of downloads may last until its own timeout,
/// so `done_within` is longer than that timeout.
const DERIVED: derived_configs::Limits =
    derived_configs::Limits { waited_for: TIMEOUT, done_within: Duration::from_secs(60), good_for: FILE_TTL };

/// The maximum length of a role in a message, in characters. The store can contain any text as a role.
const LONGEST_ROLE: usize = 100;

/// The role in a group's spec, as `kops edit ig` saves it. Other fields are ignored, because a newer kOps may have written unknown fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SavedGroup {
    spec: SavedSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SavedSpec {
    role: String,
}

/// A file of the store; `None` if it does not exist.
type StoredFile = Option<Arc<Vec<u8>>>;
type CachedFile = Cached<StoredFile>;

pub struct Grants {
    store: Arc<Store>,
    config_base: String,
    secret_store: String,
    cert_names: BTreeSet<String>,
    keystore: Arc<Keystore>,
    /// Derives configurations; `None` if kOps writes them.
    derived: Option<DerivedConfigs>,
    boot_configs: BootConfigs,
    kops_version: Cached<Option<String>>,
    /// The groups whose role was Node or APIServer when the role was last read. Machines of these roles bootstrap from a server.
    worker_groups: StdMutex<BTreeSet<String>>,
    /// The cached files by URL. Each has its own lock, so a slow file delays no request for another file.
    cached_files: StdMutex<BTreeMap<String, Arc<CachedFile>>>,
}

impl Grants {
    /// Prepares grants from the cluster's folder and its secrets. `cert_names` are the names of the certificates that may be issued.
    pub fn new(
        store: Arc<Store>,
        config_base: &str,
        secret_store: &str,
        cert_names: &[String],
        keystore: Arc<Keystore>,
    ) -> Grants {
        let config_base = config_base.trim_end_matches('/');
        Grants {
            boot_configs: BootConfigs::new(store.clone(), config_base, TIMEOUT, FILE_TTL),
            store,
            config_base: config_base.to_owned(),
            secret_store: secret_store.trim_end_matches('/').to_owned(),
            cert_names: cert_names.iter().cloned().collect(),
            keystore,
            derived: None,
            kops_version: Cached::default(),
            worker_groups: StdMutex::default(),
            cached_files: StdMutex::default(),
        }
    }

    /// With `kops_writes_none`, derives missing configurations from the cluster spec. kOps writes no configurations for some clouds.
    pub fn deriving_configs(mut self, kops_writes_none: bool) -> Grants {
        self.derived =
            kops_writes_none.then(|| DerivedConfigs::new(self.store.clone(), &self.config_base, DERIVED));
        self
    }

    /// Rejects a machine unless its group has the role Node or APIServer. Only machines of these roles bootstrap from a server. While the
    /// store cannot be read, a group is accepted if it had one of these roles at the last read.
    pub async fn refuse_all_but_workers(&self, instance_group: &str) -> Result<(), Refusal> {
        let is_known = |groups: &BTreeSet<String>| groups.contains(instance_group);
        let roles = match self.roles(instance_group).await {
            Ok(roles) => roles,
            Err(_) if is_known(&self.worker_groups.lock()) => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        let is_worker = |role: &String| {
            InstanceGroupRole::from_name(role).is_some_and(InstanceGroupRole::bootstraps_from_server)
        };
        if !roles.is_empty() && roles.iter().all(is_worker) {
            self.worker_groups.lock().insert(instance_group.to_owned());
            return Ok(());
        }
        self.worker_groups.lock().remove(instance_group);
        let found = match roles.is_empty() {
            true => "the cluster has no such group".to_owned(),
            false => format!("its role is {}", one_line(&roles.join(" or "), LONGEST_ROLE)),
        };
        Err(Refusal::not_verified(
            "GroupOfOtherRole",
            format!("{instance_group} is not a group of the role Node or APIServer: {found}"),
        ))
    }

    /// Returns the role of a group as `kops edit ig` has saved it. If no role is saved, returns each role for which kOps has written the
    /// group's configuration. There may be several: if a group is recreated with another role, kOps does not delete the old configuration.
    async fn roles(&self, instance_group: &str) -> Result<Vec<String>, Refusal> {
        if !is_dns_name(instance_group) {
            return Ok(Vec::new());
        }
        let url = format!("{}/instancegroup/{instance_group}", self.config_base);
        if let Some(text) = self.file(&url).await? {
            let saved: SavedGroup =
                parse_yaml(&text, &url).map_err(|error| Refusal::unavailable("StoreUnavailable", error))?;
            return Ok(vec![saved.spec.role]);
        }
        let written = try_join_all(InstanceGroupRole::ALL.map(|role| async move {
            let Some(file) = nodeup_config_file(role, instance_group) else { return Ok(None) };
            let found = self.file(&format!("{}/{file}", self.config_base)).await?;
            Ok(found.map(|_| role.name().to_owned()))
        }));
        Ok(written.await?.into_iter().flatten().collect())
    }

    pub async fn give(
        &self,
        node: &VerifiedNode,
        request: &BootstrapRequest,
    ) -> Result<BootstrapResponse, Refusal> {
        let node_config = match request.include_node_config {
            true => Some(self.node_config(node).await?),
            false => None,
        };
        let boot_config = match &node_config {
            Some(node_config) if request.include_boot_config => {
                let of_group = self.boot_configs.of_group(&node.instance_group, &node_config.nodeup_config);
                Some(of_group.await?)
            }
            _ => None,
        };
        let program = match request.include_program {
            true => Some(self.program_file().await?),
            false => None,
        };
        let keys = self.keystore.keys();
        let trusted = request.keypair_ids.clone().unwrap_or_default();
        let mut certs = BTreeMap::new();
        for (name, public_key) in request.certs.iter().flatten() {
            certs.insert(name.clone(), self.certificate(&keys, node, name, public_key, &trusted)?);
        }
        Ok(BootstrapResponse { certs, node_config, boot_config, program })
    }

    fn certificate(
        &self,
        keys: &Keys,
        node: &VerifiedNode,
        name: &str,
        public_key: &str,
        trusted: &BTreeMap<String, String>,
    ) -> Result<String, Refusal> {
        let refused = |reason, problem: String| Refusal {
            answer: Answer::BadRequest,
            reason,
            message: format!("failed to issue {:?}: {problem}", name.chars().take(64).collect::<String>()),
        };
        let asker = Asker { node_name: &node.node_name, certificate_names: &node.certificate_names };
        let offer = Offer { cert_names: &self.cert_names, keypair_ids: &keys.keypair_ids };
        let order = certificates::order(name, public_key, trusted, &asker, &offer)
            .map_err(|refusal| refused("CertificateRefused", refusal.to_string()))?;
        let unavailable = |problem: &str| Refusal::unavailable("CertificateNotIssued", problem);
        let authority = keys.authorities.get(&order.certificate.signer).ok_or_else(|| {
            unavailable(&format!("{} is not in server.signingCAs", order.certificate.signer))
        })?;
        let random = random::bytes().map_err(|error| unavailable(&error.to_string()))?;
        authority
            .sign(
                &order.certificate,
                &order.public_key_der,
                random,
                OffsetDateTime::now_utc(),
                certificates::extra_hours(&node.node_name),
            )
            .map_err(|error| unavailable(&error.to_string()))
    }

    async fn node_config(&self, node: &VerifiedNode) -> Result<ServedNodeConfig, Refusal> {
        let group = &node.instance_group;
        let file = nodeup_config_file(InstanceGroupRole::Node, group)
            .ok_or_else(|| no_node_config(format!("{group:?} is not a valid name of an instance group")))?;
        let url = format!("{}/{file}", self.config_base);
        let nodeup_config = match (self.file(&url).await?, &self.derived) {
            (Some(text), _) => {
                String::from_utf8(text.to_vec()).map_err(|_| no_node_config(format!("{url} is not UTF-8")))?
            }
            (None, Some(derived)) => derived.of_group(group).await?,
            (None, None) => return Err(no_node_config(format!("{url} does not exist"))),
        };
        let mut node_secrets = BTreeMap::new();
        let url = format!("{}/{DOCKER_CONFIG}", self.secret_store);
        if let Some(text) = self.file(&url).await? {
            let secret = Secret::parse(&text, &url).map_err(|error| no_node_config(error.to_string()))?;
            node_secrets.insert(DOCKER_CONFIG.to_owned(), Bytes(secret.expose().to_vec()));
        }
        let kops_version = self.kops_version().await?.unwrap_or_default();
        Ok(ServedNodeConfig { nodeup_config, node_secrets, kops_version })
    }

    /// Returns the text of the program file. The machine checks the format and the hash of the file.
    async fn program_file(&self) -> Result<String, Refusal> {
        let url = format!("{}/{PROGRAM_FILE}", self.config_base);
        let no_program = |message| Refusal { answer: Answer::BadRequest, reason: "NoProgramFile", message };
        let text = self.file(&url).await?.ok_or_else(|| no_program(format!("{url} does not exist")))?;
        if text.len() > LARGEST_PROGRAM_FILE {
            return Err(no_program(format!("{url} has more than {LARGEST_PROGRAM_FILE} bytes")));
        }
        String::from_utf8(text.to_vec()).map_err(|_| no_program(format!("{url} is not UTF-8")))
    }

    /// Whether machines of this cluster may answer a challenge with a constant, as nodeup of some kOps releases does. False if the version
    /// of kOps is unknown.
    pub async fn takes_constant_proofs(&self) -> bool {
        let version = self.kops_version().await.unwrap_or_default();
        version.is_some_and(|version| has_constant_proofs(&version))
    }

    /// Returns the version of kOps that wrote the store; `None` if the version file is missing, or this machine has no permission
    /// to read it.
    async fn kops_version(&self) -> Result<Option<String>, Refusal> {
        let unavailable = |problem: String| Refusal::unavailable("StoreUnavailable", problem);
        let read = cluster_files::kops_version(&self.store, &self.config_base);
        match timeout(TIMEOUT, self.kops_version.get(FILE_TTL, read)).await {
            Ok(found) => found.map_err(|error| unavailable(error_text(&error))),
            Err(_) => Err(unavailable("the store does not return the kOps version in time".into())),
        }
    }

    /// Returns the file at a URL, from the cache or the store; `None` if the file does not exist. Concurrent requests for a file share one
    /// read (singleflight).
    async fn file(&self, url: &str) -> Result<StoredFile, Refusal> {
        let unavailable = |problem: String| Refusal::unavailable("StoreUnavailable", problem);
        let cached = self.cached_file(url);
        let read = async {
            match self.store.read(url).await {
                Ok(text) => Ok(Some(Arc::new(text))),
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(error) => Err(unavailable(error_text(&error.into()))),
            }
        };
        timeout(TIMEOUT, cached.get(FILE_TTL, read))
            .await
            .unwrap_or_else(|_| Err(unavailable(format!("the store does not return {url} in time"))))
    }

    /// Clears the cache of files, as if the TTL of each file had passed.
    #[cfg(test)]
    pub(super) fn forget_files(&self) {
        self.cached_files.lock().clear();
    }

    /// Returns the cache entry of a URL. Drops expired entries that no request uses.
    fn cached_file(&self, url: &str) -> Arc<CachedFile> {
        let mut cached_files = self.cached_files.lock();
        cached_files.retain(|_, cached| Arc::strong_count(cached) > 1 || cached.is_fresh(FILE_TTL));
        cached_files.entry(url.to_owned()).or_default().clone()
    }
}
