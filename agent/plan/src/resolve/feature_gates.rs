//! Feature gates of Kubernetes' components: checks whether the Kubernetes release has these gates and allows their values.
//!
//! A component exits if it does not know a gate, or if a locked gate gets another value (`SetFromMap` of
//! k8s.io/component-base/featuregate).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::invalid::Invalid;

use super::{KubernetesVersion, Problems};

/// The table of gates: a line for each gate, a column for each release.
const TEXT: &str = include_str!("feature_gates.txt");
/// The gates by name. The table is parsed only once, because a decision about a control plane looks up some 2,000 gates.
static TABLE: LazyLock<BTreeMap<&str, Columns>> =
    LazyLock::new(|| lines().filter_map(Columns::read).collect());
/// The oldest and the newest minor version that have a column in the table of gates.
const OLDEST_MINOR: u64 = 29;
const NEWEST_MINOR: u64 = 36;
/// Since this minor version, a component exits if a gate is on and needs another gate that is off.
const CHECKS_NEEDS: u64 = 36;

/// The state of a feature gate in one Kubernetes release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    stage: char,
    is_on: bool,
    is_locked: bool,
}

/// The gates that are set for a component.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates<'a> {
    set: &'a BTreeMap<String, bool>,
    minor: u64,
    is_pre_release: bool,
}

impl<'a> Gates<'a> {
    pub(super) fn new(set: &'a BTreeMap<String, bool>, version: &KubernetesVersion) -> Gates<'a> {
        Gates { set, minor: version.minor(), is_pre_release: version.is_pre_release() }
    }

    /// Whether a gate is on: by its own setting, or else by the setting of `AllAlpha` or `AllBeta` for its stage, or else by its default.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let Some(gate) = self.gate(name) else { return self.set.get(name).copied().unwrap_or_default() };
        let of_stage = match gate.stage {
            'a' => self.set.get("AllAlpha"),
            'b' => self.set.get("AllBeta"),
            _ => None,
        };
        self.set.get(name).or(of_stage).copied().unwrap_or(gate.is_on)
    }

    fn gate(&self, name: &str) -> Option<Gate> {
        TABLE.get(name).and_then(|columns| columns.gate(self.minor.clamp(OLDEST_MINOR, NEWEST_MINOR)))
    }

    /// Why a setting that needs this gate is refused (the gate is off, or the release lacks the gate), and what to do.
    pub(super) fn why_off(&self, name: &str) -> String {
        match self.gate(name) {
            Some(_) => {
                format!("the feature gate {name} is off; remove this setting, or set the gate to true")
            }
            None => format!("Kubernetes 1.{} has no feature gate {name}; remove this setting", self.minor),
        }
    }

    /// Checks the value of a gate. A pre-release may still have the gates of the previous release. So a value passes if one of the two
    /// releases accepts it.
    fn check(&self, name: &str, value: bool) -> Result<(), Invalid> {
        self.unless_the_release_before(|gates| gates.check_in_release(name, value))
    }

    fn unless_the_release_before(
        &self,
        check: impl Fn(&Gates<'_>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let before = || check(&Gates { minor: self.minor.saturating_sub(1), ..*self });
        check(self).or_else(|problem| match self.is_pre_release && before().is_ok() {
            true => Ok(()),
            false => Err(problem),
        })
    }

    fn check_in_release(&self, name: &str, value: bool) -> Result<(), Invalid> {
        if !(OLDEST_MINOR..=NEWEST_MINOR).contains(&self.minor) {
            return Ok(());
        }
        let release = self.minor;
        match self.gate(name) {
            None => Err(Invalid::new(format!(
                "is no feature gate of Kubernetes 1.{release}, so the component does not start; {}",
                TABLE
                    .get(name)
                    .map_or_else(|| "correct or remove it".to_owned(), |gate| gate.why_not(release))
            ))),
            Some(Gate { is_locked: true, is_on, .. }) if is_on != value => Err(Invalid::new(format!(
                "is {value}, but Kubernetes 1.{release} has this feature gate locked to {is_on}, so the component does not start; \
                 remove it"
            ))),
            Some(_) => self.check_needs(name, value),
        }
    }

    fn check_needs(&self, name: &str, value: bool) -> Result<(), Invalid> {
        match self.missing(name).as_slice() {
            off if value && !off.is_empty() => Err(Invalid::new(format!(
                "is on, but needs {}, which is off, so the component does not start; set that gate to true too",
                off.join(", ")
            ))),
            _ => Ok(()),
        }
    }

    /// The gates that this gate needs and that are off.
    fn missing(&self, name: &str) -> Vec<&'static str> {
        let needs = TABLE
            .get(name)
            .filter(|_| (CHECKS_NEEDS..=NEWEST_MINOR).contains(&self.minor))
            .map_or("", |columns| columns.needs);
        needs.split(',').filter(|needed| !needed.is_empty() && !self.is_on(needed)).collect()
    }

