//! The checks that kubelet makes before it starts. If kubelet rejects a value, it exits, and on a new machine it exits again and again. So
//! a value that kubelet rejects is a problem here.
//!
//! Source: pkg/kubelet/apis/config/validation, the defaults in pkg/kubelet/apis/config/v1beta1, and cmd/kubelet/app of
//! Kubernetes 1.29 to 1.36. A node of a newer release is checked by the rules of 1.36.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_spec::{Duration, KubeletConfigSpec, Quantity};

use crate::resolve::feature_gates::Gates;
use crate::resolve::{KubernetesVersion, Problems};

use super::unsafe_sysctls;

/// The resources that kubelet can reserve (`parseResourceList` in cmd/kubelet/app/server.go).
const RESERVABLE: [&str; 4] = ["cpu", "ephemeral-storage", "memory", "pid"];
/// The values of `enforceNodeAllocatable`, with the cgroup that each value needs.
const ENFORCEMENTS: [(&str, Option<Reserved>); 6] = [
    ("none", None),
    ("pods", None),
    ("kube-reserved", Some(Reserved::Kube)),
    ("kube-reserved-compressible", Some(Reserved::Kube)),
    ("system-reserved", Some(Reserved::System)),
    ("system-reserved-compressible", Some(Reserved::System)),
];
/// The first minor version whose kubelet can limit the enforcement of a reservation to compressible resources.
const FIRST_WITH_COMPRESSIBLE: u64 = 32;
/// The first minor version whose kubelet refuses a repeated value of `enforceNodeAllocatable`.
const FIRST_WITHOUT_REPETITION: u64 = 31;
/// Go's names of TLS versions (k8s.io/component-base/cli/flag).
pub(in crate::resolve) const TLS_VERSIONS: [&str; 4] =
    ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"];
/// Go's names of cipher suites, and two more names that Kubernetes adds (k8s.io/component-base/cli/flag, Go's crypto/tls).
pub(in crate::resolve) const CIPHER_SUITES: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];
const DEFAULT_IMAGE_GC_HIGH: i32 = 85;
const DEFAULT_IMAGE_GC_LOW: i32 = 80;
const DEFAULT_IMAGE_MINIMUM_GC_AGE: Duration = Duration::from_seconds(2 * 60);
const DEFAULT_CPU_QUOTA_PERIOD: Duration = Duration::from_nanoseconds(100_000_000);
const MILLISECOND: Duration = Duration::from_nanoseconds(1_000_000);
const SECOND: Duration = Duration::from_seconds(1);
const LONGEST_CRASH_LOOP_BACK_OFF: Duration = Duration::from_seconds(300);
/// The newest minor version that has `--register-schedulable`.
const LAST_WITH_REGISTER_SCHEDULABLE: u64 = 33;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reserved {
    Kube,
    System,
}

/// Checks kubelet's settings, including the defaults.
pub(super) fn check(
    config: &KubeletConfigSpec,
    gates: &Gates<'_>,
    version: &KubernetesVersion,
    problems: &mut Problems,
) {
    let mut check = Check { config, gates, problems };
    check.words(version);
    check.numbers();
    check.image_collection();
    check.image_pulls();
    check.reserved("kubeReserved", &config.kube_reserved);
    check.reserved("systemReserved", &config.system_reserved);
    check.enforcements(version);
    check.cpu_manager();
    check.swap();
    check.container_logs();
    check.durations();
    check.shutdown();
    check.removed_flags(version);
    for (index, pattern) in config.allowed_unsafe_sysctls.iter().enumerate() {
        if let Err(problem) = unsafe_sysctls::check(pattern) {
            check.refuse(&format!("allowedUnsafeSysctls[{index}]"), problem);
        }
    }
}

struct Check<'a> {
    config: &'a KubeletConfigSpec,
    gates: &'a Gates<'a>,
    problems: &'a mut Problems,
}

