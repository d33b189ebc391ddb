#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use futures_util::future::join_all;
use kops_agent_tests::hetzner::{Hetzner, Mood, Server as Known, TOKEN};

use super::*;
use crate::calls::CloudCalls;
use kops_agent_net::tls;

const CLUSTER: &str = "c.example.com";

fn known(cluster: &str, id: u64) -> Known {
    Known::of_group(cluster, "nodes", &format!("nodes-{id}"), IpAddr::from([10, 0, 0, 2]))
}

fn servers(hetzner: &Hetzner, token: &str) -> Arc<HetznerServers> {
    tls::install_provider();
    Arc::new(HetznerServers::at(&hetzner.url(), token, CLUSTER, CloudCalls::default()).unwrap())
}

#[tokio::test]
async fn the_servers_of_the_cluster_are_known_by_their_numbers() {
    let hetzner = Hetzner::start().unwrap();
    for id in 1..=120 {
        hetzner.put(id, known(CLUSTER, id));
    }
    hetzner.put(200, known("other.example.com", 200));
    let without = Known { public_ipv4: None, private_ips: Vec::new(), ..known(CLUSTER, 121) };
    hetzner.put(121, without);
    let servers = servers(&hetzner, TOKEN);
    let server = servers.get(120).await.unwrap().unwrap();
    assert_eq!((server.id, server.name.as_str(), server.status.as_str()), (120, "nodes-120", "running"));
    assert_eq!(server.public_ipv4, Some(Ipv4Addr::new(192, 0, 2, 7)));
    assert_eq!(server.private_ips, [IpAddr::from([10, 0, 0, 2])]);
    let server = servers.get(121).await.unwrap().unwrap();
    assert!(server.public_ipv4.is_none() && server.private_ips.is_empty());
    assert!(servers.get(200).await.unwrap().is_none(), "it is of another cluster");
    assert_eq!(hetzner.calls(), 3, "one list of three pages");
}

#[tokio::test]
async fn a_thousand_lies_cost_no_more_than_one_question() {
    let hetzner = Hetzner::start().unwrap();
    hetzner.put(1, known(CLUSTER, 1));
    let servers = servers(&hetzner, TOKEN);
    let asked = join_all((1..1000).map(|id| servers.get(id))).await;
    assert_eq!(asked.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count(), 1);
    assert_eq!(hetzner.calls(), 1);
}

#[tokio::test]
async fn who_does_not_answer_is_not_asked_again_at_once() {
    for (mood, expected) in [
        (Mood::Throttling, "429 rate_limit_exceeded; this project asks it too much"),
        (Mood::Down, "503 unavailable"),
        (Mood::Babbling, "does not answer servers.list as Hetzner Cloud does"),
        (Mood::Redirecting, "with 302"),
    ] {
        let hetzner = Hetzner::start().unwrap();
        hetzner.put(1, known(CLUSTER, 1));
        hetzner.set_mood(mood);
        let servers = servers(&hetzner, TOKEN);
        for _ in 0..2 {
            let error = servers.get(1).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(hetzner.calls(), 1, "{mood:?}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_told_and_a_right_one_is_not() {
    let hetzner = Hetzner::start().unwrap();
    let error = servers(&hetzner, "guessed").get(1).await.unwrap_err().to_string();
    assert!(error.contains("401 unauthorized; is HCLOUD_TOKEN a token of this"), "{error}");
    assert!(!format!("{:?}", servers(&hetzner, TOKEN)).contains(TOKEN));
    for endpoint in ["api.hetzner.cloud", "ftp://api.hetzner.cloud", "https://api.hetzner.cloud/v1?x"] {
        let error = HetznerServers::at(endpoint, TOKEN, CLUSTER, CloudCalls::default()).unwrap_err();
        assert!(error.is_configuration() && error.to_string().contains(endpoint), "{error}");
    }
}
