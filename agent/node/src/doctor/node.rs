//! The node that the machine should become, as far as known now: the node decided from the store, or else the last
//! applied state. If both are unknown, the checks use the needs that every node has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use kops_agent_host::Applied;
use kops_agent_plan::doctor::{Outcome, Seen, Service, ServiceKind};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resolve::{KubernetesVersion, NodeConfig};
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, ResourceId};
use kops_agent_process::exit;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::bootstrap_client;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::kops_release::WrittenBy;
use kops_agent_spec::{BootConfig, yaml};
use kops_agent_store::Store;

use super::deadline::{CHECK_TIMEOUT, QUESTION, run_in_thread, with_timeout};
use super::delivered;
use super::services::service;
use crate::failure::exit_code_of;
use crate::options::NodeOptions;
use crate::redaction::error_text;
use crate::{decide, machine, spec};

/// Folders that every node writes to. The folder of programs is missing here, because it depends on the distribution.
const FOLDERS: [&str; 6] =
    ["/var/lib/kubelet", "/var/lib/containerd", "/var/lib/kops-agent", "/var/log", "/etc/kubernetes", "/tmp"];
/// File systems in memory, where a node needs no disk space.
const PASSING: [&str; 4] = ["/run", "/dev", "/proc", "/sys"];
/// The folder of files with kernel parameters.
const SYSCTLS: &str = "/etc/sysctl.d/";
const KUBELET: &str = "/var/lib/kubelet/kubelet.conf";
/// The kernel module for the file systems of containers. containerd uses it, but no file of the node loads it.
const OVERLAY: &str = "overlay";

/// What a node needs from its machine and from servers.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Whether the node runs an API server.
    pub(super) is_control_plane: bool,
    /// The kOps release that wrote the node's configuration.
    pub(super) written_by: Option<WrittenBy>,
    pub(super) kubernetes: Option<KubernetesVersion>,
    pub(super) api_servers: BTreeSet<String>,
    pub(super) downloads: Vec<WantedDownload>,
    /// The folders that the node writes to.
    pub(super) folders: BTreeSet<String>,
    pub(super) modules: BTreeSet<String>,
    /// The contents of files with kernel parameters.
    pub(super) parameters: Vec<String>,
    /// The whole desired state, for the checks of packages and volumes. `None` if it is unknown.
    pub(super) desired: Option<DesiredState>,
    /// A downloaded program that cannot start on this distribution, and the advice about it.
    pub(super) unfit: Option<(String, String)>,
    /// Whether kubelet starts on a machine with swap. `None` if kubelet's configuration is unknown.
    pub(super) allows_swap: Option<bool>,
}

#[derive(Clone, Debug)]
pub(super) struct WantedDownload {
    /// The URLs of the download, in the order of the attempts.
    pub(super) urls: Vec<String>,
    /// Whether the machine already has all files and images of this download.
    pub(super) is_there: bool,
}

/// Determines what the node of this machine needs. Also returns the outcome of reading and checking its configuration.
/// `is_reachable` is false if the configuration comes from kops-controllers and none of them accepts a connection.
pub(super) async fn wanted(
    store: &Store,
    options: &NodeOptions,
    boot: Option<&BootConfig>,
    is_reachable: bool,
    facts: Seen<Facts>,
) -> (Wanted, Vec<Service>) {
    let mut wanted = Wanted {
        is_control_plane: boot.is_some_and(|boot| boot.instance_group_role.runs_api_server()),
        folders: FOLDERS.into_iter().map(str::to_owned).collect(),
        modules: BTreeSet::from([OVERLAY.to_owned()]),
        ..Wanted::default()
    };
    let mut services = Vec::new();
    let Some(boot) = boot else { return (wanted, services) };
    let reads_store = options.source.config_base(boot).is_ok();
    let outcome = match (is_reachable, facts) {
        (true, Ok(facts)) => {
            let within = options.store.timeout + 2 * QUESTION;
            match with_timeout(within, Box::pin(decided(store, options, boot, facts))).await {
                Ok(Ok((node, desired))) => {
                    let unfit = node.container_runtime.unfit_for(node.distribution);
                    wanted.unfit = unfit.map(|(what, advice)| (what, advice.to_owned()));
                    wanted.written_by = Some(node.written_by);
                    wanted.kubernetes = Some(node.kubernetes_version);
                    wanted.add(&desired, &undelivered(options, &desired).await);
                    Outcome::Answers
                }
                Ok(Err(error)) if exit_code_of(&error) == exit::CONFIGURATION => {
                    Outcome::Fails(error_text(&error))
                }
                // kops-controller accepts connections, but serves no configuration to this machine.
                Ok(Err(error)) if !reads_store && !bootstrap_client::is_already_registered(&error) => {
                    Outcome::Fails(error_text(&error))
                }
                // If the store cannot be read, the finding about the store reports why.
                Ok(Err(error)) => Outcome::Unknown(error_text(&error)),
                Err(why) => Outcome::Unknown(why.into()),
            }
        }
        (true, Err(why)) => Outcome::Unknown(why.into()),
        (false, _) => Outcome::Unknown(
            "no kops-controller, which gives this machine its configuration, can be reached".to_owned(),
        ),
    };
    if outcome != Outcome::Answers
        && let Some(applied) = last_applied(&options.source.node_root)
    {
        let desired = applied.desired();
        wanted.add(&desired, &undelivered(options, &desired).await);
        wanted.written_by = applied.written_by;
    }
    let name = format!("{} in {}", boot.instance_group_name, boot.cluster_name);
    services.push(service(ServiceKind::Configuration, &name, outcome));
    (wanted, services)
}

