//! The servers of one cluster, as Scaleway's API lists them.
//!
//! Source: Scaleway's Instance API v1, "List all Instances", "Pagination", "Errors", and `scw/client.go`, `scw/errors.go` of its SDK.

use std::net::{IpAddr, Ipv4Addr};

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::machine::ProviderIds;
use kops_agent_cluster::identity::scaleway::{PROVIDER_IDS, ScalewayServer, cluster_tag, is_zone};
use kops_agent_cluster::machine_id::IdForm;
use kops_agent_net::retry::Retries;
use kops_agent_spec::CloudProvider;
use kops_agent_spec::facts::CloudFacts;
use serde::Deserialize;

use super::facts;
use crate::api::{Api, ApiError, ErrorBody, Meaning, null_is_empty};
use crate::cloud::WITHOUT_WAITING;
use crate::inventory::{self, Bootstrap, ListApi, Listed, PageAt, Scope, Selection, variable};
use crate::metadata::{MetadataError, MetadataService};
use crate::verify::{MachinePrefix, seconds_of};

/// The maximum number of servers on a page that Scaleway permits.
const PER_PAGE: u64 = 100;

#[derive(Deserialize)]
pub struct Page {
    servers: Vec<Listing>,
}

#[derive(Deserialize)]
pub struct One {
    server: Listing,
}

#[derive(Deserialize)]
struct Listing {
    id: String,
    name: String,
    state: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    project: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    zone: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    tags: Vec<String>,
    /// The private address. It is empty for servers with routed addresses, which kOps creates.
    #[serde(default, deserialize_with = "null_is_empty")]
    private_ip: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    public_ips: Vec<PublicIp>,
    #[serde(default, deserialize_with = "null_is_empty")]
    creation_date: String,
}

#[derive(Deserialize)]
struct PublicIp {
    #[serde(default, deserialize_with = "null_is_empty")]
    address: String,
}

/// An error of Scaleway may have a type, or only a message.
#[derive(Deserialize)]
struct Refusal {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

const TOKEN_VARIABLE: &str = "SCW_SECRET_KEY";
/// The project of the cluster. Upstream's kops-controller also needs this variable (upstream: `checkCredentials` in
/// `upup/pkg/fi/cloudup/scaleway/scalewaymetadata/profile.go`).
const PROJECT_VARIABLE: &str = "SCW_DEFAULT_PROJECT_ID";
/// The zone of the cluster. A cluster of kOps has one zone (upstream: `ParseZoneFromClusterSpec` in
/// `upup/pkg/fi/cloudup/scaleway/utils.go`). The default is the zone of this machine, as in upstream's `verifier.go`.
const ZONE_VARIABLE: &str = "SCW_DEFAULT_ZONE";

static API: Api = Api {
    name: "Scaleway",
    limited: "project",
    read: |body| {
        let Refusal { kind, message } = serde_json::from_slice(body).ok()?;
        let code = if kind.is_empty() { message } else { kind };
        (!code.is_empty()).then(|| ErrorBody { code, message: String::new() })
    },
    meaning: Meaning::by_status,
    advice: |_action, status, _code| inventory::advice(TOKEN_VARIABLE, status),
};

#[async_trait::async_trait]
impl Listed for ScalewayServer {
    const API: ListApi = ListApi {
        api: &API,
        service: "scaleway",
        action: "servers.list",
        action_of_one: "servers.get",
        endpoint: "https://api.scaleway.com",
        endpoint_variable: "SCW_API_URL",
        token_variable: TOKEN_VARIABLE,
        token_header: ("x-auth-token", ""),
        page: ("per_page", "100"),
        newest_first: &[("order", "creation_date_desc")],
    };
    const BOOTSTRAP: Bootstrap = Bootstrap {
        provider: "scaleway",
        // Upstream: `upup/pkg/fi/cloudup/scaleway/scalewaymetadata/authenticator.go`.
        token: IdToken { prefix: "x-scaleway-instance-server-id ", machine: "server", form: IdForm::Uuid },
        fact: "cloud.scaleway.serverID",
        unavailable: "ScalewayUnavailable",
        no_address: ("NoAddress", "has no IPv4 address for the call-back"),
        machine_prefix: MachinePrefix::NETWORK,
    };
    const PROVIDER_IDS: ProviderIds = PROVIDER_IDS;
    const PROVIDER: CloudProvider = CloudProvider::Scaleway;
    const VARIABLES: &'static [&'static [&'static str]] = &[&[TOKEN_VARIABLE, PROJECT_VARIABLE]];
    type Page = Page;
    type One = One;

    async fn observe(facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::ENDPOINT, retries)?;
        facts.scaleway = Some(facts::observe(&service).await?);
        Ok(())
    }