impl Check<'_> {
    fn refuse(&mut self, field: &str, problem: impl Into<String>) {
        self.problems.add(format!("KubeletConfig.{field}"), problem);
    }

    fn words(&mut self, version: &KubernetesVersion) {
        let config = self.config;
        let swap: &[&str] = match (self.gates.is_on("NodeSwap"), version.minor()) {
            (false, _) => &[],
            // Kubernetes 1.30 replaced UnlimitedSwap with NoSwap.
            (true, ..=29) => &["LimitedSwap", "UnlimitedSwap"],
            (true, _) => &["LimitedSwap", "NoSwap"],
        };
        // Kubernetes 1.31 removed the in-tree cloud providers. Since Kubernetes 1.29, they are off by default.
        let clouds: &[&str] = match version.minor() <= 30 && !self.gates.is_on("DisableCloudProviders") {
            true => &["azure", "external", "gce", "vsphere"],
            false => &["external"],
        };
        for (field, value, accepted) in [
            ("authorizationMode", &config.authorization_mode, &["AlwaysAllow", "Webhook"][..]),
            ("cloudProvider", &config.cloud_provider, clouds),
            ("cpuManagerPolicy", &config.cpu_manager_policy, &["none", "static"]),
            ("hairpinMode", &config.hairpin_mode, &["hairpin-veth", "none", "promiscuous-bridge"]),
            ("logFormat", &config.log_format, &["json", "text"]),
            ("memorySwapBehavior", &config.memory_swap_behavior, swap),
            ("tlsMinVersion", &config.tls_min_version, &TLS_VERSIONS),
            (
                "topologyManagerPolicy",
                &config.topology_manager_policy,
                &["best-effort", "none", "restricted", "single-numa-node"],
            ),
        ] {
            if !value.is_empty() && !accepted.contains(&value.as_str()) {
                let problem = match accepted {
                    [] => format!("is {value:?}, but {}", self.gates.why_off("NodeSwap")),
                    accepted => {
                        format!("{value:?} is refused by kubelet; it accepts {}", accepted.join(", "))
                    }
                };
                self.refuse(field, problem);
            }
        }
        for (index, suite) in config.tls_cipher_suites.iter().enumerate() {
            if !CIPHER_SUITES.contains(&suite.as_str()) {
                self.refuse(
                    &format!("tlsCipherSuites[{index}]"),
                    format!("{suite:?} is refused by kubelet; it accepts {}", CIPHER_SUITES.join(", ")),
                );
            }
        }
    }

    fn numbers(&mut self) {
        let config = self.config;
        // `eventQPS` is the older field. If it is set, kubelet does not get `eventRecordQPS`.
        let event_record_qps = config.event_record_qps.filter(|_| config.event_qps.is_none());
        for (field, value) in [
            ("maxPods", config.max_pods),
            ("eventQPS", config.event_qps),
            ("eventRecordQPS", event_record_qps),
            ("eventBurst", config.event_burst),
            ("registryPullQPS", config.registry_pull_qps),
            ("registryBurst", config.registry_burst),
            ("kubeAPIQPS", config.kube_api_qps),
            ("logLevel", config.log_level),
            ("nodeLeaseDurationSeconds", config.node_lease_duration_seconds),
        ] {
            if let Some(value) = value.filter(|value| *value < 0) {
                self.refuse(field, format!("{value} is refused by kubelet; use 0 or more"));
            }
        }
        for (field, value, most) in [
            ("imageGCHighThresholdPercent", config.image_gc_high_threshold_percent, 100),
            ("imageGCLowThresholdPercent", config.image_gc_low_threshold_percent, 100),
            ("readOnlyPort", config.read_only_port, 65535),
        ] {
            if let Some(value) = value.filter(|value| !(0..=most).contains(value)) {
                self.refuse(field, format!("{value} is refused by kubelet; use a number from 0 to {most}"));
            }
        }
    }

    fn image_collection(&mut self) {
        let config = self.config;
        let high = config.image_gc_high_threshold_percent.unwrap_or(DEFAULT_IMAGE_GC_HIGH);
        let low = config.image_gc_low_threshold_percent.unwrap_or(DEFAULT_IMAGE_GC_LOW);
        if low >= high {
            self.refuse(
                "imageGCLowThresholdPercent",
                format!("is {low}, but must be less than imageGCHighThresholdPercent, which is {high}; change one of them"),
            );
        }
        let age = config.image_maximum_gc_age.unwrap_or_default();
        if age.is_zero() {
            return;
        }
        if !self.gates.is_on("ImageMaximumGCAge") {
            let problem = format!("is set, but {}", self.gates.why_off("ImageMaximumGCAge"));
            self.refuse("imageMaximumGCAge", problem);
        }
        if age <= DEFAULT_IMAGE_MINIMUM_GC_AGE {
            self.refuse(
                "imageMaximumGCAge",
                format!("{age} is refused by kubelet; use more than {DEFAULT_IMAGE_MINIMUM_GC_AGE}, or 0 for never"),
            );
        }
    }

    fn image_pulls(&mut self) {
        let Some(most) = self.config.max_parallel_image_pulls else { return };
        if most < 1 {
            self.refuse("maxParallelImagePulls", format!("{most} is refused by kubelet; use 1 or more"));
        }
        if most > 1 && self.config.serialize_image_pulls == Some(true) {
            self.refuse(
                "maxParallelImagePulls",
                format!(
                    "is {most}, but serializeImagePulls is true; set serializeImagePulls to false, or remove one of the two"
                ),
            );
        }
    }

    fn reserved(&mut self, field: &str, resources: &BTreeMap<String, String>) {
        for (name, amount) in resources {
            let field = format!("{field}.{name}");
            if !RESERVABLE.contains(&name.as_str()) {
                self.refuse(
                    &field,
                    format!("kubelet cannot reserve {name:?}; it reserves {}", RESERVABLE.join(", ")),
                );
            }
            match quantity(amount) {
                None => self.refuse(&field, no_quantity(amount)),
                Some(value) if value < 0.0 => {
                    self.refuse(&field, format!("{amount} is refused by kubelet; use 0 or more"));
                }
                Some(_) => {}
            }
        }
    }

    fn enforcements(&mut self, version: &KubernetesVersion) {
        let config = self.config;
        let has_compressible = version.minor() >= FIRST_WITH_COMPRESSIBLE;
        let accepted: Vec<&str> = ENFORCEMENTS
            .iter()
            .map(|(word, _)| *word)
            .filter(|word| has_compressible || !word.ends_with("-compressible"))
            .collect();
        let enforced: Vec<&str> =
            config.enforce_node_allocatable.split(',').filter(|word| !word.is_empty()).collect();
        let all: BTreeSet<&str> = enforced.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let field = "enforceNodeAllocatable";
        for word in &enforced {
            let is_repeated = !seen.insert(*word);
            let known = ENFORCEMENTS.iter().find(|(known, _)| known == word && accepted.contains(known));
            let Some((_, reserved)) = known else {
                self.refuse(
                    field,
                    format!(
                        "{word:?} is refused by kubelet; it accepts a comma-separated list of {}",
                        accepted.join(", ")
                    ),
                );
                continue;
            };
            if is_repeated && version.minor() >= FIRST_WITHOUT_REPETITION {
                self.refuse(field, format!("has {word} twice; remove one of them"));
            }
            if *word == "none" && enforced.len() > 1 {
                self.refuse(
                    field,
                    "has \"none\" together with other values; remove \"none\", or the other values",
                );
            }
            if let Some(whole) = word.strip_suffix("-compressible").filter(|whole| all.contains(whole)) {
                self.refuse(field, format!("has both {whole} and {word}; remove one of them"));
            }
            let (cgroup, its_cgroup, amounts, its_amounts) = match reserved {
                Some(Reserved::Kube) => (
                    "kubeReservedCgroup",
                    &config.kube_reserved_cgroup,
                    "kubeReserved",
                    &config.kube_reserved,
                ),
                Some(Reserved::System) => (
                    "systemReservedCgroup",
                    &config.system_reserved_cgroup,
                    "systemReserved",
                    &config.system_reserved,
                ),
                None => continue,
            };
            let missing = match (its_cgroup.is_empty(), its_amounts.is_empty()) {
                (true, true) => format!("{cgroup} and {amounts}, which are not set"),
                (true, false) => format!("{cgroup}, which is not set"),
                // kubelet also exits if a cgroup has no reserved amounts (`enforceExistingCgroup` in
                // pkg/kubelet/cm/node_container_manager_linux.go).
                (false, true) => format!("{amounts}, which is not set"),
                (false, false) => continue,
            };
            self.refuse(
                field,
                format!("has {word}, which needs {missing}; set what is missing, or remove {word}"),
            );
        }
    }

    /// With the static CPU manager policy, kubelet exits unless some CPU is reserved for processes outside of pods.
    fn cpu_manager(&mut self) {
        let config = self.config;
        let reserved = |resources: &BTreeMap<String, String>| {
            resources.get("cpu").and_then(|amount| quantity(amount)).unwrap_or_default()
        };
        if config.cpu_manager_policy == "static"
            && reserved(&config.kube_reserved) + reserved(&config.system_reserved) <= 0.0
        {
            self.refuse(
                "cpuManagerPolicy",
                "is static, which needs reserved CPUs; set kubeReserved.cpu or systemReserved.cpu, such as 500m",
            );
        }
    }

    fn swap(&mut self) {
        let config = self.config;
        if config.memory_swap_behavior == "LimitedSwap" && config.fail_swap_on != Some(false) {
            self.problems.warn(
                "KubeletConfig.memorySwapBehavior",
                "is LimitedSwap, but kubelet does not start on a machine that has swap on; set failSwapOn to false",
            );
        }
    }

    fn container_logs(&mut self) {
        let config = self.config;
        if let Some(files) = config.container_log_max_files.filter(|files| *files < 2) {
            self.refuse("containerLogMaxFiles", format!("{files} is refused by kubelet; use 2 or more"));
        }
        let size = config.container_log_max_size.as_str();
        // kubelet cannot convert a size to a whole number if the size has both a fraction and a suffix such as Mi.
        let is_whole = quantity(size).is_some_and(|bytes| bytes.fract() == 0.0)
            && !(size.contains('.') && size.ends_with('i'));
        if !size.is_empty() && !is_whole {
            self.refuse(
                "containerLogMaxSize",
                format!(
                    "{size:?} is not a size that kubelet accepts; use a whole number of bytes, such as 10Mi \
                     or 50M"
                ),
            );
        }
    }

    fn durations(&mut self) {
        let config = self.config;
        if let Some(period) = config.cpu_cfs_quota_period {
            let field = "cpuCFSQuotaPeriod";
            if !self.gates.is_on("CustomCPUCFSQuotaPeriod") {
                if period != DEFAULT_CPU_QUOTA_PERIOD {
                    let why = self.gates.why_off("CustomCPUCFSQuotaPeriod");
                    self.refuse(field, format!("is {period}, but {why}"));
                }
            } else if !(MILLISECOND..=SECOND).contains(&period) {
                self.refuse(field, format!("{period} is refused by kubelet; use 1ms to 1s"));
            }
        }
        if let Some(longest) = config.crash_loop_back_off_max_container_restart_period {
            let field = "crashLoopBackOffMaxContainerRestartPeriod";
            if !self.gates.is_on("KubeletCrashLoopBackOffMax") {
                let problem = format!("is set, but {}", self.gates.why_off("KubeletCrashLoopBackOffMax"));
                self.refuse(field, problem);
            } else if !(SECOND..=LONGEST_CRASH_LOOP_BACK_OFF).contains(&longest) {
                self.refuse(field, format!("{longest} is refused by kubelet; use 1s to 300s"));
            }
        }
    }

    fn shutdown(&mut self) {
        let whole = self.config.shutdown_grace_period.unwrap_or_default();
        let critical = self.config.shutdown_grace_period_critical_pods.unwrap_or_default();
        let none = Duration::default();
        if !self.gates.is_on("GracefulNodeShutdown") {
            if whole > none || critical > none {
                self.refuse(
                    "shutdownGracePeriod",
                    "is set, but the feature gate GracefulNodeShutdown is off; set this field and shutdownGracePeriodCriticalPods to 0s",
                );
            }
            return;
        }
        for (field, period) in [("shutdownGracePeriod", whole), ("shutdownGracePeriodCriticalPods", critical)]
        {
            if period < none || (period > none && period < SECOND) {
                self.refuse(field, format!("{period} is refused by kubelet; use 0s, or at least 1s"));
            }
        }
        if critical > whole {
            self.refuse(
                "shutdownGracePeriodCriticalPods",
                format!("is {critical}, but must not be longer than shutdownGracePeriod, which is {whole}; change one of them"),
            );
        }
    }

    /// Refuses fields whose flag this version of kubelet lacks, because kubelet exits on an unknown flag.
    fn removed_flags(&mut self, version: &KubernetesVersion) {
        let config = self.config;
        let has_register_schedulable = version.minor() <= LAST_WITH_REGISTER_SCHEDULABLE;
        for (field, is_set) in [
            ("allowPrivileged", config.allow_privileged.is_some()),
            ("apiServers", !config.api_servers.is_empty()),
            ("babysitDaemons", config.babysit_daemons.is_some()),
            ("configureCBR0", config.configure_cbr0.is_some()),
            ("enableCadvisorJsonEndpoints", config.enable_cadvisor_json_endpoints.is_some()),
            ("enableCustomMetrics", config.enable_custom_metrics.is_some()),
            ("experimentalAllowedUnsafeSysctls", !config.experimental_allowed_unsafe_sysctls.is_empty()),
            ("imageMinimumGCAge", config.image_minimum_gc_age.is_some()),
            ("imagePullProgressDeadline", config.image_pull_progress_deadline.is_some()),
            ("networkPluginMTU", config.network_plugin_mtu.is_some()),
            ("networkPluginName", config.network_plugin_name.as_deref().is_some_and(|name| !name.is_empty())),
            (
                "nonMasqueradeCIDR",
                config.non_masquerade_cidr.as_deref().is_some_and(|range| !range.is_empty()),
            ),
            ("nvidiaGPUs", config.nvidia_gpus != 0),
            ("reconcileCIDR", config.reconcile_cidr.is_some()),
            ("registerSchedulable", config.register_schedulable.is_some() && !has_register_schedulable),
            ("requireKubeconfig", config.require_kubeconfig.is_some()),
            (
                "seccompProfileRoot",
                config.seccomp_profile_root.as_deref().is_some_and(|path| !path.is_empty()),
            ),
        ] {
            if is_set {
                self.refuse(
                    field,
                    format!(
                        "becomes a flag that the kubelet of Kubernetes {version} does not have, so kubelet does not start; remove \
                         the field"
                    ),
                );
            }
        }
    }
}

/// The numeric amount of a `resource.Quantity`. `None` if the text is not a quantity.
pub(super) fn quantity(text: &str) -> Option<f64> {
    Quantity::from(text).as_f64().filter(|_| text.trim() == text)
}

pub(in crate::resolve) fn no_quantity(text: &str) -> String {
    format!("{text:?} is not a quantity; use a quantity such as 100m, 2, 512Mi or 10Gi")
}

#[cfg(test)]
mod tests;
