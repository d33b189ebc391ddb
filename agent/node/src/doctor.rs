//! The checks of `kops-agent doctor`. They run concurrently, each with a deadline, and change nothing.
//! [`kops_agent_plan::doctor`] decides which findings follow from them.
//!
//! First come the sources that decide a node, then the things that the node needs: names, downloads, disk space.

mod clock;
pub mod deadline;
mod delivered;
mod downloads;
pub(crate) mod early_warnings;
mod machine;
mod names;
mod node;
mod registries;
mod services;

use std::collections::BTreeMap;

use anyhow::Result;
use kops_agent_plan::doctor::{Clock, Download, Observations, Outcome, Purpose};
use kops_agent_spec::BootConfig;
use kops_agent_store::Store;
use tokio::join;

use crate::machine::must_exist;
use crate::options::NodeOptions;
use kops_agent_source::boot_config;

use deadline::CHECK_TIMEOUT;
use downloads::CheckedDownload;
pub use downloads::servers_of_file;
use node::Wanted;
pub use registries::{Logins, Registries};

pub async fn examine(options: &NodeOptions) -> Result<Observations> {
    must_exist(&options.source.node_root)?;
    let store = options.store.open()?;
    let boot = boot_config(&options.source.conf, &options.store).await;
    let mut services = vec![services::boot_config(&options.source.conf, &boot)];
    let boot = boot.ok();
    let base = boot.as_ref().and_then(|boot| options.source.config_base(boot).ok());
    let (of_store, of_cloud, of_servers) = join!(
        services::store(&store, base.as_deref(), boot.as_ref(), options),
        services::metadata(boot.as_ref(), options),
        services::kops_controllers(boot.as_ref(), base.is_some()),
    );
    let (of_cloud, facts) = of_cloud;
    // A boot config without kops-controllers means that the configuration comes from the store. If there is no store
    // either, `node::wanted` reports that.
    let is_reachable =
        of_servers.is_empty() || of_servers.iter().any(|server| server.outcome == Outcome::Answers);
    services.extend(of_store.into_iter().chain(of_cloud).chain(of_servers));
    let wanted = Box::pin(node::wanted(&store, options, boot.as_ref(), is_reachable, facts));
    let (wanted, decided) = wanted.await;
    services.extend(decided);

    let names = names(&store, boot.as_ref(), base.as_deref(), &wanted).await;
    let (names, asked, of_store, seen, packages, volumes, is_synchronized) = join!(
        names::lookup(names),
        downloads::ask(&store, &wanted.downloads),
        clock::of_store(&store, base.as_deref()),
        machine::examine(options, &wanted),
        machine::packages(options, &wanted),
        machine::volumes(options, &wanted),
        machine::is_clock_synchronized(options.is_this_machine(), CHECK_TIMEOUT),
    );
    let (downloads, clock, sizes) = together(asked, of_store);
    let disks = machine::disks(options, &wanted, sizes).await;
    Ok(Observations {
        is_control_plane: wanted.is_control_plane,
        written_by: wanted.written_by,
        kubernetes: wanted.kubernetes,
        services,
        names,
        downloads,
        clock: Clock { servers: clock, is_synchronized },
        disks,
        volumes,
        listeners: seen.listeners,
        kernel: seen.kernel,
        packages,
        machine: seen.machine,
    })
}

/// Returns the downloads, the clock offset of each server in seconds (positive if the server is ahead), and the sizes
/// of missing downloads by URL.
#[allow(clippy::type_complexity)]
fn together(
    asked: Vec<CheckedDownload>,
    of_store: Option<(String, i64)>,
) -> (Vec<Download>, Vec<(String, i64)>, BTreeMap<String, u64>) {
    let mut clocks: BTreeMap<String, i64> = of_store.into_iter().collect();
    let mut sizes = BTreeMap::new();
    let mut downloads = Vec::new();
    for CheckedDownload { url, download, size, clocks: of_servers } in asked {
        clocks.extend(of_servers);
        if !download.is_there {
            sizes.insert(url, size.unwrap_or_default());
        }
        downloads.push(download);
    }
    (downloads, clocks.into_iter().collect(), sizes)
}

/// The names that this machine must resolve. Names of servers behind a proxy are left out, because the proxy resolves
/// them.
async fn names(
    store: &Store,
    boot: Option<&BootConfig>,
    base: Option<&str>,
    wanted: &Wanted,
) -> BTreeMap<String, Purpose> {
    let mut names = BTreeMap::new();
    let mut add = |url: &str, purpose| {
        if let Some(name) = names::of_url(url, purpose) {
            names.entry(name).or_insert(purpose);
        }
    };
    if let Some(url) = clock::url_of_store(store, base).await {
        add(&url, Purpose::Store);
    }
    let servers = boot.and_then(|boot| boot.config_server.as_ref()).filter(|_| base.is_none());
    servers.iter().flat_map(|server| &server.servers).for_each(|url| add(url, Purpose::KopsController));
    wanted.api_servers.iter().for_each(|url| add(url, Purpose::ApiServer));
    let urls = wanted.downloads.iter().flat_map(|download| &download.urls);
    urls.for_each(|url| add(url, Purpose::Downloads));
    names
}
