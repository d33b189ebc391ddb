//! The servers that failed in this run. So a dead server costs its timeout only once.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use reqwest::Url;

/// The number of consecutive failures after which a server is skipped.
const STRIKES: u32 = 3;

/// The number of consecutive failures of each server in one run.
#[derive(Debug, Default)]
pub(super) struct Servers(Mutex<BTreeMap<String, u32>>);

impl Servers {
    /// Records that the server is unreachable, so that it is skipped.
    pub(super) fn dead(&self, url: &str) {
        self.0.lock().insert(server(url), STRIKES);
    }

    pub(super) fn failed(&self, url: &str) {
        *self.0.lock().entry(server(url)).or_default() += 1;
    }

    pub(super) fn delivered(&self, url: &str) {
        self.0.lock().remove(&server(url));
    }

    /// The URLs to try, in order. URLs of skipped servers are left out, unless all servers are skipped.
    pub(super) fn to_try<'a>(&self, urls: &[&'a str]) -> Vec<&'a str> {
        let strikes = self.0.lock();
        let is_alive = |url: &&&str| strikes.get(&server(url)).is_none_or(|count| *count < STRIKES);
        let alive: Vec<&str> = urls.iter().filter(is_alive).copied().collect();
        if alive.is_empty() { urls.to_vec() } else { alive }
    }
}

/// The scheme, host and port of a URL. Each bucket counts as its own server.
fn server(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => {
            let port = url.port_or_known_default().unwrap_or_default();
            format!("{}://{}:{port}", url.scheme(), url.host_str().unwrap_or_default())
        }
        Err(_) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: [&str; 3] = ["https://a/x", "https://b/x", "http://a/x"];

    #[test]
    fn a_dead_server_is_skipped_until_it_delivers() {
        let servers = Servers::default();
        servers.dead("https://a:443/other");
        assert_eq!(servers.to_try(&URLS), ["https://b/x", "http://a/x"]);
        servers.delivered("https://a/y");
        assert_eq!(servers.to_try(&URLS), URLS);
    }

    #[test]
    fn a_server_is_skipped_after_three_failures_in_a_row() {
        let servers = Servers::default();
        for round in 0..3 {
            assert_eq!(servers.to_try(&URLS).len(), 3, "{round}");
            servers.failed("https://b/x");
        }
        assert_eq!(servers.to_try(&URLS), ["https://a/x", "http://a/x"]);
    }

    #[test]
    fn if_all_servers_are_dead_all_are_tried() {
        let servers = Servers::default();
        URLS.iter().for_each(|url| servers.dead(url));
        assert_eq!(servers.to_try(&URLS), URLS);
    }
}
