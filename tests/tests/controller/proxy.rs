//! A cluster whose machines reach what is outside through an egress proxy.

use kops_agent_tests::proxy::Proxy;

use crate::cluster::{Cluster, GROUP_LABEL, eventually, id};
use crate::nodes;

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn through_an_egress_proxy_the_cloud_is_asked_and_the_api_server_is_not() {
    let proxy = Proxy::start().unwrap();
    // As kOps writes `spec.networking.egressProxy` to /etc/environment; here EC2 is plain http, and so is what asks it.
    let cluster = Cluster::start()
        .with_environment("http_proxy", &proxy.url())
        .with_environment("https_proxy", &proxy.url());
    cluster.ec2.put(&id(1), nodes());
    cluster.create_node(&id(1), Some(&id(1)));
    let controller = cluster.controller();
    eventually("the node is labelled", || cluster.label(&id(1), GROUP_LABEL).is_some());
    let asked = proxy.asked();
    let api_server = cluster.api.url().replace("https://", "");
    assert!(!asked.iter().any(|asked| asked.contains(&api_server)), "{asked:?}");
    assert!(asked.iter().any(|asked| asked.starts_with("POST http://127.0.0.1")), "{asked:?}");
    drop(controller);

    let before = proxy.asked().len();
    let cluster = cluster.with_environment("no_proxy", "127.0.0.1");
    cluster.kubectl(&["label", "node", &id(1), &format!("{GROUP_LABEL}-")]);
    cluster.once(&[]);
    assert_eq!(cluster.label(&id(1), GROUP_LABEL).as_deref(), Some("nodes"));
    assert_eq!(proxy.asked().len(), before, "{:?}", proxy.asked());
}
