//! The order of resources, and of unit starts. A run starts units one by one, but systemd applies `Before=` and `After=` only within one
//! request. So the run needs an order of its own.
//!
//! The order matters: a hook may format the disk for images, and declares that it comes before containerd.

use std::collections::{BTreeMap, BTreeSet};

use super::step::{CONTAINER_RUNTIME, KUBELET, Stage};
use crate::resource::{Content, DesiredState, File, Kind, Resource, ResourceId};
use crate::static_pod::{self, is_manifest};
use crate::unit_files::drop_in_of_path;

/// The order of the units in a desired state, from their texts.
pub(super) struct Order {
    /// All units that must start before the container runtime, with their dependencies.
    before_runtime: BTreeSet<String>,
    /// The position of every unit in the start order. kubelet is always the last unit of its stage.
    places: BTreeMap<String, usize>,
}

impl Order {
    pub(super) fn new(desired: &DesiredState) -> Order {
        let units = Units::from_desired(desired);
        Order { before_runtime: units.ordered_before(&[CONTAINER_RUNTIME]), places: units.places() }
    }

    /// The stage of a resource. A unit that must start before the container runtime is in the runtime's stage.
    pub(super) fn stage(&self, id: &ResourceId) -> Stage {
        match id.kind {
            Kind::Unit if self.before_runtime.contains(&id.name) => Stage::Runtime,
            _ => Stage::from_resource(id),
        }
    }

    /// The sort key of a resource's step.
    pub(super) fn position<'a>(&self, id: &'a ResourceId) -> (Stage, u8, usize, &'a ResourceId) {
        let place = match id.kind {
            Kind::Unit => self.places.get(&id.name).copied().unwrap_or_default(),
            _ => 0,
        };
        (self.stage(id), rank(id), place, id)
    }
}

/// The units without which no pod runs: the container runtime and kubelet, the units that must start before the runtime or kubelet, and the
/// dependencies of these earlier units. A failure or a delay of any other unit does not delay pods.
pub fn awaited_units(desired: &DesiredState) -> BTreeSet<String> {
    let mut awaited = Units::from_desired(desired).ordered_before(&[CONTAINER_RUNTIME, KUBELET]);
    awaited.extend([CONTAINER_RUNTIME, KUBELET].map(str::to_owned));
    awaited
}

/// The rank of a resource within its stage. Parent directories come before their children, because the paths are sorted.
pub(super) fn rank(id: &ResourceId) -> u8 {
    match id.kind {
        Kind::Package => 1,
        Kind::User => 1,
        Kind::Directory => 0,
        Kind::Certificate => 1,
        Kind::File if is_manifest(&id.name) => static_pod::rank(&id.name) as u8,
        Kind::File => 2,
        Kind::Symlink | Kind::HostsEntry | Kind::Ipv6Prefix => 3,
        Kind::Unit if id.name == KUBELET => 2,
        Kind::Unit => 1,
        _ => 0,
    }
}

/// The relations between desired units, from the units' texts. Units that are not desired are ignored.
#[derive(Default)]
struct Units<'a> {
    names: BTreeSet<&'a str>,
    /// For each unit, the units that come before it in the start order.
    after: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// For each unit, its dependencies: the units in its `Requires=`, `Wants=` and `BindsTo=`.
    needs: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> Units<'a> {
    fn from_desired(desired: &'a DesiredState) -> Units<'a> {
        let mut units = Units::default();
        let all = desired.iter().filter_map(|(_, resource)| match resource {
            Resource::Unit(unit) => Some(unit),
            _ => None,
        });
        let all: Vec<_> = all.collect();
        units.names = all.iter().map(|unit| unit.name.as_str()).collect();
        let texts = all.iter().map(|unit| (unit.name.as_str(), unit.text.as_deref().unwrap_or_default()));
        for (name, text) in texts.chain(desired.iter().filter_map(|(_, resource)| drop_in(resource))) {
            if !units.names.contains(name) {
                continue;
            }
            for (directive, other) in named_units(text) {
                if !units.names.contains(other) || other == name {
                    continue;
                }
                match directive {
                    "Before" => units.after.entry(other).or_default().insert(name),
                    "After" => units.after.entry(name).or_default().insert(other),
                    _ => units.needs.entry(name).or_default().insert(other),
                };
            }
        }
        units
    }

    /// The units that must start before `units`, and then all units that those need or must start after. Kubelet and the container runtime
    /// are left out.
    fn ordered_before(&self, units: &[&str]) -> BTreeSet<String> {
        let none = BTreeSet::new();
        let mut found = BTreeSet::new();
        let mut left: Vec<&str> =
            units.iter().flat_map(|unit| self.after.get(unit).unwrap_or(&none)).copied().collect();
        while let Some(unit) = left.pop() {
            if ![CONTAINER_RUNTIME, KUBELET].contains(&unit) && found.insert(unit.to_owned()) {
                left.extend(self.after.get(unit).unwrap_or(&none));
                left.extend(self.needs.get(unit).unwrap_or(&none));
            }
        }
        found
    }

    /// Numbers the units in alphabetical order, but a unit comes after all units that must start before it. Units in a cycle are in
    /// alphabetical order.
    fn places(&self) -> BTreeMap<String, usize> {
        let mut left = self.names.clone();
        let mut places = BTreeMap::new();
        while let Some(first) = left.first().copied() {
            let is_free =
                |unit: &&&str| self.after.get(**unit).is_none_or(|others| others.is_disjoint(&left));
            let next = left.iter().find(is_free).copied().unwrap_or(first);
            left.remove(next);
            places.insert(next.to_owned(), places.len());
        }
        places
    }
}

