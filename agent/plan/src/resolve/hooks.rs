//! The units that a user adds to nodes or disables. The units are checked and named, and each unit occurs once.
//!
//! Source: nodeup/pkg/model/hooks.go. The checks are from `validateHookSpec` in pkg/apis/kops/validation/validation.go.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use kops_agent_spec::{ExecContainerAction, HookSpec, NodeupConfig};

use super::Problems;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// The hook's name. A container that the hook runs has the same name.
    pub name: String,
    /// The unit's name, with its suffix.
    pub unit: String,
    pub action: HookAction,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HookAction {
    /// The hook stops a unit and disables it.
    SwitchOff,
    /// The hook adds a unit. The user wrote the complete unit file.
    RawUnit(String),
    /// The hook adds a service whose `[Service]` section the user wrote.
    Service {
        section: String,
        /// The unit's dependencies.
        order: HookOrder,
    },
    /// The hook adds a service that runs a container once.
    Container {
        /// The image, with registry and tag.
        image: String,
        command: Vec<String>,
        environment: BTreeMap<String, String>,
        /// The unit's dependencies.
        order: HookOrder,
    },
}

/// The dependencies of a hook's unit: the units that it requires, and the units that start after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HookOrder {
    pub requires: Vec<String>,
    /// Units that start after the hook's unit.
    pub before: Vec<String>,
}

/// The hooks of this node: the group's hooks, then the cluster's hooks whose unit names are not used yet.
pub(super) fn resolve(config: &NodeupConfig, problems: &mut Problems) -> Vec<Hook> {
    let mut hooks = Vec::new();
    let mut units = BTreeSet::new();
    for (side, specs) in config.hooks.iter().enumerate() {
        for (index, spec) in specs.iter().enumerate() {
            let field = format!("Hooks[{side}][{index}]");
            let name = name(spec, side, index);
            let unit = unit_name(&name);
            if units.insert(unit.clone()) {
                check_unit_name(&unit, &format!("{field}.name"), problems);
                if let Some(action) = action(spec, &field, problems) {
                    hooks.push(Hook { name, unit, action });
                }
            }
        }
    }
    hooks
}

/// The name of a hook. A hook without a name gets a name from its index. `side` is 0 for a hook of the group, and 1 for
/// a hook of the cluster.
fn name(spec: &HookSpec, side: usize, index: usize) -> String {
    match (spec.name.as_str(), side) {
        ("", 0) => format!("kops-hook-{index}-ig"),
        ("", _) => format!("kops-hook-{index}"),
        (name, _) => name.to_owned(),
    }
}

/// The suffixes of unit names in systemd.
const SUFFIXES: [&str; 11] = [
    ".automount",
    ".device",
    ".mount",
    ".path",
    ".scope",
    ".service",
    ".slice",
    ".socket",
    ".swap",
    ".target",
    ".timer",
];

/// The full name of a unit. A name without one of systemd's suffixes names a service (pkg/systemd/unit.go).
fn unit_name(name: &str) -> String {
    if has_suffix(name) { name.to_owned() } else { format!("{name}.service") }
}

