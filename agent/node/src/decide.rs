//! Steps 4 and 5 of node mode, with all steps before them: decides the node and everything that it must have.

use std::collections::BTreeMap;
use std::sync::Arc;

use std::path::Path;

use anyhow::Result;
use kops_agent_cloud::RememberedFacts;
use kops_agent_cluster::lifecycle_action;
use kops_agent_cluster::pacing::Versions;
use kops_agent_host::{Mark, Sources};
use kops_agent_plan::desired::{FollowService, Services};
use kops_agent_plan::following::Followed;
use kops_agent_plan::resolve::{self, NodeConfig, Problems};
use kops_agent_plan::resource::{Conflict, DesiredState};
use kops_agent_plan::{desired, supposed};
use kops_agent_process::service_manager;
use kops_agent_source::asset_hashes::HashSource;
use kops_agent_source::bootstrap_client::KopsController;
use kops_agent_spec::InstanceGroupSpec;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::kops_release::WrittenBy;
use kops_agent_store::Store;

use super::environment::Environment;
use super::machine::{left_by, mark};
use super::materials::Materials;
use super::options::NodeOptions;
use super::own_services::{ADDONS, CONTROLLER, FOLLOW, OwnService};
use super::service_program::ServiceProgram;
use super::{addons_service, controller_service, remembered, spec, upkeep};
use kops_agent_source::{Before, Denied, NodeSpec, Origin};

#[derive(Debug)]
pub struct Decision {
    pub desired: DesiredState,
    /// The keys and secrets for the desired state.
    pub materials: Materials,
    /// The issuer of certificates that this machine cannot sign itself.
    pub kops_controller: KopsController,
    /// The `NodeupConfigHash` of the configuration.
    pub config_hash: String,
    /// The known hashes of downloads, by URL. With them, a later run need not ask the publishers.
    pub known_hashes: BTreeMap<String, String>,
    /// Facts that a later run need not request from the cloud. `None` if the facts came from a file.
    pub remembered: Option<RememberedFacts>,
    /// The range of IPv6 addresses for pods that the cloud has assigned to this machine. Empty if there is none.
    pub ipv6_prefix: String,
    /// The state store. It also locates downloads in buckets.
    pub store: Arc<Store>,
    /// Whether this is the last applied state. It is used if the wanted state is unknown or may not be applied.
    pub is_last_applied: bool,
    /// The store's folders of keys and secrets.
    pub sources: Sources,
    /// The names of the cluster and of the instance group.
    pub names: [String; 2],
    pub facts: Facts,
    /// Whether the configuration was derived from the cluster spec, and equals byte for byte the configuration that the
    /// user-data pins by its hash.
    pub is_proven: bool,
    /// The kOps release that wrote the configuration. `None` if an older kops-agent applied it and did not record the
    /// release.
    pub written_by: Option<WrittenBy>,
    /// The boot config that this node follows. `None` if the node uses the boot config in its user-data.
    pub followed: Option<Followed>,
    /// The versions of components whose upgrade may drain the node. Empty for the last applied state.
    pub versions: Versions,
    /// Identifies the version of the record when this decision began. If the record has a different mark later, another
    /// run has changed the machine.
    pub mark: Mark,
}

/// Steps 1 to 5 of node mode: boot config, facts, store, resolve, desired. If the configuration is wrong, the error
/// lists all mistakes.
pub async fn decide(options: &NodeOptions, hashes: HashSource, before: &Before) -> Result<Decision> {
    decided(options, hashes, before, resolve).await
}

/// Like [`decide`], but for commands that only describe the node. They only warn of mistakes that prevent a machine
/// from becoming this node.
pub async fn describe(options: &NodeOptions, hashes: HashSource) -> Result<Decision> {
    decided(options, hashes, &Before::Nothing, described).await
}

