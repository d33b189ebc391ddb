//! systemd's slices for kubelet and the container runtime, if the spec names cgroups for them.
//!
//! Source: nodeup/pkg/model/kubelet.go, `buildCgroupService`. Upstream writes a slice's unit file without starting or enabling
//! it: systemd starts the slice with the first unit in it.

use std::fmt::Write as _;

use super::UnitFile;
use crate::resource::{DesiredState, Unit};

/// The maximum length of a unit's name (`UNIT_NAME_MAX` of systemd).
const LONGEST_NAME: usize = 255;

/// The slice of a cgroup. If systemd rejects the name, the name is escaped as `systemd-escape --path` escapes it. Upstream does not escape
/// names. For `systemd/system.slice`, upstream writes a file in a directory that systemd does not read, and a `Slice=` that systemd
/// ignores.
pub(in super::super) fn slice(cgroup: &str) -> Option<String> {
    let name = cgroup.trim_matches('/');
    let name = if is_valid(name) { name.to_owned() } else { escaped(name) };
    Some(format!("{name}.slice")).filter(|unit| !name.is_empty() && unit.len() <= LONGEST_NAME)
}

/// Whether systemd accepts a slice of this name, given without suffix (`slice_name_is_valid` in src/basic/unit-name.c).
fn is_valid(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\".contains(c);
    let has_empty_part = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    name.chars().all(is_allowed) && !name.starts_with('.') && !has_empty_part
}

/// Escapes a name as in systemd.unit(5), "String escaping for inclusion in unit names".
fn escaped(name: &str) -> String {
    let part = |part: &str| {
        part.bytes().enumerate().fold(String::new(), |mut escaped, (at, byte)| {
            let stays = byte.is_ascii_alphanumeric() || b":_".contains(&byte) || (byte == b'.' && at > 0);
            match stays {
                true => escaped.push(char::from(byte)),
                false => drop(write!(escaped, "\\x{byte:02x}")),
            }
            escaped
        })
    };
    name.split('/').filter(|part| !part.is_empty()).map(part).collect::<Vec<_>>().join("-")
}

pub(super) fn add(cgroup: &str, state: &mut DesiredState) {
    let Some(name) = slice(cgroup) else { return };
    let file = UnitFile::default()
        .set("Unit", "Documentation", "man:systemd.special(7)")
        .set("Unit", "Before", "slices.target")
        .set("Unit", "DefaultDependencies", "no");
    state.add(Unit { enabled: false, running: false, text_only: true, ..Unit::new(name, file.render()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_systemd_rejects_is_escaped() {
        for (cgroup, name) in [
            ("/kube.kubelet", Some("kube.kubelet.slice")),
            ("/kube-reserved/", Some("kube-reserved.slice")),
            ("/system.slice", Some("system.slice.slice")),
            ("/systemd/system.slice", Some("systemd-system.slice.slice")),
            ("/a//b c", Some("a-b\\x20c.slice")),
            ("/a-/.b%", Some("a\\x2d-\\x2eb\\x25.slice")),
            ("/--", Some("\\x2d\\x2d.slice")),
            ("/", None),
            ("", None),
        ] {
            assert_eq!(slice(cgroup).as_deref(), name, "{cgroup}");
        }
        assert_eq!(slice(&"a".repeat(250)), None);
    }
}
