//! A stand-in for Scaleway's Instance API, which the agent asks for lists of a zone's servers with a tag.
//!
//! Source: Scaleway's Instance API v1, "List all Instances", "Pagination", "Errors", and the recorded answers of its SDK
//! (`api/instance/v1/testdata`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::listed::{Api, ListApi, ListedMachine};
use crate::metadata::{Guard, Metadata};

pub use crate::listed::Mood;

/// The only secret key that the API accepts.
pub const TOKEN: &str = "scaleway-key-for-tests";
/// The zone whose servers are listed.
pub const ZONE: &str = "fr-par-1";
/// The project of the servers.
pub const PROJECT: &str = "105bdce1-64c0-48ab-899d-868455867ecf";

/// A UUID that contains this number.
pub fn uuid(number: u64) -> String {
    format!("5c89f7b6-01a0-4eaa-ac03-{number:012x}")
}

#[derive(Clone, Debug)]
pub struct Server {
    pub name: String,
    /// For example `running` or `stopped`.
    pub state: String,
    pub tags: Vec<String>,
    pub project: String,
    pub public_ips: Vec<IpAddr>,
    /// When the server was created, in the API's format.
    pub created: String,
}

impl Server {
    /// A running worker of a cluster's group, with one public address.
    pub fn of_group(cluster: &str, group: &str, name: &str, public_ip: IpAddr) -> Server {
        Server {
            name: name.to_owned(),
            state: "running".into(),
            tags: vec![
                format!("noprefix=kops.k8s.io/cluster={cluster}"),
                format!("noprefix=kops.k8s.io/instance-group={group}"),
            ],
            project: PROJECT.into(),
            public_ips: vec![public_ip],
            created: "2026-01-30T23:55:00.123456+00:00".into(),
        }
    }
}

/// The metadata of the server whose UUID contains this number.
///
/// Source: Scaleway's SDK, `api/instance/v1/instance_metadata_sdk.go`.
pub fn metadata(number: u64, name: &str) -> Metadata {
    let server = json!({"id": uuid(number), "name": name, "hostname": name, "private_ip": null, "tags": [],
                        "ssh_public_keys": [], "location": {"cluster_id": "72", "zone_id": ZONE}});
    Metadata::new(Guard::None, [("/conf?format=json", server.to_string())])
}

/// A running stand-in for Scaleway's API. Dropping it stops the stand-in.
pub type Scaleway = ListApi<Server>;

impl ListedMachine for Server {
    const API: Api = Api {
        name: "scaleway",
        token: TOKEN,
        base: "",
        path: "/instance/v1/zones/fr-par-1/servers",
        token_header: ("x-auth-token", ""),
        filter: None,
        page_size: "per_page",
        per_page: [50, 100],
        newest_first: Some(("order", "creation_date_desc")),
        says_total: true,
        throttled: "too_many_requests",
        down: "service_unavailable",
    };

    fn id(number: u64) -> String {
        uuid(number)
    }

    fn json(&self, number: u64) -> Value {
        let address = |ip: &IpAddr| {
            let family = if ip.is_ipv4() { "inet" } else { "inet6" };
            json!({"id": "74d94a1f-88d7-4a79-8023-fc8ac307b9b2", "address": ip, "dynamic": false, "family": family,
                   "provisioning_mode": "dhcp", "state": "attached"})
        };
        let public_ips: Vec<Value> = self.public_ips.iter().map(address).collect();
        json!({"id": uuid(number), "name": self.name, "hostname": self.name, "state": self.state, "tags": self.tags,
               "project": self.project, "commercial_type": "DEV1-M", "routed_ip_enabled": true, "private_ip": null,
               "creation_date": self.created, "public_ip": public_ips.first(), "public_ips": public_ips, "private_nics": [], "zone": ZONE,
               "location": {"zone_id": ZONE, "cluster_id": "72"}})
    }

    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool {
        let has_tags = |tags: &String| tags.split(',').all(|tag| self.tags.iter().any(|own| own == tag));
        parameters.get("tags").is_none_or(has_tags)
            && parameters.get("project").is_none_or(|project| *project == self.project)
    }

    fn page(servers: Vec<Value>, _page: usize, _per_page: usize, _total: usize) -> Value {
        json!({ "servers": servers })
    }

    fn one(server: Value) -> Value {
        json!({ "server": server })
    }

    /// A full page. A client requests a next page only after a full page.
    fn endless_page(_page: usize) -> Value {
        let server = json!({"id": uuid(1), "name": "a", "state": "running"});
        json!({ "servers": vec![server; 100] })
    }

    fn error(code: &str) -> Value {
        json!({"type": code, "message": "no"})
    }
}
