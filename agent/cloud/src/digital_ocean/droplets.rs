//! The droplets of one cluster, as DigitalOcean's API lists them.
//!
//! Source: DigitalOcean API v2, "List All Droplets", "Links & Pagination", "Rate Limit" (5000 requests an hour and token).

use std::net::IpAddr;

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::digital_ocean::{Droplet, PROVIDER_IDS, cluster_tag};
use kops_agent_cluster::identity::machine::ProviderIds;
use kops_agent_cluster::machine_id::IdForm;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use serde::Deserialize;

use super::facts;
use crate::api::{Api, ErrorBody, Meaning, null_is_empty};
use crate::inventory::{self, Bootstrap, ListApi, Listed, PageAt, Scope, Selection};
use crate::metadata::{MetadataError, MetadataService};
use crate::verify::{MachinePrefix, seconds_of};

#[derive(Deserialize)]
pub struct Page {
    droplets: Vec<Listing>,
    #[serde(default)]
    links: Links,
}

#[derive(Deserialize)]
pub struct One {
    droplet: Listing,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Links {
    pages: Pages,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pages {
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
    #[serde(default, deserialize_with = "null_is_empty")]
    created_at: String,
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
    /// A droplet that is being created may have no address yet.
    #[serde(default, deserialize_with = "null_is_empty")]
    ip_address: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Refusal {
    id: String,
}

const TOKEN_VARIABLE: &str = "DIGITALOCEAN_ACCESS_TOKEN";

static API: Api = Api {
    name: "DigitalOcean",
    limited: "project",
    read: |body| {
        let Refusal { id: code } = serde_json::from_slice(body).ok()?;
        Some(ErrorBody { code, message: String::new() })
    },
    meaning: Meaning::by_status,
    advice: |_action, status, _code| inventory::advice(TOKEN_VARIABLE, status),
};

#[async_trait::async_trait]
impl Listed for Droplet {
    const API: ListApi = ListApi {
        api: &API,
        service: "digitalocean",
        action: "droplets.list",
        action_of_one: "droplets.get",
        endpoint: "https://api.digitalocean.com",
        endpoint_variable: "DIGITALOCEAN_API_URL",
        token_variable: TOKEN_VARIABLE,
        token_header: ("authorization", "Bearer "),
        page: ("per_page", "200"),
        newest_first: &[],
    };
    const BOOTSTRAP: Bootstrap = Bootstrap {
        provider: "do",
        // Upstream: `upup/pkg/fi/cloudup/do/dometadata/authenticator.go`.
        token: IdToken { prefix: "x-digitalocean-droplet-id ", machine: "droplet", form: IdForm::Number },
        fact: "cloud.digitalOcean.dropletID",
        unavailable: "DigitalOceanUnavailable",
        no_address: ("NoPrivateAddress", "is in no private network, which the call-back needs"),
        // A droplet has sixteen addresses of the /64 of its data centre (DigitalOcean, "IPv6 on Droplets").
        machine_prefix: MachinePrefix::of_bits(124),
    };
    const PROVIDER_IDS: ProviderIds = PROVIDER_IDS;
    const PROVIDER: CloudProvider = CloudProvider::DigitalOcean;
    type Page = Page;
    type One = One;

    const METADATA: Option<(&'static str, &'static str)> = Some((facts::ENDPOINT, "/metadata/v1"));

    async fn observe(facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::ENDPOINT, retries)?;
        facts.digital_ocean = Some(facts::observe(&service).await?);
        Ok(())
    }

    fn id_of(facts: &CloudFacts) -> Option<&str> {
        facts.digital_ocean.as_ref().map(|facts| facts.droplet_id.as_str())
    }

    fn selection(scope: &Scope) -> Selection {
        let tag = cluster_tag(&scope.cluster);
        Selection { path: "/v2/droplets".into(), parameters: vec![("tag_name", tag)], ..Selection::default() }
    }

    fn of_page(page: Page, at: PageAt) -> (Vec<Droplet>, Option<u32>) {
        let next = page.links.pages.next.map(|_url| at.number + 1);
        (page.droplets.into_iter().map(Droplet::from).collect(), next)
    }

    fn of_one(One { droplet }: One, _scope: &Scope) -> Option<Droplet> {
        Some(droplet.into())
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
            created: seconds_of(&listing.created_at),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_incomplete_droplet_does_not_make_the_list_unreadable() {
        let page = r#"{"droplets": [
            {"id": 1, "name": "a", "status": "new", "tags": null, "networks": null},
            {"id": 2, "name": "b", "status": "new", "networks": {"v4": [{"ip_address": null, "type": "private"},
                {"ip_address": "", "type": "public"}, {"ip_address": "10.0.0.2", "type": "private"}], "v6": null}}]}"#;
        let (droplets, next) =
            Droplet::of_page(serde_json::from_str(page).unwrap(), PageAt { number: 1, total: None });
        assert_eq!((droplets.len(), next), (2, None));
        assert!(droplets[0].tags.is_empty() && droplets[0].private_ips.is_empty());
        assert_eq!(droplets[1].private_ips, [IpAddr::from([10, 0, 0, 2])]);
    }
}
