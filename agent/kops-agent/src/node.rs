//! Node mode, top to bottom.
//!
//! `render` stops after deciding, `plan` after comparing, `converge` goes on: one way with different ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kops_agent_host::{Applied, Downloads, Host, Lock, Patience, Report, Scope, Sources};
use kops_agent_net::Buckets;
use kops_agent_plan::desired;
use kops_agent_plan::diff::{Observed, Plan, diff_with_owned, with_labels};
use kops_agent_plan::facts::Facts;
use kops_agent_plan::go_yaml;
use kops_agent_plan::lifecycle_action;
use kops_agent_plan::resolve::{self, NodeConfig, Problems};
use kops_agent_plan::resource::{Conflict, DesiredState, Kind};
use kops_agent_plan::spec::{BootConfig, NodeupConfig};

use crate::bootstrap_client::KopsController;
use crate::certificates::with_certificates;
use crate::cli::{RootArgs, SpecArgs, StoreArgs};
use crate::cloud::RememberedFacts;
use crate::environment::Environment;
use crate::hashes::HashSource;
use crate::materials::Materials;
use crate::progress::Watch;
use crate::retry::Retries;
use crate::source::{Before, Denied, NodeSpec, Origin};
use crate::store::Store;
use crate::{cloud, controller_service, facts, http, remembered, service_manager, source};

/// How often a lock is tried that another run holds.
const LOCK_POLL: Duration = Duration::from_millis(500);

/// A node, decided.
#[derive(Debug)]
pub struct Decision {
    /// What it must have.
    pub desired: DesiredState,
    /// The keys and secrets that this refers to.
    pub materials: Materials,
    /// Who issues the certificates that this machine cannot.
    pub kops_controller: KopsController,
    /// `NodeupConfigHash` of the configuration that it follows from.
    pub config_hash: String,
    /// The hashes of downloads that were told, by URL, so that nobody has to be asked again.
    pub known_hashes: BTreeMap<String, String>,
    /// What a later run need not ask the cloud again; `None` where a file said what is observed.
    pub remembered: Option<RememberedFacts>,
    /// The range of IPv6 addresses that the cloud has given this machine for its pods; empty where it has given none.
    pub ipv6_prefix: String,
    /// Where it was read, and where its downloads may be too.
    pub store: Arc<Store>,
    /// Whether it is what was last applied, because what is wanted now is not known or may not be applied.
    pub is_last_applied: bool,
    /// Where its keys and secrets are read.
    pub sources: Sources,
    /// The cluster, and the instance group.
    pub names: [String; 2],
    /// The machine that it is for ([`Facts::machine`]).
    pub machine: String,
    /// Whether the cluster spec gave the configuration that the user-data pins, byte for byte.
    pub is_proven: bool,
}

/// Steps 1 to 5: boot config, facts, store, resolve, desired. Below `root` is what earlier runs have left.
///
/// # Errors
/// Whatever of it cannot be read, and everything that is wrong with the configuration.
pub async fn decide(args: &SpecArgs, root: &Path, hashes: HashSource, before: &Before) -> Result<Decision> {
    service_manager::doing("reading what the cluster wants of this node");
    let store = Arc::new(store(&args.store)?);
    let spec = spec(&store, args, root, hashes, before).await?;
    let (known_hashes, is_proven) = (spec.origin.known_hashes(), spec.origin.is_proven());
    let sources = spec.sources.clone();
    let role = spec.inputs.boot.instance_group_role;
    let environment = Environment::of_machine(&args.node_root).of_role(role);
    let materials = Materials::new(&spec).with_environment(environment.clone());
    let aws = spec.inputs.facts.cloud.aws.as_ref();
    let facts = spec.inputs.facts.clone();
    let ipv6_prefix = aws.map(|aws| aws.ipv6_prefix.clone()).unwrap_or_default();
    let node = resolve(spec)?;
    // An instance that a file tells of may be another one, for which this machine has nothing to say.
    let remembered =
        args.facts.is_none().then(|| remembered::read(root).with(&facts, lifecycle_action::of_node(&node)));
    let desired = match node.is_control_plane() && controller_service::is_wanted(args, &environment)? {
        true => {
            let service = controller_service::read(&store, &source::config_base(args, &node.boot)?).await?;
            desired::desired_with_controller(&node, &service).map_err(contradictory)
        }
        false => desired(&node),
    }
    .map_err(wrong)?;
    let authorities = node.config.cas.get(resolve::KUBERNETES_CA).map(String::as_str);
    let patience = store.retries().deadline;
    let kops_controller =
        KopsController::of(&node.boot, authorities, &facts, patience).for_node_at(&args.node_root);
    let config_hash = match node.boot.nodeup_config_hash.as_str() {
        "" => NodeupConfig::hash(go_yaml::to_string(&node.config).as_bytes()),
        pinned => pinned.to_owned(),
    };
    log::debug!("{} is a {} of {}", node.node_name, node.boot.instance_group_role, node.cluster_name());
    let names = [node.boot.cluster_name.clone(), node.boot.instance_group_name.clone()];
    let is_last_applied = false;
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
        machine: facts.machine(),
        is_proven,
    })
}

