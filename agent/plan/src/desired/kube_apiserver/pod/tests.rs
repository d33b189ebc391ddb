//! Tests of the pod's mounts, probes and published names.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::resolve::testing::{api_server, control_plane};
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::{AuthenticationSpec, LoadBalancerAccessSpec, NodeupConfig};

use super::*;

fn pod_of(change: impl FnOnce(&mut NodeupConfig)) -> Value {
    let node = control_plane(|inputs| change(&mut inputs.config));
    pod_publishing(&node, Published::ApiServer)
}

fn pod_publishing(node: &NodeConfig, published: Published) -> Value {
    serde_json::to_value(pod(node, node.api_server.as_ref().unwrap(), published)).unwrap()
}

fn settings(config: &mut NodeupConfig) -> &mut kops_agent_spec::APIServerConfig {
    config.api_server_config.as_mut().unwrap()
}

fn kube_api_server(config: &mut NodeupConfig) -> &mut KubeAPIServerConfig {
    settings(config).kube_api_server.as_mut().unwrap()
}

fn mounts(pod: &Value) -> Vec<&str> {
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    mounts.iter().map(|mount| mount["mountPath"].as_str().unwrap()).collect()
}

#[test]
fn the_sidecar_of_the_store_is_added_unchanged() {
    let pod = pod_of(|_| {});
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 2);
    assert_eq!(containers[1], json!({"name": "stored", "new": true}));
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    assert_eq!(volumes.last().unwrap(), &json!({"name": "stored-volume"}));
    assert_eq!(volumes.len(), mounts(&pod).len() + 1);
}

#[test]
fn probes_use_the_sidecar_or_else_the_api_servers_port() {
    let probed = |change: &dyn Fn(&mut KubeAPIServerConfig), sidecar: bool| {
        let pod = pod_of(|config| {
            if !sidecar {
                config.static_manifests.clear();
            }
            change(kube_api_server(config));
        });
        let container = &pod["spec"]["containers"][0];
        let get = container["livenessProbe"]["httpGet"].clone();
        for probe in ["readinessProbe", "startupProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], get["port"]);
            assert_eq!(container[probe]["httpGet"]["scheme"], get["scheme"]);
        }
        (get["port"].clone(), get["scheme"].clone())
    };
    let insecure = |config: &mut KubeAPIServerConfig| config.insecure_port = Some(8080);
    let closed = |config: &mut KubeAPIServerConfig| config.insecure_port = Some(0);
    assert_eq!(probed(&insecure, true), (json!(3990), Value::Null));
    assert_eq!(probed(&insecure, false), (json!(8080), Value::Null));
    assert_eq!(probed(&closed, false), (json!(443), json!("HTTPS")));
}

#[test]
fn the_insecure_port_is_a_container_port() {
    let pod = pod_of(|config| kube_api_server(config).insecure_port = Some(8080));
    assert_eq!(
        pod["spec"]["containers"][0]["ports"],
        json!([
            {"name": "https", "containerPort": 443, "hostPort": 443},
            {"name": "local", "containerPort": 8080, "hostPort": 8080},
        ])
    );
}

#[test]
fn published_names_depend_on_how_the_api_is_reached() {
    let annotations = |change: &dyn Fn(&mut NodeupConfig)| pod_of(change)["metadata"]["annotations"].clone();
    let default_container = json!("kube-apiserver");
    assert_eq!(
        annotations(&|_| {}),
        json!({
            "kubectl.kubernetes.io/default-container": default_container,
            "dns.alpha.kubernetes.io/internal": "api.internal.c.example.com",
            "dns.alpha.kubernetes.io/external": "api.c.example.com",
        })
    );
    assert_eq!(
        annotations(&|config| {
            let balancer =
                LoadBalancerAccessSpec { use_for_internal_api: true, ..LoadBalancerAccessSpec::default() };
            settings(config).api.load_balancer = Some(balancer);
            settings(config).api.dns = None;
        }),
        json!({"kubectl.kubernetes.io/default-container": default_container})
    );
    assert_eq!(
        annotations(&|config| config.uses_none_dns = true),
        json!({"kubectl.kubernetes.io/default-container": default_container})
    );
}

