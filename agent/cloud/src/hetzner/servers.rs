//! The servers of one cluster, as Hetzner Cloud's API lists them.
//!
//! Source: Hetzner Cloud API, "Servers", "Label Selector", "Pagination", "Rate Limiting" (3600 requests an hour and project).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use kops_agent_cluster::bootstrap::id_token::IdToken;
use kops_agent_cluster::identity::hetzner::{CLUSTER_LABEL, HetznerServer, PROVIDER_IDS};
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
    servers: Vec<Server>,
    meta: Meta,
}

#[derive(Deserialize)]
pub struct One {
    server: Server,
}

#[derive(Deserialize)]
struct Meta {
    pagination: Pagination,
}

#[derive(Deserialize)]
struct Pagination {
    next_page: Option<u32>,
}

#[derive(Deserialize)]
struct Server {
    id: u64,
    name: String,
    status: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    public_net: Option<PublicNet>,
    #[serde(default)]
    private_net: Vec<PrivateNet>,
    #[serde(default, deserialize_with = "null_is_empty")]
    created: String,
}

#[derive(Deserialize)]
struct PublicNet {
    ipv4: Option<PublicIpv4>,
}

#[derive(Deserialize)]
struct PublicIpv4 {
    ip: Ipv4Addr,
}

#[derive(Deserialize)]
struct PrivateNet {
    ip: IpAddr,
}

#[derive(Deserialize)]
struct Refusal {
    error: RefusalError,
}

#[derive(Deserialize)]
struct RefusalError {
    code: String,
}

const TOKEN_VARIABLE: &str = "HCLOUD_TOKEN";

static API: Api = Api {
    name: "Hetzner Cloud",
    limited: "project",
    read: |body| {
        let Refusal { error: RefusalError { code } } = serde_json::from_slice(body).ok()?;
        Some(ErrorBody { code, message: String::new() })
    },
    meaning: Meaning::by_status,
    advice: |_action, status, _code| inventory::advice(TOKEN_VARIABLE, status),
};

#[async_trait::async_trait]
impl Listed for HetznerServer {
    const API: ListApi = ListApi {
        api: &API,
        service: "hcloud",
        action: "servers.list",
        action_of_one: "servers.get",
        endpoint: "https://api.hetzner.cloud/v1",
        endpoint_variable: "HCLOUD_ENDPOINT",
        token_variable: TOKEN_VARIABLE,
        token_header: ("authorization", "Bearer "),
        page: ("per_page", "50"),
        newest_first: &[("sort", "created:desc")],
    };
    const BOOTSTRAP: Bootstrap = Bootstrap {
        provider: "hetzner",
        // Upstream: `pkg/bootstrap/hetznermetadata`.
        token: IdToken { prefix: "x-hetzner-id ", machine: "server", form: IdForm::Number },
        fact: "cloud.hetzner.instanceID",
        unavailable: "HetznerUnavailable",
        no_address: ("NoPrivateAddress", "is in no private network, which the call-back needs"),
        machine_prefix: MachinePrefix::NETWORK,
    };
    const PROVIDER_IDS: ProviderIds = PROVIDER_IDS;
    const PROVIDER: CloudProvider = CloudProvider::Hetzner;
    type Page = Page;
    type One = One;

    async fn observe(facts: &mut CloudFacts, retries: Retries) -> Result<(), MetadataError> {
        let service = MetadataService::new(facts::ENDPOINT, retries)?;
        facts.hetzner = Some(facts::observe(&service).await?);
        Ok(())
    }

    fn id_of(facts: &CloudFacts) -> Option<&str> {
        facts.hetzner.as_ref().map(|facts| facts.instance_id.as_str())
    }

    fn selection(scope: &Scope) -> Selection {
        let cluster = format!("{CLUSTER_LABEL}=={}", scope.cluster);
        Selection {
            path: "/servers".into(),
            parameters: vec![("label_selector", cluster)],
            ..Selection::default()
        }
    }

    fn of_page(page: Page, _at: PageAt) -> (Vec<HetznerServer>, Option<u32>) {
        (page.servers.into_iter().map(HetznerServer::from).collect(), page.meta.pagination.next_page)
    }

    fn of_one(One { server }: One, _scope: &Scope) -> Option<HetznerServer> {
        Some(server.into())
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.public_ipv4.map(IpAddr::V4).into_iter().chain(self.private_ips.iter().copied()).collect()
    }
}

impl From<Server> for HetznerServer {
    fn from(server: Server) -> HetznerServer {
        HetznerServer {
            id: server.id,
            name: server.name,
            status: server.status,
            labels: server.labels,
            public_ipv4: server.public_net.and_then(|net| net.ipv4).map(|ipv4| ipv4.ip),
            private_ips: server.private_net.into_iter().map(|net| net.ip).collect(),
            created: seconds_of(&server.created),
        }
    }
}
