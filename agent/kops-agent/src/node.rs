//! Node mode, top to bottom.
//!
//! `render` stops after deciding, `plan` after comparing, `converge` goes on: one way with different ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use kops_agent_host::{Buckets, Downloads, Host, Patience, Report};
use kops_agent_plan::desired::desired;
use kops_agent_plan::diff::{Plan, diff};
use kops_agent_plan::facts::Facts;
use kops_agent_plan::resolve::{self, Problems};
use kops_agent_plan::resource::DesiredState;
use kops_agent_plan::spec::BootConfig;

use crate::cli::{ConvergeArgs, RootArgs, SpecArgs};
use crate::hashes::HashSource;
use crate::materials::Materials;
use crate::progress::Watch;
use crate::retry::Retries;
use crate::store::Store;
use crate::{cloud, http, source};

/// A node, decided.
#[derive(Debug)]
pub struct Decision {
    /// What it must have.
    pub desired: DesiredState,
    /// The keys and secrets that this refers to.
    pub materials: Materials,
    /// Where it was read, and where its downloads may be too.
    pub store: Arc<Store>,
}

/// Steps 1 to 5: boot config, facts, store, resolve, desired.
///
/// # Errors
/// Whatever of it cannot be read, and everything that is wrong with the configuration.
pub async fn decide(args: &SpecArgs, hashes: HashSource) -> Result<Decision> {
    let boot = boot_config(&args.conf)?;
    let facts = facts(args, &boot).await?;
    let patience = Retries { deadline: Duration::from_secs(args.store_patience), ..Retries::default() };
    let store = Store::new(&args.store_mirror)?.with_retries(patience);
    let spec = source::read(&store, args, boot, facts, hashes).await?;

    let materials = Materials::new(&spec);
    let node = resolve::resolve(spec.inputs).context("the configuration of this node is wrong")?;
    let desired = desired(&node).map_err(conflicts)?;
    log::debug!("{} is a {} of {}", node.node_name, node.boot.instance_group_role, node.cluster_name());
    Ok(Decision { desired, materials, store: Arc::new(store) })
}

/// Steps 6 and 7: what would change on the machine.
///
/// # Errors
/// What cannot be observed.
pub fn plan(host: &Host, decision: &Decision) -> Result<Plan> {
    let observed = host.observe(&decision.desired, &decision.materials).context("observing this machine")?;
    Ok(diff(&decision.desired, &observed))
}

/// Steps 6 to 8, until nothing is left to do.
///
/// # Errors
/// What could not be done; the machine is then as the report of the next run shows it.
pub async fn converge(args: &ConvergeArgs, host: &Host, decision: &Decision) -> Result<Report> {
    let _lock = host.lock()?;
    let plan = plan(host, decision)?;
    let patience =
        Patience { give_up_after: Duration::from_secs(args.download_patience), ..Patience::default() };
    let downloads = Downloads::new(http::client()?)
        .cache(host_path(&args.root))
        .buckets(Arc::clone(&decision.store) as Arc<dyn Buckets>)
        .patience(patience);
    Ok(host.apply(&plan, &decision.desired, &decision.materials, &downloads, &Watch::new()).await?)
}

/// The boot config in this file.
///
/// # Errors
/// If it cannot be read, or there is none in it.
pub fn boot_config(path: &Path) -> Result<BootConfig> {
    let bytes = std::fs::read(path).with_context(|| format!("reading the boot config {}", path.display()))?;
    Ok(BootConfig::from_user_data(&bytes)?)
}

async fn facts(args: &SpecArgs, boot: &BootConfig) -> Result<Facts> {
    match &args.facts {
        Some(file) => cloud::load_facts(file),
        None => cloud::observe(Path::new("/"), Some(boot.cloud_provider)).await,
    }
}

/// The cache's place below the root.
fn host_path(args: &RootArgs) -> PathBuf {
    args.root.join(args.cache.strip_prefix("/").unwrap_or(&args.cache))
}

fn conflicts(conflicts: Vec<kops_agent_plan::resource::Conflict>) -> anyhow::Error {
    let mut problems = Problems::default();
    for conflict in conflicts {
        problems.add("", conflict.to_string());
    }
    anyhow::Error::new(problems).context("the configuration of this node is wrong")
}
