//! A stand-in for DigitalOcean's API, which the agent asks for lists of droplets with a tag.
//!
//! Source: DigitalOcean API v2, "List All Droplets", "Links & Pagination", "HTTP Statuses".

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::listed::{Api, ListApi, ListedMachine};
use crate::metadata::{Guard, Metadata};

pub use crate::listed::Mood;

/// The only token that the API accepts.
pub const TOKEN: &str = "digitalocean-token-for-tests";

#[derive(Clone, Debug)]
pub struct Droplet {
    pub name: String,
    /// For example `active` or `off`.
    pub status: String,
    pub tags: Vec<String>,
    pub public_ipv4: Option<String>,
    /// The droplet's addresses in private networks.
    pub private_ips: Vec<IpAddr>,
    /// When the droplet was created, in the API's format.
    pub created: String,
}

impl Droplet {
    /// A running worker of a cluster's group, in one private network.
    pub fn of_group(cluster: &str, group: &str, name: &str, private_ip: IpAddr) -> Droplet {
        Droplet {
            name: name.to_owned(),
            status: "active".into(),
            tags: vec![
                format!("KubernetesCluster:{}", cluster.replace('.', "-")),
                format!("kops-instancegroup:{group}"),
                "kops-instance-role:Node".into(),
            ],
            public_ipv4: Some("192.0.2.7".into()),
            private_ips: vec![private_ip],
            created: "2026-01-30T23:55:00Z".into(),
        }
    }
}

/// The metadata of the droplet with this id, in one private network.
///
/// Source: DigitalOcean, "Metadata API".
pub fn metadata(number: u64, private_ip: IpAddr) -> Metadata {
    Metadata::new(
        Guard::None,
        [
            ("/metadata/v1/id", number.to_string()),
            ("/metadata/v1/interfaces/private/0/ipv4/address", private_ip.to_string()),
        ],
    )
}

/// A running stand-in for DigitalOcean's API. Dropping it stops the stand-in.
pub type DigitalOcean = ListApi<Droplet>;

impl ListedMachine for Droplet {
    const API: Api = Api {
        name: "digitalocean",
        token: TOKEN,
        base: "",
        path: "/v2/droplets",
        token_header: ("authorization", "Bearer "),
        filter: None,
        page_size: "per_page",
        per_page: [20, 200],
        newest_first: None,
        says_total: false,
        throttled: "too_many_requests",
        down: "service_unavailable",
    };

    fn json(&self, number: u64) -> Value {
        let address = |ip: &str, kind: &str| json!({"ip_address": ip, "netmask": "255.255.240.0", "gateway": "", "type": kind});
        let of_public = self.public_ipv4.iter().map(|ip| address(ip, "public"));
        let of_private = self.private_ips.iter().map(|ip| address(&ip.to_string(), "private"));
        // DigitalOcean lists the public address first.
        let v4: Vec<Value> = of_public.chain(of_private).collect();
        json!({"id": number, "name": self.name, "status": self.status, "tags": self.tags, "memory": 8192,
               "created_at": self.created, "networks": {"v4": v4, "v6": []}, "region": {"slug": "nyc3"}})
    }

    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool {
        parameters.get("tag_name").is_none_or(|tag| self.tags.contains(tag))
    }

    fn page(droplets: Vec<Value>, page: usize, per_page: usize, total: usize) -> Value {
        let next = format!("https://api.digitalocean.com/v2/droplets?page={}", page + 1);
        let links = if total > page * per_page { json!({"pages": {"next": next}}) } else { json!({}) };
        json!({"droplets": droplets, "links": links, "meta": {"total": total}})
    }

    fn one(droplet: Value) -> Value {
        json!({ "droplet": droplet })
    }

    fn endless_page(_page: usize) -> Value {
        json!({"droplets": [], "links": {"pages": {"next": "x"}}})
    }

    fn error(code: &str) -> Value {
        json!({"id": code, "message": "no"})
    }
}
