//! The clock of the state store's server, read from the headers of a response that needs no credentials.

use kops_agent_net::http;
use kops_agent_store::Store;

use super::deadline::{QUESTION, with_timeout};
use super::downloads::clock_of;

/// The URL of the store's server, without a path. `None` if the store has no HTTP server, or if the URL is unknown.
pub(super) async fn url_of_store(store: &Store, base: Option<&str>) -> Option<String> {
    let file = format!("{}/cluster-completed.spec", base?);
    let mut url = with_timeout(QUESTION, store.locate_download(&file)).await.ok()?.ok()??.url;
    url.set_path("/");
    url.set_query(None);
    Some(url.to_string()).filter(|url| url.starts_with("http"))
}

/// The host of the store's server, and how many seconds its clock is ahead.
pub(super) async fn of_store(store: &Store, base: Option<&str>) -> Option<(String, i64)> {
    let url = url_of_store(store, base).await?;
    let client = http::client().ok()?;
    let answer = with_timeout(QUESTION, client.head(&url).send()).await.ok()?.ok()?;
    clock_of(&answer)
}
