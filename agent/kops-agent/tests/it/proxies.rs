//! Proxies in the environment apply to the store and to downloads.

#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::fs;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::service::service_fn;
use serde_json::json;

use crate::downloads::{KUBELET, installed, node_with_repository, stand_ins};
use crate::example::apart::apart;
use crate::example::{Ended, Machine, agent};
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::NODES;
use kops_agent_tests::loopback::{Identity, LoopbackServer};
use kops_agent_tests::name_server::{NameFault, NameServer};
use kops_agent_tests::proxy::Proxy;
use kops_agent_tests::test_server::text;

const STORE: &str = "store.test";
const MIRROR: &str = "mirror.test";

/// A worker whose mirror has a host name, because loopback addresses are never requested through a proxy.
fn node_with_named_mirror() -> Machine {
    let node = Machine::new(NODES);
    let mirror = node.downloads().url();
    let named = mirror.replace("127.0.0.1", MIRROR);
    node.cluster.edit("cluster-completed.spec", &mirror, &named).unwrap();
    node
}

#[test]
fn a_proxy_is_used_for_downloads() {
    let (proxy, node) = (Proxy::start().unwrap(), node_with_named_mirror());
    let mut agent = node.agent("converge");
    Ended::from_command(agent.env("http_proxy", proxy.url())).with(0, &[]);
    let kubelet = format!("GET {}{KUBELET}", node.downloads().url().replace("127.0.0.1", MIRROR));
    assert!(proxy.asked().contains(&kubelet), "{:?}", proxy.asked());
    assert_eq!(proxy.asked().len(), node.downloads().requests().len(), "some went another way");
}

/// Like nodeup, the agent reads `NO_PROXY` as Go does.
#[test]
fn no_proxy_says_the_same_of_the_store_and_of_downloads() {
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        let _names = NameServer::start(NameFault::Silent, &[]).unwrap();
        let (proxy, node) = (Proxy::start().unwrap(), node_with_named_mirror());
        let port = |url: &str| url.rsplit_once(':').unwrap().1.to_owned();
        let (store, mirror) = (port(&node.cluster.s3.endpoint()), port(&node.downloads().url()));
        let asked_with = |exceptions: &str| {
            let before = proxy.asked().len();
            let mut agent = node.agent("plan");
            agent.env("http_proxy", proxy.url()).env("no_proxy", exceptions);
            agent.env("S3_ENDPOINT", node.cluster.s3.endpoint().replace("127.0.0.1", STORE));
            Ended::from_command(&mut agent).with(0, &[]);
            proxy.asked().split_off(before)
        };
        let with_ports = format!("*.test:{store},{MIRROR}:{mirror}");
        let names = format!("10.0.0.0/8, {STORE} ,{MIRROR}");
        for exceptions in [names.as_str(), "test", ".test", "*.test", &with_ports, "a.example.com,*"] {
            assert_eq!(asked_with(exceptions), [""; 0], "{exceptions}");
        }
        for exceptions in ["", "other.test", "*.test:1", "127.0.0.0/8", "t"] {
            let asked = asked_with(exceptions);
            for name in [STORE, MIRROR] {
                assert!(asked.iter().any(|asked| asked.contains(name)), "{exceptions}: {asked:?}");
            }
        }
    });
}

