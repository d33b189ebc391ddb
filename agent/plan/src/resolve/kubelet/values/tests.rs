#![allow(clippy::unwrap_used)]

use crate::resolve::Inputs;
use crate::resolve::testing::{control_plane, problems, resolved};
use kops_agent_spec::kops_release::Told;

/// Sets the Kubernetes version and kubelet's settings in the inputs.
fn with(version: &str, settings: &str) -> impl FnOnce(&mut Inputs) {
    let (version, settings) = (version.to_owned(), settings.to_owned());
    move |inputs| {
        inputs.config.kubernetes_version = version;
        inputs.config.kubelet_config = serde_yaml::from_str(&settings).unwrap();
    }
}

#[test]
fn values_that_kubelet_rejects_are_problems_with_their_field() {
    for (settings, field) in [
        ("enforceNodeAllocatable: 'pods,system-reserved.kube-reserved'", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: 'pods,kube_reserved'", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: 'pods,kube-reserved'", "enforceNodeAllocatable"),
        (
            "{enforceNodeAllocatable: 'pods,kube-reserved', kubeReservedCgroup: /kube}",
            "enforceNodeAllocatable: has kube-reserved, which needs kubeReserved, which is not set",
        ),
        (
            "{enforceNodeAllocatable: system-reserved-compressible, systemReserved: {cpu: 100m}}",
            "enforceNodeAllocatable: has system-reserved-compressible, which needs systemReservedCgroup, which is not set",
        ),
        ("enforceNodeAllocatable: 'pods,pods'", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: 'none,pods'", "enforceNodeAllocatable"),
        ("cpuManagerPolicy: Static", "cpuManagerPolicy"),
        ("cpuManagerPolicy: static", "cpuManagerPolicy"),
        ("{cpuManagerPolicy: static, kubeReserved: {cpu: '0'}}", "cpuManagerPolicy"),
        ("topologyManagerPolicy: best", "topologyManagerPolicy"),
        ("hairpinMode: veth", "hairpinMode"),
        ("memorySwapBehavior: Limited", "memorySwapBehavior"),
        ("tlsMinVersion: '1.2'", "tlsMinVersion"),
        ("tlsCipherSuites: [TLS_RSA_AES_128]", "tlsCipherSuites[0]"),
        ("authorizationMode: RBAC", "authorizationMode"),
        ("logFormat: jsn", "logFormat"),
        ("logLevel: -1", "logLevel"),
        ("containerLogMaxSize: 10MB", "containerLogMaxSize"),
        ("containerLogMaxSize: 1.5Gi", "containerLogMaxSize"),
        ("containerLogMaxFiles: 1", "containerLogMaxFiles"),
        ("evictionHard: 'memory.avail<100Mi'", "evictionHard"),
        ("evictionHard: 'memory.available<100MB'", "evictionHard"),
        ("evictionHard: 'memory.available<0'", "evictionHard"),
        ("evictionHard: 'nodefs.available<110%'", "evictionHard"),
        ("evictionSoft: 'memory.available<200Mi'", "evictionSoft"),
        ("evictionSoftGracePeriod: 'memory.available=soon'", "evictionSoftGracePeriod"),
        ("evictionMinimumReclaim: 'memory.available=-1'", "evictionMinimumReclaim"),
        ("kubeReserved: {memory: 512MB}", "kubeReserved.memory"),
        ("kubeReserved: {cpu: lots}", "kubeReserved.cpu"),
        ("kubeReserved: {gpu: '1'}", "kubeReserved.gpu"),
        ("systemReserved: {cpu: 100milli}", "systemReserved.cpu"),
        ("systemReserved: {cpu: '-1'}", "systemReserved.cpu"),
        ("taints: ['dedicated=gpu=b:NoSchedule']", "taints[0]"),
        ("nodeLabels: {'a b': c}", "nodeLabels"),
        ("nodeLabels: {a: b c}", "nodeLabels.a"),
        ("allowedUnsafeSysctls: ['--net.ipv4.tcp_keepalive_time=\"600\"']", "allowedUnsafeSysctls[0]"),
        ("imageGCHighThresholdPercent: 150", "imageGCHighThresholdPercent"),
        ("imageGCHighThresholdPercent: 70", "imageGCLowThresholdPercent"),
        ("imageMaximumGCAge: 1m", "imageMaximumGCAge"),
        ("shutdownGracePeriodCriticalPods: 60s", "shutdownGracePeriodCriticalPods"),
        ("shutdownGracePeriod: 500ms", "shutdownGracePeriod"),
        ("featureGates: {ExpandPersistentVolumes: 'true'}", "featureGates.ExpandPersistentVolumes"),
        ("maxPods: -1", "maxPods"),
        ("eventQPS: -1", "eventQPS"),
        ("registryPullQPS: -1", "registryPullQPS"),
        ("readOnlyPort: 70000", "readOnlyPort"),
        ("nodeLeaseDurationSeconds: -5", "nodeLeaseDurationSeconds"),
        ("maxParallelImagePulls: 0", "maxParallelImagePulls"),
        ("{maxParallelImagePulls: 5, serializeImagePulls: true}", "maxParallelImagePulls"),
        ("systemCgroups: /system.slice", "systemCgroups"),
        ("{systemCgroups: /, cgroupRoot: /}", "systemCgroups"),
        ("cloudProvider: aws", "cloudProvider"),
        ("rootDir: var/lib/kubelet", "rootDir"),
        ("podManifestPath: manifests", "podManifestPath"),
        ("cpuCFSQuotaPeriod: 50ms", "cpuCFSQuotaPeriod"),
        ("crashLoopBackOffMaxContainerRestartPeriod: 60s", "crashLoopBackOffMaxContainerRestartPeriod"),
        ("imageMinimumGCAge: 5m", "imageMinimumGCAge"),
        ("networkPluginName: cni", "networkPluginName"),
        ("registerSchedulable: true", "registerSchedulable"),
    ] {
        let told = problems(with("1.34.0", settings));
        let start = format!("KubeletConfig.{field}");
        let rest = told.strip_prefix(&start).unwrap_or_default();
        assert!(rest.starts_with([':', ';']), "{settings}: {told}");
        assert_eq!(told.lines().count(), 1, "{settings}: {told}");
    }
}

#[test]
fn values_that_kubelet_accepts_are_accepted() {
    for (version, settings) in [
        (
            "1.32.0",
            "{kubeReserved: {cpu: 100m, memory: 1.5Gi, pid: '1000', ephemeral-storage: '1e9'}, cpuManagerPolicy: static, \
             enforceNodeAllocatable: 'pods,kube-reserved-compressible', kubeReservedCgroup: /kube, registerSchedulable: true, \
             tlsCipherSuites: [TLS_AES_128_GCM_SHA256], tlsMinVersion: VersionTLS13, containerLogMaxSize: 50M, maxPods: 0, \
             cloudProvider: external, systemCgroups: /system.slice, cgroupRoot: /, rootDir: /mnt/kubelet/}",
        ),
        (
            "1.34.0",
            "{evictionHard: 'memory.available<5%,nodefs.inodesFree<0%', evictionSoft: 'imagefs.available < 1Gi', \
             evictionSoftGracePeriod: 'imagefs.available=1m30s', evictionMinimumReclaim: 'pid.available=0', \
             memorySwapBehavior: LimitedSwap, failSwapOn: false, enforceNodeAllocatable: none, podPidsLimit: -1, \
             featureGates: {CustomCPUCFSQuotaPeriod: 'true'}, cpuCFSQuotaPeriod: 50ms, imageMaximumGCAge: 0s}",
        ),
        ("1.34.0", "{evictionSoft: 'memory.available<0%,nodefs.available<100%'}"),
        (
            "1.36.0",
            "{cpuCFSQuotaPeriod: 50ms, crashLoopBackOffMaxContainerRestartPeriod: 2m, logFormat: json}",
        ),
        ("1.40.0", "{featureGates: {OfTheFuture: 'true'}, topologyManagerPolicy: single-numa-node}"),
    ] {
        let node = control_plane(with(version, settings));
        let known = version != "1.40.0";
        assert_eq!(node.warnings.is_empty(), known, "{:?}", node.warnings);
    }
}

#[test]
fn swap_that_prevents_kubelets_start_gives_a_warning() {
    let node = control_plane(with("1.34.0", "memorySwapBehavior: LimitedSwap"));
    assert!(node.warnings[0].problem.contains("set failSwapOn to false"), "{:?}", node.warnings);
}

#[test]
fn a_root_of_cgroups_that_nothing_creates_gives_a_warning() {
    let warnings = |root: &str| control_plane(with("1.34.0", &format!("cgroupRoot: {root}"))).warnings;
    let told = warnings("/mine");
    assert!(
        told[0].to_string().starts_with("KubeletConfig.cgroupRoot: is \"/mine\", but kOps does not create"),
        "{told:?}"
    );
    for known in ["/", "/system.slice", "user.slice/"] {
        assert!(warnings(known).is_empty(), "{known}");
    }
}

#[test]
fn an_unknown_taint_effect_is_a_refusal() {
    let node = control_plane(with("1.34.0", "taints: ['dedicated=gpu:Noschedule']"));
    assert_eq!(node.refusals[0].field, "KubeletConfig.taints[0]");
}

/// The problems of a machine with a state store that kOps 1.35 wrote.
fn problems_of_1_35(version: &str, settings: &str) -> String {
    let node = resolved(|inputs| {
        with(version, settings)(inputs);
        inputs.kops_version = Some(Told::by_version_file("1.35.2".into()));
        inputs.config.uses_legacy_gossip = Some(false);
    });
    node.err().map(|problems| problems.to_string()).unwrap_or_default()
}

#[test]
fn kubernetes_1_29_accepts_unlimited_swap() {
    let is_refused = |version: &str, behavior: &str| {
        let settings = format!("{{memorySwapBehavior: {behavior}, featureGates: {{NodeSwap: 'true'}}}}");
        problems_of_1_35(version, &settings).contains("memorySwapBehavior")
    };
    assert!(!is_refused("1.29.9", "UnlimitedSwap") && is_refused("1.30.0", "UnlimitedSwap"));
    assert!(is_refused("1.29.9", "NoSwap") && !is_refused("1.30.0", "NoSwap"));
}

#[test]
fn values_that_only_older_kubelets_reject_are_problems_there() {
    for (first, settings, told) in [
        (30, "memorySwapBehavior: LimitedSwap", "gate NodeSwap is off; remove this setting, or set the gate"),
        (30, "imageMaximumGCAge: 24h", "gate ImageMaximumGCAge is off; remove this setting, or set"),
        (
            32,
            "{crashLoopBackOffMaxContainerRestartPeriod: 60s, featureGates: {AllAlpha: 'true'}}",
            "has no feature gate KubeletCrashLoopBackOffMax; remove this setting",
        ),
        (
            32,
            "{enforceNodeAllocatable: 'pods,kube-reserved-compressible', kubeReservedCgroup: /kube, kubeReserved: {cpu: 100m}}",
            "it accepts a comma-separated list of none, pods, kube-reserved, system-reserved",
        ),
    ] {
        let older = problems_of_1_35(&format!("1.{}.0", first - 1), settings);
        assert!(older.contains(told), "{settings}: {older}");
        let newer = problems_of_1_35(&format!("1.{first}.0"), settings);
        assert!(!newer.contains("KubeletConfig"), "{settings}: {newer}");
    }
    let gce = "{cloudProvider: gce, featureGates: {DisableCloudProviders: 'false'}}";
    assert!(!problems_of_1_35("1.30.0", gce).contains("KubeletConfig"));
    assert!(problems_of_1_35("1.30.0", "cloudProvider: gce").contains("it accepts external"));
    let twice = "enforceNodeAllocatable: 'pods,pods'";
    assert!(!problems_of_1_35("1.30.0", twice).contains("KubeletConfig"));
}