/// The unit of a drop-in, and the drop-in's text.
fn drop_in(resource: &Resource) -> Option<(&str, &str)> {
    let Resource::File(File { path, content: Content::Text(text), .. }) = resource else { return None };
    Some((drop_in_of_path(path)?, text))
}

/// The units that a unit's `[Unit]` section names, in directives for the start order and for dependencies (systemd.unit(5)). Each unit
/// comes with the directive that names it, such as `After`.
fn named_units(text: &str) -> Vec<(&str, &str)> {
    let mut section = "";
    // A line that ends with a backslash continues in the next line.
    let mut continued = None;
    let mut named = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if continued.is_none() && line.starts_with('[') {
            section = line;
            continue;
        }
        let (directive, value) = match (continued.take(), line.split_once('=')) {
            (Some(directive), _) => (directive, line),
            (None, Some((directive, value))) => (directive.trim_end(), value),
            (None, None) => continue,
        };
        let words = value.trim_end_matches('\\').split_whitespace();
        if section == "[Unit]" && ["Before", "After", "Requires", "Wants", "BindsTo"].contains(&directive) {
            named.extend(words.map(|unit| (directive, unit)));
        }
        continued = value.ends_with('\\').then_some(directive);
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{ObservedState, diff};
    use crate::resource::Unit;

    /// The desired units in start order, each with its stage.
    fn started(units: &[(&str, &str)]) -> Vec<String> {
        let mut desired = DesiredState::default();
        for (name, text) in units {
            desired.add(Unit::new(*name, format!("[Unit]\n{text}\n[Service]\nBefore=a.service\n")));
        }
        let plan = diff(&desired, &ObservedState::new());
        plan.steps.iter().map(|step| format!("{}: {}", step.stage.name(), step.resource.name)).collect()
    }

    #[test]
    fn a_hook_comes_before_the_units_that_it_names() {
        assert_eq!(
            started(&[
                (CONTAINER_RUNTIME, "After=network.target"),
                (KUBELET, "After=containerd.service"),
                ("disk.service", "Before=raid.service other.target \\\n  containerd.service"),
                ("raid.service", "Requires=modules.service\nBefore=containerd.service"),
                ("modules.service", "Description=Before=a.service"),
                ("a.service", "After=z.service"),
                ("z.service", "Before=kubelet.service"),
            ]),
            [
                "runtime: disk.service",
                "runtime: modules.service",
                "runtime: raid.service",
                "runtime: containerd.service",
                "services: z.service",
                "services: a.service",
                "services: kubelet.service",
            ]
        );
    }

    #[test]
    fn awaited_units_are_those_that_kubelet_and_the_runtime_need() {
        let mut desired = DesiredState::default();
        for (name, text) in [
            (CONTAINER_RUNTIME, "After=network.target"),
            (KUBELET, "After=containerd.service"),
            ("disk.service", "Before=containerd.service\nRequires=modules.service"),
            ("modules.service", ""),
            ("bpf.mount", "Before=kubelet.service"),
            ("late.service", "After=kubelet.service"),
            ("cloud.service", "After=cloud-final.service"),
            ("any.service", ""),
            ("named.service", ""),
        ] {
            desired.add(Unit::new(name, format!("[Unit]\n{text}\n")));
        }
        desired
            .add(File::text("/etc/systemd/system/kubelet.service.d/x.conf", "[Unit]\nAfter=named.service\n"));
        let awaited: Vec<String> = awaited_units(&desired).into_iter().collect();
        assert_eq!(
            awaited,
            ["bpf.mount", CONTAINER_RUNTIME, "disk.service", KUBELET, "modules.service", "named.service"]
        );
    }

    #[test]
    fn kubelet_comes_last_and_cycles_terminate() {
        assert_eq!(
            started(&[
                (CONTAINER_RUNTIME, "Before=a.service"),
                (KUBELET, "Before=containerd.service b.service"),
                ("a.service", "Before=b.service"),
                ("b.service", "Before=a.service"),
            ]),
            [
                "runtime: containerd.service",
                "services: a.service",
                "services: b.service",
                "services: kubelet.service"
            ]
        );
    }
}