#[test]
fn no_proxy_says_the_same_of_the_api_server() {
    const NAME: &str = "api.test";
    const NODES: &str = r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []}"#;
    apart("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n", || {
        let _names = NameServer::start(NameFault::Silent, &[]).unwrap();
        let (proxy, identity) = (Proxy::start().unwrap(), Identity::named(&[NAME]).unwrap());
        let answer = service_fn(|_| async { Ok::<_, Infallible>(text(200, NODES)) });
        let server = LoopbackServer::start_tls("an API server", answer, &identity).unwrap();
        let port = server.address().port();
        let cluster = json!({
            "server": format!("https://{NAME}:{port}"),
            "certificate-authority-data": STANDARD.encode(&identity.certificate_pem),
        });
        let kubeconfig = json!({
            "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        fs::write(&file, kubeconfig.to_string()).unwrap();
        let asked_with = |exceptions: &str| {
            let before = proxy.asked().len();
            let mut status = Command::new(agent());
            status.env_clear().env("https_proxy", proxy.url()).env("no_proxy", exceptions);
            let ended = Ended::from_command(status.args(["fleet", "status", "--kubeconfig"]).arg(&file));
            ended.with(0, &[]);
            assert!(ended.stdout.starts_with("There are no Nodes."), "{ended:#?}");
            proxy.asked().split_off(before)
        };
        let with_port = format!("api.test:{port}");
        for exceptions in ["api.test", "other.test, .test", "*.test", "test", &with_port, "*"] {
            assert_eq!(asked_with(exceptions), [""; 0], "{exceptions}");
        }
        for exceptions in ["", "other.test", "api.test:1", "127.0.0.0/8", "pi.test"] {
            let asked = asked_with(exceptions);
            let tunnel = format!("CONNECT {NAME}:{port}");
            assert!(
                !asked.is_empty() && asked.iter().all(|asked| *asked == tunnel),
                "{exceptions}: {asked:?}"
            );
        }
    });
}

#[test]
fn an_unreachable_proxy_is_an_error_with_the_url_of_the_download() {
    let node = node_with_named_mirror();
    let mut agent = node.agent("converge");
    agent.env("http_proxy", "http://127.0.0.1:1").args(["--download-timeout", "1"]);
    Ended::from_command(&mut agent)
        .with(1, &["refused", &node.downloads().url().replace("127.0.0.1", MIRROR)]);
    assert_eq!(node.files(), [""; 0]);
}

#[test]
fn a_variable_that_names_no_proxy_for_http_is_refused() {
    let node = Machine::new(NODES);
    for value in ["http://robot:hunter2@pro xy", "socks5://robot:hunter2@proxy.test"] {
        let ended = Ended::from_command(node.agent("plan").env("HTTPS_PROXY", value));
        ended.with(3, &["HTTPS_PROXY ", "http://proxy.example.com:3128"]);
        assert!(!ended.stderr.contains("hunter2"), "{ended:#?}");
    }
}

#[test]
fn by_tls_it_is_http_2_through_a_proxy_too_and_no_redirect_leads_away_from_it() {
    let (identity, proxy) = (Identity::named(&[MIRROR]).unwrap(), Proxy::start().unwrap());
    let mirror = Downloads::start_tls(stand_ins(), &identity).unwrap();
    let named = mirror.url().replace("127.0.0.1", MIRROR);
    let node = node_with_repository(&named);
    let bundle = node.folder().join("bundle.pem");
    fs::write(&bundle, &identity.certificate_pem).unwrap();

    let agent = || {
        let mut agent = node.agent("converge");
        agent.env("SSL_CERT_FILE", &bundle).env("HTTPS_PROXY", proxy.url());
        agent
    };
    let plain = node.downloads().url();
    mirror.break_path(KUBELET, Fault::RedirectsTo(format!("{plain}{KUBELET}")));
    let led_away = format!("it redirects from https to {plain}{KUBELET}");
    Ended::from_command(&mut agent()).with(1, &[&led_away]);
    assert_eq!(node.downloads().requests(), [""; 0]);

    mirror.mend_path(KUBELET);
    Ended::from_command(&mut agent()).with(0, &[]);
    assert_eq!(installed(&node), stand_ins()[KUBELET]);
    assert_eq!(mirror.http_2_requests(), mirror.requests().len());
    let tunnel = format!("CONNECT {}", named.trim_start_matches("https://"));
    assert!(
        !proxy.asked().is_empty() && proxy.asked().iter().all(|asked| *asked == tunnel),
        "{:?}",
        proxy.asked()
    );
}
