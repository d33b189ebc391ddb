//! A stand-in for OpenStack, as far as the agent uses it: Keystone's tokens and catalog, and Nova's lists of a project's servers.
//! [`swift`] has Swift.
//!
//! Source: Identity API v3, "Authentication and token management"; Compute API v2.1, "List Servers Detailed", "Paginated
//! collections", "Faults".

pub mod swift;

use std::collections::BTreeMap;
use std::net::IpAddr;

use hyper::Response;
use hyper::header::HeaderValue;
use serde_json::{Value, json};

use crate::listed::{Api, ListApi, ListedMachine};
use crate::metadata::{Guard, Metadata};
use crate::stand_in_api::said;

pub use crate::listed::Mood;

/// The only token that the API accepts. Logins issue this token.
pub const TOKEN: &str = "gAAAAA-openstack-token-for-tests";
/// A token that a login issues although the API rejects it.
const REVOKED: &str = "gAAAAA-openstack-token-that-is-revoked";
/// The secret of the application credential, and the password of the user.
pub const SECRET: &str = "openstack-secret-for-tests";
/// The region of the services. The catalog also has a second region.
pub const REGION: &str = "RegionOne";
pub const PROJECT: &str = "f7ac731cc11f40efbc03a9f9e1d1d21f";
/// The time at which Nova last started each server. A resize changes this time, so it may be later than the registration of the
/// server's Node.
const LAUNCHED: &str = "2026-06-01T00:00:00.000000";
/// The path at which Keystone issues tokens.
const KEYSTONE: &str = "/identity/v3/auth/tokens";
/// The path of the Swift account.
const ACCOUNT: &str = "/swift/v1/AUTH_f7ac731cc11f40efbc03a9f9e1d1d21f";

pub fn uuid(number: u64) -> String {
    format!("5c89f7b6-01a0-4eaa-ac03-{number:012x}")
}

/// The environment variables for a login with an application credential, in kOps' format for control planes. `url` is the URL of
/// the stand-in.
pub fn login(url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OS_AUTH_URL", format!("{url}/identity/v3")),
        ("OS_REGION_NAME", REGION.into()),
        ("OS_APPLICATION_CREDENTIAL_ID", "app".into()),
        ("OS_APPLICATION_CREDENTIAL_SECRET", SECRET.into()),
        ("OS_PROJECT_ID", String::new()),
        ("OS_USERNAME", String::new()),
        ("OS_PASSWORD", String::new()),
    ]
}

/// The environment variables for a login with a password.
pub fn password_login(url: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OS_AUTH_URL", format!("{url}/identity")),
        ("OS_REGION_NAME", REGION.into()),
        ("OS_USERNAME", "kops".into()),
        ("OS_PASSWORD", SECRET.into()),
        ("OS_DOMAIN_NAME", "Default".into()),
        ("OS_TENANT_NAME", "clusters".into()),
    ]
}

/// Keystone's response to a login. If the login is valid, the response issues `token`.
fn token(body: &[u8], host: &str, token: &str) -> Response<String> {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let credential = json!({"id": "app", "secret": SECRET});
    let by_credential = json!({"auth": {"identity": {"methods": ["application_credential"],
                                                      "application_credential": credential}}});
    let domain = json!({"name": "Default"});
    let user = json!({"name": "kops", "domain": domain, "password": SECRET});
    let by_password = json!({"auth": {"identity": {"methods": ["password"], "password": {"user": user}},
                                       "scope": {"project": {"name": "clusters", "domain": domain}}}});
    if asked != by_credential && asked != by_password {
        let error = json!({"code": 401, "title": "Unauthorized", "message": format!("no: {asked}")});
        return said(401, json!({ "error": error }).to_string());
    }
    let endpoint = |interface: &str, region: &str, url: String| json!({"id": "068d1b359ee84b438266cb736d81de97", "interface": interface, "region": region, "region_id": region, "url": url});
    let service = |kind: &str, path: &str| {
        json!({"type": kind, "id": "1", "name": "a", "endpoints": [
            endpoint("internal", REGION, format!("http://127.0.0.1:9{path}")),
            endpoint("public", "RegionTwo", format!("http://127.0.0.1:9{path}")),
            endpoint("public", REGION, format!("http://{host}{path}"))]})
    };
    let catalog = [
        json!({"type": "network", "id": "2", "name": "neutron", "endpoints": []}),
        service("compute", "/compute/v2.1"),
        service("object-store", ACCOUNT),
    ];
    let told = json!({"methods": ["password"], "issued_at": "2026-08-22T10:00:00.000000Z",
                      "expires_at": "2026-08-22T11:00:00.000000Z", "catalog": catalog,
                      "project": {"id": PROJECT, "name": "clusters", "domain": {"id": "default", "name": "Default"}}});
    let mut response = said(201, json!({ "token": told }).to_string());
    if let Ok(token) = HeaderValue::try_from(token) {
        response.headers_mut().insert("x-subject-token", token);
    }
    response
}

