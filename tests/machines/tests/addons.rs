//! The service that applies add-ons on a control-plane machine, in place of kOps' channels pod. Checks its state in systemd,
//! its work inside the sandbox, and the change back to the pod.

use std::fs;

use kops_agent_spec::digest::sha256_hex;

use crate::cluster::Cluster;
use crate::controller::{AT_BOOT, is_confined};
use crate::service;

const UNIT: &str = "kops-agent-addons.service";
/// The id of the service's user. Source: kOps' pkg/wellknownusers.
const UID: &str = "10013";
const POD: &str = "/etc/kubernetes/manifests/kops-channels.manifest";
/// The manifest of the pod whose readiness mirrors the readiness of the add-ons service.
const MIRROR: &str = "/etc/kubernetes/manifests/kops-agent-addons.manifest";
const SETTINGS: &str = "/etc/kubernetes/kops-channels/settings.json";

/// Checks that a run at boot replaces the channels pod with the add-ons service. If `KOPS_AGENT_ADDONS` is false, a run restores the pod.
pub fn are_applied_by_a_service_in_the_pods_place(cluster: &Cluster) {
    let machine = &cluster.control_plane;
    let is_there = |path: &str| machine.try_run(&["test", "-e", path]).code == Some(0);
    put(cluster, "1");
    assert!(is_there(POD), "without the setting, the pod stays");

    converge(cluster, "true");
    assert!(!is_there(POD) && is_there(SETTINGS) && is_there(MIRROR));
    let is = |property: &str| machine.show(UNIT, property);
    assert_eq!((is("ActiveState").as_str(), is("UnitFileState").as_str()), ("active", "enabled"));
    service::is_clean(machine, UNIT);
    is_confined(machine, UNIT, UID);
    is_applied(cluster, "1");
    // The service reads the channel every minute.
    put(cluster, "2");
    is_applied(cluster, "2");
    machine.until("it leads, and says so", || is("StatusText").starts_with("leading").then_some(()));
    machine.until("kubelet has ended the pod", || {
        let pods = cluster.kubectl(&["get", "pods", "-n", "kube-system", "-o", "name"])?;
        (!pods.contains("kops-channels")).then_some(())
    });
    // `kops validate cluster` reads the priority class and the readiness of this pod.
    machine.until("a critical pod is as ready as the service", || {
        let path = "jsonpath={range .items[*]}{.spec.priorityClassName} {.status.containerStatuses[*].ready}{\"\\n\"}{end}";
        let all = ["get", "pods", "-n", "kube-system", "-l", "k8s-app=kops-agent-addons", "-o", path];
        (cluster.kubectl(&all)?.trim() == "system-node-critical true").then_some(())
    });

    converge(cluster, "false");
    // The package's unit file stays installed, but the unit is disabled.
    assert!(
        is_there(POD)
            && !is_there(SETTINGS)
            && !is_there(MIRROR)
            && !is_there(&format!("/etc/systemd/system/{UNIT}"))
    );
    assert_eq!((is("ActiveState").as_str(), is("UnitFileState").as_str()), ("inactive", "disabled"));
    // The service stays on, because a later test checks that a reset removes the service.
    converge(cluster, "true");
    assert_eq!(is("ActiveState"), "active");
}

/// Adds an add-on to the state store's channel: a ConfigMap with this value. A second call replaces the add-on of the first.
fn put(cluster: &Cluster, value: &str) {
    const NAMED: &str = "  - name: example.addons.k8s.io\n";
    let folder = cluster.store.cluster_folder().join("addons");
    let manifest = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: add-on\n  namespace: kube-system\n  labels:\n    \
         addon.kops.k8s.io/name: example.addons.k8s.io\ndata:\n  value: \"{value}\""
    );
    let hash = sha256_hex(manifest.as_bytes());
    let channel = folder.join("bootstrap-channel.yaml");
    let text = fs::read_to_string(&channel).unwrap();
    let others = text.split(NAMED).next().unwrap();
    let entry = format!("    manifest: example/v1.yaml\n    manifestHash: {hash}\n");
    fs::create_dir_all(folder.join("example")).unwrap();
    fs::write(folder.join("example/v1.yaml"), manifest).unwrap();
    fs::write(channel, format!("{others}{NAMED}{entry}")).unwrap();
}

/// Runs the unit that converges at boot with `KOPS_AGENT_ADDONS` set to `addons`.
fn converge(cluster: &Cluster, addons: &str) {
    let machine = &cluster.control_plane;
    machine.write("/etc/environment", &format!("KOPS_AGENT_CONTROLLER=true\nKOPS_AGENT_ADDONS={addons}\n"));
    let ended = machine.try_run(&["systemctl", "restart", AT_BOOT]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
}

fn is_applied(cluster: &Cluster, value: &str) {
    let data = ["get", "configmap", "add-on", "-n", "kube-system", "-o", "jsonpath={.data.value}"];
    cluster.control_plane.until(&format!("the add-on has the value {value}"), || {
        cluster.kubectl(&data).filter(|found| found == value)
    });
}