fn has_suffix(name: &str) -> bool {
    SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Checks a unit's name by the rules of systemd.unit(5).
fn check_unit_name(unit: &str, field: &str, problems: &mut Problems) {
    if !is_unit_name(unit) {
        problems.add(field, format!("{unit:?} is no name of a unit; use letters, digits and `:-_.\\@`"));
    }
}

fn is_unit_name(unit: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    unit.len() <= 255 && !unit.starts_with('.') && unit.chars().all(is_allowed)
}

/// Warns of names in a unit's dependencies that systemd ignores. systemd separates names by spaces, and replaces specifiers (`%i`).
fn check_order(order: &HookOrder, field: &str, problems: &mut Problems) {
    for (list, names) in [("requires", &order.requires), ("before", &order.before)] {
        let words = names.iter().flat_map(|names| names.split_whitespace());
        for name in words.filter(|name| !has_suffix(name) || !is_unit_name(&name.replace('%', "_"))) {
            let advice = match is_unit_name(&unit_name(name)) {
                true => format!("write {}", unit_name(name)),
                false => "correct it".to_owned(),
            };
            problems.warn(
                format!("{field}.{list}"),
                format!("{name:?} is no name of a unit, so systemd ignores it; {advice}"),
            );
        }
    }
}

fn action(spec: &HookSpec, field: &str, problems: &mut Problems) -> Option<HookAction> {
    if !spec.is_enabled() {
        return Some(HookAction::SwitchOff);
    }
    if spec.use_raw_manifest {
        return raw_unit(spec, field, problems);
    }
    let order = HookOrder { requires: spec.requires.clone(), before: spec.before.clone() };
    check_order(&order, field, problems);
    match &spec.exec_container {
        Some(container) => self::container(container, order, field, problems),
        None if spec.manifest.is_empty() => {
            problems.add(field, "has neither manifest nor execContainer; set one of them");
            None
        }
        None => Some(HookAction::Service { section: spec.manifest.clone(), order }),
    }
}

fn raw_unit(spec: &HookSpec, field: &str, problems: &mut Problems) -> Option<HookAction> {
    let ignored = [
        ("execContainer", spec.exec_container.is_some()),
        ("before", !spec.before.is_empty()),
        ("requires", !spec.requires.is_empty()),
    ];
    for (name, is_set) in ignored {
        if is_set {
            problems.add(
                format!("{field}.{name}"),
                "has no effect with useRawManifest; write it into the manifest, or leave useRawManifest out",
            );
        }
    }
    if spec.manifest.is_empty() {
        problems
            .add(format!("{field}.manifest"), "is empty, but useRawManifest is set; write the unit there");
        return None;
    }
    Some(HookAction::RawUnit(spec.manifest.clone()))
}

fn container(
    container: &ExecContainerAction,
    order: HookOrder,
    field: &str,
    problems: &mut Problems,
) -> Option<HookAction> {
    if container.image.is_empty() {
        problems.add(format!("{field}.execContainer.image"), "is empty; name the image to run");
        return None;
    }
    Some(HookAction::Container {
        image: full_image_name(&container.image),
        command: container.command.clone(),
        environment: container.environment.clone(),
        order,
    })
}

/// An image with registry and tag, as containerd's client requires. An image without a registry is from Docker Hub, by the rule of Docker's
/// references (`splitDockerDomain` in github.com/distribution/reference). Upstream completes only names without a slash. It leaves
/// `org/image` unchanged, so containerd uses `org` as a host.
fn full_image_name(image: &str) -> String {
    let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
    let image = match image.split_once('/') {
        Some((first, _)) if is_registry(first) => image.to_owned(),
        Some(_) => format!("docker.io/{image}"),
        None => format!("docker.io/library/{image}"),
    };
    let name = image.rsplit('/').next().unwrap_or_default();
    if name.contains([':', '@']) { image } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(yaml: &str) -> (Vec<Hook>, String) {
        let config = NodeupConfig { hooks: serde_yaml::from_str(yaml).unwrap(), ..NodeupConfig::default() };
        let mut problems = Problems::default();
        let hooks = resolve(&config, &mut problems);
        (hooks, problems.to_string())
    }

    #[test]
    fn hooks_without_a_name_are_named_after_their_index() {
        let (hooks, problems) = resolved(
            "[[{manifest: x}, {name: a.timer, manifest: x}], [{manifest: x}, {name: b, manifest: x}]]",
        );
        assert_eq!(problems, "");
        let units: Vec<&str> = hooks.iter().map(|hook| hook.unit.as_str()).collect();
        assert_eq!(units, ["kops-hook-0-ig.service", "a.timer", "kops-hook-0.service", "b.service"]);
    }

    #[test]
    fn a_groups_hook_replaces_the_clusters_hook_of_the_same_unit() {
        let (hooks, _) = resolved("[[{name: a, enabled: false}], [{name: a.service, manifest: x}]]");
        assert_eq!(hooks.len(), 1);
        assert_eq!(hooks[0].action, HookAction::SwitchOff);
    }

    #[test]
    fn contradictions_are_problems_with_their_fields() {
        let (_, problems) = resolved(
            "[[{}, {name: a/b, manifest: x}], \
              [{useRawManifest: true, requires: [x]}, {execContainer: {image: ''}}]]",
        );
        assert_eq!(
            problems,
            "Hooks[0][0]: has neither manifest nor execContainer; set one of them\n\
             Hooks[0][1].name: \"a/b.service\" is no name of a unit; use letters, digits and `:-_.\\@`\n\
             Hooks[1][0].requires: has no effect with useRawManifest; write it into the manifest, or leave useRawManifest out\n\
             Hooks[1][0].manifest: is empty, but useRawManifest is set; write the unit there\n\
             Hooks[1][1].execContainer.image: is empty; name the image to run"
        );
    }

    #[test]
    fn names_that_systemd_ignores_give_a_warning() {
        let warnings = |order: &str| {
            let hooks = format!("[[{{name: a, manifest: x, {order}}}]]");
            let config =
                NodeupConfig { hooks: serde_yaml::from_str(&hooks).unwrap(), ..NodeupConfig::default() };
            let mut problems = Problems::default();
            resolve(&config, &mut problems);
            problems.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let known = "before: [kubelet.service], requires: ['a.service mnt-data.mount', 'b@%i.service']";
        assert_eq!(warnings(known), [""; 0]);
        assert_eq!(
            warnings("before: [kubelet, 'a/b.service']"),
            [
                "Hooks[0][0].before: \"kubelet\" is no name of a unit, so systemd ignores it; write kubelet.service",
                "Hooks[0][0].before: \"a/b.service\" is no name of a unit, so systemd ignores it; correct it",
            ]
        );
    }

    #[test]
    fn a_disabled_hook_needs_no_other_field() {
        assert_eq!(resolved("[[{name: a, enabled: false, useRawManifest: true}]]").1, "");
    }

    #[test]
    fn incomplete_image_names_get_registry_and_tag() {
        for (image, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1", "docker.io/library/busybox:1"),
            ("busybox@sha256:ab", "docker.io/library/busybox@sha256:ab"),
            ("org/tool", "docker.io/org/tool:latest"),
            ("quay.io/a/b:1", "quay.io/a/b:1"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("registry.example.com:5000/a/b@sha256:ab", "registry.example.com:5000/a/b@sha256:ab"),
        ] {
            assert_eq!(full_image_name(image), full);
        }
    }
}
