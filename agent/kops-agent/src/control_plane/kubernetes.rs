//! How the API server is reached: by a kubeconfig, or as a pod.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::exit::WrongConfiguration;

/// A connection on which nothing comes for so long is given up. A watch on which nothing happens is ended by the API server
/// sooner, after the 290 s that kube asks for.
const LONGEST_SILENCE: Duration = Duration::from_secs(5 * 60);

/// A client of the API server of the kubeconfig's current context; without one, of the cluster that this is a pod of.
///
/// # Errors
/// If the kubeconfig cannot be read, names a proxy, or there is none and this is no pod.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = read(path)?;
            refuse_proxy(&kubeconfig, path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| of_file(path))?
        }
        None => Config::incluster().context(
            "finding the API server; this is no pod (which would have KUBERNETES_SERVICE_HOST and a service \
             account's token), so give --kubeconfig",
        )?,
    };
    // Of the environment, which is for what is outside: an egress proxy need not reach the cluster's own API server
    // (`spec.networking.egressProxy`, which kOps writes to /etc/environment).
    config.proxy_url = None;
    config.read_timeout = Some(LONGEST_SILENCE);
    Client::try_from(config).context("setting up a client of the API server")
}

/// What a kubeconfig says.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| of_file(path))
}

fn refuse_proxy(kubeconfig: &Kubeconfig, path: &Path) -> Result<(), WrongConfiguration> {
    let mut clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    match clusters.any(|cluster| cluster.proxy_url.is_some()) {
        false => Ok(()),
        true => Err(WrongConfiguration(format!(
            "the kubeconfig {} has a proxy-url, and the API server is reached directly: take it out",
            path.display()
        ))),
    }
}

fn of_file(path: &Path) -> String {
    format!("reading the kubeconfig {}", path.display())
}
