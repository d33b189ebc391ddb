//! Warns of settings of the API server and of kube-controller-manager that become flags, although the program does not have such a flag.
//! For kubelet, `kubelet/values.rs` refuses such settings.
//!
//! Source: the flags of kube-apiserver and kube-controller-manager of Kubernetes 1.29 to 1.36.

use kops_agent_spec::{KubeAPIServerConfig, KubeControllerManagerConfig};

use super::Component;

/// The newest minor version whose kube-controller-manager has the flags `--horizontal-pod-autoscaler-downscale-delay` and
/// `--horizontal-pod-autoscaler-upscale-delay`.
const LAST_WITH_SCALE_DELAYS: u64 = 30;
/// The newest minor version whose API server has `--cloud-provider`.
pub(super) const LAST_WITH_CLOUD_PROVIDER: u64 = 32;
/// The oldest minor version whose API server has `--storage-initialization-timeout`.
const FIRST_WITH_STORAGE_INITIALIZATION: u64 = 31;

pub(super) fn check_api_server(component: &mut Component<'_>, config: &KubeAPIServerConfig) {
    let minor = component.version.minor();
    warn(
        component,
        &[
            ("address", !config.address.is_empty()),
            ("auditDynamicConfiguration", config.audit_dynamic_configuration.is_some()),
            ("authorizationRBACSuperUser", is_set(config.authorization_rbac_super_user.as_deref())),
            ("basicAuthFile", !config.basic_auth_file.is_empty()),
            ("cloudProvider", !config.cloud_provider.is_empty() && minor > LAST_WITH_CLOUD_PROVIDER),
            ("etcdQuorumRead", config.etcd_quorum_read.is_some()),
            (
                "experimentalEncryptionProviderConfig",
                is_set(config.experimental_encryption_provider_config.as_deref()),
            ),
            ("insecureBindAddress", !config.insecure_bind_address.is_empty()),
            ("insecurePort", config.insecure_port.is_some()),
            (
                "storageInitializationTimeout",
                config.storage_initialization_timeout.is_some() && minor < FIRST_WITH_STORAGE_INITIALIZATION,
            ),
        ],
    );
}

pub(super) fn check_controller_manager(component: &mut Component<'_>, config: &KubeControllerManagerConfig) {
    let has_delays = component.version.minor() <= LAST_WITH_SCALE_DELAYS;
    warn(
        component,
        &[
            ("experimentalClusterSigningDuration", config.experimental_cluster_signing_duration.is_some()),
            (
                "horizontalPodAutoscalerDownscaleDelay",
                config.horizontal_pod_autoscaler_downscale_delay.is_some() && !has_delays,
            ),
            (
                "horizontalPodAutoscalerUpscaleDelay",
                config.horizontal_pod_autoscaler_upscale_delay.is_some() && !has_delays,
            ),
            (
                "horizontalPodAutoscalerUseRestClients",
                config.horizontal_pod_autoscaler_use_rest_clients.is_some(),
            ),
            ("podEvictionTimeout", config.pod_eviction_timeout.is_some()),
        ],
    );
}

/// Whether a field has a value. kOps passes no flag for an empty text.
fn is_set(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn warn(component: &mut Component<'_>, fields: &[(&str, bool)]) {
    for (field, _) in fields.iter().filter(|(_, is_set)| *is_set) {
        component.warn(
            field,
            format!(
                "becomes a flag that {0} of Kubernetes {1} does not have, so {0} does not start; remove the field",
                component.name, component.version
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        API_SERVER, CONTROLLER_MANAGER, assert_accepted, assert_warned,
    };

    #[test]
    fn settings_that_become_unknown_flags_give_a_warning() {
        assert_warned(
            "1.34.0",
            API_SERVER,
            &[
                ("insecurePort: 0", "insecurePort"),
                ("basicAuthFile: /srv/basic.csv", "basicAuthFile"),
                ("cloudProvider: external", "cloudProvider"),
                ("authorizationRBACSuperUser: admin", "authorizationRBACSuperUser"),
            ],
        );
        let timeout = "storageInitializationTimeout: 1m";
        assert_warned("1.30.0", API_SERVER, &[(timeout, "storageInitializationTimeout")]);
        let delay = "horizontalPodAutoscalerUpscaleDelay: 3m";
        assert_warned("1.34.0", CONTROLLER_MANAGER, &[(delay, "horizontalPodAutoscalerUpscaleDelay")]);
        assert_warned("1.30.0", CONTROLLER_MANAGER, &[("podEvictionTimeout: 3m", "podEvictionTimeout")]);
        assert_accepted("1.32.0", API_SERVER, &["cloudProvider: external", timeout]);
        assert_accepted("1.34.0", API_SERVER, &["authorizationRBACSuperUser: ''"]);
        assert_accepted("1.30.0", CONTROLLER_MANAGER, &[delay]);
    }
}
