#![allow(clippy::unwrap_used)]
use crate::diff::{ObservedState, diff};
use crate::resolve::testing::control_plane;

use super::*;

fn check(component: &Component) -> Vec<String> {
    let shown = |check: &Check| match check {
        Check::Unit { name } => format!("unit {name}"),
        Check::Runtime { socket } => format!("runtime {socket}"),
        Check::Answers { url } => format!("answers {url}"),
        Check::Pod { pod, .. } => {
            let containers: Vec<&str> = pod.containers.iter().map(String::as_str).collect();
            format!("pod {}/{} ({})", pod.namespace, pod.name, containers.join(" "))
        }
    };
    component.checks.iter().map(shown).collect()
}

/// All components that the first run of a control plane starts, in order, each with its checks.
fn of_control_plane() -> Vec<(String, Vec<String>)> {
    let desired = crate::desired::desired(&control_plane(|_| {})).unwrap();
    let texts = |path: &str| desired_text(&desired, path);
    let plan = diff(&desired, &ObservedState::new());
    let components = plan.steps.iter().filter_map(|step| after(step, &texts));
    components.map(|component| (component.resource.to_string(), check(&component))).collect()
}

#[test]
fn each_component_has_its_health_checks_in_order() {
    let components = of_control_plane();
    let names: Vec<&str> = components.iter().map(|(name, _)| name.as_str()).collect();
    let at = |name: &str| {
        names.iter().position(|found| *found == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
    };
    let order = [
        "unit containerd.service",
        "file /etc/kubernetes/manifests/kube-apiserver.manifest",
        "file /etc/kubernetes/manifests/kube-controller-manager.manifest",
        "file /etc/kubernetes/manifests/kube-scheduler.manifest",
        "unit kubelet.service",
    ];
    assert!(order.windows(2).all(|two| at(two[0]) < at(two[1])), "{names:?}");
    assert_eq!(names.last(), Some(&"unit kubelet.service"));

    let checks = |name: &str| components[at(name)].1.clone();
    assert_eq!(
        checks("unit containerd.service"),
        ["unit containerd.service", "runtime /run/containerd/containerd.sock"]
    );
    assert_eq!(
        checks("unit kubelet.service"),
        ["unit kubelet.service", "answers http://127.0.0.1:10248/healthz"]
    );
    let scheduler = checks("file /etc/kubernetes/manifests/kube-scheduler.manifest");
    assert_eq!(
        scheduler,
        ["pod kube-system/kube-scheduler (kube-scheduler)", "answers https://127.0.0.1:10259/healthz"]
    );
    let api_server = checks("file /etc/kubernetes/manifests/kube-apiserver.manifest");
    assert!(api_server[0].starts_with("pod kube-system/kube-apiserver ("), "{api_server:?}");
    assert!(api_server[1].ends_with("/healthz"), "{api_server:?}");
}

#[test]
fn etcd_changes_first_then_the_api_server_then_other_pods() {
    let mut desired = DesiredState::default();
    for name in ["aaa", "kube-apiserver", "etcd-events-a", "etcd-main-a", "kube-apiserver-x"] {
        desired.add(File::text(paths::manifest(name), ""));
    }
    let plan = diff(&desired, &ObservedState::new());
    let names: Vec<&str> =
        plan.stage(Stage::Pods).map(|step| step.resource.name.rsplit('/').next().unwrap()).collect();
    let expected = ["etcd-events-a", "etcd-main-a", "kube-apiserver", "aaa", "kube-apiserver-x"];
    assert_eq!(names, expected.map(|name| format!("{name}.manifest")));
}

const ETCD: &str = "metadata: {name: etcd-manager-main, namespace: kube-system}
spec: {hostNetwork: true, containers: [{name: etcd-manager}]}
";
const API_SERVER_POD: &str = "metadata: {name: kube-apiserver, namespace: kube-system}
spec:
  hostNetwork: true
  containers:
  - name: kube-apiserver
    livenessProbe: {httpGet: {host: 127.0.0.1, path: /livez, port: 3990}}
    readinessProbe: {httpGet: {host: 127.0.0.1, path: /healthz, port: 3990}}
  - name: healthcheck
    livenessProbe: {httpGet: {path: own, port: http}}
";

#[test]
fn etcd_is_checked_through_the_api_server() {
    let texts = |path: &str| match path.rsplit('/').next().unwrap() {
        "etcd-main.manifest" => Some(ETCD.to_owned()),
        "kube-apiserver.manifest" => Some(API_SERVER_POD.to_owned()),
        _ => None,
    };
    let etcd = of_manifest("/etc/kubernetes/manifests/etcd-main.manifest", &texts).unwrap();
    assert_eq!(
        check(&etcd),
        ["pod kube-system/etcd-manager-main (etcd-manager)", "answers http://127.0.0.1:3990/healthz"]
    );
    let alone = |path: &str| texts(path).filter(|_| path.contains("etcd"));
    let etcd = of_manifest("/etc/kubernetes/manifests/etcd-main.manifest", &alone).unwrap();
    assert_eq!(etcd.checks.len(), 1, "a machine without an API server");
    assert_eq!(of_manifest("/etc/kubernetes/manifests/x.manifest", &|_| Some("- no pod".into())), None);
}

#[test]
fn kubelets_health_url_comes_from_its_configuration() {
    let asked = |config: &'static str| {
        let component = of_unit(KUBELET, &|path| (path == paths::KUBELET_CONFIG).then(|| config.to_owned()));
        check(&component).get(1).cloned()
    };
    for (config, expected) in [
        ("kind: KubeletConfiguration", Some("http://127.0.0.1:10248/healthz")),
        ("healthzPort: 1234\nhealthzBindAddress: '::1'", Some("http://[::1]:1234/healthz")),
        ("healthzBindAddress: 0.0.0.0", Some("http://127.0.0.1:10248/healthz")),
        ("healthzPort: 0", None),
    ] {
        assert_eq!(asked(config), expected.map(|url| format!("answers {url}")), "{config}");
    }
    let runtime =
        of_unit(CONTAINER_RUNTIME, &|_| Some("containerRuntimeEndpoint: unix:///run/x.sock".into()));
    assert_eq!(check(&runtime)[1], "runtime /run/x.sock");
}

