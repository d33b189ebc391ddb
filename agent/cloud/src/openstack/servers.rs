//! The servers of one cluster, as Nova lists them. All servers of the project are read page by page, and the servers whose metadata names
//! the cluster are kept. Only administrators may select servers by metadata in Nova.
//!
//! Source: Compute API v2.1, "List Servers Detailed", "Paginated collections", "Faults".

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::machine::ProviderIds;
use kops_agent_cluster::identity::openstack::{OpenstackServer, PROVIDER_IDS, ServerAddress};
use kops_agent_cluster::machine_id::IdForm;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use serde::Deserialize;

use super::keystone::{self, AUTH_TOKEN, Keystone};
use super::settings::{AUTH_URL, Settings};
use crate::api::{Api, ApiError, null_is_empty};
use crate::calls::CloudCalls;
use crate::inventory::{Bootstrap, ListApi, Listed, Login, PageAt, PagedBy, ProvenBy, Scope, Selection};
use crate::metadata::MetadataError;
use crate::verify::{MachinePrefix, seconds_of};

/// Nova's service type in Keystone's catalog.
const COMPUTE: &str = "compute";

#[derive(Deserialize)]
pub struct Page {
    servers: Vec<Listing>,
    #[serde(default, deserialize_with = "null_is_empty")]
    servers_links: Vec<Link>,
}

#[derive(Deserialize)]
pub struct One {
    server: Listing,
}

#[derive(Deserialize)]
struct Listing {
    id: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    name: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    status: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    metadata: BTreeMap<String, String>,
    /// Keyed by the name of the network.
    #[serde(default, deserialize_with = "null_is_empty")]
    addresses: BTreeMap<String, Vec<Address>>,
    /// The creation time. Nova's `OS-SRV-USG:launched_at` is not suitable, because Nova also sets it after a resize (nova: `_finish_resize`
    /// in `nova/compute/manager.py`). After a resize, the pods of the server's Node can be older than `launched_at`.
    #[serde(default, deserialize_with = "null_is_empty")]
    created: String,
}

#[derive(Deserialize)]
struct Address {
    #[serde(default, deserialize_with = "null_is_empty")]
    addr: String,
    /// `fixed` or `floating`.
    #[serde(rename = "OS-EXT-IPS:type", default, deserialize_with = "null_is_empty")]
    kind: String,
}

#[derive(Deserialize)]
struct Link {
    #[serde(default, deserialize_with = "null_is_empty")]
    rel: String,
}

static API: Api = Api {
    name: "Nova",
    limited: "project",
    read: keystone::read,
    meaning: keystone::meaning,
    advice: |_action, status, _code| match status {
        401 | 403 => {
            "; may the user or the application credential of OS_… read the servers of this cluster's project?"
                .to_owned()
        }
        _ => String::new(),
    },
};

#[async_trait::async_trait]
impl Listed for OpenstackServer {
    const API: ListApi = ListApi {
        api: &API,
        service: "nova",
        action: "servers.list",
        action_of_one: "servers.get",
        endpoint: "https://nova.example.com:8774/v2.1",
        endpoint_variable: AUTH_URL,
        token_variable: AUTH_URL,
        token_header: (AUTH_TOKEN, ""),
        page: ("limit", "1000"),
        newest_first: &[("sort_key", "created_at"), ("sort_dir", "desc")],
    };
    const BOOTSTRAP: Bootstrap = Bootstrap {
        provider: "openstack",
        // Upstream: `upup/pkg/fi/cloudup/openstack/openstackmetadata/authenticator.go`.
        token: IdToken { prefix: "x-openstack-id ", machine: "server", form: IdForm::Uuid },
        fact: "cloud.openstack.serverID",
        unavailable: "OpenStackUnavailable",
        no_address: ("NoAddress", "has no address of its own"),
        // A machine has single addresses of a subnet, not a range, so all 128 bits identify the machine. The source address proves the
        // machine's identity.
        machine_prefix: MachinePrefix::of_bits(128),
    };
    const PROVIDER_IDS: ProviderIds = PROVIDER_IDS;
    const PROVIDER: CloudProvider = CloudProvider::Openstack;
    /// Upstream's `verifier.go` also uses the address as the proof. kOps opens no port of nodes for the call-back (`addKopsControllerRules`
    /// in `pkg/model/openstackmodel/firewall.go`), and puts port 3988 behind no load balancer.
    const PROVEN_BY: ProvenBy = ProvenBy::Address;
    const PAGED_BY: PagedBy = PagedBy::Marker;
    type Page = Page;
    type One = One;

    /// Requests no facts, because OpenStack's facts are requested only if the configuration needs them.
    async fn observe(_facts: &mut CloudFacts, _retries: Retries) -> Result<(), MetadataError> {
        Ok(())
    }