async fn decided(
    store: &Store,
    options: &NodeOptions,
    boot: &BootConfig,
    facts: Facts,
) -> Result<(NodeConfig, DesiredState)> {
    let before = machine::before(&options.source.node_root)?;
    let hashes = HashSource::offline_with(machine::remembered_hashes(&options.source.node_root)?);
    let followed = spec::followed(&options.source.node_root, &facts)?;
    let boot = Followed::in_effect(followed.as_ref(), boot, &options.source.follow).clone();
    let spec = spec::read_of(store, options, boot, facts, hashes, &before).await?;
    let node = decide::resolve(spec)?;
    let desired = decide::desired(&node)?;
    Ok((node, desired))
}

/// The files and images that a converge would download. Returns all resources if the machine cannot be examined.
async fn undelivered(options: &NodeOptions, desired: &DesiredState) -> BTreeSet<ResourceId> {
    let (root, all) = (options.source.node_root.clone(), desired.clone());
    let find = move || delivered::undelivered(&machine::open(&root).ok()?, &all).ok();
    let seen = run_in_thread(CHECK_TIMEOUT, find).await;
    seen.ok().flatten().unwrap_or_else(|| desired.iter().map(|(id, _)| id.clone()).collect())
}

/// The last applied state. `None` if it cannot be read.
fn last_applied(root: &Path) -> Option<Applied> {
    machine::open(root).ok()?.applied().ok()?
}

impl Wanted {
    fn add(&mut self, desired: &DesiredState, undelivered: &BTreeSet<ResourceId>) {
        let mut downloads: BTreeMap<Vec<String>, bool> = BTreeMap::new();
        let mut add = |urls, id| *downloads.entry(urls).or_insert(true) &= !undelivered.contains(id);
        for (id, resource) in desired.iter() {
            match resource {
                Resource::File(file) => {
                    self.add_file(file);
                    if let Content::Asset(asset) = &file.content {
                        let urls = [&asset.url].into_iter().chain(&asset.mirrors).cloned().collect();
                        add(urls, id);
                    }
                }
                Resource::Directory(directory) => self.add_folder(&directory.path),
                Resource::KernelModule(module) => {
                    self.modules.insert(module.name.clone());
                }
                Resource::Image(image) if !image.sources.is_empty() => add(image.sources.clone(), id),
                _ => {}
            }
        }
        let downloads = downloads.into_iter().map(|(urls, is_there)| WantedDownload { urls, is_there });
        self.downloads.extend(downloads);
        self.desired = Some(desired.clone());
    }

    fn add_file(&mut self, file: &File) {
        let folder = file.path.rsplit_once('/').map_or("/", |(folder, _)| folder);
        self.add_folder(folder);
        match &file.content {
            Content::Text(text) if file.path.starts_with(SYSCTLS) => self.parameters.push(text.clone()),
            Content::Text(text) if file.path == KUBELET => {
                let configuration: Option<serde_json::Value> = yaml::from_str(text).ok();
                self.allows_swap =
                    configuration.map(|fields| fields["failSwapOn"] == serde_json::Value::Bool(false));
            }
            Content::Kubeconfig(kubeconfig) => {
                self.api_servers.insert(kubeconfig.server.clone());
            }
            _ => {}
        }
    }

    fn add_folder(&mut self, folder: &str) {
        let is_passing = PASSING.iter().any(|passing| {
            folder.strip_prefix(passing).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if !is_passing {
            self.folders.insert(folder.to_owned());
        }
    }
}
