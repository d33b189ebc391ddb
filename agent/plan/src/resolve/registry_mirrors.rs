//! Checks the mirrors of image registries.
//!
//! Source: `parseHostConfig` and `hostDirectory` in core/remotes/docker/config/hosts.go of containerd, and Go's url.Parse.

use std::collections::BTreeMap;

use kops_agent_spec::urls::shown_url;

use super::Problems;

/// Warns of three mistakes: containerd does not read the mirrors of a registry, a mirror breaks every pull from its registry, or containerd
/// does not send a mirror's login.
pub(super) fn check(mirrors: &BTreeMap<String, Vec<String>>, problems: &mut Problems) {
    for (registry, mirrors) in mirrors {
        let field = format!("containerdConfig.registryMirrors.{registry}");
        if registry != "*" && !is_host(registry.trim_matches('/')) {
            problems.warn(
                &field,
                "is no registry, so its mirrors are not used; write its host, such as docker.io or registry.example.com:5000, or \
                 \"*\" for all registries",
            );
        }
        for mirror in mirrors.iter().filter(|mirror| !is_mirror(mirror)) {
            problems.warn(
                &field,
                format!(
                    "{:?} is not the URL of a mirror, so containerd pulls no image of this registry; use a \
                     URL such as https://mirror.example.com",
                    shown_url(mirror)
                ),
            );
        }
        for mirror in mirrors.iter().filter(|mirror| is_mirror(mirror) && authority(mirror).contains('@')) {
            problems.warn(
                &field,
                format!(
                    "the address of the mirror {} has a login, which containerd does not send; put a login for the registry into \
                     the secret dockerconfig",
                    authority(mirror).rsplit('@').next().unwrap_or_default()
                ),
            );
        }
    }
}

/// Whether a text is the URL of a mirror. The scheme may be missing: containerd puts `https://` before a text that does not begin with
/// `http`.
fn is_mirror(url: &str) -> bool {
    let host = authority(url).rsplit('@').next().unwrap_or_default();
    is_host(host)
        && !without_scheme(url).contains("://")
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

fn without_scheme(url: &str) -> &str {
    ["https://", "http://"].iter().find_map(|scheme| url.strip_prefix(scheme)).unwrap_or(url)
}

/// The host of a URL, with the login and the port.
fn authority(url: &str) -> &str {
    without_scheme(url).split(['/', '?']).next().unwrap_or_default()
}

/// Whether a text is a host, with or without a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
        _ => (text, ""),
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_address = |host: &str| host.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    let is_name = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => !address.is_empty() && is_address(address),
        None => !host.is_empty() && host.chars().all(is_allowed) && host != "." && host != "..",
    };
    is_name && port.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(registry: &str, mirror: &str) -> Vec<String> {
        let mut problems = Problems::default();
        check(&[(registry.to_owned(), vec![mirror.to_owned()])].into(), &mut problems);
        problems.warnings().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn mirrors_that_containerd_cannot_use_give_a_warning() {
        for mirror in [
            "https://mirror.example.com",
            "http://10.0.0.1:5000/v2/proxy",
            "mirror.example.com",
            "mirror.example.com:443",
            "https://[fd00::1]:5000",
        ] {
            assert_eq!(warnings("docker.io", mirror), [""; 0], "{mirror}");
        }
        for mirror in
            ["", "https://", "mirror example", "ftp://mirror", "https://mirror:port", "https://m irror/x"]
        {
            let told = warnings("docker.io", mirror);
            let start = "containerdConfig.registryMirrors.docker.io: ";
            assert!(told.len() == 1 && told[0].starts_with(start), "{mirror}: {told:?}");
        }
        let told = warnings("docker.io", "https://robot:hidden@mir ror");
        assert!(!told[0].contains("hidden"), "{told:?}");
    }

    #[test]
    fn a_login_in_an_address_gives_a_warning_without_the_login() {
        for mirror in ["https://robot:hidden@mirror.example.com/v2", "robot:hidden@mirror.example.com"] {
            let told = warnings("docker.io", mirror);
            let [warning] = &told[..] else { panic!("{mirror}: {told:?}") };
            assert!(
                warning.contains("the address of the mirror mirror.example.com has a login"),
                "{warning}"
            );
            assert!(!warning.contains("hidden"), "{warning}");
        }
    }

    #[test]
    fn registries_that_containerd_never_asks_for_give_a_warning() {
        for registry in ["*", "docker.io", "registry.example.com:5000", "10.0.0.1:5000", "docker.io/"] {
            assert_eq!(warnings(registry, "https://m"), [""; 0], "{registry}");
        }
        for registry in ["https://docker.io", "docker.io/library", "..", "a b", ""] {
            assert_eq!(warnings(registry, "https://m").len(), 1, "{registry}");
        }
    }
}
