//! Checks values of the API server, kube-controller-manager, kube-scheduler and kube-proxy. Each of these components exits at its start if
//! it does not accept the value of a flag.
//!
//! Source: the `Validate` methods of the components' options, and the types of their flags: cmd/kube-apiserver, pkg/controlplane/apiserver,
//! pkg/kubeapiserver, cmd/kube-controller-manager, cmd/kube-scheduler, cmd/kube-proxy, pkg/proxy/apis/config/validation, and
//! k8s.io/apiserver, k8s.io/component-base and k8s.io/controller-manager, of Kubernetes 1.29 to 1.36.

mod admission_plugins;
mod api_server;
mod api_versions;
mod audit;
mod authentication;
mod controller_manager;
mod controllers;
mod kube_proxy;
mod leader_election;
mod removed_flags;
mod resources;
mod scheduler;
#[cfg(test)]
mod testing;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use kops_agent_spec::{Duration, KubeProxyConfig};

use super::basis::Basis;
use super::feature_gates::{self, Gates};
use super::kubelet::{CIPHER_SUITES, TLS_VERSIONS};
use super::{KubeApiServer, KubernetesVersion, Problems};

const LOG_FORMATS: [&str; 2] = ["json", "text"];

/// A component, and the problems of its settings.
struct Component<'a> {
    /// The component's name in messages.
    name: &'static str,
    /// The path of the component's settings in the configuration.
    settings: &'static str,
    version: &'a KubernetesVersion,
    /// Whether this module knows the valid values of the component's settings ([`is_of_release`]). If the module does not know them, it
    /// only warns of a value that it would otherwise refuse.
    has_known_program: bool,
    feature_gates: BTreeMap<String, bool>,
    problems: &'a mut Problems,
}

