//! The internal DNS records that kOps' dns-controller publishes for the pods of a cluster.
//!
//! Source: upstream's `dns-controller/pkg/watchers/pod.go`. Until a pod is deleted, each name of its annotation has the address of
//! its status. A name has the addresses of all its pods. A name without pods has no addresses.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

const INTERNAL_NAMES: &str = "dns.alpha.kubernetes.io/internal";

/// The DNS names with their addresses, from the annotations in the API server's list of pods.
pub fn records(pods: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut records: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in pods["items"].as_array().into_iter().flatten() {
        let names = pod["metadata"]["annotations"][INTERNAL_NAMES].as_str().unwrap_or_default();
        let address = pod["status"]["podIP"].as_str().unwrap_or_default();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty() && !address.is_empty()) {
            let name = name.trim_end_matches('.').to_owned();
            records.entry(name).or_default().insert(address.to_owned());
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_name_has_the_addresses_of_all_its_pods() {
        let pod = |names: &str, address: &str| json!({"metadata": {"annotations": {INTERNAL_NAMES: names}}, "status": {"podIP": address}});
        let pods = json!({"items": [pod("a.x, b.x.", "10.0.0.1"), pod("b.x", "10.0.0.2"), pod("c.x", ""), pod("", "10.0.0.3")]});
        let set = |addresses: &[&str]| addresses.iter().map(|&address| address.to_owned()).collect();
        let expected = BTreeMap::from([
            ("a.x".to_owned(), set(&["10.0.0.1"])),
            ("b.x".to_owned(), set(&["10.0.0.1", "10.0.0.2"])),
        ]);
        assert_eq!(records(&pods), expected);
    }
}