    /// Checks the gates that are on although no setting names them. They are on by default, by `AllAlpha` or by `AllBeta`.
    fn check_defaults(&self) -> Result<(), Invalid> {
        let names = TABLE.iter().filter(|(_, columns)| !columns.needs.is_empty()).map(|(name, _)| *name);
        let on = names
            .filter(|name| !self.set.contains_key(*name) && self.gate(name).is_some() && self.is_on(name));
        let wrong: Vec<String> = on
            .map(|name| (name, self.missing(name).join(", ")))
            .filter(|(_, off)| !off.is_empty())
            .map(|(name, off)| format!("{name}, which needs {off}"))
            .collect();
        match wrong.as_slice() {
            [] => Ok(()),
            wrong => Err(Invalid::new(format!(
                "the component does not start, because a feature gate that is on by default needs a gate that is off: {}; \
                 set both to true or both to false",
                wrong.join("; ")
            ))),
        }
    }
}

/// The columns of one feature gate in the table of gates: its state in each release, and the names of the gates that it needs.
#[derive(Clone, Copy)]
struct Columns {
    gates: [Option<Gate>; (NEWEST_MINOR - OLDEST_MINOR + 1) as usize],
    needs: &'static str,
}

fn lines() -> impl Iterator<Item = &'static str> {
    TEXT.lines().filter(|line| !line.starts_with('#'))
}

fn gate_of(word: &str) -> Option<Gate> {
    let stage = word.chars().next().filter(|stage| *stage != '.')?;
    Some(Gate { stage, is_on: word.contains('+'), is_locked: word.ends_with('!') })
}

impl Columns {
    /// Reads a line of the table: the name, one word for each release, and optionally the names of the gates that this gate needs.
    fn read(line: &'static str) -> Option<(&'static str, Columns)> {
        let mut words = line.split(' ');
        let name = words.next()?;
        let mut gates = [None; (NEWEST_MINOR - OLDEST_MINOR + 1) as usize];
        for gate in &mut gates {
            *gate = gate_of(words.next()?);
        }
        Some((name, Columns { gates, needs: words.next().unwrap_or_default() }))
    }

    fn gate(&self, minor: u64) -> Option<Gate> {
        let column = usize::try_from(minor.checked_sub(OLDEST_MINOR)?).ok()?;
        self.gates.get(column).copied().flatten()
    }

    /// The reason why a release in the table lacks the gate.
    fn why_not(&self, release: u64) -> String {
        let has_it = |minor: &u64| self.gate(*minor).is_some();
        match (OLDEST_MINOR..release).rfind(has_it) {
            Some(last) => format!("1.{last} was the last release with this gate, so remove the gate"),
            None => {
                let first = (release..=NEWEST_MINOR).find(has_it).unwrap_or(NEWEST_MINOR);
                format!("1.{first} is the first release with this gate, so remove the gate")
            }
        }
    }
}

