//! How the API server is reached: by a kubeconfig, or as a pod.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use kops_agent_process::exit::WrongConfiguration;

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

/// Refuses a proxy between here and the API server of the current context. What other contexts use is not used here.
fn refuse_proxy(kubeconfig: &Kubeconfig, path: &Path) -> Result<(), WrongConfiguration> {
    let current = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = kubeconfig.contexts.iter().find(|context| context.name == current);
    let name = context.and_then(|context| context.context.as_ref()).map(|context| context.cluster.as_str());
    let named = kubeconfig.clusters.iter().find(|cluster| Some(cluster.name.as_str()) == name);
    let proxy = named.and_then(|named| named.cluster.as_ref()).and_then(|cluster| cluster.proxy_url.as_ref());
    match (proxy, name) {
        (Some(_), Some(cluster)) => Err(WrongConfiguration(format!(
            "the cluster {cluster:?} of the kubeconfig {} has a proxy-url, and the API server is reached directly: take it out",
            path.display()
        ))),
        _ => Ok(()),
    }
}

fn of_file(path: &Path) -> String {
    format!("reading the kubeconfig {}", path.display())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kubeconfig(current: &str) -> Kubeconfig {
        Kubeconfig::from_yaml(&format!(
            "{{apiVersion: v1, kind: Config, current-context: {current}, users: [], contexts: [\
             {{name: here, context: {{cluster: direct, user: u}}}}, {{name: there, context: {{cluster: proxied, user: u}}}}], \
             clusters: [{{name: direct, cluster: {{server: 'https://10.0.0.1'}}}}, \
             {{name: proxied, cluster: {{server: 'https://10.0.0.2', proxy-url: 'http://10.0.0.3:3128'}}}}]}}"
        ))
        .unwrap()
    }

    #[test]
    fn the_proxy_of_a_cluster_that_is_not_used_is_none_of_our_business() {
        let path = Path::new("/kubeconfig");
        refuse_proxy(&kubeconfig("here"), path).unwrap();
        for refused in ["there", "elsewhere"] {
            let outcome = refuse_proxy(&kubeconfig(refused), path);
            match refused {
                "there" => assert!(outcome.unwrap_err().to_string().contains("\"proxied\"")),
                // That there is no such context is told where the client is made.
                _ => outcome.unwrap(),
            }
        }
    }
}
