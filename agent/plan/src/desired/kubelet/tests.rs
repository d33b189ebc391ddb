#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::add;
use crate::desired::paths;
use crate::desired::testing::{Desired, Machine};
use crate::diff::{Change, ObservedState, diff};
use crate::resource::{Certificate, Issuer, Kind, Resource, ResourceId};

fn flags(desired: &Desired) -> Vec<String> {
    let line = desired.text(paths::KUBELET_SYSCONFIG).lines().next().unwrap();
    let flags = line.strip_prefix("DAEMON_ARGS=\"").unwrap().strip_suffix('"').unwrap();
    flags.split(' ').map(str::to_owned).collect()
}

fn certificate(desired: &Desired, name: &str) -> Certificate {
    match desired.0.get(&ResourceId::new(Kind::Certificate, name)) {
        Some(Resource::Certificate(certificate)) => certificate.clone(),
        other => panic!("no certificate {name} but {other:?}"),
    }
}

#[test]
fn settings_are_in_the_file_or_else_in_flags() {
    let desired = Machine::node()
        .config(json!({ "KubeletConfig": {
            "logLevel": 2, "kubeReserved": { "cpu": "100m" }, "registryBurst": 5, "readOnlyPort": 0,
            "taints": ["a=b:NoSchedule"], "featureGates": { "AllBeta": "true" }, "eventQPS": 3, "eventRecordQPS": 4,
            "enforceNodeAllocatable": "pods,kube-reserved", "kubeReservedCgroup": "/kube", "shutdownGracePeriod": "30s",
            "nodeLabels": { "a": "b" }, "imageMaximumGCAge": "0s",
        }}))
        .desired(add);
    assert_eq!(
        flags(&desired),
        [
            "--cloud-provider=external",
            "--config=/var/lib/kubelet/kubelet.conf",
            "--hostname-override=i-1",
            "--image-credential-provider-bin-dir=/usr/local/bin",
            "--image-credential-provider-config=/var/lib/kubelet/credential-provider.conf",
            "--registry-burst=5",
            "--runtime-request-timeout=15m0s",
            "--v=2",
        ]
    );
    assert_eq!(
        desired.yaml(paths::KUBELET_CONFIG),
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {}, "webhook": { "enabled": true },
                "x509": { "clientCAFile": "/srv/kubernetes/ca.crt" },
            },
            "authorization": { "mode": "Webhook" },
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "enforceNodeAllocatable": ["pods", "kube-reserved"],
            "eventRecordQPS": 3,
            "featureGates": { "AllBeta": true },
            "kubeReserved": { "cpu": "100m" },
            "kubeReservedCgroup": "/kube",
            "logging": {
                "flushFrequency": 0, "verbosity": 0,
                "options": { "json": { "infoBufferSize": "0" }, "text": { "infoBufferSize": "0" } },
            },
            "providerID": "aws:///r-a/i-1",
            "registerWithTaints": [{ "key": "a", "value": "b", "effect": "NoSchedule" }],
            "resolvConf": "/run/systemd/resolve/resolv.conf",
            "shutdownGracePeriod": "30s",
            "staticPodPath": "/etc/kubernetes/manifests",
            "tlsCertFile": "/srv/kubernetes/kubelet-server.crt",
            "tlsPrivateKeyFile": "/srv/kubernetes/kubelet-server.key",
            "volumePluginDir": "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        })
    );
}

#[test]
fn a_machine_for_the_warm_pool_has_kubelet_but_does_not_run_it() {
    let warming = Machine::node()
        .config(json!({ "warmPoolImages": ["image"] }))
        .facts(json!({ "cloud": { "aws": { "targetLifecycleState": "Warmed:Stopped" }}}));
    let unit = warming.desired(add).unit("kubelet.service").clone();
    assert!(!unit.enabled && !unit.running);
    let joining = warming.facts(json!({ "cloud": { "aws": { "targetLifecycleState": "InService" }}}));
    let unit = joining.desired(add).unit("kubelet.service").clone();
    assert!(unit.enabled && unit.running);
}

#[test]
fn the_instance_type_limits_pods_with_interface_addresses() {
    let vpc = Machine::node().config(json!({ "Networking": { "amazonVPC": {} }}));
    let desired = vpc.desired(add);
    assert_eq!(desired.yaml(paths::KUBELET_CONFIG)["maxPods"], 29);
    assert!(flags(&desired).contains(&"--node-ip=10.0.0.1".to_owned()));

    let large =
        vpc.clone().facts(json!({ "cloud": { "aws": { "networkInterfaces": { "ipv4PerInterface": 50 }}}}));
    assert_eq!(large.desired(add).yaml(paths::KUBELET_CONFIG)["maxPods"], 110);

    let unknown = vpc.clone().facts(json!({ "cloud": { "aws": { "networkInterfaces": null }}}));
    assert!(unknown.problems().starts_with("KubeletConfig.maxPods: is derived from the network interfaces"));
    let set = unknown.config(json!({ "KubeletConfig": { "maxPods": 7 }}));
    assert_eq!(set.desired(add).yaml(paths::KUBELET_CONFIG)["maxPods"], 7);
}

