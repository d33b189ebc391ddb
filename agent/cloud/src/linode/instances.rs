//! The instances of one cluster, as Linode's API lists them.
//!
//! Source: Linode API v4, "List Linodes", "Pagination", "Filtering and sorting", "Rate limits" (some hundred requests a
//! minute for a list, by the token's user), "Errors".

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::linode::{LinodeInstance, PROVIDER_IDS, cluster_tag};
use kops_agent_cluster::identity::machine::ProviderIds;
use kops_agent_cluster::machine_id::IdForm;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use serde::Deserialize;
use serde_json::json;

use super::facts;
use crate::api::{Api, ErrorBody, Meaning, null_is_empty};
use crate::inventory::{self, Bootstrap, ListApi, Listed, PageAt, Scope, Selection};
use crate::metadata::{MetadataError, MetadataService};
use crate::verify::{MachinePrefix, seconds_of};

#[derive(Deserialize)]
pub struct Page {
    data: Vec<Listing>,
    pages: u32,
}

#[derive(Deserialize)]
pub struct Listing {
    id: u64,
    label: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    region: String,
    status: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "null_is_empty")]
    ipv4: Vec<String>,
    /// The address and the length of its prefix.
    #[serde(default, deserialize_with = "null_is_empty")]
    ipv6: String,
    /// The time of creation in UTC, without a zone.
    #[serde(default, deserialize_with = "null_is_empty")]
    created: String,
}

#[derive(Deserialize)]
struct Refusal {
    errors: Vec<RefusalError>,
}

#[derive(Deserialize)]
struct RefusalError {
    reason: String,
}

const TOKEN_VARIABLE: &str = "LINODE_TOKEN";

/// Linode's API, and how it reports errors. The text of an error serves as the error code.
static API: Api = Api {
    name: "Linode",
    limited: "token",
    read: |body| {
        let Refusal { errors } = serde_json::from_slice(body).ok()?;
        let RefusalError { reason: code } = errors.into_iter().next()?;
        Some(ErrorBody { code, message: String::new() })
    },
    meaning: Meaning::by_status,
    advice: |_action, status, _code| inventory::advice(TOKEN_VARIABLE, status),
};

#[async_trait::async_trait]
impl Listed for LinodeInstance {
    const API: ListApi = ListApi {
        api: &API,
        service: "linode",
        action: "linodes.list",
        action_of_one: "linodes.get",
        endpoint: "https://api.linode.com",
        endpoint_variable: "LINODE_URL",
        token_variable: TOKEN_VARIABLE,
        token_header: ("authorization", "Bearer "),
        page: ("page_size", "500"),
        newest_first: &[],
    };
    const BOOTSTRAP: Bootstrap = Bootstrap {
        provider: "linode",
        // Upstream: `upup/pkg/fi/cloudup/linode/linodemetadata/authenticator.go`.
        token: IdToken { prefix: "x-linode-instance-id ", machine: "instance", form: IdForm::Number },
        fact: "cloud.linode.id",
        unavailable: "LinodeUnavailable",
        no_address: ("NoPrivateAddress", "has no private IPv4 address for the call-back"),
        // An instance has one address of a /64 that several instances share (Linode, "An overview of IPv6 on Linode": SLAAC).
        machine_prefix: MachinePrefix::of_bits(128),
    };
    const PROVIDER_IDS: ProviderIds = PROVIDER_IDS;
    const PROVIDER: CloudProvider = CloudProvider::Linode;
    type Page = Page;
    type One = Listing;

    async fn observe(facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::ENDPOINT, retries)?;
        facts.linode = Some(facts::observe(&service).await?);
        Ok(())
    }

    fn id_of(facts: &CloudFacts) -> Option<&str> {
        facts.linode.as_ref().map(|facts| facts.id.as_str())
    }

    /// Selects by a part of a tag, like upstream (`ListOptionsForTags` in `upup/pkg/fi/cloudup/linode/cloud.go`). Therefore the list also
    /// contains instances of clusters whose names begin with this cluster's name. The complete tags distinguish the clusters.
    fn selection(scope: &Scope) -> Selection {
        let filter = json!({"tags": {"+contains": cluster_tag(&scope.cluster)}});
        Selection {
            path: "/v4/linode/instances".into(),
            header: Some(("x-filter", filter.to_string())),
            ..Selection::default()
        }
    }

    fn of_page(page: Page, at: PageAt) -> (Vec<LinodeInstance>, Option<u32>) {
        let next = (at.number < page.pages).then(|| at.number + 1);
        (page.data.into_iter().map(LinodeInstance::from).collect(), next)
    }

    fn of_one(one: Listing, _scope: &Scope) -> Option<LinodeInstance> {
        Some(one.into())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.ipv4.iter().copied().map(IpAddr::V4).chain(self.ipv6.map(IpAddr::V6)).collect()
    }
}

impl From<Listing> for LinodeInstance {
    fn from(listing: Listing) -> LinodeInstance {
        let ipv6 = listing.ipv6.split('/').next().unwrap_or_default();
        LinodeInstance {
            id: listing.id,
            label: listing.label,
            region: listing.region,
            status: listing.status,
            tags: listing.tags,
            ipv4: listing.ipv4.iter().filter_map(|address| address.parse::<Ipv4Addr>().ok()).collect(),
            ipv6: ipv6.parse::<Ipv6Addr>().ok(),
            created: seconds_of(&listing.created),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_incomplete_instance_does_not_make_the_list_unreadable() {
        let page = r#"{"page": 1, "pages": 2, "results": 101, "data": [
            {"id": 1, "label": "a", "status": "provisioning", "tags": null, "ipv4": null, "ipv6": null},
            {"id": 2, "label": "b", "status": "running", "ipv4": ["203.0.113.15", "", "192.168.152.10"],
             "ipv6": "2600:3c00::f03c:94ff:fe6e:1/128", "interface_generation": "linode"}]}"#;
        let at = |number| {
            LinodeInstance::of_page(serde_json::from_str(page).unwrap(), PageAt { number, total: None })
        };
        let (instances, next) = at(1);
        assert_eq!((instances.len(), next, at(2).1), (2, Some(2), None));
        assert!(instances[0].tags.is_empty() && instances[0].addresses().is_empty());
        let expected: [IpAddr; 3] = [
            [203, 0, 113, 15].into(),
            [192, 168, 152, 10].into(),
            "2600:3c00::f03c:94ff:fe6e:1".parse().unwrap(),
        ];
        assert_eq!(instances[1].addresses(), expected);
    }

    #[test]
    fn a_name_is_quoted_in_the_filter() {
        let Selection { header, .. } = LinodeInstance::selection(&Scope::from("c\"}.example.com"));
        let filter: serde_json::Value = serde_json::from_str(&header.unwrap().1).unwrap();
        assert_eq!(filter, json!({"tags": {"+contains": "kops.k8s.io/cluster:c\"}.example.com"}}));
    }
}