/// Parses the gates of `field`. Adds a problem for each wrong gate. Also checks the gates that `gates` does not name but that are on by
/// default, by `AllAlpha` or by `AllBeta`. Adds a problem if one of them needs a gate that is off.
pub(super) fn read(
    field: &str,
    gates: &BTreeMap<String, String>,
    version: &KubernetesVersion,
    problems: &mut Problems,
) -> BTreeMap<String, bool> {
    let mut read = BTreeMap::new();
    for (name, value) in gates {
        let on = go_bool(value)
            .ok_or_else(|| Invalid::new(format!("{name} is {value:?}; it must be true or false")));
        if let Some(on) = problems.keep(field, on) {
            read.insert(name.clone(), on);
        }
    }
    let gates = Gates::new(&read, version);
    for (name, value) in &read {
        problems.keep(&format!("{field}.{name}"), gates.check(name, *value));
    }
    problems.keep(field, gates.unless_the_release_before(|gates| gates.check_defaults()));
    read
}

/// Returns the gates that a component's settings set, without gates whose value cannot be read.
pub(super) fn set(gates: &BTreeMap<String, String>) -> BTreeMap<String, bool> {
    gates.iter().filter_map(|(name, value)| Some((name.clone(), go_bool(value)?))).collect()
}

/// Checks the gates of all components except kubelet. Each problem is only a warning: a component with a wrong gate fails in its own pod,
/// and the node still works.
pub(super) fn check(config: &NodeupConfig, version: &KubernetesVersion, problems: &mut Problems) {
    let api_server = config.api_server_config.as_ref().and_then(|config| config.kube_api_server.as_ref());
    let control_plane = config.control_plane_config.as_ref();
    let components = [
        ("APIServerConfig.KubeAPIServer", api_server.map(|config| &config.feature_gates)),
        (
            "ControlPlaneConfig.KubeControllerManager",
            control_plane.map(|config| &config.kube_controller_manager.feature_gates),
        ),
        (
            "ControlPlaneConfig.KubeScheduler",
            control_plane.map(|config| &config.kube_scheduler.feature_gates),
        ),
        ("KubeProxy", config.kube_proxy.as_ref().map(|config| &config.feature_gates)),
    ];
    for (component, gates) in components {
        if let Some(gates) = gates {
            let mut found = Problems::default();
            read(&format!("{component}.featureGates"), gates, version, &mut found);
            found.iter().for_each(|gate| problems.warn(gate.field.clone(), gate.problem.clone()));
        }
    }
}