    fn id_of(facts: &CloudFacts) -> Option<&str> {
        facts.openstack.as_ref().map(|facts| facts.server_id.as_str()).filter(|id| !id.is_empty())
    }

    fn login(calls: &CloudCalls) -> Result<Option<Arc<dyn Login>>, ApiError> {
        Ok(Some(Arc::new(Keystone::new(Settings::of_environment()?, COMPUTE, calls.clone())?)))
    }

    fn selection(_scope: &Scope) -> Selection {
        Selection { path: "/servers/detail".into(), machines: Some("/servers"), ..Selection::default() }
    }

    /// A link `next` on a page means that there may be a next page.
    fn of_page(page: Page, PageAt { number, .. }: PageAt) -> (Vec<OpenstackServer>, Option<u32>) {
        let has_next = page.servers_links.iter().any(|link| link.rel == "next");
        (page.servers.into_iter().filter_map(server).collect(), has_next.then(|| number + 1))
    }

    fn of_one(one: One, _scope: &Scope) -> Option<OpenstackServer> {
        server(one.server)
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|address| address.address).collect()
    }

    fn is_listed_for(&self, cluster: &str) -> bool {
        self.names_cluster(cluster)
    }
}

/// A server in the list; `None` if the id does not have the form of Nova's ids.
fn server(listing: Listing) -> Option<OpenstackServer> {
    let of_network = |(network, addresses): (String, Vec<Address>)| {
        addresses.into_iter().filter_map(move |Address { addr, kind }| {
            let address = addr.parse().ok()?;
            Some(ServerAddress { network: network.clone(), address, is_floating: kind == "floating" })
        })
    };
    Some(OpenstackServer {
        id: IdForm::Uuid.parse(&listing.id)?,
        name: listing.name,
        status: listing.status,
        metadata: listing.metadata,
        addresses: listing.addresses.into_iter().flat_map(of_network).collect(),
        created: seconds_of(&listing.created),
    })
}

#[cfg(any(test, feature = "testing"))]
impl crate::inventory::Inventory<OpenstackServer> {
    /// Uses the login in these variables.
    pub fn with_login(
        variables: &[(&str, String)],
        cluster: &str,
        calls: CloudCalls,
    ) -> Result<Self, ApiError> {
        let settings = Settings::from_variables(&|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.clone())
        })?;
        let login = Keystone::new(settings, COMPUTE, calls.clone())?;
        crate::inventory::Inventory::behind(Arc::new(login), cluster, calls)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ID: &str = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";

    fn page(text: &str) -> (Vec<OpenstackServer>, Option<u32>) {
        OpenstackServer::of_page(serde_json::from_str(text).unwrap(), PageAt { number: 1, total: None })
    }

    #[test]
    fn an_incomplete_server_does_not_make_the_list_unreadable() {
        let (servers, next) = page(&format!(
            r#"{{"servers": [
                {{"id": "{ID}", "name": null, "status": "BUILD", "metadata": null, "addresses": {{}}}},
                {{"id": "17", "name": "b", "status": "ACTIVE"}},
                {{"id": "{ID}", "name": "c", "status": "ACTIVE", "accessIPv4": "", "metadata": {{"KubernetesCluster": "c"}},
                  "addresses": {{"net": [
                    {{"addr": "10.0.0.2", "version": 4, "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16"}},
                    {{"addr": "192.0.2.7", "version": 4, "OS-EXT-IPS:type": "floating"}},
                    {{"addr": "none", "version": 4}}, {{"addr": "2001:db8::2"}}]}}}}],
               "servers_links": null}}"#
        ));
        assert_eq!((servers.len(), next), (2, None));
        assert!(servers[0].addresses.is_empty() && !servers[0].is_listed_for("c"));
        let addresses = servers[1].addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(addresses, ["10.0.0.2", "192.0.2.7", "2001:db8::2"]);
        let floating = servers[1].addresses.iter().map(|address| address.is_floating);
        assert_eq!(floating.collect::<Vec<_>>(), [false, true, false]);
        assert!(servers[1].is_listed_for("c") && !servers[1].is_listed_for("c.example.com"));
    }

    #[test]
    fn a_next_link_means_another_page() {
        for (links, next) in [
            (r#"[{"rel": "next", "href": "http://elsewhere.example.com/"}]"#, Some(2)),
            (r#"[{"rel": "previous"}]"#, None),
            ("[]", None),
        ] {
            assert_eq!(page(&format!(r#"{{"servers": [], "servers_links": {links}}}"#)).1, next, "{links}");
        }
        assert_eq!(page(r#"{"servers": []}"#).1, None);
    }
}
