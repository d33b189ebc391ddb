//! How the API server is reached: by a kubeconfig, or as a pod.

use std::path::Path;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client of the API server of the kubeconfig's current context; without one, of the cluster that this is a pod of.
///
/// # Errors
/// If the kubeconfig cannot be read, or there is none and this is no pod.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client> {
    let config = match kubeconfig {
        Some(path) => {
            let of_file = || format!("reading the kubeconfig {}", path.display());
            let kubeconfig = Kubeconfig::read_from(path).with_context(of_file)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(of_file)?
        }
        None => Config::incluster().context(
            "finding the API server; this is no pod (which would have KUBERNETES_SERVICE_HOST and a service \
             account's token), so give --kubeconfig",
        )?,
    };
    Client::try_from(config).context("setting up a client of the API server")
}