#[test]
fn the_bootstrap_servers_name_is_published_with_the_api_servers() {
    let internal = |change: &dyn Fn(&mut NodeupConfig)| {
        let node = control_plane(|inputs| change(&mut inputs.config));
        let pod = pod_publishing(&node, Published::ApiServerAndBootstrapServer);
        pod["metadata"]["annotations"]["dns.alpha.kubernetes.io/internal"].clone()
    };
    assert_eq!(internal(&|_| {}), json!("api.internal.c.example.com,kops-controller.internal.c.example.com"));
    let balanced = |config: &mut NodeupConfig| {
        let balancer =
            LoadBalancerAccessSpec { use_for_internal_api: true, ..LoadBalancerAccessSpec::default() };
        settings(config).api.load_balancer = Some(balancer);
    };
    assert_eq!(internal(&balanced), json!("kops-controller.internal.c.example.com"));
    // Without DNS, machines find the servers' internal name in /etc/hosts, so the pod does not publish this name.
    assert_eq!(internal(&|config| config.uses_none_dns = true), Value::Null);
}

#[test]
fn the_directories_of_audit_files_are_mounted() {
    let with = |log: &str, policy: &str| {
        let pod = pod_of(|config| {
            kube_api_server(config).audit_log_path = Some(log.into());
            kube_api_server(config).audit_policy_file = policy.into();
        });
        let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap().clone();
        mounts
            .into_iter()
            .filter(|mount| mount["name"].as_str().unwrap().starts_with("audit"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        with("/var/log/audit/audit.log", "/etc/audit/policy.yaml"),
        [
            json!({"name": "auditlogpathdir", "mountPath": "/var/log/audit"}),
            json!({"name": "auditconfigdir", "mountPath": "/etc/audit", "readOnly": true}),
        ]
    );
    assert!(with("-", "/srv/kubernetes/kube-apiserver/policy.yaml").is_empty());
    assert!(with("", "").is_empty());
}

#[test]
fn the_webhooks_kubeconfig_is_mounted_if_there_is_a_webhook() {
    let aws = AuthenticationSpec { aws: Some(Default::default()), ..AuthenticationSpec::default() };
    let pod = pod_of(|config| settings(config).authentication = Some(aws));
    assert!(mounts(&pod).contains(&"/etc/kubernetes/authn.config"));
    assert!(!mounts(&pod_of(|_| {})).contains(&"/etc/kubernetes/authn.config"));
}

#[test]
fn container_os_mounts_its_own_directories() {
    let node = control_plane(|inputs| {
        inputs.facts.distro.id = "cos".into();
        inputs.facts.distro.version_id = "121".into();
    });
    let pod =
        serde_json::to_value(pod(&node, node.api_server.as_ref().unwrap(), Published::ApiServer)).unwrap();
    assert_eq!(
        mounts(&pod),
        [
            "/var/log/kube-apiserver.log",
            "/etc/ssl",
            "/etc/pki/tls",
            "/etc/pki/ca-trust",
            "/usr/share/ca-certificates",
            "/etc/srv/kubernetes/ca.crt",
            "/etc/srv/kubernetes/kube-apiserver",
            "/etc/srv/sshproxy",
        ]
    );
}

#[test]
fn the_users_environment_variables_come_first() {
    let pod = pod_of(|config| {
        kube_api_server(config).env =
            serde_yaml::from_str("[{name: A, value: b}, {name: C, valueFrom: {fieldRef: {fieldPath: x}}}]")
                .unwrap();
        config.networking.egress_proxy =
            Some(serde_yaml::from_str("{httpProxy: {host: proxy, port: 3128}, excludes: local}").unwrap());
    });
    let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env[0], json!({"name": "A", "value": "b"}));
    assert_eq!(env[1], json!({"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}));
    assert_eq!(env[2], json!({"name": "http_proxy", "value": "http://proxy:3128"}));
    assert_eq!(env.len(), 6);
}

#[test]
fn a_dedicated_api_server_has_the_same_pod_with_the_image_of_its_architecture() {
    let node = api_server(|inputs| {
        inputs.facts.arch = Architecture::Arm64;
        let assets = inputs.config.assets["amd64"].iter().map(|url| url.replace("amd64", "arm64")).collect();
        inputs.config.assets.insert("arm64".into(), assets);
        kube_api_server(&mut inputs.config).image = "registry.k8s.io/kube-apiserver-amd64:v1.34.0".into();
    });
    let pod =
        serde_json::to_value(pod(&node, node.api_server.as_ref().unwrap(), Published::ApiServer)).unwrap();
    assert_eq!(pod["spec"]["containers"][0]["image"], "registry.k8s.io/kube-apiserver-arm64:v1.34.0");
    assert_eq!(pod["spec"]["containers"][0]["resources"], json!({"requests": {"cpu": "150m"}}));
}
