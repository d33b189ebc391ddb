#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use futures_util::future::join_all;
use kops_agent_tests::digital_ocean::{DigitalOcean, Droplet as Known, Mood, TOKEN};

use super::*;
use crate::calls::{CloudCalls, Outcome};
use crate::verify::OwnAddresses as _;

const CLUSTER: &str = "c.example.com";

fn known(cluster: &str, id: u64) -> Known {
    Known::of_group(cluster, "nodes", &format!("nodes-{id}"), IpAddr::from([10, 10, 0, 2]))
}

fn droplets(api: &DigitalOcean, token: &str, calls: CloudCalls) -> Arc<Droplets> {
    kops_agent_net::tls::install_provider();
    Arc::new(Droplets::at(&api.url(), token, CLUSTER, calls).unwrap())
}

#[tokio::test]
async fn the_droplets_of_the_cluster_are_known_by_their_numbers() {
    let api = DigitalOcean::start().unwrap();
    for id in 1..=450 {
        api.put(id, known(CLUSTER, id));
    }
    api.put(500, known("other.example.com", 500));
    api.put(451, Known { private_ips: Vec::new(), ..known(CLUSTER, 451) });
    let droplets = droplets(&api, TOKEN, CloudCalls::default());
    let private = IpAddr::from([10, 10, 0, 2]);
    assert!(!droplets.has_address(private), "none was listed yet");
    let droplet = droplets.get(450).await.unwrap().unwrap();
    assert_eq!((droplet.id, droplet.name.as_str(), droplet.status.as_str()), (450, "nodes-450", "active"));
    assert_eq!((droplet.private_ips.as_slice(), droplet.node_name().as_str()), (&[private][..], "10.10.0.2"));
    assert_eq!(droplet.public_ips, [IpAddr::from([192, 0, 2, 7])]);
    assert!(droplets.get(451).await.unwrap().unwrap().private_ips.is_empty());
    assert!(droplets.get(500).await.unwrap().is_none(), "it is of another cluster");
    assert_eq!(api.calls(), 5, "one list of five pages");
    assert!(droplets.has_address(private) && droplets.has_address([192, 0, 2, 7].into()));
}

#[test]
fn a_droplet_that_is_being_made_takes_no_list_away() {
    let page = r#"{"droplets": [
        {"id": 1, "name": "a", "status": "new", "tags": null, "networks": null},
        {"id": 2, "name": "b", "status": "new", "networks": {"v4": [{"ip_address": null, "type": "private"},
            {"ip_address": "", "type": "public"}, {"ip_address": "10.0.0.2", "type": "private"}], "v6": null}}]}"#;
    let (droplets, next) = Droplet::of_page(serde_json::from_str(page).unwrap(), 1);
    assert_eq!((droplets.len(), next), (2, None));
    assert!(droplets[0].tags.is_empty() && droplets[0].private_ips.is_empty());
    assert_eq!(droplets[1].private_ips, [IpAddr::from([10, 0, 0, 2])]);
}

#[tokio::test]
async fn a_thousand_made_up_numbers_cost_one_list() {
    let api = DigitalOcean::start().unwrap();
    api.put(1, known(CLUSTER, 1));
    let droplets = droplets(&api, TOKEN, CloudCalls::default());
    let asked = join_all((1..1000).map(|id| droplets.get(id))).await;
    assert_eq!(asked.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count(), 1);
    assert_eq!(api.calls(), 1);
}

#[tokio::test]
async fn an_api_that_fails_is_not_asked_again_at_once() {
    for (mood, expected, outcome) in [
        (Mood::Throttling, "429 too_many_requests; this project asks it too much", Outcome::Throttled),
        (Mood::Down, "503 service_unavailable", Outcome::Error),
        (Mood::Babbling, "does not answer droplets.list as DigitalOcean does", Outcome::Error),
        (Mood::Truncating, "does not answer droplets.list as DigitalOcean does", Outcome::Error),
        (Mood::Redirecting, "with 302", Outcome::Error),
        (Mood::Endless, "its pages have no end", Outcome::Success),
    ] {
        let api = DigitalOcean::start().unwrap();
        api.put(1, known(CLUSTER, 1));
        api.set_mood(mood);
        let calls = CloudCalls::default();
        let droplets = droplets(&api, TOKEN, calls.clone());
        for _ in 0..2 {
            let error = droplets.get(1).await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains(TOKEN), "{error}");
        }
        assert_eq!(calls.counted("digitalocean", "droplets.list", outcome), api.calls() as u64, "{mood:?}");
        assert!(api.calls() == 1 || mood == Mood::Endless, "{mood:?}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_told_and_a_right_one_is_not() {
    let api = DigitalOcean::start().unwrap();
    let error = droplets(&api, "guessed", CloudCalls::default()).get(1).await.unwrap_err().to_string();
    assert!(error.contains("401 unauthorized; is DIGITALOCEAN_ACCESS_TOKEN a token of this"), "{error}");
    assert!(!format!("{:?}", droplets(&api, TOKEN, CloudCalls::default())).contains(TOKEN));
    for endpoint in ["api.digitalocean.com", "ftp://api.digitalocean.com", "https://api.digitalocean.com?x"] {
        let error = Droplets::at(endpoint, TOKEN, CLUSTER, CloudCalls::default()).unwrap_err();
        assert!(error.is_configuration() && error.to_string().contains(endpoint), "{error}");
    }
}
