//! `kops-agent addons run` as a service of a control-plane machine. It replaces kOps' channels pod or, up to kOps 1.35, protokube's
//! channels and labels. Adds the unit, and the settings that kOps' own pod would have. The service uses the pod's user and kubeconfig.
//!
//! `kops validate cluster` and `kops rolling-update cluster` check the readiness of critical pods only (upstream: `collectPodFailures` in
//! `pkg/validation/validate_cluster.go`). So a small pod mirrors the service's readiness.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Unit};
use kops_agent_cluster::addons::AddonSettings;

use super::own_service;
use super::paths::KOPS_CHANNELS_KUBECONFIG;
use super::pod::{Container, Critical, HttpGet, Pod, Probe, SecurityContext};

pub const UNIT: &str = "kops-agent-addons.service";
const UNIT_TEXT: &str = include_str!("../../../../units/kops-agent-addons.service");
/// Path of the service's settings. The text of the unit must name this path.
const SETTINGS: &str = "/etc/kubernetes/kops-channels/settings.json";
/// The pod that mirrors the service's readiness.
pub(crate) const MIRROR: &str = "kops-agent-addons";
/// Image of the mirror pod if the containerd configuration names no sandbox image. This image is containerd's default sandbox image, and
/// its container does nothing.
const PAUSE: &str = "registry.k8s.io/pause:3.10.1";
/// The user of the mirror pod's container. It is the image's own user, which owns no files.
const PAUSE_UID: i64 = 65535;
/// The port on which the service answers probes (upstream: `KopsChannelsHealthCheck` in `pkg/wellknownports`).
const HEALTH_PORT: i32 = 3986;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddonsService {
    /// The settings that kOps' own program for add-ons (protokube or a pod) would have on this node.
    pub settings: AddonSettings,
    pub program: String,
}

pub(super) fn add(node: &NodeConfig, service: &AddonsService, state: &mut DesiredState) {
    if !node.is_control_plane() {
        return;
    }
    // Root owns the settings file, because the service applies the channels in the file with full rights.
    state.add(File::text(SETTINGS, service.settings.to_text()));
    let text = own_service::unit_text(node, UNIT_TEXT, &service.program);
    let read = [SETTINGS, KOPS_CHANNELS_KUBECONFIG].map(str::to_owned);
    state.add(Unit::new(UNIT, text).restarted_by_files(read));
    state.add(mirror(node).manifest_file());
}

