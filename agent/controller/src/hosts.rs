//! The `Host` objects of the API server: the machines that `kops toolbox enroll` has enrolled.
//!
//! Source: upstream's `k8s/crds/kops.k8s.io_hosts.yaml`.

use std::time::Duration;

use kops_agent_cloud::hosts::{Hosts, HostsUnavailable};
use kops_agent_cluster::identity::host::{Host, NAMESPACE};
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use kube::{Client, Error};
use serde::Deserialize;
use tokio::time::timeout;

use kops_agent_kube::list_pages;

/// The API group of `Host` objects.
pub const GROUP: &str = "kops.k8s.io";
/// The name of the resource `Host` in RBAC rules.
pub const RESOURCE: &str = "hosts";
/// Timeout of the whole list. A machine waits for the list.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The number of objects per page. Objects are small, and most clusters have fewer objects than one page.
const PAGE: u32 = 5000;

/// The fields of a `Host` that kops-agent uses. Parsing all fields would need more than twice the memory, because of `managedFields`.
#[derive(Clone, Debug, Deserialize)]
struct HostObject {
    metadata: HostMetadata,
    #[serde(default)]
    spec: HostSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct HostMetadata {
    #[serde(default)]
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HostSpec {
    public_key: String,
    instance_group: String,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Clone)]
pub struct ApiHosts(Client);

impl ApiHosts {
    pub fn new(client: Client) -> ApiHosts {
        ApiHosts(client)
    }

    async fn all(&self) -> Result<Vec<Host>, Error> {
        let path = format!("/apis/{GROUP}/v1alpha2/namespaces/{NAMESPACE}/{RESOURCE}");
        let ask = |page: ListParams| {
            let request = Request::new(&path).list(&page).map_err(Error::BuildRequest);
            async move { self.0.request::<ObjectList<HostObject>>(request?).await }
        };
        list_pages::all(ListParams::default().limit(PAGE), ask, host).await
    }
}

#[async_trait::async_trait]
impl Hosts for ApiHosts {
    async fn list(&self) -> Result<Vec<Host>, HostsUnavailable> {
        match timeout(TIMEOUT, self.all()).await {
            Ok(Ok(hosts)) => Ok(hosts),
            Ok(Err(error)) => Err(HostsUnavailable(in_words(&error))),
            Err(_) => Err(HostsUnavailable(format!("no answer within {TIMEOUT:.0?}"))),
        }
    }
}

fn in_words(error: &Error) -> String {
    let Error::Api(status) = error else { return error.to_string() };
    let to_do = match status.code {
        // By default, kOps does not give its controller the right to list `Host`s (upstream: `docs/metal.md`).
        403 => "; apply packaging/kubernetes/hosts-rbac.yaml",
        404 => "; apply kOps' k8s/crds/kops.k8s.io_hosts.yaml",
        _ => "",
    };
    format!("{}{to_do}", status.message)
}

fn host(object: HostObject) -> Host {
    let HostSpec { public_key, instance_group, pod_cidrs } = object.spec;
    Host { name: object.metadata.name, public_key, instance_group, pod_cidrs }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kops_agent_tests::test_server::{TestServer, text};
    use kube::Config;
    use serde_json::json;

    use super::*;

    fn hosts(server: &TestServer) -> ApiHosts {
        kops_agent_net::tls::install_provider();
        ApiHosts::new(Client::try_from(Config::new(server.url.parse().unwrap())).unwrap())
    }

    #[tokio::test]
    async fn all_pages_are_read_as_kops_writes_hosts() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let server = TestServer::start(move |request| {
            assert_eq!(request.uri().path(), "/apis/kops.k8s.io/v1alpha2/namespaces/kops-system/hosts");
            let is_second = request.uri().query().unwrap_or_default().contains("continue=next");
            count.fetch_add(1, Ordering::SeqCst);
            let (name, next) = if is_second { ("vm2", "") } else { ("vm1", "next") };
            let answer = json!({
                "apiVersion": "kops.k8s.io/v1alpha2", "kind": "HostList", "metadata": {"continue": next},
                "items": [{"apiVersion": "kops.k8s.io/v1alpha2", "kind": "Host",
                           "metadata": {"name": name, "namespace": "kops-system"},
                           "spec": {"publicKey": "PEM", "instanceGroup": "nodes-main", "podCIDRs": ["10.1.0.0/24"]}}]
            });
            async move { Ok(text(200, &answer.to_string())) }
        })
        .await;
        let listed = hosts(&server).list().await.unwrap();
        let expected = |name: &str| Host {
            name: name.into(),
            public_key: "PEM".into(),
            instance_group: "nodes-main".into(),
            pod_cidrs: vec!["10.1.0.0/24".into()],
        };
        assert_eq!(listed, [expected("vm1"), expected("vm2")]);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn an_error_of_the_api_server_names_the_missing_file_and_is_no_empty_list() {
        for (code, expected) in [(403, "hosts-rbac.yaml"), (404, "kops.k8s.io_hosts.yaml"), (500, "broken")] {
            let server = TestServer::start(move |_| {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
                                    "reason": "x", "message": "broken", "code": code});
                async move { Ok(text(code, &status.to_string())) }
            })
            .await;
            let problem = hosts(&server).list().await.unwrap_err().to_string();
            assert!(problem.contains(expected) && problem.contains("kops-system"), "{problem}");
        }
        let server = TestServer::start(|_| async { Ok(text(200, "{\"items\": [")) }).await;
        assert!(hosts(&server).list().await.is_err());
    }
}
