//! Tests of the small components of every node.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::testing::Machine;
use super::{cloud_config, container_os_directories, images, ipv6_prefix, kube_proxy, kubectl, paths};
use crate::resource::{Content, Mode, SecretPiece};

fn kube_proxy_flags(machine: &Machine) -> String {
    let pod = machine.desired(kube_proxy::add).yaml("/etc/kubernetes/manifests/kube-proxy.manifest");
    pod["spec"]["containers"][0]["args"].to_string()
}

#[test]
fn kube_proxy_uses_nftables_if_the_kernel_lacks_iptables() {
    let rocky = Machine::node().on("rocky", "10.1");
    assert!(kube_proxy_flags(&rocky).contains("--proxy-mode=nftables"));
    let ipvs = rocky.config(json!({ "KubeProxy": { "proxyMode": "ipvs" }}));
    assert!(kube_proxy_flags(&ipvs).contains("--proxy-mode=ipvs"));
    assert!(!kube_proxy_flags(&Machine::node()).contains("--proxy-mode"));
}

#[test]
fn only_in_the_control_plane_kube_proxy_uses_its_own_api_server() {
    assert!(kube_proxy_flags(&Machine::control_plane()).contains("--master=https://127.0.0.1\""));
    let api_server = Machine::control_plane().boot(json!({ "InstanceGroupRole": "APIServer" }));
    assert!(kube_proxy_flags(&api_server).contains("--master=https://api.internal.c.example.com"));
}

#[test]
fn kube_proxy_can_listen_on_the_machines_own_address() {
    let machine = Machine::node().config(json!({ "KubeProxy": { "bindAddress": "@aws" }}));
    assert!(kube_proxy_flags(&machine).contains("--bind-address=10.0.0.1"));
}

#[test]
fn a_network_plugin_replaces_kube_proxy() {
    assert!(Machine::node().config(json!({ "KubeProxy": null })).desired(kube_proxy::add).0.is_empty());
}

#[test]
fn the_administrator_is_the_first_login_user_that_exists() {
    let machine = Machine::control_plane();
    assert_eq!(machine.desired(kubectl::add).file("/root/.kube/config").owner, "root");
    let users = json!({ "loginUsers": [{ "name": "ubuntu", "group": "people", "home": "/home/ubuntu" }]});
    let desired = machine.clone().facts(users).desired(kubectl::add);
    let file = desired.file("/home/ubuntu/.kube/config");
    assert_eq!((file.owner.as_str(), file.group.as_deref()), ("ubuntu", Some("people")));
    assert!(!desired.has("file /root/.kube/config"));
    let without_user = machine.on("rocky", "9").desired(kubectl::add);
    assert!(
        without_user.has("file /var/lib/kubectl/kubeconfig") && !without_user.has("file /root/.kube/config")
    );
    assert!(Machine::node().desired(kubectl::add).0.is_empty());
}

#[test]
fn the_cloud_config_is_for_machines_with_an_api_server() {
    let fields = json!({ "elbSecurityGroup": "sg", "nodeIPFamilies": ["ipv6", "ipv4"] });
    let control_plane = Machine::control_plane().config(fields);
    assert_eq!(
        control_plane.desired(cloud_config::add).text(paths::CLOUD_CONFIG),
        "[global]\nElbSecurityGroup = sg\nNodeIPFamilies = ipv6\nNodeIPFamilies = ipv4\n"
    );
    assert!(Machine::node().desired(cloud_config::add).0.is_empty());
}

#[test]
fn openstacks_password_is_a_secret_reference() {
    let machine = Machine::control_plane().boot(json!({ "CloudProvider": "openstack" }));
    let desired = machine.desired(cloud_config::add);
    let Content::SecretText(pieces) = &desired.file(paths::CLOUD_CONFIG).content else {
        panic!("the file is readable in the plan")
    };
    assert!(pieces.contains(&SecretPiece::Environment(vec!["OS_PASSWORD".into()])));
    assert_eq!(desired.file(paths::CLOUD_CONFIG).mode, Mode::PRIVATE);
    let without_login = Machine::control_plane().desired(cloud_config::add);
    assert_eq!(without_login.file(paths::CLOUD_CONFIG).mode, Mode::FILE);
}

#[test]
fn warm_pool_images_are_pulled_while_warming() {
    let pool = Machine::node().config(json!({ "warmPoolImages": ["a", "b"] }));
    assert!(pool.desired(images::add).0.is_empty());
    let warming = pool.facts(json!({ "cloud": { "aws": { "targetLifecycleState": "Warmed:Running" }}}));
    assert!(warming.desired(images::add).has("image a"));
    let control_plane = warming.in_control_plane();
    assert!(control_plane.desired(images::add).0.is_empty());
}

#[test]
fn only_on_aws_an_ipv6_prefix_is_requested() {
    let ipv6 = Machine::node().config(json!({ "Networking": { "nonMasqueradeCIDR": "::/0" }}));
    assert!(ipv6.desired(ipv6_prefix::add).has("ipv6-prefix prefix"));
    let gce = ipv6
        .boot(json!({ "CloudProvider": "gce" }))
        .facts(json!({ "cloud": { "aws": null, "gce": { "hostname": "node.project" }}}));
    assert!(gce.desired(ipv6_prefix::add).0.is_empty());
}

#[test]
fn container_os_gets_executable_directories() {
    let desired = Machine::node().on("cos", "117").desired(container_os_directories::add);
    for path in ["/home/kubernetes/bin", "/opt", "/opt/kops/bin", "/opt/cni/bin", "/var/lib/kubelet"] {
        assert!(desired.has(&format!("bind-mount {path}")), "{path}");
    }
    assert!(Machine::node().desired(container_os_directories::add).0.is_empty());
}