/// Parses a bool in any spelling that Go's `strconv.ParseBool` accepts.
pub(super) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn told(version: &str, gates: &[(&str, &str)]) -> String {
        let gates = gates.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut problems = Problems::default();
        read("gates", &gates, &KubernetesVersion::parse(version).unwrap(), &mut problems);
        problems.to_string()
    }

    #[test]
    fn every_line_of_the_table_has_a_gate_for_some_release() {
        assert!(TABLE.len() > 300);
        assert_eq!(TABLE.len(), lines().count(), "a line has too few words, or two lines have one name");
        for (name, columns) in &*TABLE {
            assert!(columns.gates.iter().flatten().all(|gate| "abgd".contains(gate.stage)), "{name}");
            assert!(columns.gates.iter().any(Option::is_some), "{name}");
            for needed in columns.needs.split(',').filter(|needed| !needed.is_empty()) {
                assert!(TABLE[needed].gate(NEWEST_MINOR).is_some(), "{name}");
            }
        }
    }

    #[test]
    fn gates_are_bools_as_go_reads_them() {
        assert_eq!(told("1.34.0", &[("NodeLogQuery", "True"), ("EventedPLEG", "0")]), "");
        assert_eq!(
            told("1.34.0", &[("NodeLogQuery", "yes")]),
            "gates: NodeLogQuery is \"yes\"; it must be true or false"
        );
    }

    #[test]
    fn an_unknown_gate_is_reported_with_the_releases_that_have_it() {
        for (version, gate, part) in [
            (
                "1.34.0",
                "NoSuchGate",
                "no feature gate of Kubernetes 1.34, so the component does not start; correct or remove it",
            ),
            ("1.33.0", "CPUManager", "1.32 was the last release with this gate"),
            ("1.30.0", "SidecarContainer", "no feature gate of Kubernetes 1.30"),
            ("1.31.9", "KubeProxyDrainingTerminatingNode", "no feature gate of Kubernetes 1.31"),
            ("1.31.9", "CSINodeExpandSecret", "1.30 was the last release with this gate"),
            ("1.29.9", "AppArmorFields", "1.30 is the first release with this gate"),
            ("1.34.0", "AtomicFIFO", "1.36 is the first release with this gate"),
        ] {
            let told = told(version, &[(gate, "true")]);
            assert!(told.starts_with(&format!("gates.{gate}: ")) && told.contains(part), "{told}");
        }
        for version in ["1.29.0", "1.30.0", "1.31.0"] {
            assert!(told(version, &[("NoSuchGate", "true")]).contains("correct or remove it"), "{version}");
        }
        // The agent's table of gates ends before this release. So the agent accepts every gate.
        assert_eq!(told("1.37.0", &[("NoSuchGate", "true")]), "");
    }

    #[test]
    fn a_locked_gate_keeps_its_value() {
        assert_eq!(told("1.34.0", &[("NodeSwap", "true"), ("AllAlpha", "true")]), "");
        assert!(told("1.34.0", &[("NodeSwap", "false")]).contains("locked to true"));
        assert_eq!(told("1.33.0", &[("NodeSwap", "false")]), "");
        let expand = [("CSINodeExpandSecret", "false")];
        for version in ["1.29.0", "1.30.0"] {
            assert!(told(version, &expand).contains("locked to true"), "{}", told(version, &expand));
            assert_eq!(told(version, &[("CSINodeExpandSecret", "true")]), "");
        }
    }

    #[test]
    fn a_pre_release_has_the_gates_of_its_release_or_of_the_release_before_it() {
        for (version, gate, value) in [
            ("1.33.0-alpha.1", "CPUManager", "true"),
            ("1.33.0-rc.0", "KubeletPSI", "true"),
            ("1.34.0-beta.0", "NodeSwap", "false"),
            ("https://host/ci/v1.33.0-alpha.3.12+abc", "CPUManager", "true"),
            ("1.36.0-alpha.2", "NodeDeclaredFeatures", "false"),
            ("1.37.0-alpha.1", "NoSuchGate", "true"),
        ] {
            assert_eq!(told(version, &[(gate, value)]), "", "{version}");
        }
        assert!(told("1.33.0-alpha.1", &[("NoSuchGate", "true")]).contains("correct or remove it"));
        assert!(told("1.35.0-rc.1", &[("NodeSwap", "false")]).contains("locked to true"));
    }

    #[test]
    fn a_gate_needs_its_dependencies() {
        let [on, off] = ["true", "false"];
        let both = [("NodeDeclaredFeatures", off), ("RestartAllContainersOnContainerExits", on)];
        assert!(told("1.36.0", &both).contains("needs NodeDeclaredFeatures"), "{}", told("1.36.0", &both));
        assert_eq!(told("1.36.0", &[both[1]]), "");
    }

    #[test]
    fn a_default_gate_needs_its_dependencies() {
        let off = ("NodeDeclaredFeatures", "false");
        let found = told("1.36.0", &[off, ("RestartAllContainersOnContainerExits", "false")]);
        assert!(found.starts_with("gates: ") && !found.contains("RestartAllContainers"), "{found}");
        assert!(found.contains("ExtendWebSocketsToKubelet, which needs NodeDeclaredFeatures"), "{found}");
        // Components before Kubernetes 1.36 do not check the dependencies of gates.
        assert_eq!(told("1.35.0", &[off]), "");
        assert_eq!(told("1.36.0", &[]), "");
        assert_eq!(told("1.37.0", &[off]), "");
    }

    #[test]
    fn a_gate_is_on_by_setting_or_stage_or_default() {
        let is_on = |version: &str, set: &[(&str, bool)], name: &str| {
            let set = set.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            Gates::new(&set, &KubernetesVersion::parse(version).unwrap()).is_on(name)
        };
        let gate = "CustomCPUCFSQuotaPeriod";
        assert!(!is_on("1.35.0", &[], gate) && is_on("1.36.0", &[], gate) && is_on("1.40.0", &[], gate));
        assert!(is_on("1.35.0", &[(gate, true)], gate) && is_on("1.35.0", &[("AllAlpha", true)], gate));
        assert!(!is_on("1.35.0", &[("AllAlpha", true), (gate, false)], gate));
    }
}