#[test]
fn all_problems_are_reported_together() {
    let problems = Machine::node()
        .config(json!({
            "KubeletConfig": {
                "featureGates": { "X": "yes" }, "taints": ["a:b:c"], "evictionSoft": "memory.available=1Gi",
            },
            "KubeProxy": { "bindAddress": "here" },
            "containerdConfig": { "version": "latest" },
            "KeypairIDs": null,
        }))
        .problems();
    for expected in [
        "KeypairIDs.kubernetes-ca: is missing",
        "KubeletConfig.featureGates: X is \"yes\"",
        "KubeletConfig.taints[0]: \"a:b:c\" is no taint",
        "KubeletConfig.evictionSoft: \"memory.available=1Gi\" has no '<'",
        "KubeProxy.bindAddress: \"here\" is no IP address",
        "containerdConfig.version: \"latest\" is not a version",
    ] {
        assert!(problems.contains(expected), "{expected}\nis not in\n{problems}");
    }
}

#[test]
fn a_missing_download_is_a_problem_of_the_configuration() {
    let problems = Machine::control_plane().config(json!({ "Assets": { "amd64": [] }})).problems();
    for program in ["kubelet", "kubectl", "containerd", "ecr-credential-provider-linux-amd64"] {
        assert!(problems.contains(&format!("Assets.amd64: has no {program}")), "{problems}");
    }
}

#[test]
fn nodes_request_certificates_and_control_planes_issue_their_own() {
    let node = Machine::node().desired(add);
    assert_eq!(certificate(&node, "kubelet").issuer, Issuer::Bootstrap);
    assert_eq!(certificate(&node, "kubelet-server").issuer, Issuer::Bootstrap);

    let control_plane = Machine::control_plane().desired(add);
    let client = certificate(&control_plane, "kubelet");
    assert_eq!(client.issuer, Issuer::Local);
    assert_eq!(client.subject.common_name, "system:node:i-1");
    assert_eq!(client.subject.organization, ["system:nodes"]);
    let server = certificate(&control_plane, "kubelet-server");
    assert_eq!(server.sans, ["i-1", "ip-10-0-0-1.ec2.internal", "10.0.0.1"]);
}

#[test]
fn outside_aws_the_certificate_has_the_hosts_names() {
    let machine = Machine::control_plane().boot(json!({ "CloudProvider": "hetzner" })).facts(json!({
        "cloud": { "aws": null, "hetzner": { "instanceID": "1", "privateIPv4": "10.0.0.9" }},
    }));
    let desired = machine.desired(add);
    assert_eq!(certificate(&desired, "kubelet-server").sans, ["127.0.0.1", "Host"]);
    assert_eq!(certificate(&desired, "kubelet").subject.common_name, "system:node:host");
    assert!(flags(&desired).contains(&"--node-ip=10.0.0.9".to_owned()));
    assert!(!flags(&desired).iter().any(|flag| flag.starts_with("--hostname-override")));
    assert!(!desired.has("file /var/lib/kubelet/credential-provider.conf"));

    let known = machine.facts(json!({ "hostnameAddresses": ["10.0.0.9", "fd00::9"] })).desired(add);
    let server = certificate(&known, "kubelet-server");
    assert_eq!(server.sans, ["10.0.0.9", "fd00::9", "Host"]);
    assert_eq!(server.subject.common_name, "10.0.0.9");
}

/// kubelet's certificate has the wanted host name, even if the first run has not yet set this name on the machine. nodeup sets
/// the host name before it makes the certificate.
#[test]
fn the_certificate_has_the_host_name_that_the_agent_sets() {
    let linode = |hostname: &str, addresses: &[&str]| {
        let machine = Machine::control_plane().boot(json!({ "CloudProvider": "linode" })).facts(json!({
            "hostname": hostname,
            "hostnameAddresses": addresses,
            "cloud": { "aws": null, "linode": { "label": "control-plane-1", "id": "1" }},
        }));
        certificate(&machine.desired(add), "kubelet-server").clone()
    };
    let before = linode("localhost", &["10.0.0.8"]);
    assert_eq!(before.sans, ["control-plane-1"]);
    assert_eq!(before.subject.common_name, "control-plane-1");
    assert_eq!(linode("control-plane-1", &[]).sans, before.sans, "the second run changes nothing");
    assert_eq!(linode("control-plane-1", &["10.0.0.9"]).sans, ["10.0.0.9", "control-plane-1"]);
}

