//! A stand-in for Hetzner Cloud's API, which the agent asks for lists of servers with a label.
//!
//! Source: Hetzner Cloud API, "Servers", "Label Selector", "Pagination", "Errors".

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::listed::{Api, ListApi, ListedMachine};
use crate::metadata::{Guard, Metadata};

pub use crate::listed::Mood;

/// The only token that the API accepts.
pub const TOKEN: &str = "hcloud-token-for-tests";
pub const CLUSTER_LABEL: &str = "kops.k8s.io/cluster";
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instance-group";

#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// For example `running` or `off`.
    pub status: String,
    pub labels: BTreeMap<String, String>,
    pub public_ipv4: Option<String>,
    /// The server's addresses in private networks.
    pub private_ips: Vec<IpAddr>,
    /// When the server was created, in the API's format.
    pub created: String,
}

impl Server {
    /// A running worker of a cluster's group, in one private network.
    pub fn of_group(cluster: &str, group: &str, name: &str, private_ip: IpAddr) -> Server {
        let labels = [(CLUSTER_LABEL, cluster), (INSTANCE_GROUP_LABEL, group)];
        Server {
            name: name.to_owned(),
            status: "running".into(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            public_ipv4: Some("192.0.2.7".into()),
            private_ips: vec![private_ip],
            created: "2026-01-30T23:55:00+00:00".into(),
        }
    }
}

/// The metadata of the server with this id, in one private network.
///
/// Source: Hetzner Cloud, "Server Metadata".
pub fn metadata(number: u64, private_ip: IpAddr) -> Metadata {
    let networks = format!(
        "- ip: {private_ip}\n  alias_ips: []\n  interface_num: 1\n  mac_address: 86:00:ff:2a:7d:e1\n  network_id: 1\n"
    );
    Metadata::new(
        Guard::None,
        [
            ("/hetzner/v1/metadata/instance-id", number.to_string()),
            ("/hetzner/v1/metadata/private-networks", networks),
        ],
    )
}

/// A running stand-in for Hetzner's API. Dropping it stops the stand-in.
pub type Hetzner = ListApi<Server>;

impl ListedMachine for Server {
    const API: Api = Api {
        name: "hetzner",
        token: TOKEN,
        base: "/v1",
        path: "/servers",
        token_header: ("authorization", "Bearer "),
        filter: None,
        page_size: "per_page",
        per_page: [25, 50],
        newest_first: Some(("sort", "created:desc")),
        says_total: false,
        throttled: "rate_limit_exceeded",
        down: "unavailable",
    };

    fn json(&self, number: u64) -> Value {
        let networks: Vec<Value> = self
            .private_ips
            .iter()
            .map(|ip| json!({"network": 1, "ip": ip, "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"}))
            .collect();
        let ipv4 = self.public_ipv4.as_ref().map(|ip| json!({"id": 1, "ip": ip, "blocked": false}));
        json!({"id": number, "name": self.name, "status": self.status, "labels": self.labels,
               "created": self.created, "private_net": networks,
               "public_net": {"ipv4": ipv4, "ipv6": null, "floating_ips": [], "firewalls": []}})
    }

    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool {
        let selector = parameters.get("label_selector").and_then(|selector| selector.split_once("=="));
        selector.is_none_or(|(key, value)| self.labels.get(key).is_some_and(|own| own == value))
    }

    fn page(servers: Vec<Value>, page: usize, per_page: usize, total: usize) -> Value {
        let next = (total > page * per_page).then_some(page + 1);
        let pagination =
            json!({"page": page, "per_page": per_page, "next_page": next, "total_entries": total});
        json!({"servers": servers, "meta": {"pagination": pagination}})
    }

    fn one(server: Value) -> Value {
        json!({ "server": server })
    }

    fn endless_page(page: usize) -> Value {
        json!({"servers": [], "meta": {"pagination": {"next_page": page + 1}}})
    }

    fn error(code: &str) -> Value {
        json!({"error": {"code": code, "message": "no", "details": {}}})
    }
}
