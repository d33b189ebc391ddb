//! `kops-agent config assets`: lists everything that the nodes of a cluster download or install, and checks that the servers have the
//! files and images.

mod listed;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, stream};
use kops_agent_cluster::addons::bootstrap_channel;
use kops_agent_cluster::rollout::{PROGRAM_FILE, ProgramFile};
use kops_agent_controller::addons;
use kops_agent_net::LocationClient;
use kops_agent_node::doctor::{Logins, Registries, servers_of_file};
use kops_agent_node::{decide, exit};
use kops_agent_plan::derive::{self, AssetHashes as _, KnownHashes};
use kops_agent_plan::needs::{self, Need, NeedKind};
use kops_agent_plan::resolve::KubernetesVersion;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::{
    Derivation, NodeSpec, asset_hashes_file, cluster_files, nodeup_config, read_of_derivation,
};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::terminal::one_line;
use kops_agent_spec::{Cluster, InstanceGroupRole};
use kops_agent_store::{Found, Store};

use crate::cli::{AssetsArgs, Output};
use crate::output;

use listed::{Check, Listed, Status};

/// Number of files and images that are checked at a time.
const AT_ONCE: usize = 8;
/// How often a check logs its progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
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
    /// How the nodes of each group reach registries, by the name of the group.
    registries: BTreeMap<String, Registries>,
    /// `None` if the cluster has no logins.
    logins: Option<Logins>,
}

pub(super) async fn run(args: &AssetsArgs) -> Result<u8> {
    let store = args.store.options().open()?;
    let assets = read(&store, args).await?;
    let is_unhashed =
        |need: &&Need| need.kind == NeedKind::File && need.sha256.is_none() && !need.is_signing_key;
    let unhashed = assets.needs.keys().filter(is_unhashed);
    if let count @ 1.. = unhashed.count() {
        log::warn!(
            "the SHA-256 of files with - in the list is unknown ({count} files); give the hashes with \
             --asset-hashes FILE"
        );
    }
    let (client, is_check) = (LocationClient::new()?, args.check);
    if is_check {
        let is_checked = |need: &&Need| matches!(need.kind, NeedKind::File | NeedKind::Image);
        log::info!(
            "checking whether the servers have {} files and images",
            assets.needs.keys().filter(is_checked).count()
        );
    }
    let checked = assets.needs.iter().map(|(need, users)| {
        let (assets, store, client) = (&assets, &store, &client);
        async move {
            let check = if is_check { assets.check(need, users, store, client).await } else { None };
            Listed::new(need, users, assets.canonical.get(&need.name), is_check, check)
        }
    });
    let mut checked = stream::iter(checked).buffered(AT_ONCE);
    let mut all = Vec::new();
    let mut told = Instant::now();
    while let Some(listed) = checked.next().await {
        if args.output == Output::Text {
            // A name comes from files of the store, and could otherwise look like more lines.
            output::print_text(&(one_line(&listed.to_string(), usize::MAX) + "\n"))?;
        }
        all.push(listed);
        if told.elapsed() >= PROGRESS_EVERY {
            told = Instant::now();
            log::info!("checked {} of {} lines", all.len(), assets.needs.len());
        }
    }
    if args.output == Output::Json {
        output::print_json(&all)?;
    }
    let count = |status| all.iter().filter(|listed| listed.status() == Some(status)).count();
    match (count(Status::Missing), count(Status::Unknown)) {
        (0, 0) => Ok(exit::CONVERGED),
        (missing, unknown) => {
            log::warn!(
                "files and images that no server has: {missing}; files and images that could not be checked: \
                 {unknown}. See the lines MISSING and UNKNOWN"
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
    let program = program(store, base).await?;
    let mut assets = Assets::default();
    for group in groups {
        let name = group.name.clone();
        let added = assets.add_group(store, base, group, &known, program.as_ref()).await;
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
            .context("finding the cluster's instance groups (or name the groups with --instance-group)")?,
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

/// The version of kops-agent to which nodes may be taken. `None` if the store names none.
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

/// The number of the cluster's version of Kubernetes. The spec may have a URL instead.
fn version(cluster: &Cluster) -> String {
    let version = &cluster.spec.kubernetes_version;
    KubernetesVersion::parse(version).map_or_else(|| version.clone(), |version| version.number())
}

impl Assets {
    async fn add_group(
        &mut self,
        store: &Store,
        base: &str,
        group: Group,
        known: &KnownHashes,
        program: Option<&ProgramFile>,
    ) -> Result<()> {
        let Group { name, mut derivation, .. } = group;
        derivation.learn_hashes(known.clone(), &HashSource::known(), None, store).await?;
        // The derivation itself reports wrong names of downloads.
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

    /// All groups have the same logins.
    fn add_logins(&mut self, spec: &NodeSpec) {
        if let (None, Some(secret)) = (&self.logins, spec.secrets.get(DOCKER_CONFIG)) {
            self.logins = Some(Logins::of_docker_config(secret.expose()));
        }
    }

    /// Asks the servers of a file or an image. `None` for packages, which only a machine's package manager can check.
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
                Some(Check::of(servers_of_file(store, client, urls).await))
            }
            NeedKind::Image => self.check_image(&need.name, users, client).await,
            NeedKind::Package | NeedKind::PackageSource => None,
        }
    }

    /// Asks the registries of an image as each of its groups reaches them. The worst outcome counts.
    async fn check_image(&self, image: &str, users: &Users, client: &LocationClient) -> Option<Check> {
        let is_user = |group: &String| users.groups.is_empty() || users.groups.contains(group);
        let of_users = self.registries.iter().filter(|(group, _)| is_user(group));
        let different: BTreeSet<&Registries> = of_users.map(|(_, registries)| registries).collect();
        let (none, mut worst) = (Logins::default(), None);
        for registries in different {
            let logins = self.logins.as_ref().unwrap_or(&none);
            let check = Check::of(registries.servers_of_image(client, logins, image).await);
            worst = worst.max(Some(check));
        }
        worst
    }
}
