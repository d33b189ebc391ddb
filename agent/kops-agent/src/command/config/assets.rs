//! `kops-agent config assets`: lists everything that the nodes of a cluster download or install, and checks that the servers have the
//! files and images.

mod listed;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, stream};
use kops_agent_cluster::addons::bootstrap_channel;
use kops_agent_controller::addons;
use kops_agent_net::LocationClient;
use kops_agent_node::doctor::{Registries, servers_of_file};
use kops_agent_node::{decide, exit};
use kops_agent_plan::derive::{self, KnownHashes};
use kops_agent_plan::needs::{self, Need, NeedKind};
use kops_agent_plan::resolve::KubernetesVersion;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::{
    Derivation, NodeSpec, asset_hashes_file, cluster_files, nodeup_config, read_of_derivation,
};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::{Cluster, InstanceGroupRole};
use kops_agent_store::Store;

use crate::cli::{AssetsArgs, Output};
use crate::output;

use listed::{Check, Listed, Status};

/// Number of files and images that are checked at a time.
const AT_ONCE: usize = 8;
/// The secret with the logins that kubelet uses to pull images.
const DOCKER_CONFIG: &str = "dockerconfig";

/// The nodes that need a thing.
#[derive(Default)]
struct Users {
    groups: BTreeSet<String>,
    /// Empty for the images of add-ons, which run on any node.
    architectures: BTreeSet<&'static str>,
}

/// Everything that the nodes of a cluster need, and how they reach its servers.
#[derive(Default)]
struct Assets {
    needs: BTreeMap<Need, Users>,
    /// The publisher's URL of each file that comes from a mirror, by the URL at the mirror.
    canonical: BTreeMap<String, String>,
    registries: Registries,
}

pub(super) async fn run(args: &AssetsArgs) -> Result<u8> {
    let store = args.store.options().open()?;
    let assets = read(&store, args).await?;
    let unhashed = assets.needs.keys().filter(|need| need.kind == NeedKind::File && need.sha256.is_none());
    if let count @ 1.. = unhashed.count() {
        log::warn!(
            "the SHA-256 of files with - in the list is unknown ({count}); give it with --asset-hashes FILE"
        );
    }
    let (client, is_check) = (LocationClient::new()?, args.check);
    let checked = assets.needs.iter().map(|(need, users)| {
        let (assets, store, client) = (&assets, &store, &client);
        async move {
            let check = if is_check { assets.check(need, store, client).await } else { None };
            Listed::new(need, users, assets.canonical.get(&need.name), is_check, check)
        }
    });
    let mut checked = stream::iter(checked).buffered(AT_ONCE);
    let mut all = Vec::new();
    while let Some(listed) = checked.next().await {
        if args.output == Output::Text {
            output::print_text(&format!("{listed}\n"))?;
        }
        all.push(listed);
    }
    if args.output == Output::Json {
        output::print_json(&all)?;
    }
    let count = |status| all.iter().filter(|listed| listed.status() == Some(status)).count();
    match (count(Status::Missing), count(Status::Unknown)) {
        (0, 0) => Ok(exit::CONVERGED),
        (missing, unknown) => {
            log::warn!(
                "files and images that no server has: {missing}, that could not be checked: {unknown}; see the lines MISSING and UNKNOWN"
            );
            Ok(exit::DIFFERENT)
        }
    }
}