/// A pod that is ready while the addons service is ready. Its readiness probe equals the probe of kOps' pod kops-channels.
fn mirror(node: &NodeConfig) -> Pod {
    let mut pod = Pod::new(node, MIRROR, Critical::Node);
    pod.spec.containers.push(Container {
        name: MIRROR.into(),
        image: node.containerd().sandbox_image.clone().unwrap_or_else(|| PAUSE.into()),
        readiness_probe: Some(Probe {
            http_get: Some(HttpGet { host: "127.0.0.1", path: "/readyz", port: HEALTH_PORT, scheme: None }),
            initial_delay_seconds: 30,
            period_seconds: 10,
            failure_threshold: 2,
            ..Probe::default()
        }),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(PAUSE_UID),
            ..SecurityContext::default()
        }),
        ..Container::default()
    });
    pod
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::desired::paths::PACKAGED_PROGRAM;
    use crate::desired::{Services, desired, desired_with};
    use crate::resolve::testing::{api_server, control_plane};
    use crate::resource::{Kind, ResourceId};

    const POD: &str = "/etc/kubernetes/manifests/kops-channels.manifest";

    fn service() -> AddonsService {
        let settings = AddonSettings { channels: vec!["s3://a/b".into()], ..AddonSettings::default() };
        AddonsService { settings: settings.labelling("i-1", ""), program: "/opt/agent".into() }
    }

    #[test]
    fn the_service_replaces_only_the_pod() {
        let node = control_plane(|_| {});
        let before = desired(&node).unwrap();
        let service = service();
        let services = Services { addons: Some(&service), ..Services::default() };
        let after = desired_with(&node, services).unwrap();
        let get = |state: &DesiredState, kind, name: &str| {
            state.get(&ResourceId::new(kind, name)).map(|found| serde_json::to_value(found).unwrap())
        };
        assert!(get(&before, Kind::File, POD).is_some() && get(&before, Kind::Unit, UNIT).is_none());
        assert!(get(&after, Kind::File, POD).is_none());
        let kubeconfig = get(&after, Kind::File, "/var/lib/kops/kubeconfig").unwrap();
        assert_eq!((&kubeconfig["mode"], &kubeconfig["owner"]), (&json!("0400"), &json!("kops-channels")));
        let unit = get(&after, Kind::Unit, UNIT).unwrap();
        let text = unit["text"].as_str().unwrap();
        for named in
            ["ExecStart=/opt/agent addons run", SETTINGS, "/var/lib/kops/kubeconfig", "User=kops-channels"]
        {
            assert!(text.contains(named), "{named}: {text}");
        }
        assert!(!text.contains(PACKAGED_PROGRAM), "{text}");
        let settings = get(&after, Kind::File, SETTINGS).unwrap();
        let told = settings["content"]["text"].as_str().unwrap();
        assert_eq!(AddonSettings::parse(told.as_bytes(), SETTINGS).unwrap(), service.settings);

        let is_there = |state: &DesiredState, id: &ResourceId| state.get(id).is_some();
        let gone: Vec<_> = before.iter().map(|(id, _)| id).filter(|id| !is_there(&after, id)).collect();
        let new: Vec<_> = after.iter().map(|(id, _)| id).filter(|id| !is_there(&before, id)).collect();
        let is_changed = |(id, one): &(&ResourceId, _)| after.get(id).is_some_and(|now| now != *one);
        assert_eq!(gone, [&ResourceId::new(Kind::File, POD)]);
        let mirror = "/etc/kubernetes/manifests/kops-agent-addons.manifest";
        let expected = [(Kind::File, SETTINGS), (Kind::File, mirror), (Kind::Unit, UNIT)];
        assert_eq!(new, expected.map(|(kind, name)| ResourceId::new(kind, name)).each_ref());
        assert_eq!(before.iter().filter(is_changed).count(), 0);
    }

    /// `kops validate cluster` reads the fields that this test compares. kOps' own pod has the same probe (upstream:
    /// `pkg/model/components/channels/model.go`).
    #[test]
    fn a_critical_pod_mirrors_the_services_readiness() {
        let node = control_plane(|inputs| {
            inputs.config.containerd_config.as_mut().unwrap().sandbox_image =
                Some("mirror.example.com/pause:1".into());
        });
        let pod = serde_json::to_value(mirror(&node)).unwrap();
        let spec = &pod["spec"];
        assert_eq!(
            (&spec["priorityClassName"], &spec["hostNetwork"]),
            (&json!("system-node-critical"), &json!(true))
        );
        let container = &spec["containers"][0];
        assert_eq!(container["image"], "mirror.example.com/pause:1");
        let probe = json!({"httpGet": {"host": "127.0.0.1", "path": "/readyz", "port": 3986},
            "initialDelaySeconds": 30, "periodSeconds": 10, "failureThreshold": 2});
        assert_eq!(container["readinessProbe"], probe);
    }

    #[test]
    fn a_run_waits_for_the_service_but_not_for_its_add_ons() {
        let (node, service) = (control_plane(|_| {}), service());
        let desired =
            desired_with(&node, Services { addons: Some(&service), ..Services::default() }).unwrap();
        let path = crate::desired::paths::manifest(MIRROR);
        let texts = |path: &str| crate::health::desired_text(&desired, path);
        let checks = crate::health::of_manifest(&path, &texts).unwrap().checks;
        assert!(matches!(checks[..], [crate::health::Check::Pod { .. }]), "{checks:?}");
    }

    #[test]
    fn a_dedicated_api_server_does_not_get_it() {
        let mut state = DesiredState::default();
        add(&api_server(|_| {}), &service(), &mut state);
        assert!(state.is_empty());
    }
}
