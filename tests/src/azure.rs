//! A stand-in for Azure Resource Manager and for managed identities, as far as the agent uses them. It serves the scale sets of one
//! resource group, with their machines and network interfaces. It can refuse requests and fail. [`metadata`] has the signed documents.
//!
//! Source: Azure Compute and Azure Network REST APIs; Azure Resource Manager, "Common error codes".

pub mod metadata;

use std::collections::BTreeMap;
use std::net::IpAddr;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::stand_in_api::{StandInApi, elsewhere, header, parameters, said};

/// The only subscription of the stand-in.
pub const SUBSCRIPTION: &str = "0f3a7e62-0000-4000-8000-000000000001";
/// The resource group of all machines.
pub const RESOURCE_GROUP: &str = "Kops-C";
pub const CLUSTER_TAG: &str = "KubernetesCluster";
pub const INSTANCE_GROUP_TAG: &str = "kops.k8s.io_instancegroup";
const TOKEN: &str = "a-token-for-management";
const REVOKED: &str = "a-token-that-is-revoked";

/// A machine of a scale set.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub vm_id: String,
    /// The host name of the machine's operating system.
    pub computer_name: String,
    /// The power state, for example `running`.
    pub power: String,
    pub tags: BTreeMap<String, String>,
    pub private_ips: Vec<IpAddr>,
    /// When the machine was created, in the API's format.
    pub created: String,
}

impl Machine {
    /// A running worker of this group.
    pub fn of_group(cluster: &str, group: &str, computer_name: &str, private_ip: IpAddr) -> Machine {
        let tags = [(CLUSTER_TAG, cluster), (INSTANCE_GROUP_TAG, group), ("k8s.io_role_node", "1")];
        Machine {
            vm_id: format!("5c08b38e-4d57-4c23-ac45-{computer_name}"),
            computer_name: computer_name.to_owned(),
            power: "running".into(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            private_ips: vec![private_ip],
            created: "2026-01-30T23:55:00.1234567+00:00".into(),
        }
    }
}

/// The way in which Azure Resource Manager responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Answers 429, with this many seconds in the header `Retry-After`.
    Throttling(u64),
    /// Answers 503.
    Down,
    Forbidding,
    /// Answers 404: the resource group does not exist.
    WithoutGroup,
    /// Issues one token that the API rejects with 401. After this token, the mood is `Good`.
    Revoking,
    /// Answers with HTML instead of JSON.
    Babbling,
    /// Answers with only the beginning of a JSON document.
    Truncating,
    /// Answers with pages that always name a next page.
    Endless,
    /// Answers with pages whose next page is on a different host.
    LeadingAstray,
    Redirecting,
    /// Never answers.
    Silent,
}

#[derive(Debug, Default)]
struct State {
    scale_sets: BTreeMap<String, BTreeMap<u32, Machine>>,
    alone: BTreeMap<String, Machine>,
    mood: Mood,
    page: usize,
    calls: Vec<String>,
    tokens: usize,
}

/// A running stand-in for Azure Resource Manager. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Azure(StandInApi<State>);

impl Azure {
    /// Starts the stand-in without machines.
    pub fn start() -> anyhow::Result<Azure> {
        let state = State { page: 120, ..State::default() };
        Ok(Azure(StandInApi::start("azure", state, |request, state| {
            let host = header(&request, "host").to_owned();
            let response = answer(&request, &host, &mut state.lock());
            async move { response }
        })?))
    }

    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Adds or replaces a machine. If its scale set is missing, adds the scale set.
    pub fn put(&self, scale_set: &str, number: u32, machine: Machine) {
        self.0.state().scale_sets.entry(scale_set.to_owned()).or_default().insert(number, machine);
    }

    /// Adds or replaces a machine outside of scale sets.
    pub fn put_alone(&self, name: &str, machine: Machine) {
        self.0.state().alone.insert(name.to_owned(), machine);
    }

