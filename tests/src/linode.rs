//! A stand-in for Linode's API, which the agent asks for lists of instances by a part of a tag.
//!
//! Source: Linode API v4, "List Linodes", "Pagination", "Filtering and sorting", "Errors".

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::listed::{Api, ListApi, ListedMachine};
use crate::metadata::{Guard, Metadata};

pub use crate::listed::Mood;

/// The only token that the API accepts.
pub const TOKEN: &str = "linode-token-for-tests";
/// The header by which a request selects instances.
const FILTER: &str = "x-filter";

#[derive(Clone, Debug)]
pub struct Instance {
    pub label: String,
    /// For example `running` or `offline`.
    pub status: String,
    pub tags: Vec<String>,
    pub public_ipv4: Option<String>,
    pub private_ips: Vec<IpAddr>,
    /// The time at which the instance was created. Like in the API, the time is UTC and has no zone.
    pub created: String,
}

impl Instance {
    /// A running worker of a cluster's group, with one private address.
    pub fn of_group(cluster: &str, group: &str, label: &str, private_ip: IpAddr) -> Instance {
        Instance {
            label: label.to_owned(),
            status: "running".into(),
            tags: vec![
                format!("kops.k8s.io/cluster:{cluster}"),
                format!("kops.k8s.io/instance-group:{group}"),
                "kops.k8s.io/instance-role:Node".into(),
            ],
            public_ipv4: Some("192.0.2.7".into()),
            private_ips: vec![private_ip],
            created: "2026-01-30T23:55:00".into(),
        }
    }
}

/// The metadata of the instance with this id and label.
///
/// Source: Linode, "Metadata Service API".
pub fn metadata(number: u64, label: &str) -> Metadata {
    let instance = format!("backups.enabled: false\nid: {number}\nlabel: {label}\nregion: de-fra-2\n");
    let guard = Guard::Token("/v1/token", ["metadata-token-expiry-seconds", "metadata-token"]);
    Metadata::new(guard, [("/v1/instance", instance)])
}

/// A running stand-in for Linode's API. Dropping it stops the stand-in.
pub type Linode = ListApi<Instance>;

impl ListedMachine for Instance {
    const API: Api = Api {
        name: "linode",
        token: TOKEN,
        base: "",
        path: "/v4/linode/instances",
        token_header: ("authorization", "Bearer "),
        filter: Some(FILTER),
        page_size: "page_size",
        per_page: [100, 500],
        newest_first: None,
        says_total: false,
        throttled: "too_many_requests",
        down: "service_unavailable",
    };

    fn json(&self, number: u64) -> Value {
        let of_private = self.private_ips.iter().map(ToString::to_string);
        let ipv4: Vec<String> = self.public_ipv4.iter().cloned().chain(of_private).collect();
        json!({"id": number, "label": self.label, "status": self.status, "tags": self.tags, "ipv4": ipv4,
               "ipv6": "2600:3c00::f03c:94ff:fe6e:1/128", "region": "de-fra-2", "type": "g6-standard-2",
               "created": self.created, "interface_generation": "linode"})
    }

    fn is_selected(&self, parameters: &BTreeMap<String, String>) -> bool {
        let filter = parameters.get(FILTER).filter(|filter| !filter.is_empty());
        filter.is_none_or(|filter| {
            let filter: Value = serde_json::from_str(filter).unwrap_or_default();
            let part = filter["tags"]["+contains"].as_str();
            part.is_some_and(|part| self.tags.iter().any(|tag| tag.contains(part)))
        })
    }

    fn page(instances: Vec<Value>, page: usize, per_page: usize, total: usize) -> Value {
        json!({"data": instances, "page": page, "pages": total.div_ceil(per_page).max(1), "results": total})
    }

    fn one(instance: Value) -> Value {
        instance
    }

    fn endless_page(page: usize) -> Value {
        json!({"data": [], "page": page, "pages": 1_000_000, "results": 1_000_000_000})
    }

    fn error(code: &str) -> Value {
        json!({"errors": [{"reason": code}]})
    }
}