    fn id_of(facts: &CloudFacts) -> Option<&str> {
        facts.scaleway.as_ref().map(|facts| facts.server_id.as_str())
    }

    async fn scope(cluster: &str) -> Result<Scope, ApiError> {
        scope_of(cluster, variable(PROJECT_VARIABLE), variable(ZONE_VARIABLE), facts::ENDPOINT).await
    }

    fn selection(Scope { cluster, zone, project }: &Scope) -> Selection {
        Selection {
            path: format!("/instance/v1/zones/{zone}/servers"),
            parameters: vec![("tags", cluster_tag(cluster)), ("project", project.clone())],
            ..Selection::default()
        }
    }

    /// A response header contains the number of all servers. Without this header, a page that is not full is the last page.
    fn of_page(page: Page, PageAt { number, total }: PageAt) -> (Vec<ScalewayServer>, Option<u32>) {
        let has_next = match total {
            Some(total) => u64::from(number) * PER_PAGE < total,
            None => page.servers.len() as u64 >= PER_PAGE,
        };
        (page.servers.into_iter().filter_map(server).collect(), has_next.then(|| number + 1))
    }

    fn of_one(One { server: one }: One, scope: &Scope) -> Option<ScalewayServer> {
        (one.project == scope.project).then(|| server(one))?
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.private_ip.map(IpAddr::V4).into_iter().chain(self.public_ips.iter().copied()).collect()
    }
}

/// The location of a cluster from the environment. If the environment has no zone, the zone comes from the metadata service.
async fn scope_of(
    cluster: &str,
    project: Option<String>,
    zone: Option<String>,
    metadata: &str,
) -> Result<Scope, ApiError> {
    let unknown = |variable, problem: String, may_pass| ApiError::NoPlace { variable, problem, may_pass };
    let project = project.ok_or_else(|| {
        let problem = "is not set: give this process the project of the cluster, as kops-controller has it";
        unknown(PROJECT_VARIABLE, problem.into(), false)
    })?;
    let zone = match zone {
        Some(zone) => zone.trim().to_owned(),
        None => zone_of_metadata(metadata)
            .await
            .map_err(|error| unknown(ZONE_VARIABLE, format!("is not set, and {error}"), true))?,
    };
    if !is_zone(&zone) {
        let problem = format!("is {zone:?}, which is not a zone such as \"fr-par-1\"");
        return Err(unknown(ZONE_VARIABLE, problem, false));
    }
    Ok(Scope { cluster: cluster.to_owned(), zone, project: project.trim().to_owned() })
}

async fn zone_of_metadata(endpoint: &str) -> Result<String, MetadataError> {
    let service = MetadataService::new(endpoint, WITHOUT_WAITING)?;
    Ok(facts::observe(&service).await?.zone)
}

/// A server in the list; `None` if the id does not have the form of Scaleway's ids.
fn server(listing: Listing) -> Option<ScalewayServer> {
    Some(ScalewayServer {
        id: IdForm::Uuid.parse(&listing.id)?,
        zone: listing.zone,
        name: listing.name,
        state: listing.state,
        tags: listing.tags,
        private_ip: listing.private_ip.parse::<Ipv4Addr>().ok(),
        public_ips: listing.public_ips.iter().filter_map(|ip| ip.address.parse().ok()).collect(),
        created: seconds_of(&listing.creation_date),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::test_server::{TestServer, text};

    use super::*;

    const ID: &str = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";

    fn page(servers: &str) -> Page {
        serde_json::from_str(&format!(r#"{{"servers": [{servers}]}}"#)).unwrap()
    }

    #[test]
    fn an_incomplete_server_does_not_make_the_list_unreadable() {
        let servers = format!(
            r#"{{"id": "{ID}", "name": "a", "state": "starting", "zone": null, "tags": null, "private_ip": null, "public_ips": null}},
            {{"id": "not a uuid", "name": "b", "state": "running"}},
            {{"id": "{ID}", "name": "c", "state": "running", "zone": "fr-par-1", "private_ip": "10.1.0.2", "location": null,
              "public_ip": {{"address": "192.0.2.1"}}, "public_ips": [{{"address": null}}, {{"address": "2001:db8::1", "family": "inet6"}},
              {{"address": "192.0.2.1", "family": "inet"}}]}}"#
        );
        let (servers, next) = ScalewayServer::of_page(page(&servers), PageAt { number: 1, total: Some(3) });
        assert_eq!((servers.len(), next), (2, None));
        assert!(servers[0].tags.is_empty() && servers[0].addresses().is_empty());
        let expected: Vec<IpAddr> =
            ["10.1.0.2", "2001:db8::1", "192.0.2.1"].iter().map(|ip| ip.parse().unwrap()).collect();
        assert_eq!(servers[1].addresses(), expected);
    }

    #[test]
    fn the_last_page_is_known_by_the_total_or_by_its_length() {
        let next = |servers: usize, number, total| {
            let one = format!(r#"{{"id": "{ID}", "name": "a", "state": "running"}}"#);
            ScalewayServer::of_page(page(&vec![one; servers].join(",")), PageAt { number, total }).1
        };
        assert_eq!(next(100, 1, Some(100)), None);
        assert_eq!(next(100, 1, Some(101)), Some(2));
        // A page may be shorter than the requested maximum.
        assert_eq!(next(50, 1, Some(101)), Some(2));
        assert_eq!(next(1, 2, Some(101)), None);
        assert_eq!(next(100, 1, None), Some(2));
        assert_eq!(next(99, 1, None), None);
    }

    #[tokio::test]
    async fn the_zone_comes_from_the_environment_or_from_this_machine() {
        kops_agent_net::tls::install_provider();
        let metadata = TestServer::start(|_| async {
            Ok(text(200, &format!(r#"{{"id": "{ID}", "location": {{"zone_id": "pl-waw-2"}}}}"#)))
        })
        .await;
        let asked = async |project: Option<&str>, zone: Option<&str>, metadata: &str| {
            scope_of("c", project.map(str::to_owned), zone.map(str::to_owned), metadata).await
        };
        let scope = asked(Some(" p "), None, &metadata.url).await.unwrap();
        assert_eq!(scope, Scope { cluster: "c".into(), zone: "pl-waw-2".into(), project: "p".into() });
        let scope = asked(Some("p"), Some("fr-par-1\n"), "http://127.0.0.1:1").await.unwrap();
        assert_eq!(scope.zone, "fr-par-1");
        for (project, zone, expected) in [
            (None, Some("fr-par-1"), "SCW_DEFAULT_PROJECT_ID is not set: give this process the project"),
            (Some("p"), Some("../.."), "SCW_DEFAULT_ZONE is \"../..\", which is not a zone such as"),
        ] {
            let error = asked(project, zone, &metadata.url).await.unwrap_err();
            assert!(error.is_configuration() && error.to_string().contains(expected), "{error}");
        }
        let other = TestServer::start(|_| async { Ok(text(200, "<html>")) }).await;
        let error = asked(Some("p"), None, &other.url).await.unwrap_err();
        assert!(
            error.may_pass() && error.to_string().contains("SCW_DEFAULT_ZONE is not set, and "),
            "{error}"
        );
    }
}
