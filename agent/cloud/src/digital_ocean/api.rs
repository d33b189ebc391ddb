//! The droplets of one cluster, as DigitalOcean's API lists them.
//!
//! Source: DigitalOcean API v2, "List All Droplets", "Links & Pagination", "Rate Limit" (5000 requests an hour and token).

use std::net::IpAddr;

use kops_agent_plan::identity::digital_ocean::{Droplet, cluster_tag};
use serde::{Deserialize, Deserializer};

use crate::inventory::{Inventory, ListApi, Listed};

/// The droplets of one cluster.
pub type Droplets = Inventory<Droplet>;

/// A page of the list.
#[derive(Deserialize)]
pub struct Page {
    droplets: Vec<Listing>,
    #[serde(default)]
    links: Links,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Links {
    pages: Pages,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pages {
    /// The URL of the next page.
    next: Option<String>,
}

#[derive(Deserialize)]
struct Listing {
    id: u64,
    name: String,
    status: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    networks: Networks,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Networks {
    #[serde(deserialize_with = "null_is_empty")]
    v4: Vec<Address>,
    #[serde(deserialize_with = "null_is_empty")]
    v6: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    /// A droplet that is being made may have none yet.
    #[serde(default, deserialize_with = "null_is_empty")]
    ip_address: String,
    #[serde(rename = "type")]
    kind: String,
}

/// One droplet that is written in another way must not take the list of all others away.
fn null_is_empty<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(field: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(field)?.unwrap_or_default())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    id: String,
}

impl Listed for Droplet {
    const API: ListApi = ListApi {
        cloud: "DigitalOcean",
        service: "digitalocean",
        action: "droplets.list",
        endpoint: "https://api.digitalocean.com",
        endpoint_variable: "DIGITALOCEAN_API_URL",
        token_variable: "DIGITALOCEAN_ACCESS_TOKEN",
        path: "/v2/droplets",
        selector: "tag_name",
        page: "100",
    };
    type Page = Page;

    fn selector(cluster: &str) -> String {
        cluster_tag(cluster)
    }

    fn of_page(page: Page, number: u32) -> (Vec<Droplet>, Option<u32>) {
        let next = page.links.pages.next.map(|_url| number + 1);
        (page.droplets.into_iter().map(Droplet::from).collect(), next)
    }

    fn error_code(body: &[u8]) -> String {
        let refusal: Refusal = serde_json::from_slice(body).unwrap_or_default();
        refusal.id
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn is_called(&self, node: &str) -> bool {
        self.node_name() == node
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.private_ips.iter().chain(&self.public_ips).copied().collect()
    }
}

impl From<Listing> for Droplet {
    fn from(listing: Listing) -> Droplet {
        let Networks { v4, v6 } = listing.networks;
        let (private, public): (Vec<Address>, Vec<Address>) =
            v4.into_iter().chain(v6).partition(|address| address.kind == "private");
        let ips = |addresses: Vec<Address>| {
            addresses.iter().filter_map(|address| address.ip_address.parse().ok()).collect()
        };
        Droplet {
            id: listing.id,
            name: listing.name,
            status: listing.status,
            tags: listing.tags,
            private_ips: ips(private),
            public_ips: ips(public),
        }
    }
}

#[cfg(test)]
mod tests;