#[test]
fn a_unit_that_a_file_restarts_is_awaited() {
    let file = File::text("/etc/systemd/system/containerd.service.d/10-kops.conf", "")
        .on_change(&["systemctl", "daemon-reload"])
        .on_change(&["systemctl", "restart", "kops-configuration.service"])
        .on_change(&["systemctl", "restart", "containerd.service"]);
    let mut desired = DesiredState::default();
    desired.add(file);
    let plan = diff(&desired, &ObservedState::new());
    let component = after(&plan.steps[0], &|_| None).unwrap();
    assert_eq!(component.resource.to_string(), "unit containerd.service");
}

#[test]
fn nothing_is_awaited_on_a_node_that_runs_no_pods_yet() {
    assert!(is_awaited(&crate::desired::desired(&control_plane(|_| {})).unwrap()));
    let mut warming = DesiredState::default();
    warming.add(crate::resource::Unit { running: false, ..crate::resource::Unit::existing(KUBELET) });
    assert!(!is_awaited(&warming));
    assert!(!is_awaited(&DesiredState::default()));
}

#[test]
fn only_files_in_the_folder_of_manifests_are_pods() {
    assert!(is_manifest("/etc/kubernetes/manifests/kube-proxy.manifest"));
    for path in ["/etc/kubernetes/manifests", "/etc/kubernetes/manifests/a/b", "/etc/kubernetes/manifestsx"] {
        assert!(!is_manifest(path), "{path}");
    }
}
