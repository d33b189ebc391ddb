//! Names of servers, as every client of this program resolves them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures_util::future::join_all;
use kops_agent_net::dns::SystemResolver;
use kops_agent_net::http;
use kops_agent_plan::doctor::{Name, NameOutcome, Purpose};
use reqwest::Url;

use super::deadline::{QUESTION, with_timeout};

/// The name in an HTTP URL, if this machine must resolve the name. If requests to a store or for a download go through
/// a proxy, the proxy resolves the name. Requests to servers of the cluster never go through a proxy.
pub(super) fn of_url(url: &str, purpose: Purpose) -> Option<String> {
    let parsed = Url::parse(url).ok()?;
    let name = parsed.host_str()?.trim_matches(['[', ']']).to_owned();
    let is_http = matches!(parsed.scheme(), "http" | "https");
    let is_resolved_elsewhere =
        || matches!(purpose, Purpose::Store | Purpose::Downloads) && http::is_proxied(url);
    (is_http && name.parse::<IpAddr>().is_err() && !is_resolved_elsewhere()).then_some(name)
}

/// Resolves all names at the same time.
pub(super) async fn lookup(names: BTreeMap<String, Purpose>) -> Vec<Name> {
    let looking = names.into_iter().map(|(name, purpose)| async move {
        let outcome = match with_timeout(QUESTION, SystemResolver::lookup(&name)).await {
            Ok(Ok(addresses)) => NameOutcome::Addresses(addresses),
            Ok(Err(error)) if error.is_not_there() => NameOutcome::Absent(error.to_string()),
            Ok(Err(error)) => NameOutcome::Unknown(error.to_string()),
            Err(why) => NameOutcome::Unknown(why.into()),
        };
        Name { name, purpose, outcome }
    });
    join_all(looking).await
}
