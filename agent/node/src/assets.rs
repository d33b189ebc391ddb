//! Finds everything that the nodes of a cluster download or install, and checks that the servers have the files and images.

mod check;
mod listed;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, stream};
use kops_agent_cluster::addons::bootstrap_channel;
use kops_agent_cluster::rollout::{PROGRAM_FILE, ProgramFile};
use kops_agent_net::LocationClient;
use kops_agent_plan::derive::{self, AssetHashes as _, KnownHashes};
use kops_agent_plan::needs::{self, Need, NeedKind};
use kops_agent_plan::resolve::KubernetesVersion;
use kops_agent_source::asset_hashes::{self, HashSource};
use kops_agent_source::{Derivation, NodeSpec, cluster_files, nodeup_config, read_of_derivation};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::{Cluster, InstanceGroupRole};
use kops_agent_store::{Found, Store};

use super::decide;
use super::doctor::{Logins, Registries, servers_of_file};

pub use check::{Check, Status};
pub use listed::Listed;

/// Maximum number of files and images that are checked at the same time.
const AT_ONCE: usize = 8;
/// Interval between two log lines about the progress of a check.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// The secret with the registry logins that kubelet uses.
const DOCKER_CONFIG: &str = "dockerconfig";

/// The nodes that need an asset.
#[derive(Default)]
pub struct Users {
    pub groups: BTreeSet<String>,
    /// Empty for images of add-ons, because add-ons run on any node.
    pub architectures: BTreeSet<&'static str>,
}

/// The files, images and packages that the nodes of a cluster need, and the registry mirrors of these nodes.
#[derive(Default)]
pub struct Assets {
    needs: BTreeMap<Need, Users>,
    /// The publisher's URL of each file that comes from a mirror. The key is the URL at the mirror.
    canonical: BTreeMap<String, String>,
    /// How the nodes of a group reach registries. The key is the name of the group.
    registries: BTreeMap<String, Registries>,
    /// The registry logins of the cluster. `None` if it has no logins.
    logins: Option<Logins>,
    /// The channels of the cluster's add-ons.
    channels: Vec<String>,
    /// The cluster's version of Kubernetes.
    kubernetes: String,
}

pub struct Asset<'a> {
    pub need: &'a Need,
    pub users: &'a Users,
    /// The publisher's URL of a file. Set only if the file comes from a mirror.
    pub canonical: Option<&'a str>,
    /// What the servers answered. `None` for packages, and without `--check`.
    pub check: Option<Check>,
}

/// An instance group whose machines become nodes.
struct Group {
    name: String,
    derivation: Derivation,
    /// The hashes of downloads in the last configuration that kOps wrote for the group.
    written: KnownHashes,
}

/// The groups in `named`, or all groups of the cluster if `named` is empty. Bastions are left out, because kOps
/// installs nothing on them.
async fn groups(store: &Store, base: &str, named: &[String]) -> Result<Vec<Group>> {
    let names = match named {
        [] => store
            .list(&format!("{base}/instancegroup"))
            .await
            .context("listing the cluster's instance groups, because --instance-group is not given")?,
        named => named.to_vec(),
    };
    let mut groups = Vec::new();
    for name in names {
        let files = cluster_files::read(store, base, &name).await?;
        let role = files.group.spec.role;
        if role == InstanceGroupRole::Bastion {
            continue;
        }
        let written = nodeup_config::last_written(store, base, role, &name).await?;
        let written = written.as_ref().map(KnownHashes::of_config).unwrap_or_default();
        groups.push(Group { name, derivation: Derivation::of_group(files), written });
    }
    Ok(groups)
}

/// The version of kops-agent for `fleet upgrade`. `None` if the state store has no program file.
async fn program(store: &Store, base: &str) -> Result<Option<ProgramFile>> {
    let url = format!("{base}/{PROGRAM_FILE}");
    match store.read_if_present(&url).await? {
        Found::There(text) => Ok(Some(ProgramFile::parse(&text, &url)?)),
        Found::Absent => Ok(None),
        Found::Denied(why) => Err(why.into()),
    }
}

/// The channels of the cluster's add-ons: kOps' own, and the channels in the cluster spec.
fn channels(base: &str, cluster: &Cluster) -> Vec<String> {
    let of_user = cluster.spec.addons.iter().map(|addon| addon.manifest.clone());
    std::iter::once(bootstrap_channel(base)).chain(of_user).collect()
}

/// The Kubernetes version of the cluster as a number, even if the spec has a URL.
fn version(cluster: &Cluster) -> String {
    let version = &cluster.spec.kubernetes_version;
    KubernetesVersion::parse(version).map_or_else(|| version.clone(), |version| version.number())
}

impl Assets {
    /// Reads what the nodes of the groups in `named` need. If `named` is empty, reads this for all groups.
    /// [`Assets::add_images`] adds the images of add-ons. Fails if no group has machines that become nodes.
    pub async fn of_groups(
        store: &Store,
        base: &str,
        named: &[String],
        asset_hashes: Option<&Path>,
    ) -> Result<Assets> {
        let groups = groups(store, base, named).await?;
        let Some(cluster) = groups.first().map(|group| group.derivation.files.cluster.clone()) else {
            let problem = format!(
                "{base} has no instance group whose machines become nodes; check --config-base and \
                 --instance-group"
            );
            return Err(Failure::new(Kind::NoGroup, problem).into());
        };
        // The groups share most files. So the configuration of one group may have the hash for a file of another
        // group.
        let mut known = KnownHashes::default();
        for group in &groups {
            known.extend(group.written.clone());
        }
        known.extend(asset_hashes::read_file(asset_hashes)?);
        let program = program(store, base).await?;
        let (channels, kubernetes) = (channels(base, &cluster), version(&cluster));
        let mut assets = Assets { channels, kubernetes, ..Assets::default() };
        for group in groups {
            let name = group.name.clone();
            let added = assets.add_group(store, base, group, &known, program.as_ref()).await;
            added.with_context(|| format!("listing the assets of the instance group {name}"))?;
        }
        Ok(assets)
    }

