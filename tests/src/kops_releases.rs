//! The bootstrap messages of kOps releases: nodeup's requests, kops-controller's answers, and the configurations of both. The bytes
//! are in the form of `pkg/apis/nodeup/bootstrap.go`, `pkg/nodemodel/nodeupconfigbuilder.go` and
//! `upup/pkg/fi/cloudup/template_functions.go` (`KopsControllerConfig`) at v1.34.3, v1.35.2, v1.36.2 and 268927e (1.37-alpha).

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use parking_lot::Mutex;
use serde_json::json;

use crate::example_keys::Keyset;
use crate::loopback::{Identity, LoopbackServer};

/// The clouds in kops-controller's configuration, each with its provider options (`ServerProviderOptions`).
const PROVIDERS: [(&str, &str); 9] = [
    ("aws", r#"{"aws":{"nodesRoles":["nodes.c.example.com"],"Region":"us-test-1"}}"#),
    (
        "gce",
        r#"{"gce":{"projectID":"p","region":"us-test1","clusterName":"c.example.com","MaxTimeSkew":300}}"#,
    ),
    ("hetzner", r#"{"hetzner":{}}"#),
    ("openstack", r#"{"openstack":{}}"#),
    ("digitalocean", r#"{"do":{}}"#),
    ("scaleway", r#"{"scaleway":{}}"#),
    ("azure", r#"{"azure":{"clusterName":"c.example.com"}}"#),
    ("linode", r#"{"linode":{}}"#),
    ("metal", "{}"),
];

/// The format of a machine's token on Azure. On all other clouds, the format is the same in all releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AzureToken {
    /// The machine's id, its scale set, and its number in the scale set.
    ScaleSet,
    /// The resource id and the machine's id.
    Id,
    /// The resource id, and a document that Azure has signed.
    Document,
}

/// The properties of a kOps release that affect bootstrap: boot configs, tokens, and kops-controller's configuration.
#[derive(Clone, Copy, Debug)]
pub struct Release {
    /// The minor version, for example `1.34`.
    pub name: &'static str,
    /// Whether a boot config with kops-controller's addresses also contains kops-controller's name. In releases without the
    /// name, kops-controller's certificate contains the addresses.
    pub names_server: bool,
    /// The Azure token that nodeup sends and kops-controller accepts.
    pub azure_token: AzureToken,
    /// Whether kops-controller accepts a configuration for Linode. No release of kOps writes one.
    pub has_linode: bool,
    /// Whether kops-controller's configuration may describe a gossip cluster (`discovery`).
    pub has_discovery: bool,
    /// Whether kops-controller's configuration may describe Cluster API (`capi`).
    pub has_capi: bool,
}

pub const RELEASES: [Release; 4] = [
    Release {
        name: "1.34",
        names_server: false,
        azure_token: AzureToken::ScaleSet,
        has_linode: false,
        has_discovery: true,
        has_capi: false,
    },
    Release {
        name: "1.35",
        names_server: false,
        azure_token: AzureToken::Id,
        has_linode: false,
        has_discovery: true,
        has_capi: true,
    },
    Release {
        name: "1.36",
        names_server: true,
        azure_token: AzureToken::Id,
        has_linode: true,
        has_discovery: true,
        has_capi: true,
    },
    Release {
        name: "1.37",
        names_server: true,
        azure_token: AzureToken::Document,
        has_linode: true,
        has_discovery: false,
        has_capi: true,
    },
];

impl Release {
    /// kops-controller's configurations, each with its cloud. Each cloud has one configuration without optional fields. It also has
    /// one configuration for each optional field that this release knows.
    pub fn kops_controller_configurations(&self) -> Vec<(&'static str, String)> {
        let known = PROVIDERS.into_iter().filter(|(cloud, _)| *cloud != "linode" || self.has_linode);
        let mut more = vec!["", r#","cacheNodeidentityInfo":true"#, r#","enableCloudIPAM":true"#];
        more.extend(self.has_discovery.then_some(r#","discovery":{"enabled":true}"#));
        more.extend(self.has_capi.then_some(r#","capi":{"enabled":true}"#));
        let each = known.flat_map(|(cloud, provider)| more.iter().map(move |more| (cloud, provider, *more)));
        each.map(|(cloud, provider, more)| {
            let pki = if cloud == "metal" { r#","pki":{}"# } else { "" };
            let config = format!(
                r#"{{"clusterName":"c.example.com","cloud":"{cloud}","configBase":"s3://clusters/c.example.com","secretStore":"s3://clusters/c.example.com/secrets","server":{{"Listen":":3988","provider":{provider}{pki},"serverKeyPath":"/etc/kubernetes/kops-controller/pki/kops-controller.key","serverCertificatePath":"/etc/kubernetes/kops-controller/pki/kops-controller.crt","caBasePath":"/etc/kubernetes/kops-controller/pki","signingCAs":["kubernetes-ca","etcd-clients-ca-cilium"],"certNames":["kubelet","kubelet-server","etcd-client-cilium","kube-proxy","kube-router"]}}{more}}}"#
            );
            (cloud, config)
        })
        .collect()
    }

    /// The boot config of a worker on Hetzner whose cluster has no DNS.
    pub fn boot_config(&self, server: &str, authority: &str) -> String {
        let mut config_server = json!({"CACertificates": authority, "servers": [server]});
        if self.names_server {
            config_server["tlsServerName"] = json!("kops-controller.internal.c.example.com");
        }
        json!({
            "APIServerIPs": ["127.0.0.1"], "CloudProvider": "hetzner", "ClusterName": "c.example.com", "ConfigServer": config_server,
            "InstanceGroupName": "nodes", "InstanceGroupRole": "Node", "NodeupConfigHash": "",
        })
        .to_string()
    }
}

/// nodeup's request for its configuration. `challenge` is a challenge in JSON, for clouds that need one.
pub fn configuration_request(challenge: Option<&str>) -> String {
    request("null", "null", true, challenge)
}

/// nodeup's request for certificates. `certs` is the JSON of public keys by name. `keypair_ids` is the JSON of key pair ids by CA.
pub fn certificates_request(certs: &str, keypair_ids: &str, challenge: Option<&str>) -> String {
    request(certs, keypair_ids, false, challenge)
}

fn request(certs: &str, keypair_ids: &str, is_for_config: bool, challenge: Option<&str>) -> String {
    let challenge = challenge.map(|challenge| format!(r#","challenge":{challenge}"#)).unwrap_or_default();
    format!(
        r#"{{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":{certs},"keypairIDs":{keypair_ids},"includeNodeConfig":{is_for_config}{challenge}}}"#
    )
}

/// A kops-controller that answers bootstrap requests with recorded responses of a kOps release, one response for each request. It serves
/// no other path.
pub struct RecordedServer {
    server: LoopbackServer,
    asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The value of the header `Authorization`.
    pub token: String,
    pub body: String,
}

impl RecordedServer {
    /// Starts the server with the certificate of a control plane of this release.
    pub fn start(
        release: &Release,
        authority: &Keyset,
        answers: &[(u16, &str)],
    ) -> anyhow::Result<RecordedServer> {
        let name = match release.names_server {
            true => "kops-controller.internal.c.example.com",
            false => "127.0.0.1",
        };
        let identity = Identity::signed_by(authority, name)?;
        let answers: VecDeque<_> =
            answers.iter().map(|(status, text)| (*status, (*text).to_owned())).collect();
        let (answers, asked) = (Arc::new(Mutex::new(answers)), Arc::<Mutex<Vec<Asked>>>::default());
        let log = Arc::clone(&asked);
        let service = service_fn(move |request| {
            let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
            async move { Ok::<_, Infallible>(answer(request, &answers, &log).await) }
        });
        let server = LoopbackServer::start_tls("kops-controller", service, &identity)?;
        Ok(RecordedServer { server, asked })
    }

    /// The server's URL, with its IP address.
    pub fn url(&self) -> String {
        format!("{}/", self.server.url())
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: &Mutex<VecDeque<(u16, String)>>,
    log: &Mutex<Vec<Asked>>,
) -> Response<Full<Bytes>> {
    let is_bootstrap = request.method() == Method::POST && request.uri().path() == "/bootstrap";
    let token = request.headers().get("authorization").and_then(|token| token.to_str().ok());
    let token = token.unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let next = || answers.lock().pop_front();
    let (status, text) = match is_bootstrap {
        true => next().unwrap_or((500, "no answer is left".to_owned())),
        false => (404, "404 page not found\n".to_owned()),
    };
    if is_bootstrap {
        let body = String::from_utf8_lossy(&body).into_owned();
        log.lock().push(Asked { token, body });
    }
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status.try_into().unwrap_or_default();
    response
}