    pub fn remove(&self, scale_set: &str, number: u32) {
        if let Some(set) = self.0.state().scale_sets.get_mut(scale_set) {
            set.remove(&number);
        }
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// Sets the maximum number of items on a page.
    pub fn set_page(&self, items: usize) {
        self.0.state().page = items;
    }

    /// The paths of all requests so far, except those to the metadata service.
    pub fn calls(&self) -> Vec<String> {
        self.0.state().calls.clone()
    }

    pub fn tokens(&self) -> usize {
        self.0.state().tokens
    }
}

pub fn resource_id(scale_set: &str, number: u32) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/{scale_set}/\
         virtualMachines/{number}"
    )
}

/// The resource id of a machine outside of scale sets.
pub fn resource_id_alone(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers/Microsoft.Compute/virtualMachines/{name}"
    )
}

fn answer(request: &Request<Incoming>, host: &str, state: &mut State) -> Option<Response<String>> {
    let path = request.uri().path();
    match path {
        "/metadata/identity/oauth2/token" => return Some(token(request, state)),
        // The control plane, whose machine has the managed identity, reads its own subscription and resource group here.
        "/metadata/instance/compute" => {
            let place = json!({"subscriptionId": SUBSCRIPTION, "resourceGroupName": RESOURCE_GROUP});
            return Some(said(200, place.to_string()));
        }
        _ => {}
    }
    state.calls.push(path.to_owned());
    if header(request, "authorization") != format!("Bearer {TOKEN}") {
        return Some(refusal(401, "ExpiredAuthenticationToken"));
    }
    Some(match state.mood {
        Mood::Throttling(seconds) => {
            let mut response = refusal(429, "TooManyRequests");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            response
        }
        Mood::Down => refusal(503, "ServerTimeout"),
        Mood::Forbidding => refusal(403, "AuthorizationFailed"),
        Mood::WithoutGroup => refusal(404, "ResourceGroupNotFound"),
        Mood::Babbling => said(200, "<html>Welcome</html>"),
        Mood::Truncating => said(200, "{\"value\": [{\"name\": \"no"),
        Mood::Redirecting => elsewhere(302, path),
        Mood::Silent => return None,
        Mood::Good | Mood::Revoking | Mood::Endless | Mood::LeadingAstray => list(request, host, state),
    })
}

