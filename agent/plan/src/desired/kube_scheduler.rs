//! kube-scheduler: a static pod on every control-plane machine, with a serving certificate of its own.
//!
//! Source: nodeup/pkg/model/kube_scheduler.go.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, File, Mode};
use kops_agent_spec::KubeSchedulerConfig;
use kops_agent_spec::go_yaml;

use super::flags::Flags;
use super::pod::{Access, Container, Critical, EnvVar, Pod, Resources, logged_command, proxy_env};
use super::{certificates, paths, serving};

const NAME: &str = "kube-scheduler";

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let Some(control_plane) = node.control_plane() else { return };
    let config = &control_plane.kube_scheduler;

    let kubeconfig =
        certificates::issued_kubeconfig(state, node, NAME, certificates::user("system:kube-scheduler"));
    state.add(File::new(paths::KUBE_SCHEDULER_KUBECONFIG, kubeconfig).mode(Mode(0o400)));
    state.add(File::text(paths::log(NAME), "").mode(Mode(0o400)).create_only());
    add_configuration(node, config, state);
    if config.tls_cert_file.is_none() {
        serving::add_certificate(node, NAME, state);
    }
    state.add(pod(node, config).manifest_file());
}

/// Adds the configuration file if no fileAsset has its path. State stores that older kOps releases wrote have no such
/// fileAsset.
fn add_configuration(node: &NodeConfig, config: &KubeSchedulerConfig, state: &mut DesiredState) {
    if node.config.file_assets.iter().any(|asset| asset.path == paths::KUBE_SCHEDULER_CONFIG) {
        return;
    }
    let mut client_connection = serde_json::json!({ "kubeconfig": paths::KUBE_SCHEDULER_KUBECONFIG });
    if let Some(qps) = &config.qps {
        client_connection["qps"] = serde_json::json!(qps.as_f64());
    }
    if config.burst != 0 {
        client_connection["burst"] = config.burst.into();
    }
    let file = serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": client_connection,
    });
    state.add(File::text(paths::KUBE_SCHEDULER_CONFIG, go_yaml::to_string(&file)).mode(Mode(0o400)));
}

fn serving_directory(node: &NodeConfig) -> String {
    node.srv_kubernetes(NAME)
}

fn pod(node: &NodeConfig, config: &KubeSchedulerConfig) -> Pod {
    let mut pod = Pod::new(node, NAME, Critical::Cluster);
    let (command, args) = logged_command(NAME, "/usr/local/bin/kube-scheduler", flags(node, config));
    let mut container = Container {
        name: NAME.into(),
        image: node.image(&config.image),
        command,
        args,
        env: proxy_env(node),
        liveness_probe: Some(serving::liveness_probe(10259)),
        resources: resources(config),
        ..Container::default()
    };
    if let Some(volumes) = config.max_persistent_volumes {
        container.env.push(EnvVar::new("KUBE_MAX_PD_VOLS", volumes.to_string()));
    }
    pod.mount(&mut container, "varlibkubescheduler", "/var/lib/kube-scheduler", Access::ReadOnly);
    pod.mount(&mut container, "srvscheduler", &serving_directory(node), Access::ReadOnly);
    pod.mount(&mut container, "logfile", &paths::log(NAME), Access::ReadWrite);
    pod.spec.containers.push(container);
    pod
}

fn resources(config: &KubeSchedulerConfig) -> Resources {
    Resources::of_component(
        config.cpu_request.as_ref(),
        "100m",
        config.cpu_limit.as_ref(),
        config.memory_request.as_ref(),
        config.memory_limit.as_ref(),
    )
}