#[test]
fn the_users_hostname_override_has_no_effect() {
    let config = json!({ "KubeletConfig": { "hostnameOverride": "mine" }});
    let desired = Machine::node().config(config).desired(add);
    assert!(flags(&desired).contains(&"--hostname-override=i-1".to_owned()));
}

#[test]
fn ipv6_only_nodes_announce_any_address() {
    let ipv6 = json!({ "Networking": { "nonMasqueradeCIDR": "::/0" }});
    assert!(flags(&Machine::node().config(ipv6.clone()).desired(add)).contains(&"--node-ip=::".to_owned()));
    let scaleway = Machine::node().boot(json!({ "CloudProvider": "scaleway" })).config(ipv6);
    assert!(scaleway.problems().contains("not supported on scaleway"));
}

#[test]
fn control_planes_of_1_35_limit_the_crash_loop_back_off() {
    let period = |machine: Machine| {
        let config = machine.config(json!({ "KubernetesVersion": "1.35.0" })).desired(add);
        config.yaml(paths::KUBELET_CONFIG)["crashLoopBackOff"].clone()
    };
    assert_eq!(period(Machine::control_plane()), json!({ "maxContainerRestartPeriod": "1m0s" }));
    assert_eq!(period(Machine::node()), json!(null));
    let old = Machine::control_plane().desired(add);
    assert_eq!(old.yaml(paths::KUBELET_CONFIG)["crashLoopBackOff"], json!(null));
}

#[test]
fn cgroups_become_systemd_slices() {
    let desired = Machine::node()
        .config(
            json!({ "KubeletConfig": { "kubeletCgroups": "/kube.kubelet", "runtimeCgroups": "/runtime" }}),
        )
        .desired(add);
    assert!(desired.unit_text("kubelet.service").contains("Slice=kube.kubelet.slice\n"));
    assert!(desired.unit_text("kube.kubelet.slice").contains("Before=slices.target\n"));
    assert!(desired.has("unit runtime.slice"));
    // The plan writes the slice's unit file, but neither starts nor stops the slice.
    let plan = diff(&desired.0, &ObservedState::new());
    let step = plan.step(&ResourceId::new(Kind::Unit, "runtime.slice")).unwrap();
    assert!(matches!(step.changes.as_slice(), [Change::Write { .. }]), "{step:?}");
    assert!(flags(&desired).contains(&"--runtime-cgroups=/runtime".to_owned()));
}

#[test]
fn read_only_roots_have_their_own_paths() {
    let flatcar = Machine::node().on("flatcar", "4000").desired(add);
    assert!(flatcar.has("file /opt/kubernetes/bin/kubelet"));
    assert_eq!(flatcar.yaml(paths::KUBELET_CONFIG)["volumePluginDir"], "/var/lib/kubelet/volumeplugins/");
    let container_os = Machine::node().on("cos", "117").desired(add);
    assert!(container_os.has("file /etc/srv/kubernetes/kubelet-server.key"));
    assert!(container_os.unit_text("kubelet.service").contains("ExecStart=/home/kubernetes/bin/kubelet "));
    assert_eq!(container_os.yaml(paths::KUBELET_CONFIG)["resolvConf"], json!(null));
}

#[test]
fn registry_mirrors_can_use_ecr_credentials() {
    let mirrors = json!({ "containerdConfig": { "registryMirrors": { "docker.io": [], "*": [] }}});
    let images = |machine: &Machine| {
        let config = machine.desired(add).yaml(paths::KUBELET_CREDENTIAL_PROVIDER_CONFIG);
        config["providers"][0]["matchImages"].as_array().unwrap().clone()
    };
    let machine = Machine::node().config(mirrors);
    assert_eq!(images(&machine).len(), 4);
    let machine = machine.config(json!({ "containerdConfig": { "useECRCredentialsForMirrors": true }}));
    assert_eq!(images(&machine)[4..], [json!("*"), json!("docker.io")]);
}

#[test]
fn kubelet_restarts_only_for_files_that_it_reads_at_start() {
    let desired = Machine::node().desired(add);
    let restarts = &desired.unit("kubelet.service").restarted_by;
    let restarted_by = |path: &str| restarts.contains(&ResourceId::new(Kind::File, path));
    assert!(restarted_by(paths::KUBELET_CONFIG) && restarted_by("/usr/local/bin/kubelet"));
    assert!(!restarted_by("/srv/kubernetes/kubelet-server.crt"));
}
