//! Additions for a kops-agent that a boot script downloaded and no package installed: timers that verify the node and write its metrics, a
//! link in `PATH`, and completions for bash.

use crate::resolve::{NodeConfig, Project};
use crate::resource::{DesiredState, File, Kind, Resource, ResourceId, Symlink, Unit};

use super::paths::{BOOT_CONFIG, PACKAGED_PROGRAM};

/// Directory of the agent's own units, on every distribution (`agent/host/src/places.rs`).
const UNITS: &str = "/etc/systemd/system";

/// Name and text of each service, and of the timer that starts the service.
const SERVICES: [[(&str, &str); 2]; 2] = [
    [
        ("kops-agent-verify.service", include_str!("../../../../units/kops-agent-verify.service")),
        ("kops-agent-verify.timer", include_str!("../../../../units/kops-agent-verify.timer")),
    ],
    [
        ("kops-agent-metrics.service", include_str!("../../../../units/kops-agent-metrics.service")),
        ("kops-agent-metrics.timer", include_str!("../../../../units/kops-agent-metrics.timer")),
    ],
];

/// The directory in `PATH` that gets the link to the program, by distribution.
const BIN: &str = "/usr/local/bin";
const BIN_OF_FLATCAR: &str = "/opt/bin";
const BIN_OF_CONTAINER_OS: &str = "/home/kubernetes/bin";

/// The path at which bash looks for the completions of a locally installed program.
const COMPLETIONS: &str = "/usr/local/share/bash-completion/completions/kops-agent";

/// The program and the boot config that the timers' services use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upkeep {
    pub program: String,
    /// Path of the machine's boot config.
    pub conf: String,
}

impl Upkeep {
    /// The timers and their services. They do not depend on the result of a run, so they exist even if the first run fails.
    pub fn timers(&self) -> DesiredState {
        let mut state = DesiredState::default();
        for [(service, text), (timer, timer_text)] in SERVICES {
            let text = text.replace(PACKAGED_PROGRAM, &self.program).replace(BOOT_CONFIG, &self.conf);
            // The service is a plain file, not a `Unit`, for two reasons: Only the service's timer may start it. And a run that the service
            // started must not stop it.
            state.add(File::text(format!("{UNITS}/{service}"), text));
            state.add(Unit::new(timer, timer_text));
        }
        state
    }
}

/// Adds the timers, the link and the completions. If the user already defines a resource with the same ID, the user's resource stays.
pub(super) fn add(node: &NodeConfig, upkeep: &Upkeep, state: &mut DesiredState) {
    let mut add = |resource: Resource| {
        if state.get(&resource.id()).is_none() {
            state.add(resource);
        }
    };
    upkeep.timers().iter().for_each(|(_, resource)| add(resource.clone()));
    let (folder, is_usr_writable) = match node.distribution.project {
        Project::Flatcar => (BIN_OF_FLATCAR, false),
        Project::ContainerOS => (BIN_OF_CONTAINER_OS, false),
        _ => (BIN, true),
    };
    add(Symlink { path: link(folder), target: upkeep.program.clone() }.into());
    if is_usr_writable {
        // bash asks the program for its completions, so they also fit a later version of the program.
        let script = format!("eval \"$({} completions bash)\"\n", upkeep.program);
        add(File::text(COMPLETIONS, script).into());
    }
}

fn link(folder: &str) -> String {
    format!("{folder}/kops-agent")
}

/// The IDs of all resources that [`add`] adds on any distribution.
pub(super) fn ids() -> Vec<ResourceId> {
    let upkeep = Upkeep { program: PACKAGED_PROGRAM.to_owned(), conf: BOOT_CONFIG.to_owned() };
    let mut ids: Vec<ResourceId> = upkeep.timers().iter().map(|(id, _)| id.clone()).collect();
    ids.push(ResourceId::new(Kind::File, COMPLETIONS));
    let links = [BIN, BIN_OF_FLATCAR, BIN_OF_CONTAINER_OS].map(link);
    ids.extend(links.map(|link| ResourceId::new(Kind::Symlink, link)));
    ids
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::{Services, desired, desired_with};
    use crate::resolve::testing::control_plane;
    use crate::resource::Content;

    fn upkeep() -> Upkeep {
        Upkeep {
            program: "/var/lib/toolbox/kops/bin/nodeup".into(),
            conf: "/var/lib/toolbox/kops/conf/kube_env.yaml".into(),
        }
    }

    #[test]
    fn the_timers_use_the_programs_path() {
        let node = control_plane(|_| {});
        let (before, upkeep) = (desired(&node).unwrap(), upkeep());
        let after = desired_with(&node, Services { upkeep: Some(&upkeep), ..Services::default() }).unwrap();
        let mut new: Vec<String> =
            after.iter().filter(|(id, _)| before.get(id).is_none()).map(|(id, _)| id.to_string()).collect();
        new.sort();
        assert_eq!(
            new,
            [
                "file /etc/systemd/system/kops-agent-metrics.service",
                "file /etc/systemd/system/kops-agent-verify.service",
                "file /usr/local/share/bash-completion/completions/kops-agent",
                "symlink /usr/local/bin/kops-agent",
                "unit kops-agent-metrics.timer",
                "unit kops-agent-verify.timer",
            ]
        );
        let own: Vec<String> = ids().iter().map(ResourceId::to_string).collect();
        assert!(new.iter().all(|id| own.contains(id)), "{own:?}");
        assert!(before.iter().all(|(id, resource)| after.get(id) == Some(resource)));
        for (service, _) in SERVICES.map(|[service, _]| service) {
            let id = ResourceId::new(Kind::File, format!("{UNITS}/{service}"));
            let Some(Resource::File(file)) = after.get(&id) else { panic!("{id}") };
            let Content::Text(text) = &file.content else { panic!("{id}") };
            assert!(text.contains("\nExecStart=/var/lib/toolbox/kops/bin/nodeup "), "{text}");
            assert!(!text.contains(PACKAGED_PROGRAM) && !text.contains(BOOT_CONFIG), "{text}");
        }
    }

    #[test]
    fn a_users_resource_replaces_the_timers() {
        let mut state = DesiredState::default();
        let own = Unit::new("kops-agent-verify.timer", "[Timer]\nOnCalendar=daily\n");
        state.add(own.clone());
        add(&control_plane(|_| {}), &upkeep(), &mut state);
        let id = ResourceId::new(Kind::Unit, "kops-agent-verify.timer");
        assert_eq!(state.get(&id), Some(&own.into()));
        assert!(state.checked().is_ok());
    }
}
