//! A cluster whose machines reach the outside through an egress proxy.

use kops_agent_tests::proxy::Proxy;

use crate::cluster::{Cluster, GROUP_LABEL, eventually, id};
use crate::nodes;

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn only_requests_to_the_cloud_use_the_egress_proxy() {
    let proxy = Proxy::start().unwrap();
    // kOps writes these variables to /etc/environment for `spec.networking.egressProxy`. In this test, EC2's URL has the scheme http and a
    // host name that only the proxy can resolve.
    let cluster = Cluster::start()
        .with_environment("http_proxy", &proxy.url())
        .with_environment("https_proxy", &proxy.url());
    let [(variable, endpoint), ..] = cluster.ec2.environment();
    let cluster = cluster.with_environment(variable, &endpoint.replace("127.0.0.1", "ec2.test"));
    cluster.ec2.put(&id(1), nodes());
    cluster.create_node(&id(1), Some(&id(1)));
    let controller = cluster.controller();
    eventually("the node is labelled", || cluster.label(&id(1), GROUP_LABEL).is_some());
    let asked = proxy.asked();
    let api_server = cluster.api.url().replace("https://", "");
    assert!(!asked.iter().any(|asked| asked.contains(&api_server)), "{asked:?}");
    assert!(asked.iter().any(|asked| asked.starts_with("POST http://ec2.test:")), "{asked:?}");
    drop(controller);
}