/// Steps 1 to 3: boot config, facts, store; and the facts that are worth asking for only now. Below `root` is what earlier
/// runs have left.
///
/// # Errors
/// Whatever of it cannot be read.
pub async fn spec(
    store: &Store,
    args: &SpecArgs,
    root: &Path,
    hashes: HashSource,
    before: &Before,
) -> Result<NodeSpec> {
    let boot = boot_config(&args.conf)?;
    let facts = facts(args, &boot).await?;
    let mut spec = source::read(store, args, boot, facts, hashes, before).await?;
    if args.facts.is_none() {
        cloud::complete(&mut spec.inputs, &remembered::read(root)).await?;
    }
    Ok(spec)
}

/// The same of this machine, to be shown only: no publisher is asked.
///
/// # Errors
/// As [`spec`].
pub async fn spec_to_show(args: &SpecArgs) -> Result<NodeSpec> {
    spec(&store(&args.store)?, args, Path::new("/"), HashSource::known(), &Before::default()).await
}

/// The state store.
///
/// # Errors
/// If a mirror is given wrongly.
pub fn store(args: &StoreArgs) -> Result<Store> {
    let patience = Retries { deadline: Duration::from_secs(args.store_patience), ..Retries::default() };
    Ok(Store::new(&args.store_mirror)?.with_retries(patience))
}

/// Step 4: everything that is wrong with the cluster spec and with this node, or the node's configuration.
///
/// # Errors
/// All of it at once. Where this machine may not read what it cannot do without, it is that which is wrong.
pub fn resolve(spec: NodeSpec) -> Result<NodeConfig> {
    let mut problems = spec.problems;
    let Denied { keysets, secrets, files: _ } = spec.denied;
    // A worker may not read keysets, and needs none but to derive its configuration.
    let needs_keysets = spec.inputs.boot.instance_group_role.runs_api_server()
        || matches!(spec.origin, Origin::ClusterSpec(_));
    let denied: Vec<String> = match needs_keysets {
        true => keysets.into_values().chain(secrets.into_values()).collect(),
        false => Vec::new(),
    };
    match resolve::resolve(spec.inputs) {
        Ok(node) if problems.is_empty() => return Ok(node),
        Ok(_) => {}
        Err(more) => problems.extend(more),
    }
    if denied.is_empty() {
        return Err(wrong(problems));
    }
    bail!(
        "this node cannot be decided without files of the state store that this machine may not read now:\n  {}\n\
         Without them: {problems}",
        denied.join("\n  ")
    )
}

/// Steps 6 and 7: what would change on the machine.
///
/// # Errors
/// What cannot be observed.
pub fn plan(host: &Host, decision: &Decision) -> Result<Plan> {
    plan_with(host, decision, &decision.materials)
}

/// The same, with other keys and secrets.
///
/// # Errors
/// As [`plan`].
pub fn plan_with(host: &Host, decision: &Decision, materials: &Materials) -> Result<Plan> {
    service_manager::doing("observing this machine");
    let mut observed = host.observe(&decision.desired, materials).context("observing this machine")?;
    for (id, resource) in decision.desired.iter().filter(|(id, _)| id.kind == Kind::Ipv6Prefix) {
        if !decision.ipv6_prefix.is_empty() {
            observed.insert(id.clone(), Observed::Resource(resource.clone()));
        }
    }
    let owned = host.owned_beside(&decision.desired).context("observing what earlier runs left")?;
    let labels =
        host.wrong_labels(&decision.desired).context("observing the SELinux labels of this machine")?;
    let adoptable = host.adoptable(&decision.desired).context("observing what may be adopted")?;
    let plan = diff_with_owned(&decision.desired, &observed, &owned).adopting(adoptable);
    Ok(with_labels(plan, &labels))
}