    pub fn channels(&self) -> &[String] {
        &self.channels
    }

    pub fn kubernetes(&self) -> &str {
        &self.kubernetes
    }

    /// Adds the images of the cluster's add-ons.
    pub fn add_images(&mut self, images: impl IntoIterator<Item = String>) {
        for image in images {
            self.needs.entry(Need::image(image)).or_default();
        }
    }

    /// The number of files whose SHA-256 is unknown.
    pub fn unhashed(&self) -> usize {
        let is_unhashed =
            |need: &&Need| need.kind == NeedKind::File && need.sha256.is_none() && !need.is_signing_key;
        self.needs.keys().filter(is_unhashed).count()
    }

    /// Calls `tell` with each asset, in order. If `is_check` is true, first asks the servers of the file or image.
    pub async fn each<'a>(
        &'a self,
        store: &Store,
        is_check: bool,
        mut tell: impl FnMut(Asset<'a>) -> Result<()>,
    ) -> Result<()> {
        let client = LocationClient::new()?;
        if is_check {
            let is_checked = |need: &&Need| matches!(need.kind, NeedKind::File | NeedKind::Image);
            log::info!(
                "checking whether the servers have {} files and images",
                self.needs.keys().filter(is_checked).count()
            );
        }
        let assets = self.needs.iter().map(|(need, users)| {
            let client = &client;
            async move {
                let check = if is_check { self.check(need, users, store, client).await } else { None };
                let canonical = self.canonical.get(&need.name).map(String::as_str);
                Asset { need, users, canonical, check }
            }
        });
        let mut assets = stream::iter(assets).buffered(AT_ONCE);
        let (mut count, mut told) = (0, Instant::now());
        while let Some(asset) = assets.next().await {
            tell(asset)?;
            count += 1;
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                log::info!("listed {count} of {} assets", self.needs.len());
            }
        }
        Ok(())
    }

    async fn add_group(
        &mut self,
        store: &Store,
        base: &str,
        group: Group,
        known: &KnownHashes,
        program: Option<&ProgramFile>,
    ) -> Result<()> {
        let Group { name, mut derivation, .. } = group;
        derivation.learn_hashes(known.clone(), &HashSource::offline(), None, store).await?;
        // Wrong names of downloads are no error here, because `read_of_derivation` below reports them.
        for url in derive::asset_urls(&derivation.inputs()).unwrap_or_default() {
            if url.download_url != url.canonical_url {
                self.canonical.insert(url.download_url, url.canonical_url);
            }
        }
        let spec = read_of_derivation(store, base, derivation).await?;
        self.add_logins(&spec);
        let mut problem = None;
        let told = decide::each_possible_machine(spec, |node, state| {
            self.registries.entry(name.clone()).or_insert_with(|| Registries::of_node(node));
            let of_program = program.and_then(|file| file.download(node.facts.arch));
            let of_program = of_program.map(|wanted| Need::file(&wanted.url, &[], Some(&wanted.sha256)));
            match needs::of_node(node, state) {
                Ok(needs) => {
                    for mut need in needs.into_iter().chain(of_program) {
                        if need.kind == NeedKind::File && need.sha256.is_none() {
                            need.sha256 = known.sha256(&need.name, &need.name);
                        }
                        let users = self.needs.entry(need).or_default();
                        users.groups.insert(name.clone());
                        users.architectures.insert(node.facts.arch.name());
                    }
                }
                Err(error) => problem = Some(error),
            }
        })?;
        for warning in told.warnings() {
            log::warn!("instance group {name}: {warning}");
        }
        match problem {
            Some(problem) => Err(problem.into()),
            None => Ok(()),
        }
    }

    /// Adds the registry logins of the cluster, unless they are already set. All groups of a cluster have the same
    /// logins.
    fn add_logins(&mut self, spec: &NodeSpec) {
        if let (None, Some(secret)) = (&self.logins, spec.secrets.get(DOCKER_CONFIG)) {
            self.logins = Some(Logins::of_docker_config(secret.expose()));
        }
    }

    /// Asks the servers of a file or an image. `None` for packages, because only a package manager can check them.
    async fn check(
        &self,
        need: &Need,
        users: &Users,
        store: &Store,
        client: &LocationClient,
    ) -> Option<Check> {
        match need.kind {
            NeedKind::File => {
                let urls = std::iter::once(&need.name).chain(&need.mirrors).cloned().collect();
                Some(Check::from_outcomes(servers_of_file(store, client, urls).await))
            }
            NeedKind::Image => self.check_image(&need.name, users, client).await,
            NeedKind::Package | NeedKind::PackageSource => None,
        }
    }

    /// Asks the registries of an image as each group that needs the image would do. Returns the worst result.
    async fn check_image(&self, image: &str, users: &Users, client: &LocationClient) -> Option<Check> {
        let is_user = |group: &String| users.groups.is_empty() || users.groups.contains(group);
        let of_users = self.registries.iter().filter(|(group, _)| is_user(group));
        let different: BTreeSet<&Registries> = of_users.map(|(_, registries)| registries).collect();
        let (none, mut worst) = (Logins::default(), None);
        for registries in different {
            let logins = self.logins.as_ref().unwrap_or(&none);
            let check = Check::from_outcomes(registries.servers_of_image(client, logins, image).await);
            worst = worst.max(Some(check));
        }
        worst
    }
}
