//! Responses in the form of Google's responses.

use std::collections::BTreeMap;

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use serde_json::{Value, json};

use crate::stand_in_api::{elsewhere, header, parameters, said};

use super::{Group, Instance, Mood, PROJECT, State, Template, ZONE};

const METADATA: &str = "/computeMetadata/v1/";

pub(super) fn answer(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    match request.uri().path().strip_prefix(METADATA) {
        Some(item) => metadata(request, item, state),
        None => compute(request, state),
    }
}

fn metadata(request: &Request<Incoming>, item: &str, state: &mut State) -> Response<String> {
    if header(request, "metadata-flavor") != "Google" {
        return said(403, "Missing required header \"Metadata-Flavor\": \"Google\"");
    }
    match item {
        "project/project-id" => said(200, PROJECT),
        "instance/zone" => said(200, format!("projects/123/zones/{ZONE}")),
        "instance/name" => said(200, "control-plane-x1y2"),
        "instance/hostname" => said(200, format!("control-plane-x1y2.{ZONE}.c.{PROJECT}.internal")),
        "instance/service-accounts/default/token" => {
            state.tokens += 1;
            let token = json!({"access_token": token(state), "expires_in": 3599, "token_type": "Bearer"});
            said(200, token.to_string())
        }
        _ => said(404, ""),
    }
}

/// The only token that Compute Engine currently accepts.
fn token(state: &State) -> String {
    format!("ya29.{}", state.tokens)
}

fn compute(request: &Request<Incoming>, state: &mut State) -> Response<String> {
    let below = format!("/compute/v1/projects/{PROJECT}/");
    let Some(path) = request.uri().path().strip_prefix(&below) else {
        return refusal(404, "notFound", "The resource was not found");
    };
    let parts: Vec<&str> = path.split('/').collect();
    let (action, method) = match parts.as_slice() {
        ["zones", _, "instanceGroupManagers"] => ("instanceGroupManagers.list", Method::GET),
        ["zones", _, "instanceGroupManagers", _, "listManagedInstances"] => {
            ("instanceGroupManagers.listManagedInstances", Method::POST)
        }
        ["zones"] => ("zones.list", Method::GET),
        ["global", "instanceTemplates", _] => ("instanceTemplates.get", Method::GET),
        ["zones", _, "instances"] => ("instances.list", Method::GET),
        ["zones", _, "instances", _] => ("instances.get", Method::GET),
        ["zones", _, "instances", _, "getShieldedInstanceIdentity"] => {
            ("instances.getShieldedInstanceIdentity", Method::GET)
        }
        _ => return said(404, "<html>Not Found</html>"),
    };
    state.calls.push(action.to_owned());
    let expected = format!("Bearer {}", token(state));
    let lets_in = header(request, "authorization") == expected;
    match state.mood {
        Mood::Throttling => return refusal(403, "rateLimitExceeded", "Quota exceeded for quota metric"),
        Mood::Down => return refusal(503, "backendError", "Internal error"),
        Mood::Forbidding => return refusal(403, "forbidden", "Required permission"),
        Mood::Redirecting => return elsewhere(302, "/elsewhere"),
        Mood::Revoking => {
            state.mood = Mood::Good;
            return refusal(401, "authError", "Invalid Credentials");
        }
        Mood::Good if !lets_in => return refusal(401, "authError", "Invalid Credentials"),
        Mood::Good => {}
    }
    if request.method() != method {
        return said(404, "<html>Not Found</html>");
    }
    if method == Method::POST && !request.headers().contains_key("content-length") {
        return said(411, "<html>POST requests require a Content-length header</html>");
    }
    let query = parameters(request);
    match parts.as_slice() {
        ["zones"] => page("items", ["us-other1-a", ZONE].map(zone).into(), &query, state.page),
        ["zones", zone, ..] if *zone != ZONE => missing(&format!("zones/{zone}")),
        ["zones", _, "instanceGroupManagers"] => {
            let groups = state.groups.iter().map(|(name, of_name)| group(name, of_name)).collect();
            page("items", groups, &query, state.page)
        }
        ["zones", _, "instanceGroupManagers", name, _] if state.groups.contains_key(*name) => {
            let of_group = |instance: &&Instance| instance.group.as_deref() == Some(*name);
            let listed = state.instances.iter().filter(|(_, instance)| of_group(instance));
            let listed = listed.map(|(name, instance)| managed(name, instance)).collect();
            page("managedInstances", listed, &query, state.page)
        }
        ["global", _, name] => {
            found(state.templates.get(*name).map(|template| self::template(name, template)), path)
        }
        ["zones", _, "instances"] => {
            let all = state.instances.iter().map(|(name, of_name)| instance(name, of_name)).collect();
            page("items", all, &query, state.page)
        }
        ["zones", _, "instances", name] => {
            found(state.instances.get(*name).map(|instance| self::instance(name, instance)), path)
        }
        ["zones", _, "instances", name, _] => found(state.instances.get(*name).map(identity), path),
        _ => missing(path),
    }
}

