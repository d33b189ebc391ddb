//! Checks values of kube-proxy.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use kops_agent_spec::{Duration, KubeProxyConfig};

use super::resources::Resources;
use super::{Component, LOG_FORMATS};

const IPVS: &str = "ipvs";
const NFTABLES: &str = "nftables";
const DEFAULT_SYNC_PERIOD: Duration = Duration::from_seconds(30);
/// The IPVS schedulers that Linux has (net/netfilter/ipvs).
const IPVS_SCHEDULERS: [&str; 14] =
    ["dh", "fo", "lblc", "lblcr", "lc", "mh", "nq", "ovf", "rr", "sed", "sh", "twos", "wlc", "wrr"];

pub(super) fn check(mut component: Component<'_>, config: &KubeProxyConfig) {
    component.logging(LOG_FORMATS[1], config.log_level);
    check_mode(&mut component, config);
    if let Some(ranges) = config.cluster_cidr.as_deref().filter(|ranges| !ranges.is_empty()) {
        component.ranges("clusterCIDR", ranges);
    }
    let metrics = config.metrics_bind_address.as_deref().unwrap_or_default();
    let has_port = |address: SocketAddr| address.port() != 0;
    if !metrics.is_empty() && metrics.parse::<IpAddr>().is_err() && !metrics.parse().is_ok_and(has_port) {
        let advice = "use an IP address, or an address with a port such as 0.0.0.0:10249 or [::]:10249";
        component.refuse_value("metricsBindAddress", format!("{metrics:?}"), advice);
    }
    component.numbers(
        0..=i64::MAX,
        &[
            ("conntrackMaxPerCore", config.conntrack_max_per_core.map(i64::from)),
            ("conntrackMin", config.conntrack_min.map(i64::from)),
        ],
    );
    let resources = Resources {
        cpu_request: config.cpu_request.as_ref(),
        usual_cpu_request: "100m",
        cpu_limit: config.cpu_limit.as_ref(),
        memory_request: config.memory_request.as_ref(),
        memory_limit: config.memory_limit.as_ref(),
    };
    resources.check(&mut component);
}

fn check_mode(component: &mut Component<'_>, config: &KubeProxyConfig) {
    const NFTABLES_GATE: &str = "NFTablesProxyMode";
    let mode = config.proxy_mode.as_str();
    component.word("proxyMode", mode, &["iptables", IPVS, NFTABLES]);
    if mode == NFTABLES && !component.gates().is_on(NFTABLES_GATE) {
        let why = component.gates().why_off(NFTABLES_GATE);
        component.refuse("proxyMode", format!("is {NFTABLES}, but {why}"));
    }
    if mode == IPVS {
        check_ipvs(component, config);
    }
}

fn check_ipvs(component: &mut Component<'_>, config: &KubeProxyConfig) {
    let none = Duration::default();
    let longest = config.ipvs_sync_period.unwrap_or(DEFAULT_SYNC_PERIOD);
    let shortest = config.ipvs_min_sync_period.unwrap_or_default();
    component.durations(&[("ipvsMinSyncPeriod", config.ipvs_min_sync_period)]);
    if longest <= none {
        component.refuse_value("ipvsSyncPeriod", longest, "use more than 0s");
    } else if shortest > longest {
        let advice = format!("use no more than ipvsSyncPeriod, which is {longest}");
        component.refuse_value("ipvsMinSyncPeriod", shortest, advice);
    }
    for (index, range) in config.ipvs_exclude_cidrs.iter().enumerate() {
        if range.parse::<IpNet>().is_err() {
            let field = format!("ipvsExcludeCIDRs[{index}]");
            component.refuse_value(&field, format!("{range:?}"), "use a range such as 10.0.0.0/16");
        }
    }
    let scheduler = config.ipvs_scheduler.as_deref().unwrap_or_default();
    if !scheduler.is_empty() && !IPVS_SCHEDULERS.contains(&scheduler) {
        component.warn(
            "ipvsScheduler",
            format!(
                "{scheduler:?} is no scheduler of Linux' IPVS, so no Service works; use one of {}",
                IPVS_SCHEDULERS.join(", ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        KUBE_PROXY, assert_accepted, assert_refused, assert_warned,
    };

    #[test]
    fn values_that_kube_proxy_rejects_are_refused() {
        assert_refused(
            "1.34.0",
            KUBE_PROXY,
            &[
                ("proxyMode: userspace", "proxyMode"),
                ("proxyMode: IPVS", "proxyMode"),
                ("logLevel: -1", "logLevel"),
                ("clusterCIDR: 10.0.0.0", "clusterCIDR"),
                ("clusterCIDR: '10.0.0.0/16,10.1.0.0/16'", "clusterCIDR"),
                ("metricsBindAddress: ':10249'", "metricsBindAddress"),
                ("metricsBindAddress: '0.0.0.0:0'", "metricsBindAddress"),
                ("metricsBindAddress: '::10249:x'", "metricsBindAddress"),
                ("conntrackMin: -1", "conntrackMin"),
                ("conntrackMaxPerCore: -1", "conntrackMaxPerCore"),
                ("{proxyMode: ipvs, ipvsSyncPeriod: 0s}", "ipvsSyncPeriod"),
                ("{proxyMode: ipvs, ipvsMinSyncPeriod: -1s}", "ipvsMinSyncPeriod"),
                ("{proxyMode: ipvs, ipvsMinSyncPeriod: 1m}", "ipvsMinSyncPeriod"),
                ("{proxyMode: ipvs, ipvsExcludeCIDRs: [10.0.0.0/8, mine]}", "ipvsExcludeCIDRs[1]"),
            ],
        );
        assert_refused("1.30.0", KUBE_PROXY, &[("proxyMode: nftables", "proxyMode")]);
        assert_warned("1.34.0", KUBE_PROXY, &[("{proxyMode: ipvs, ipvsScheduler: lcc}", "ipvsScheduler")]);
    }

    #[test]
    fn values_that_kube_proxy_accepts_are_accepted() {
        assert_accepted(
            "1.30.0",
            KUBE_PROXY,
            &["{proxyMode: nftables, featureGates: {NFTablesProxyMode: 'true'}}"],
        );
        assert_accepted(
            "1.34.0",
            KUBE_PROXY,
            &[
                "{proxyMode: nftables, clusterCIDR: '10.0.0.0/16,fd00::/64', metricsBindAddress: 0.0.0.0}",
                "{proxyMode: iptables, metricsBindAddress: '[::]:10249', ipvsSyncPeriod: 0s, conntrackMin: 0}",
                "{proxyMode: ipvs, ipvsSyncPeriod: 1m, ipvsMinSyncPeriod: 1m, ipvsScheduler: wlc}",
            ],
        );
    }
}
