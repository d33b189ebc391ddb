//! Checks users' kernel parameters, and resolves the ports that the kernel must not use for outgoing
//! connections.
//!
//! Source: nodeup/pkg/model/sysctls.go; the check for an `=` is from
//! pkg/apis/kops/validation/validation.go.

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::invalid::Invalid;

use super::Problems;

const DEFAULT_NODE_PORTS: &str = "30000-32767";

/// The node ports of Services, in the format of `net.ipv4.ip_local_reserved_ports`. Also checks the
/// user's parameters.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) -> String {
    for (index, parameter) in config.sysctl_parameters.iter().enumerate() {
        if let Some(line) = parameter.lines().find(|line| !is_setting(line)) {
            problems.add(
                format!("SysctlParameters[{index}]"),
                format!(
                    "{line:?} is not a setting; use the form NAME=VALUE, such as net.core.somaxconn=32768"
                ),
            );
        }
    }
    problems.keep("ServiceNodePortRange", reserved_ports(&config.service_node_port_range)).unwrap_or_default()
}

/// Whether a line of `/etc/sysctl.d` is empty, a comment or a setting.
fn is_setting(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with(['#', ';']) || line.contains('=')
}

/// Parses a range as kube-apiserver does: `first-last`, `first+more` or one port.
fn reserved_ports(range: &str) -> Result<String, Invalid> {
    let parse = || -> Option<(u16, u16)> {
        if let Some((first, last)) = range.split_once('-') {
            Some((first.parse().ok()?, last.parse().ok()?))
        } else if let Some((first, more)) = range.split_once('+') {
            let first: u16 = first.parse().ok()?;
            Some((first, first.checked_add(more.parse().ok()?)?))
        } else {
            let port = range.parse().ok()?;
            Some((port, port))
        }
    };
    match parse() {
        _ if range.is_empty() => Ok(DEFAULT_NODE_PORTS.into()),
        Some((first, last)) if first < last => Ok(format!("{first}-{last}")),
        Some((first, last)) if first == last => Ok(first.to_string()),
        _ => Err(Invalid::new(format!("{range:?} is not a range of ports; use a range such as 30000-32767"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_kube_apiserver_reads_them() {
        let ports = |range: &str| reserved_ports(range).unwrap_or_else(|_| "refused".into());
        assert_eq!(ports(""), "30000-32767");
        assert_eq!(ports("28000-32767"), "28000-32767");
        assert_eq!(ports("30000+2767"), "30000-32767");
        assert_eq!(ports("30000"), "30000");
        for range in ["a-b", "2-1", "0-70000", "30000-32767\nkernel.panic = 0", "65535+1"] {
            assert_eq!(ports(range), "refused", "{range}");
        }
    }

    #[test]
    fn a_parameter_needs_an_equals_sign() {
        let config = NodeupConfig {
            sysctl_parameters: vec!["# why".into(), String::new(), "a=1\n".into(), "a=1\nreboot".into()],
            ..NodeupConfig::default()
        };
        let mut problems = Problems::default();
        resolve(&config, &mut problems);
        assert_eq!(
            problems.to_string(),
            "SysctlParameters[3]: \"reboot\" is not a setting; use the form NAME=VALUE, such as \
             net.core.somaxconn=32768"
        );
    }
}