async fn decided(
    options: &NodeOptions,
    hashes: HashSource,
    before: &Before,
    resolve: fn(NodeSpec) -> Result<NodeConfig>,
) -> Result<Decision> {
    service_manager::doing("reading what the cluster wants of this node");
    let mark = mark(&options.source.node_root)?;
    let store = Arc::new(options.store.open()?);
    let spec = spec::read(&store, options, hashes, before).await?;
    let (known_hashes, is_proven) = (spec.origin.known_hashes(), spec.origin.is_proven());
    let sources = Sources { keysets: spec.keysets.clone(), secrets: spec.secret_files.clone() };
    let (followed, config_hash) = (spec.followed.clone(), spec.config_hash.clone());
    let node_root = options.source.node_root.as_path();
    let role = spec.inputs.boot.instance_group_role;
    let environment = Environment::of_machine(node_root).of_role(role);
    let materials = Materials::new(&spec).with_environment(environment.clone());
    let facts = spec.inputs.facts.clone();
    let ipv6_prefix = facts.cloud.ipv6_prefix().to_owned();
    let node = resolve(spec)?;
    for warning in node.refusals.iter().chain(&node.warnings) {
        log::warn!("{warning}");
    }
    if node.container_runtime.uses_driver_of_image(node.distribution) {
        log::info!(
            "pods use the GPU through the image's own NVIDIA driver and /usr/bin/nvidia-container-runtime; kops-agent installs neither"
        );
    }
    let held_action = lifecycle_action::of_node(&node.boot, &node.config, &node.facts.cloud);
    // A file of facts may describe another instance. So its facts are not saved for this machine.
    let remembered = options.facts.is_none().then(|| remembered::read(node_root).with(&facts, held_action));
    let is_wanted = |service: OwnService, is_asked_for| -> Result<bool> {
        Ok(node.is_control_plane() && service.is_wanted(is_asked_for, node_root, &environment)?)
    };
    let program = ServiceProgram::of_machine(node_root)?;
    let controller = match is_wanted(CONTROLLER, options.controller)? {
        true => {
            let base = options.source.config_base(&node.boot)?;
            Some(controller_service::read(&store, &base, &program.path).await?)
        }
        false => None,
    };
    let addons = match is_wanted(ADDONS, options.addons)? {
        true => Some(addons_service::read(&node, &program.path)?),
        false => None,
    };
    let follow = match FOLLOW.is_wanted(options.rollouts, node_root, &environment)? {
        true => Some(follow_service(&options.source.conf, &program.path)?),
        false => None,
    };
    let upkeep = upkeep::of_machine(node_root, &options.source.conf, &environment)?;
    let services = Services {
        controller: controller.as_ref(),
        addons: addons.as_ref(),
        follow: follow.as_ref(),
        upkeep: upkeep.as_ref(),
    };
    let mut desired = desired::desired_with(&node, services).map_err(contradictory).map_err(wrong)?;
    program.keep_units(&mut desired);
    for archive in desired.assumed_archives().keys() {
        log::debug!(
            "the archive with SHA-256 {archive} is not downloaded yet; this run assumes the files that its release has"
        );
    }
    let authorities = node.config.cas.get(resolve::KUBERNETES_CA).map(String::as_str);
    let timeout = store.retries().deadline;
    let kops_controller = KopsController::new(&node.boot, authorities, &facts, timeout)
        .for_node_at(node_root)
        .with_files_left_by(left_by(node_root, &facts));
    log::debug!("{} is a {} of {}", node.node_name, node.boot.instance_group_role, node.cluster_name());
    let names = [node.boot.cluster_name.clone(), node.boot.instance_group_name.clone()];
    let (versions, is_last_applied) = (versions(&node), false);
    Ok(Decision {
        desired,
        materials,
        kops_controller,
        config_hash,
        known_hashes,
        remembered,
        ipv6_prefix,
        store,
        is_last_applied,
        sources,
        names,
        facts,
        is_proven,
        written_by: Some(node.written_by),
        followed,
        versions,
        mark,
    })
}

/// The service that follows rollouts. Fails if the boot config is a URL or a relative path, because the service
/// cannot read it.
fn follow_service(conf: &Path, program: &Path) -> Result<FollowService> {
    if !conf.is_absolute() {
        return Err(Failure::new(Kind::WrongSetting, format!(
            "{} needs the boot config as a file with an absolute path, but --conf is {}; give --conf such a \
             file, or set {}=false",
            FOLLOW.flag,
            conf.display(),
            FOLLOW.variable
        ))
        .into());
    }
    Ok(FollowService { program: program.display().to_string(), conf: conf.display().to_string() })
}

/// The version of kubelet, and the version of containerd if the agent installs containerd.
fn versions(node: &NodeConfig) -> Versions {
    let containerd = &node.container_runtime;
    let version = containerd.release.as_ref().and(containerd.config.version.clone());
    Versions { kubelet: node.kubernetes_version.number(), containerd: version.unwrap_or_default() }
}

/// Step 4 of node mode: resolves the configuration of the node. The error lists all mistakes in the cluster spec and
/// in the configuration of this node. It also names needed files that this machine may not read.
pub fn resolve(spec: NodeSpec) -> Result<NodeConfig> {
    let node = described(spec)?;
    if node.refusals.is_empty() {
        return Ok(node);
    }
    let mut problems = Problems::default();
    problems.add_all(&node.refusals);
    problems.add_warnings(&node.warnings);
    Err(wrong(problems))
}