fn url(path: &str) -> String {
    format!("https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}")
}

fn zone(name: &str) -> Value {
    let region = name.rsplit_once('-').map_or(name, |(region, _)| region);
    json!({"kind": "compute#zone", "name": name, "region": url(&format!("regions/{region}")), "status": "UP"})
}

fn group(name: &str, group: &Group) -> Value {
    let template = url(&format!("global/instanceTemplates/{}", group.template));
    json!({
        "kind": "compute#instanceGroupManager", "name": name, "zone": url(&format!("zones/{ZONE}")),
        "baseInstanceName": group.base_instance_name, "instanceTemplate": template,
        "versions": [{"instanceTemplate": template, "targetSize": {"calculated": 1}}], "targetSize": 1
    })
}

fn managed(name: &str, instance: &Instance) -> Value {
    json!({
        "instance": url(&format!("zones/{ZONE}/instances/{name}")), "id": instance.id.to_string(),
        "instanceStatus": instance.status, "currentAction": "NONE", "name": name,
        "version": {"instanceTemplate": url(&format!("global/instanceTemplates/{}", instance.template))}
    })
}

fn items(metadata: &BTreeMap<String, String>) -> Value {
    let items: Vec<Value> = metadata.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    json!({"kind": "compute#metadata", "fingerprint": "x", "items": items})
}

fn template(name: &str, template: &Template) -> Value {
    json!({
        "kind": "compute#instanceTemplate", "name": name,
        "properties": {"metadata": items(&template.metadata), "tags": {"items": template.tags}}
    })
}

fn instance(name: &str, instance: &Instance) -> Value {
    let access_config = |range: &String| {
        let (address, length) = range.split_once('/').unwrap_or((range, "0"));
        let length: u32 = length.parse().unwrap_or_default();
        json!({"kind": "compute#accessConfig", "type": "DIRECT_IPV6", "externalIpv6": address,
               "externalIpv6PrefixLength": length})
    };
    let ipv6: Vec<Value> = instance.external_ipv6.iter().map(access_config).collect();
    let mut interface = json!({"name": "nic0", "networkIP": instance.network_ip});
    // Google omits `ipv6AccessConfigs` if an instance has no external IPv6 range.
    if !ipv6.is_empty() {
        interface["ipv6AccessConfigs"] = ipv6.into();
    }
    json!({
        "kind": "compute#instance", "id": instance.id.to_string(), "name": name, "status": instance.status,
        "creationTimestamp": "2026-01-01T00:00:00.000-08:00", "lastStartTimestamp": instance.last_start,
        "zone": url(&format!("zones/{ZONE}")), "metadata": items(&instance.metadata),
        "networkInterfaces": [interface]
    })
}

fn identity(instance: &Instance) -> Value {
    match instance.signing_key.as_str() {
        "" => json!({"kind": "compute#shieldedInstanceIdentity"}),
        key => json!({"kind": "compute#shieldedInstanceIdentity", "signingKey": {"ekPub": key}}),
    }
}

fn page(name: &str, items: Vec<Value>, query: &BTreeMap<String, String>, most: usize) -> Response<String> {
    let asked = query.get("maxResults").and_then(|asked| asked.parse().ok()).unwrap_or(500);
    let start: usize = query.get("pageToken").and_then(|token| token.parse().ok()).unwrap_or(0);
    let end = items.len().min(start + most.min(asked));
    let mut answer = json!({});
    // Google omits the field of an empty list.
    if start < end {
        answer[name] = items[start..end].into();
    }
    if end < items.len() {
        answer["nextPageToken"] = end.to_string().into();
    }
    said(200, answer.to_string())
}

fn found(value: Option<Value>, path: &str) -> Response<String> {
    value.map_or_else(|| missing(path), |value| said(200, value.to_string()))
}

fn missing(path: &str) -> Response<String> {
    refusal(404, "notFound", &format!("The resource 'projects/{PROJECT}/{path}' was not found"))
}

fn refusal(status: u16, reason: &str, message: &str) -> Response<String> {
    let errors = json!([{"message": message, "domain": "global", "reason": reason}]);
    let error = json!({"error": {"code": status, "message": message, "errors": errors}});
    said(status, error.to_string())
}
