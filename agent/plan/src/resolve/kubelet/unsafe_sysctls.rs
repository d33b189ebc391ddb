//! Checks the unsafe sysctls that kubelet lets pods set. Each of them must be a kernel setting that is separate for each pod.
//!
//! Source: `NewAllowlist` in pkg/kubelet/sysctl, `IsValidSysctlPattern` in pkg/apis/policy/validation, and
//! k8s.io/component-helpers/node/util/sysctl.

use kops_agent_spec::invalid::Invalid;

/// Maximum length of a pattern.
const LONGEST: usize = 253;
/// Kernel settings that are separate for each pod.
const NAMESPACED: [&str; 10] = [
    "kernel.msg",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];
/// Prefixes of kernel settings that are separate for each pod.
const NAMESPACED_PREFIXES: [&str; 2] = ["fs.mqueue.", "net."];

/// Checks that kubelet accepts a name, or a pattern that ends in `*`.
pub(super) fn check(pattern: &str) -> Result<(), Invalid> {
    if pattern.len() > LONGEST || !is_pattern(pattern) {
        return Err(Invalid::new(format!(
            "{pattern:?} is not a sysctl that kubelet accepts; use a name without a value, such as \
             net.core.somaxconn, or a pattern that ends in *, such as net.ipv4.*"
        )));
    }
    let dotted = dotted(pattern);
    let known = dotted.split('*').next().unwrap_or_default();
    if NAMESPACED.contains(&known) || NAMESPACED_PREFIXES.iter().any(|prefix| known.starts_with(prefix)) {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "{pattern:?} is not a known namespaced sysctl, so kubelet does not start; it accepts net.*, fs.mqueue.*, kernel.sem, \
         kernel.shm* and kernel.msg*; set other sysctls with sysctlParameters"
    )))
}

/// Whether the text consists of valid parts, separated by `.` or `/`. The last part may end in `*`.
fn is_pattern(pattern: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_inner = |c: char| is_edge(c) || matches!(c, '-' | '_');
    let parts: Vec<&str> = pattern.split(['.', '/']).collect();
    let Some((last, parts)) = parts.split_last() else { return false };
    let is_part =
        |part: &&str| part.starts_with(is_edge) && part.ends_with(is_edge) && part.chars().all(is_inner);
    let is_last = match last.strip_suffix('*') {
        Some("") => true,
        Some(start) => start.starts_with(is_edge) && start.chars().all(is_inner),
        None => is_part(last),
    };
    is_last && parts.iter().all(is_part)
}

/// The name of a kernel parameter in the form with dots. If the first separator is `/`, each `/` becomes `.`, and each `.` becomes `/`.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(first) if name[first..].starts_with('/') => name
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaced_settings_are_accepted() {
        for pattern in [
            "net.core.somaxconn",
            "net.*",
            "net.ipv4.tcp_*",
            "kernel.shm*",
            "kernel.msgmax",
            "fs.mqueue.*",
            "net/ipv4/conf/eno2.100/rp_filter",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn other_settings_and_assignments_are_rejected() {
        for pattern in [
            "",
            "--net.ipv4.tcp_keepalive_time=\"600\"",
            "net.core.somaxconn=1",
            "net.*.x",
            "Net.core",
            "net",
            "*",
            "vm.swappiness",
            "kernel.*",
            "kernel.pid_max",
        ] {
            assert!(check(pattern).is_err(), "{pattern}");
        }
    }
}