/// Steps 6 to 8, until nothing is left to do.
///
/// # Errors
/// What could not be done; the machine is then as the report of the next run shows it.
pub async fn converge(args: &RootArgs, host: &Host, decision: &Decision) -> Result<Report> {
    let _lock = lock(args.waits_for_lock, host).await?;
    let watch = Watch::new();
    if let Some(rolled_back) = host.finish_rollback(&watch).await.context("going on to roll back a change")? {
        log::warn!("a run was interrupted while it rolled back a change; that is done now: {rolled_back}");
    }
    let patience =
        Patience { give_up_after: Duration::from_secs(args.download_patience), ..Patience::default() };
    let downloads = Downloads::new(http::client()?)
        .cache(host_path(args))
        .buckets(Arc::clone(&decision.store) as Arc<dyn Buckets>)
        .patience(patience);
    host.recognize_programs(&decision.desired, &downloads, &watch).await.context("recognizing programs")?;
    let plan = plan(host, decision)?;
    let (plan, materials) = with_certificates(host, decision, plan).await?;
    let config_hash = decision.config_hash.as_str();
    let scope = match decision.is_last_applied {
        true => Scope::LastApplied { config_hash },
        false => Scope::Node {
            config_hash,
            known_hashes: &decision.known_hashes,
            without: decision.materials.denied_files(),
        },
    };
    let applied = Applied::of(
        &decision.names[0],
        &decision.names[1],
        config_hash,
        decision.sources.clone(),
        &decision.desired,
        &materials,
    );
    let applied = applied.to_machine(decision.machine.clone()).proven(decision.is_proven);
    if !decision.is_last_applied && !plan.is_empty() {
        host.keep_begun(&applied).context("keeping what is about to be applied")?;
    }
    let outcome = host.apply(&plan, &decision.desired, &materials, &downloads, &watch, scope).await;
    // Where only units failed on which no pod depends everything else is as it was wanted.
    let is_applied = outcome.as_ref().map_or_else(kops_agent_host::Error::leaves_a_working_node, |_| true);
    if is_applied && !decision.is_last_applied {
        host.keep_applied(&applied).context("keeping what was applied")?;
    }
    Ok(outcome?)
}

/// Keeps other runs away from the machine.
///
/// # Errors
/// Another is at work, unless that is to be waited for.
pub(crate) async fn lock(is_waited_for: bool, host: &Host) -> Result<Lock> {
    let mut is_told = false;
    loop {
        match host.lock() {
            Err(locked @ kops_agent_host::Error::Locked { .. }) if is_waited_for => {
                if !std::mem::replace(&mut is_told, true) {
                    log::info!("waiting for another run: {locked}");
                }
                service_manager::doing(format_args!("waiting for another run: {locked}"));
                tokio::time::sleep(LOCK_POLL).await;
            }
            lock => return Ok(lock?),
        }
    }
}

/// The boot config in this file.
///
/// # Errors
/// If it cannot be read, or there is none in it.
pub fn boot_config(path: &Path) -> Result<BootConfig> {
    let bytes = std::fs::read(path).with_context(|| format!("reading the boot config {}", path.display()))?;
    Ok(BootConfig::from_user_data(&bytes)?)
}

pub(crate) async fn facts(args: &SpecArgs, boot: &BootConfig) -> Result<Facts> {
    match &args.facts {
        Some(file) => facts::load(file),
        None => facts::observe(Path::new("/"), Some(boot.cloud_provider))
            .await
            .context("finding out what this machine is (--facts FILE says it in its place)"),
    }
}

/// The cache's place below the root.
fn host_path(args: &RootArgs) -> PathBuf {
    args.root.join(args.cache.strip_prefix("/").unwrap_or(&args.cache))
}

fn wrong(problems: Problems) -> anyhow::Error {
    anyhow::Error::new(problems).context("the configuration of this node is wrong")
}

/// Step 5: what this node must have.
///
/// # Errors
/// What is described twice.
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