/// A name, and the range of minor versions whose releases know this name.
type VersionedName = (&'static str, RangeInclusive<u64>);

pub(super) fn check(
    basis: &Basis<'_>,
    api_server: Option<&KubeApiServer>,
    kube_proxy: Option<&KubeProxyConfig>,
    problems: &mut Problems,
) {
    let version = basis.kubernetes_version;
    let mut of =
        |name, settings, image: &str, gates: &BTreeMap<String, String>, check: &dyn Fn(Component<'_>)| {
            let has_known_program = is_of_release(image, version);
            let feature_gates = feature_gates::set(gates);
            check(Component { name, settings, version, has_known_program, feature_gates, problems });
        };
    if let Some(api_server) = api_server {
        let config = &api_server.config;
        of(
            "kube-apiserver",
            "APIServerConfig.KubeAPIServer",
            &config.image,
            &config.feature_gates,
            &|component| api_server::check(component, api_server),
        );
    }
    let control_plane = basis.config.control_plane_config.as_ref().filter(|_| basis.is_control_plane());
    if let Some(control_plane) = control_plane {
        let config = &control_plane.kube_controller_manager;
        of(
            "kube-controller-manager",
            "ControlPlaneConfig.KubeControllerManager",
            &config.image,
            &config.feature_gates,
            &|component| controller_manager::check(component, config),
        );
        let config = &control_plane.kube_scheduler;
        of(
            "kube-scheduler",
            "ControlPlaneConfig.KubeScheduler",
            &config.image,
            &config.feature_gates,
            &|component| scheduler::check(component, config),
        );
    }
    if let Some(config) = kube_proxy {
        of("kube-proxy", "KubeProxy", &config.image, &config.feature_gates, &|component| {
            kube_proxy::check(component, config);
        });
    }
}

/// Whether the image has the tag of this Kubernetes version, and the version is a known release. For other builds, pre-releases and newer
/// releases, the valid values are unknown.
fn is_of_release(image: &str, version: &KubernetesVersion) -> bool {
    let image = image.split('@').next().unwrap_or_default();
    let tag = image.rsplit('/').next().and_then(|name| name.split_once(':')).map(|(_, tag)| tag);
    let text = version.to_string();
    version.newer_than_known().is_none()
        && !version.is_pre_release()
        && tag.is_some_and(|tag| tag.trim_start_matches('v') == text.trim_start_matches('v'))
}

impl Component<'_> {
    fn gates(&self) -> Gates<'_> {
        Gates::new(&self.feature_gates, self.version)
    }

    /// Reports a setting that prevents the start of the component.
    fn refuse(&mut self, field: &str, problem: impl Into<String>) {
        self.refuse_at(&format!("{}.{field}", self.settings), problem);
    }

    /// Like `refuse`, for a field outside of the component's own settings.
    fn refuse_at(&mut self, field: &str, problem: impl Into<String>) {
        match self.has_known_program {
            true => self.problems.refuse(field, problem),
            false => self.problems.warn(field, problem),
        }
    }

    fn refuse_value(&mut self, field: &str, value: impl Display, advice: impl Display) {
        let problem = format!("{value} is refused by {} of Kubernetes {}; {advice}", self.name, self.version);
        self.refuse(field, problem);
    }

    fn warn(&mut self, field: &str, problem: impl Into<String>) {
        self.problems.warn(format!("{}.{field}", self.settings), problem);
    }

    /// Checks that a word is one of the accepted words. An empty word is an unset value.
    fn word(&mut self, field: &str, word: &str, accepted: &[&str]) {
        if !word.is_empty() && !accepted.contains(&word) {
            let advice = format!("it accepts {}", accepted.join(", "));
            self.refuse_value(field, format!("{word:?}"), advice);
        }
    }

    /// Checks names. `known` has the names that all releases know, and `known_since` has the names that only some releases know.
    fn names<'a>(
        &mut self,
        field: &str,
        kind: &str,
        names: impl IntoIterator<Item = &'a str>,
        known: &[&str],
        known_since: &[VersionedName],
    ) {
        let minor = self.version.minor();
        let is_known = |name| {
            known.contains(&name)
                || known_since.iter().any(|(known, minors)| *known == name && minors.contains(&minor))
        };
        for name in names.into_iter().filter(|name| !is_known(name)) {
            self.refuse(
                field,
                format!(
                    "{} of Kubernetes {} has no {kind} {name:?}, so it does not start; correct or remove it",
                    self.name, self.version
                ),
            );
        }
    }

    /// Checks that whole numbers are in a range. `None` is an unset value.
    fn numbers(&mut self, range: RangeInclusive<i64>, numbers: &[(&str, Option<i64>)]) {
        for (field, number) in numbers {
            if let Some(number) = number.filter(|number| !range.contains(number)) {
                let advice = match *range.end() {
                    i64::MAX => format!("use {} or more", range.start()),
                    most => format!("use a number from {} to {most}", range.start()),
                };
                self.refuse_value(field, number, advice);
            }
        }
    }

    /// Refuses negative durations in these fields, because the component does not accept them.
    fn durations(&mut self, durations: &[(&str, Option<Duration>)]) {
        for (field, duration) in durations {
            if let Some(duration) = duration.filter(|duration| *duration < Duration::default()) {
                self.refuse_value(field, duration, "use 0s or more");
            }
        }
    }

    /// Warns of negative values, which the component accepts.
    fn warn_of_negative(&mut self, values: &[(&str, Option<String>)]) {
        for (field, value) in values {
            if let Some(value) = value.as_ref().filter(|value| value.starts_with('-')) {
                self.warn(
                    field,
                    format!(
                        "is {value}, which {} accepts, but a negative value has no meaning here; use 0 or more, or remove it",
                        self.name
                    ),
                );
            }
        }
    }

    fn logging(&mut self, format: &str, level: i32) {
        self.word("logFormat", format, &LOG_FORMATS);
        self.numbers(0..=i64::MAX, &[("logLevel", Some(level.into()))]);
    }

    fn tls(&mut self, min_version: &str, cipher_suites: &[String]) {
        self.word("tlsMinVersion", min_version, &TLS_VERSIONS);
        for (index, suite) in items(cipher_suites) {
            self.word(&format!("tlsCipherSuites[{index}]"), suite, &CIPHER_SUITES);
        }
    }

    /// Reads one range of addresses, or an IPv4 range and an IPv6 range separated by a comma. Reports a problem for any other text.
    fn ranges(&mut self, field: &str, text: &str) -> Vec<IpNet> {
        let read: Option<Vec<IpNet>> = text.split(',').map(|range| range.trim().parse().ok()).collect();
        let is_accepted = |ranges: &[IpNet]| match ranges {
            [_] => true,
            [one, other] => one.addr().is_ipv4() != other.addr().is_ipv4(),
            _ => false,
        };
        match read.filter(|ranges| is_accepted(ranges)) {
            Some(ranges) => ranges,
            None => {
                let advice = "use a range such as 10.0.0.0/16, or one IPv4 range and one IPv6 range with a comma between them";
                self.refuse_value(field, format!("{text:?}"), advice);
                Vec::new()
            }
        }
    }

    /// Checks the paths that need no authorization. Only the last character of a path may be `*`.
    fn always_allow_paths(&mut self, paths: &[String]) {
        for (index, path) in items(paths) {
            if path.strip_suffix('*').unwrap_or(path).contains('*') {
                let field = format!("authorizationAlwaysAllowPaths[{index}]");
                self.refuse_value(&field, format!("{path:?}"), "use * only at the end of a path");
            }
        }
    }
}

/// The values in a list, each with the index of its item. kOps joins the items by commas, and a component splits the joined text at each
/// comma. So an item may contain several values.
fn items(list: &[String]) -> impl Iterator<Item = (usize, &str)> {
    list.iter().enumerate().flat_map(|(index, item)| item.split(',').map(move |value| (index, value)))
}

/// A number or a duration as text.
fn text<T: Display>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_releases_own_image_has_its_program() {
        let is_of_release = |image: &str, version: &str| {
            KubernetesVersion::parse(version).is_some_and(|version| is_of_release(image, &version))
        };
        for image in [
            "registry.k8s.io/kube-apiserver:v1.34.2",
            "mirror.example.com:5000/k8s/kube-apiserver:v1.34.2@sha256:00",
            "kube-apiserver:v1.34.2",
        ] {
            assert!(is_of_release(image, "1.34.2"), "{image}");
            assert!(is_of_release(image, "v1.34.2"), "{image}");
        }
        for image in [
            "",
            "registry.k8s.io/kube-apiserver",
            "mirror.example.com:5000/kube-apiserver",
            "registry.k8s.io/kube-apiserver:v1.34.1",
            "public.ecr.aws/eks-distro/kubernetes/kube-apiserver:v1.34.2-eks-1-34-5",
            "registry.k8s.io/kube-apiserver@sha256:00",
        ] {
            assert!(!is_of_release(image, "1.34.2"), "{image}");
        }
        assert!(!is_of_release("registry.k8s.io/kube-apiserver:v1.99.0", "1.99.0"));
        assert!(!is_of_release("registry.k8s.io/kube-apiserver:v1.36.0-rc.1", "1.36.0-rc.1"));
    }
}
