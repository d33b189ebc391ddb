//! Everything that was read for one node.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resolve::{Inputs, Problems};
use kops_agent_spec::facts::Facts;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::{BootConfig, NodeupConfig, Secret, go_yaml};
use kops_agent_store::{Store, StoreError};

use crate::before::Before;
use crate::configuration::Configuration;
use crate::origin::Origin;

/// Everything that was read from the store for one node.
pub struct NodeSpec {
    /// The inputs from which the node's desired state is decided.
    pub inputs: Inputs,
    /// The secrets of the store that this node may read, by name. They are used only to apply a plan.
    pub secrets: BTreeMap<String, Secret>,
    /// The problems of the cluster spec. If the configuration is not derived from the cluster spec, this list has only warnings.
    pub problems: Problems,
    pub origin: Origin,
    /// Files of the store that this machine may not read now.
    pub denied: Denied,
    /// URL of the store's folder of keysets. Empty if this machine reads no store.
    pub keysets: String,
    /// URL of the store's folder of secrets. Empty if this machine reads no store.
    pub secret_files: String,
    /// The boot config that this node follows instead of the boot config in its user-data.
    pub followed: Option<Followed>,
    /// The hash of the configuration that kOps wrote or would write.
    pub config_hash: String,
}

/// The files that the store refuses to return to this machine, although they may exist. Keysets and secrets are listed by name, with the
/// reason.
#[derive(Clone, Debug, Default)]
pub struct Denied {
    pub keysets: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    /// URLs of files that the store refused to return. The configuration was derived without these files.
    pub files: BTreeSet<String>,
}

impl NodeSpec {
    /// A node whose keysets, secrets and manifests have not been read yet.
    pub fn new(boot: BootConfig, facts: Facts, configuration: Configuration) -> NodeSpec {
        let Configuration { mut config, problems, origin, .. } = configuration;
        let config_hash = match (boot.nodeup_config_hash.as_str(), &origin) {
            ("", Origin::NodeupConfig(file)) => NodeupConfig::hash(&file.text),
            ("", Origin::ClusterSpec(_)) => NodeupConfig::hash(go_yaml::to_string(&config).as_bytes()),
            (pinned, _) => pinned.to_owned(),
        };
        trust_the_boot_configs_authority(&boot, &mut config);
        let inputs = Inputs {
            boot,
            config,
            keysets: BTreeMap::new(),
            secret_names: BTreeSet::new(),
            manifests: BTreeMap::new(),
            facts,
            kops_version: None,
            archives: Default::default(),
        };
        NodeSpec {
            inputs,
            secrets: BTreeMap::new(),
            problems,
            origin,
            denied: Denied::default(),
            keysets: String::new(),
            secret_files: String::new(),
            followed: None,
            config_hash,
        }
    }

    /// Records that this machine may not read a secret. If an earlier run used the secret, the node keeps it. Otherwise the agent plans the
    /// node as if the cluster had no such secret. Fails if it is unknown whether an earlier run used the secret.
    pub fn deny_secret(&mut self, name: String, why: StoreError, before: &Before) -> Result<()> {
        match before {
            Before::Unclear => return Err(why.into()),
            Before::Known { secrets, .. } if secrets.contains(&name) => {
                self.inputs.secret_names.insert(name.clone());
            }
            Before::Nothing | Before::Known { .. } => {
                log::warn!("the secret {name} is left out, as if the cluster had no such secret: {why}");
            }
        }
        self.denied.secrets.insert(name, why.to_string());
        Ok(())
    }

    pub fn keep_secret(&mut self, name: String, secret: Secret) {
        self.inputs.secret_names.insert(name.clone());
        self.secrets.insert(name, secret);
    }
}

/// Reads a manifest of a static pod. Returns its path and its text.
pub(crate) async fn manifest(store: &Store, path: String, url: String) -> Result<(String, String)> {
    let manifest = store.read(&url).await.with_context(|| format!("reading manifest {path}"))?;
    let manifest = String::from_utf8(manifest)
        .map_err(|_| Failure::new(Kind::FileUnreadable, format!("{url} is not text")))?;
    Ok((path, manifest))
}

/// Makes `config` trust the authority in the boot config, because a worker's nodeupconfig has no authority. Nothing that a worker downloads
/// can change the authority that the worker trusts.
pub fn trust_the_boot_configs_authority(boot: &BootConfig, config: &mut NodeupConfig) {
    if let Some(server) = &boot.config_server
        && !server.ca_certificates.is_empty()
    {
        config.cas.insert("kubernetes-ca".into(), server.ca_certificates.clone());
    }
}
