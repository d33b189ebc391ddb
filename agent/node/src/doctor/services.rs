//! Checks of the sources that decide a node: the boot config, the state store, the metadata service, and
//! kops-controller if the machine reads no store.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use kops_agent_cloud::{self as cloud, MetadataError};
use kops_agent_host::facts::observe_host;
use kops_agent_net::dns::SystemResolver;
use kops_agent_net::retry::{Pauses, Retries};
use kops_agent_plan::doctor::{Outcome, Seen, Service, ServiceKind, Unseen};
use kops_agent_source::cluster_files;
use kops_agent_spec::BootConfig;
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_store::Store;
use reqwest::Url;
use tokio::net::TcpStream;

use super::deadline::{QUESTION, with_timeout};
use crate::facts;
use crate::options::NodeOptions;
use crate::redaction::error_text;

/// A short deadline is enough: a metadata service is link-local, so it answers within seconds or is broken.
const METADATA: Retries = Retries {
    deadline: Duration::from_secs(6),
    attempt: Duration::from_secs(3),
    pauses: Pauses { first: Duration::from_millis(500), longest: Duration::from_secs(2) },
};

pub(super) fn boot_config(file: &Path, read: &Result<BootConfig>) -> Service {
    let outcome = match read {
        Ok(_) => Outcome::Answers,
        Err(error) => Outcome::Fails(error_text(error)),
    };
    Service { kind: ServiceKind::BootConfig, name: file.display().to_string(), outcome }
}

/// The outcomes of reading the cluster and the instance group.
pub(super) async fn store(
    store: &Store,
    base: Option<&str>,
    boot: Option<&BootConfig>,
    options: &NodeOptions,
) -> Vec<Service> {
    let (Some(base), Some(boot)) = (base, boot) else { return Vec::new() };
    let group = boot.instance_group_name.as_str();
    // The last try may start just before the store's timeout and take up to `QUESTION`. So the check waits for both
    // times.
    let within = options.store.timeout + QUESTION;
    let reading = async {
        let cluster = async { cluster_files::cluster_file(store, base).await.map(drop) };
        let group = async { cluster_files::group_file(store, base, group).await.map(drop) };
        tokio::join!(cluster, group)
    };
    let (cluster, group_file) = match with_timeout(within, reading).await {
        Ok(read) => read,
        Err(why) => return vec![service(ServiceKind::Store, base, Outcome::Unknown(why.into()))],
    };
    let outcome = |read: Result<()>| match read {
        Ok(()) => Outcome::Answers,
        Err(error) => Outcome::Fails(error_text(&error)),
    };
    vec![
        service(ServiceKind::Store, &format!("{base}/cluster-completed.spec"), outcome(cluster)),
        service(ServiceKind::Store, &format!("{base}/instancegroup/{group}"), outcome(group_file)),
    ]
}

/// The outcome of the metadata request, and the facts of the machine and its cloud. If the facts are from a file, the
/// metadata service is not asked.
pub(super) async fn metadata(
    boot: Option<&BootConfig>,
    options: &NodeOptions,
) -> (Option<Service>, Seen<Facts>) {
    if let Some(file) = &options.facts {
        return (None, facts::load(file).map_err(|error| Unseen::new(error_text(&error))));
    }
    let Some(boot) = boot else { return (None, Err(Unseen::new("there is no boot config"))) };
    let host = observe_host(&options.source.node_root).map_err(Unseen::new);
    let name = format!("the cloud {}", boot.cloud_provider);
    let of_cloud = with_timeout(QUESTION, cloud::observe_within(boot.cloud_provider, METADATA)).await;
    let (outcome, cloud) = match of_cloud {
        Ok(Ok(nothing)) if nothing == CloudFacts::default() => return (None, host),
        Ok(Ok(cloud)) => (Outcome::Answers, Ok(cloud)),
        Ok(Err(error @ MetadataError::Silent { .. })) => {
            (Outcome::Unknown(error.to_string()), Err(Unseen::new(error)))
        }
        Ok(Err(error)) => (Outcome::Fails(error.to_string()), Err(Unseen::new(error))),
        Err(why) => (Outcome::Unknown(why.to_string()), Err(why)),
    };
    let facts = match (host, cloud) {
        (Ok(host), Ok(cloud)) => Ok(Facts { cloud, ..host }),
        (Err(why), _) | (_, Err(why)) => Err(why),
    };
    (Some(service(ServiceKind::Metadata, &name, outcome)), facts)
}

/// Checks whether kops-controllers accept connections. Does nothing if the machine reads a store, because it then gets
/// its configuration from the store and not from kops-controllers.
pub(super) async fn kops_controllers(boot: Option<&BootConfig>, reads_store: bool) -> Vec<Service> {
    let servers = boot.and_then(|boot| boot.config_server.as_ref()).filter(|_| !reads_store);
    let asking = servers.into_iter().flat_map(|options| &options.servers).map(|url| async move {
        let outcome = match with_timeout(QUESTION, connect(url)).await {
            Ok(Ok(())) => Outcome::Answers,
            Ok(Err(why)) => Outcome::Fails(why),
            Err(why) => Outcome::Unknown(why.into()),
        };
        service(ServiceKind::KopsController, url, outcome)
    });
    join_all(asking).await
}

async fn connect(url: &str) -> Result<(), String> {
    let parsed = Url::parse(url).map_err(|error| error.to_string())?;
    let host = parsed.host_str().ok_or("it names no host")?.trim_matches(['[', ']']).to_owned();
    let port = parsed.port_or_known_default().ok_or("it names no port")?;
    let addresses = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => SystemResolver::lookup(&host).await.map_err(|error| error.to_string())?,
    };
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect((address, port)).await {
            Ok(_) => return Ok(()),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}

pub(super) fn service(kind: ServiceKind, name: &str, outcome: Outcome) -> Service {
    Service { kind, name: name.to_owned(), outcome }
}