#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// For example `ACTIVE` or `SHUTOFF`.
    pub status: String,
    pub metadata: BTreeMap<String, String>,
    pub fixed: Vec<IpAddr>,
    /// The server's floating IP addresses.
    pub floating: Vec<IpAddr>,
    /// When the server was created, in the API's format.
    pub created: String,
}

impl Server {
    /// A running worker of a cluster's group, with one address.
    pub fn of_group(cluster: &str, group: &str, name: &str, address: IpAddr) -> Server {
        let metadata = [
            ("KubernetesCluster", cluster),
            ("k8s", cluster),
            ("KopsInstanceGroup", group),
            ("KopsNetwork", cluster),
            ("KopsRole", "Node"),
            ("KopsName", name),
        ];
        Server {
            name: name.to_owned(),
            status: "ACTIVE".into(),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            fixed: vec![address],
            floating: Vec::new(),
            created: "2026-01-30T23:55:00Z".into(),
        }
    }
}

/// The metadata of the server with the UUID of this number.
///
/// Source: Nova, "Metadata" (`meta_data.json`, and the items in EC2's form).
pub fn metadata(number: u64, name: &str, address: IpAddr) -> Metadata {
    let told = json!({"uuid": uuid(number), "name": name, "hostname": format!("{name}.novalocal"),
                      "project_id": PROJECT, "meta": {}, "public_keys": {}});
    Metadata::new(
        Guard::None,
        [
            ("/openstack/latest/meta_data.json", told.to_string()),
            ("/latest/meta-data/local-ipv4", address.to_string()),
        ],
    )
}

/// A running stand-in for Keystone and Nova. Dropping it stops the stand-in.
pub type Openstack = ListApi<Server>;

impl ListedMachine for Server {
    const API: Api = Api {
        name: "openstack",
        token: TOKEN,
        base: "/compute/v2.1",
        path: "/servers/detail",
        token_header: ("x-auth-token", ""),
        filter: None,
        page_size: "limit",
        per_page: [1000, 1000],
        newest_first: Some(("sort_dir", "desc")),
        says_total: false,
        throttled: "overLimit",
        down: "serviceUnavailable",
    };
    const MACHINES: &'static str = "/servers";
    const BY_MARKER: bool = true;
    const LOGIN: Option<&'static str> = Some(KEYSTONE);

    fn id(number: u64) -> String {
        uuid(number)
    }

    fn json(&self, number: u64) -> Value {
        let address = |ip: &IpAddr, kind: &str| {
            json!({"addr": ip, "version": if ip.is_ipv4() { 4 } else { 6 }, "OS-EXT-IPS:type": kind,
                   "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01"})
        };
        let fixed = self.fixed.iter().map(|ip| address(ip, "fixed"));
        let floating = self.floating.iter().map(|ip| address(ip, "floating"));
        let addresses: Vec<Value> = fixed.chain(floating).collect();
        let network = self.metadata.get("KopsNetwork").map_or("net", String::as_str);
        json!({"id": uuid(number), "name": self.name, "status": self.status, "tenant_id": PROJECT, "user_id": "u",
               "metadata": self.metadata, "addresses": {network: addresses}, "accessIPv4": "", "config_drive": "True",
               "created": self.created, "OS-SRV-USG:launched_at": LAUNCHED, "flavor": {"id": "1"}, "OS-EXT-STS:vm_state": "active", "key_name": "kops"})
    }

    /// Selects every server, because Nova accepts filters by metadata only from administrators.
    fn is_selected(&self, _parameters: &BTreeMap<String, String>) -> bool {
        true
    }

    fn page(servers: Vec<Value>, _page: usize, per_page: usize, _total: usize) -> Value {
        let last = servers.last().filter(|_| servers.len() == per_page).map(|last| last["id"].clone());
        match last {
            Some(last) => {
                let href = format!("http://127.0.0.1:9/servers/detail?limit={per_page}&marker={last}");
                json!({"servers": servers, "servers_links": [{"rel": "next", "href": href}]})
            }
            None => json!({ "servers": servers }),
        }
    }

    fn one(server: Value) -> Value {
        json!({ "server": server })
    }

    fn endless_page(_page: usize) -> Value {
        let server = json!({"id": uuid(1), "name": "a", "status": "ACTIVE", "metadata": {}, "addresses": {}});
        json!({"servers": [server], "servers_links": [{"rel": "next", "href": "http://127.0.0.1:9/"}]})
    }

    fn error(code: &str) -> Value {
        json!({code: {"code": 400, "message": "no"}})
    }

    fn login(body: &[u8], host: &str, is_revoked: bool) -> Response<String> {
        token(body, host, if is_revoked { REVOKED } else { TOKEN })
    }
}