/// Reads the needs of the nodes of all named groups, and of the cluster's add-ons.
async fn read(store: &Store, args: &AssetsArgs) -> Result<Assets> {
    let base = args.config_base.trim_end_matches('/');
    let groups = groups(store, base, &args.instance_group).await?;
    let Some(cluster) = groups.first().map(|group| group.derivation.files.cluster.clone()) else {
        let problem = format!(
            "{base} has no instance group whose machines become nodes; check --config-base and --instance-group"
        );
        return Err(Failure::new(Kind::NoGroup, problem).into());
    };
    // The groups share most files, so one group may know the hash of another group's file.
    let mut known = KnownHashes::default();
    for group in &groups {
        known.extend(group.written.clone());
    }
    known.extend(asset_hashes_file::read(args.asset_hashes.as_deref())?);
    let mut assets = Assets::default();
    for group in groups {
        let name = group.name.clone();
        let added = assets.add_group(store, base, group, known.clone()).await;
        added.with_context(|| format!("listing the assets of the instance group {name}"))?;
    }
    let images = addons::images(store, &channels(base, &cluster), &version(&cluster)).await?;
    for image in images {
        assets.needs.entry(Need::image(image)).or_default();
    }
    Ok(assets)
}

/// An instance group whose machines become nodes.
struct Group {
    name: String,
    derivation: Derivation,
    /// The hashes in the configuration that kOps last wrote for the group.
    written: KnownHashes,
}

/// The named groups, or all groups of the cluster. Bastions are left out: kOps installs nothing on them.
async fn groups(store: &Store, base: &str, named: &[String]) -> Result<Vec<Group>> {
    let names = match named {
        [] => store
            .list(&format!("{base}/instancegroup"))
            .await
            .context("finding the cluster's instance groups; --instance-group names them")?,
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

/// The channels of the cluster's add-ons: kOps' own, and the channels in the cluster spec.
fn channels(base: &str, cluster: &Cluster) -> Vec<String> {
    let of_user = cluster.spec.addons.iter().map(|addon| addon.manifest.clone());
    std::iter::once(bootstrap_channel(base)).chain(of_user).collect()
}

/// The number of the cluster's version of Kubernetes. The spec may have a URL instead.
fn version(cluster: &Cluster) -> String {
    let version = &cluster.spec.kubernetes_version;
    KubernetesVersion::parse(version).map_or_else(|| version.clone(), |version| version.number())
}

impl Assets {
    async fn add_group(&mut self, store: &Store, base: &str, group: Group, known: KnownHashes) -> Result<()> {
        let Group { name, mut derivation, .. } = group;
        derivation.learn_hashes(known, &HashSource::known(), None, store).await?;
        // The derivation itself reports wrong names of downloads.
        for url in derive::asset_urls(&derivation.inputs()).unwrap_or_default() {
            if url.download_url != url.canonical_url {
                self.canonical.insert(url.download_url, url.canonical_url);
            }
        }
        let spec = read_of_derivation(store, base, derivation).await?;
        self.add_logins(&spec);
        let mut problem = None;
        decide::each_possible_machine(spec, |node, state| {
            self.registries.add_mirrors(&node.containerd().registry_mirrors);
            match needs::of_node(node, state) {
                Ok(needs) => {
                    for need in needs {
                        let users = self.needs.entry(need).or_default();
                        users.groups.insert(name.clone());
                        users.architectures.insert(node.facts.arch.name());
                    }
                }
                Err(error) => problem = Some(error),
            }
        })?;
        match problem {
            Some(problem) => Err(Failure::new(Kind::FileUnreadable, problem).into()),
            None => Ok(()),
        }
    }

    fn add_logins(&mut self, spec: &NodeSpec) {
        if let Some(secret) = spec.secrets.get(DOCKER_CONFIG) {
            self.registries.add_logins(secret.expose());
        }
    }

    /// Asks the servers of a file or an image. `None` for packages, which only a machine's package manager can check.
    async fn check(&self, need: &Need, store: &Store, client: &LocationClient) -> Option<Check> {
        let servers = match need.kind {
            NeedKind::File => {
                let urls = std::iter::once(&need.name).chain(&need.mirrors).cloned().collect();
                servers_of_file(store, client, urls).await
            }
            NeedKind::Image => self.registries.servers_of_image(client, &need.name).await,
            NeedKind::Package | NeedKind::PackageSource => return None,
        };
        Some(Check::of(servers))
    }
}