/// Like [`resolve()`], but for commands that only describe the node.
fn described(spec: NodeSpec) -> Result<NodeConfig> {
    let denied = needed_but_denied(&spec);
    let mut problems = spec.problems;
    match resolve::resolve(spec.inputs) {
        Ok(mut node) if problems.is_empty() => {
            problems.add_warnings(&node.warnings);
            node.warnings = problems.warnings().to_vec();
            return Ok(node);
        }
        Ok(node) => {
            problems.add_all(&node.refusals);
            problems.add_warnings(&node.warnings);
        }
        Err(more) => problems.extend(more),
    }
    Err(refused(problems, &denied))
}

/// The mistakes for every possible machine of the group. A mistake that only some of the possible machines have is a
/// warning. Fails if both are true: there are mistakes, and this machine may not read a file that the desired state
/// depends on.
pub fn check_on_any_machine(spec: NodeSpec) -> Result<Problems> {
    let (problems, denied) = on_each_machine(spec, &mut |_, _| {});
    match problems.is_empty() || denied.is_empty() {
        true => Ok(problems),
        false => Err(refused(problems, &denied)),
    }
}

/// Calls `take` with each possible machine of the group and its desired state. A machine that rejects the
/// configuration is left out, and a returned warning gives the reason. Fails if the cluster spec is wrong, or if
/// every machine rejects the configuration.
pub fn each_possible_machine(
    spec: NodeSpec,
    mut take: impl FnMut(&NodeConfig, &DesiredState),
) -> Result<Problems> {
    let (problems, denied) = on_each_machine(spec, &mut take);
    if problems.is_empty() { Ok(problems) } else { Err(refused(problems, &denied)) }
}

/// Derives the desired state of each possible machine of the group, and calls `take` with the machines that have no
/// mistakes. Returns the mistakes as in [`check_on_any_machine`]. Also returns one reason for each needed file that this
/// machine is not allowed to read now.
fn on_each_machine(
    spec: NodeSpec,
    take: &mut dyn FnMut(&NodeConfig, &DesiredState),
) -> (Problems, Vec<String>) {
    let denied = needed_but_denied(&spec);
    let NodeSpec { inputs, mut problems, origin, .. } = spec;
    let group = match origin {
        Origin::ClusterSpec(derivation) => derivation.files.group.spec,
        Origin::NodeupConfig(_) => InstanceGroupSpec::default(),
    };
    let check = |(facts, resolved): (Facts, Result<NodeConfig, Problems>)| {
        let mut found = Problems::default();
        match resolved {
            Ok(node) => {
                found.add_warnings(&node.warnings);
                found.add_all(&node.refusals);
                // The list of problems is full, so the desired state need not be checked.
                if found.has_more() {
                    return (facts, found);
                }
                match desired(&node) {
                    Ok(state) if found.is_empty() => take(&node, &state),
                    Ok(_) => {}
                    Err(conflicts) => found.extend(conflicts),
                }
            }
            Err(problems) => found = problems,
        }
        (facts, found)
    };
    if let Some(WrittenBy { release, .. }) = problems.keep("kops-version.txt", inputs.written_by()) {
        let machines = supposed::machines(inputs.boot.cloud_provider, release, &group);
        let told: Vec<(Facts, Problems)> = resolve::resolve_each(&inputs, machines).map(check).collect();
        problems.extend(supposed::merged(&told));
    }
    (problems, denied)
}

/// One reason for each file that the desired state depends on and that this machine may not read now.
fn needed_but_denied(spec: &NodeSpec) -> Vec<String> {
    let Denied { keysets, secrets, files: _ } = &spec.denied;
    // A worker may not read keysets, but needs them only if it derives its configuration.
    let needs_keysets = spec.inputs.boot.instance_group_role.runs_api_server()
        || matches!(spec.origin, Origin::ClusterSpec(_));
    match needs_keysets {
        true => keysets.values().chain(secrets.values()).cloned().collect(),
        false => Vec::new(),
    }
}

fn refused(problems: Problems, denied: &[String]) -> anyhow::Error {
    if denied.is_empty() {
        return wrong(problems);
    }
    let problem = format!(
        "cannot determine this node's configuration, because it depends on files of the state store that \
         this machine may not read now:\n  {}\nWithout these files, the configuration has these problems: \
         {problems}",
        denied.join("\n  ")
    );
    Failure::new(Kind::StoreForbidden, problem).into()
}

fn wrong(problems: Problems) -> anyhow::Error {
    anyhow::Error::new(problems).context("the configuration of this node is wrong")
}

/// Step 5 of node mode: derives everything that the node must have. Fails if a resource has two descriptions.
pub fn desired(node: &NodeConfig) -> Result<DesiredState, Problems> {
    desired::desired(node).map_err(contradictory)
}

fn contradictory(conflicts: Vec<Conflict>) -> Problems {
    let mut problems = Problems::default();
    for conflict in conflicts {
        problems.add("", conflict.to_string());
    }
    problems
}
