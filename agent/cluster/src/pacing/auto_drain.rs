//! The rule `auto` for drains: only a minor upgrade of kubelet or a major upgrade of containerd drains the node. A downgrade
//! counts like an upgrade.

use serde::{Deserialize, Serialize};

/// Versions of the components whose upgrade may drain a node, such as `1.36.0`. A Node reports these versions as `v1.36.0`
/// and `containerd://2.1.4`. A version is empty if it is unknown, or if the agent does not install the component.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Versions {
    pub kubelet: String,
    pub containerd: String,
}

/// Whether `--drain auto` drains the node for the change from `present` to `next`. If one component requires a drain, the result is
/// `Some(true)`. Otherwise, the result is `None` if a needed version is unknown. A component without a next version does not change.
pub fn drains(present: &Versions, next: &Versions) -> Option<bool> {
    let kubelet = differs(&present.kubelet, &next.kubelet, |(major, minor)| (major, minor));
    let containerd = differs(&present.containerd, &next.containerd, |(major, _)| (major, 0));
    match [kubelet, containerd] {
        [Some(false), Some(false)] => Some(false),
        all => all.contains(&Some(true)).then_some(true),
    }
}

fn differs(present: &str, next: &str, rule: impl Fn((u64, u64)) -> (u64, u64)) -> Option<bool> {
    if next.is_empty() {
        return Some(false);
    }
    Some(rule(numbers(present)?) != rule(numbers(next)?))
}

/// The major and the minor number of a version. A name before `://` and a leading `v` are allowed.
fn numbers(version: &str) -> Option<(u64, u64)> {
    let version = version.split_once("://").map_or(version, |(_, version)| version);
    let mut parts = version.strip_prefix('v').unwrap_or(version).split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(kubelet: &str, containerd: &str) -> Versions {
        Versions { kubelet: kubelet.into(), containerd: containerd.into() }
    }

    #[test]
    fn only_minor_kubelet_and_major_containerd_upgrades_drain() {
        let present = versions("v1.35.2", "containerd://1.7.28");
        for (kubelet, containerd, expected) in [
            ("1.35.2", "1.7.28", Some(false)),
            ("1.35.9", "1.8.0", Some(false)),
            ("1.36.0", "1.7.28", Some(true)),
            ("1.34.0", "1.7.28", Some(true)),
            ("1.35.2", "2.0.0-rc.1", Some(true)),
            ("1.35.2", "", Some(false)),
        ] {
            let next = versions(kubelet, containerd);
            assert_eq!(drains(&present, &next), expected, "{next:?}");
        }
    }

    #[test]
    fn an_unknown_version_is_not_guessed() {
        assert_eq!(drains(&Versions::default(), &versions("1.36.0", "2.1.4")), None);
        assert_eq!(drains(&versions("v1.36.0", ""), &versions("1.36.0", "2.1.4")), None);
        assert_eq!(drains(&versions("v1.35.0", ""), &versions("1.36.0", "2.1.4")), Some(true));
        assert_eq!(drains(&versions("zzz", "cri-o://1.2.3"), &versions("1.36.0", "")), None);
    }
}