fn token(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    let is_for_management =
        parameters(request).get("resource").is_some_and(|of| of == "https://management.azure.com/");
    if header(request, "metadata") != "true" || !is_for_management {
        return said(400, r#"{"error": "invalid_request"}"#);
    }
    state.tokens += 1;
    let token = if state.mood == Mood::Revoking { REVOKED } else { TOKEN };
    state.mood = if state.mood == Mood::Revoking { Mood::Good } else { state.mood };
    said(200, format!(r#"{{"access_token": "{token}", "expires_in": "86399"}}"#))
}

fn list(request: &Request<Incoming>, host: &str, state: &State) -> Response<String> {
    let asked = parameters(request);
    let path = request.uri().path();
    let providers = format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers/");
    let Some(rest) = path.strip_prefix(&providers) else { return refusal(404, "ResourceGroupNotFound") };
    let parts: Vec<&str> = rest.split('/').collect();
    let set = |name: &str| {
        let found = state.scale_sets.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(own, machines)| (own.as_str(), machines))
    };
    let items: Vec<Value> = match parts.as_slice() {
        ["Microsoft.Compute", "virtualMachines"] => {
            state.alone.iter().map(|(name, machine)| machine_alone_json(name, machine)).collect()
        }
        ["Microsoft.Network", "networkInterfaces"] => {
            state.alone.iter().map(|(name, machine)| interface_alone_json(name, machine)).collect()
        }
        ["Microsoft.Compute", "virtualMachineScaleSets"] => state
            .scale_sets
            .keys()
            .map(|name| json!({"name": name, "location": "westeurope", "tags": {}}))
            .collect(),
        ["Microsoft.Compute", "virtualMachineScaleSets", name, "virtualMachines"] => {
            let Some((name, machines)) = set(name) else { return refusal(404, "ResourceNotFound") };
            let has_view = asked.get("$expand").is_some_and(|expand| expand == "instanceView");
            machines.iter().map(|(number, machine)| machine_json(name, *number, machine, has_view)).collect()
        }
        ["Microsoft.Compute", "virtualMachineScaleSets", name, "networkInterfaces"] => {
            let Some((name, machines)) = set(name) else { return refusal(404, "ResourceNotFound") };
            machines.iter().map(|(number, machine)| interface_json(name, *number, machine)).collect()
        }
        _ => return refusal(404, "InvalidResourceType"),
    };
    if !asked.contains_key("api-version") {
        return refusal(400, "MissingApiVersionParameter");
    }
    let start = asked.get("$skiptoken").and_then(|start| start.parse().ok()).unwrap_or(0);
    let page: Vec<&Value> = items.iter().skip(start).take(state.page).collect();
    let mut answer = json!({ "value": page });
    if start + state.page < items.len() || state.mood == Mood::Endless {
        let query: String = asked
            .iter()
            .filter(|(name, _)| *name != "$skiptoken")
            .map(|(name, value)| format!("{name}={value}&"))
            .collect();
        answer["nextLink"] = format!("http://{host}{path}?{query}$skiptoken={}", start + state.page).into();
    }
    if state.mood == Mood::LeadingAstray {
        answer["nextLink"] = format!("http://localhost:1{path}").into();
    }
    said(200, answer.to_string())
}

fn machine_json(set: &str, number: u32, machine: &Machine, has_view: bool) -> Value {
    let mut answer = json!({"name": format!("{set}_{number}"), "instanceId": number.to_string(), "tags": machine.tags,
        "id": resource_id(&set.to_uppercase(), number), "properties": {"vmId": machine.vm_id, "provisioningState": "Succeeded",
        "timeCreated": machine.created, "osProfile": {"computerName": machine.computer_name, "adminUsername": "kops"}}});
    if has_view {
        let codes = ["ProvisioningState/succeeded".to_owned(), format!("PowerState/{}", machine.power)];
        answer["properties"]["instanceView"]["statuses"] =
            codes.map(|code| json!({"code": code, "level": "Info"})).into();
    }
    answer
}

fn interface_json(set: &str, number: u32, machine: &Machine) -> Value {
    let configurations: Vec<Value> = machine
        .private_ips
        .iter()
        .map(|ip| json!({"name": set, "properties": {"privateIPAddress": ip, "primary": true}}))
        .collect();
    json!({"name": set, "id": format!("{}/networkInterfaces/{set}", resource_id(set, number)),
           "properties": {"primary": true, "ipConfigurations": configurations}})
}

fn machine_alone_json(name: &str, machine: &Machine) -> Value {
    json!({"name": name, "id": resource_id_alone(name), "tags": machine.tags, "properties": {"vmId": machine.vm_id,
        "provisioningState": "Succeeded", "timeCreated": machine.created, "osProfile": {"computerName": machine.computer_name}}})
}

fn interface_alone_json(name: &str, machine: &Machine) -> Value {
    let configurations: Vec<Value> =
        machine.private_ips.iter().map(|ip| json!({"properties": {"privateIPAddress": ip}})).collect();
    json!({"name": format!("{name}-nic"), "id": format!("/x/networkInterfaces/{name}-nic"), "properties": {"primary": true,
        "virtualMachine": {"id": resource_id_alone(&name.to_uppercase())}, "ipConfigurations": configurations}})
}

fn refusal(status: u16, code: &str) -> Response<String> {
    said(status, json!({"error": {"code": code, "message": "no"}}).to_string())
}