fn flags(node: &NodeConfig, config: &KubeSchedulerConfig) -> Vec<String> {
    let KubeSchedulerConfig {
        master,
        log_format,
        log_level,
        leader_election,
        feature_gates,
        kube_api_qps,
        kube_api_burst,
        authorization_always_allow_paths,
        enable_profiling,
        enable_contention_profiling,
        tls_cert_file,
        tls_private_key_file,
        // These settings are fields of the pod's container, not flags.
        image: _,
        cpu_request: _,
        cpu_limit: _,
        memory_request: _,
        memory_limit: _,
        max_persistent_volumes: _,
        // These settings are in the configuration file.
        qps: _,
        burst: _,
        // kOps' own kubeconfig replaces these files.
        authentication_kubeconfig: _,
        authorization_kubeconfig: _,
        // kOps no longer reads this field.
        use_policy_config_map: _,
    } = config;
    let serving = serving_directory(node);
    let (cert_file, key_file) = match tls_cert_file {
        Some(cert_file) => (cert_file.clone(), tls_private_key_file.clone()),
        None => (format!("{serving}/server.crt"), format!("{serving}/server.key")),
    };
    let mut flags = Flags::default();
    flags.set("master", master);
    flags.set_unless("logging-format", log_format, "text");
    flags.set("v", log_level);
    flags.set_leader_election(leader_election.as_ref());
    flags.set("feature-gates", feature_gates);
    flags.set("kube-api-qps", kube_api_qps);
    flags.set("kube-api-burst", kube_api_burst);
    flags.set("authentication-kubeconfig", paths::KUBE_SCHEDULER_KUBECONFIG);
    flags.set("authorization-kubeconfig", paths::KUBE_SCHEDULER_KUBECONFIG);
    flags.set("authorization-always-allow-paths", authorization_always_allow_paths);
    flags.set("profiling", enable_profiling);
    flags.set("contention-profiling", enable_contention_profiling);
    flags.set("tls-cert-file", &cert_file);
    flags.set("tls-private-key-file", &key_file);
    flags.set("config", paths::KUBE_SCHEDULER_CONFIG);
    if node.release().kube_scheduler_must_look_up_users() {
        flags.set("authentication-skip-lookup", &false);
        flags.set("authentication-tolerate-lookup-failure", &false);
    }
    flags.into_sorted()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use crate::resolve::testing::control_plane;
    use crate::resource::{Kind, ResourceId};
    use kops_agent_spec::FileAssetSpec;

    use super::*;

    fn node_with(config: &str, file_assets: Vec<FileAssetSpec>) -> NodeConfig {
        control_plane(|inputs| {
            let control_plane = inputs.config.control_plane_config.as_mut().unwrap();
            control_plane.kube_scheduler = serde_yaml::from_str(config).unwrap();
            inputs.config.file_assets = file_assets;
        })
    }

    fn file(node: &NodeConfig, path: &str) -> Option<Value> {
        let mut state = DesiredState::default();
        add(node, &mut state);
        state.get(&ResourceId::new(Kind::File, path)).map(|file| serde_json::to_value(file).unwrap())
    }

    #[test]
    fn the_configuration_is_written_unless_kops_adds_it_as_a_file_asset() {
        let node = node_with("{qps: 100, burst: 200}", Vec::new());
        assert_eq!(
            file(&node, paths::KUBE_SCHEDULER_CONFIG).unwrap()["content"]["text"],
            "apiVersion: kubescheduler.config.k8s.io/v1\nclientConnection:\n  burst: 200\n  \
             kubeconfig: /var/lib/kube-scheduler/kubeconfig\n  qps: 100\nkind: KubeSchedulerConfiguration\n"
        );
        let given = FileAssetSpec { path: paths::KUBE_SCHEDULER_CONFIG.into(), ..FileAssetSpec::default() };
        assert_eq!(file(&node_with("{}", vec![given]), paths::KUBE_SCHEDULER_CONFIG), None);
    }

    #[test]
    fn every_setting_becomes_its_flag() {
        let node = node_with(
            "{master: m, logFormat: json, logLevel: 3, featureGates: {AllBeta: 'true', AllAlpha: 'false'}, kubeAPIQPS: 1500m, \
             kubeAPIBurst: 5, authorizationAlwaysAllowPaths: [/a, /b], enableProfiling: false, \
             enableContentionProfiling: true, tlsCertFile: /srv/kubernetes/kube-scheduler/c, tlsPrivateKeyFile: /srv/kubernetes/kube-scheduler/k, \
             leaderElection: {leaderElect: true}}",
            Vec::new(),
        );
        assert_eq!(
            flags(&node, &node.control_plane().unwrap().kube_scheduler),
            [
                "--authentication-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
                "--authentication-skip-lookup=false",
                "--authentication-tolerate-lookup-failure=false",
                "--authorization-always-allow-paths=/a,/b",
                "--authorization-kubeconfig=/var/lib/kube-scheduler/kubeconfig",
                "--config=/var/lib/kube-scheduler/config.yaml",
                "--contention-profiling=true",
                "--feature-gates=AllAlpha=false,AllBeta=true",
                "--kube-api-burst=5",
                "--kube-api-qps=1.500",
                "--leader-elect=true",
                "--logging-format=json",
                "--master=m",
                "--profiling=false",
                "--tls-cert-file=/srv/kubernetes/kube-scheduler/c",
                "--tls-private-key-file=/srv/kubernetes/kube-scheduler/k",
                "--v=3",
            ]
        );
    }

    #[test]
    fn the_limit_of_volumes_is_an_environment_variable() {
        let node = node_with("{maxPersistentVolumes: 30}", Vec::new());
        let manifest = file(&node, &paths::manifest(NAME)).unwrap();
        let text = manifest["content"]["text"].as_str().unwrap();
        assert!(text.contains("- name: KUBE_MAX_PD_VOLS\n      value: \"30\"\n"), "{text}");
    }
}
