//! The units that a user adds to nodes, or switches off.
//!
//! Source: nodeup/pkg/model/hooks.go.

use std::collections::{BTreeMap, BTreeSet};

use crate::resolve::{Hook, HookAction, HookOrder, NodeConfig};
use crate::resource::{DesiredState, FreeText, Unit};

use super::unit_file::{UnitFile, command_line};

/// containerd's client, with the namespace of kubelet's containers.
const CTR: [&str; 3] = ["/usr/bin/ctr", "--namespace", "k8s.io"];

pub(super) fn add(node: &NodeConfig, state: &mut DesiredState) {
    let files: BTreeSet<&str> = node.file_assets.iter().map(|asset| asset.path.as_str()).collect();
    for hook in &node.hooks {
        state.add(match &hook.action {
            HookAction::SwitchOff => Unit { enabled: false, running: false, ..Unit::existing(&hook.unit) },
            HookAction::RawUnit(text) => unit(hook, text.clone(), &files),
            HookAction::Service { section, order } => {
                unit(hook, description(hook, order).raw("Service", section).render(), &files)
            }
            HookAction::Container { image, command, environment, order } => {
                let text = description(hook, order)
                    .set("Unit", "Requires", "containerd.service")
                    .set("Service", "ExecStartPre", command_line(&pull(image)))
                    .set("Service", "ExecStart", command_line(&run(&hook.name, image, command, environment)))
                    .set("Service", "Type", "oneshot")
                    .set("Install", "WantedBy", "multi-user.target");
                unit(hook, text.render(), &files)
            }
        });
    }
}

fn description(hook: &Hook, order: &HookOrder) -> UnitFile {
    let mut file = UnitFile::default().set("Unit", "Description", format!("Kops Hook {}", hook.name));
    for required in &order.requires {
        file = file.set("Unit", "Requires", required);
    }
    for later in &order.before {
        file = file.set("Unit", "Before", later);
    }
    file
}

/// The hook's unit. If its program or environment file is a fileAsset, a change of that file restarts the
/// unit. `files` has the paths of all fileAssets.
fn unit(hook: &Hook, text: String, files: &BTreeSet<&str>) -> Unit {
    let named = {
        let mut seen = BTreeSet::new();
        let of_assets = named_files(&text).filter(|path| files.contains(path) && seen.insert(*path));
        of_assets.map(str::to_owned).collect::<Vec<String>>()
    };
    Unit::new(&hook.unit, text).restarted_by_files(named).with_free_text(FreeText::Whole)
}

/// The environment files and programs that a unit names, without systemd's prefixes.
fn named_files(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let (directive, value) = line.split_once('=')?;
        let file = match directive.trim() {
            "EnvironmentFile" => value.trim(),
            "ExecStart" => value.split_whitespace().next()?,
            _ => return None,
        };
        Some(file.trim_start_matches(['-', '@', ':', '+', '!', '|']))
    })
}

fn pull(image: &str) -> Vec<String> {
    CTR.iter().chain(&["image", "pull", image]).map(|word| (*word).to_owned()).collect()
}

/// The command that runs the hook's container. The container sees the node's root at `/rootfs`, and the node's D-Bus
/// and systemd at their usual paths. So a hook can change the node.
fn run(name: &str, image: &str, command: &[String], environment: &BTreeMap<String, String>) -> Vec<String> {
    const OPTIONS: [&str; 10] = [
        "run",
        "--rm",
        "--mount",
        "type=bind,src=/,dst=/rootfs,options=rbind:rslave",
        "--mount",
        "type=bind,src=/var/run/dbus,dst=/var/run/dbus,options=rbind:rprivate",
        "--mount",
        "type=bind,src=/run/systemd,dst=/run/systemd,options=rbind:rprivate",
        "--net-host",
        "--privileged",
    ];
    let mut words: Vec<String> = CTR.iter().chain(&OPTIONS).map(|word| (*word).to_owned()).collect();
    for (key, value) in environment {
        words.extend(["--env".to_owned(), format!("{key}={value}")]);
    }
    words.extend([image.to_owned(), name.to_owned()]);
    words.extend_from_slice(command);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_environments_are_found_in_a_unit() {
        let text = "[Service]\nEnvironmentFile=-/etc/a\nExecStart = +/opt/b --flag=/etc/c\nExecStop=/opt/d\n";
        assert_eq!(named_files(text).collect::<Vec<_>>(), ["/etc/a", "/opt/b"]);
    }

    #[test]
    fn the_words_of_a_containers_command_stay_whole() {
        let environment = BTreeMap::from([("A".to_owned(), "b\nc".to_owned())]);
        let command = ["sh", "-c", "apt-get update && apt-get install x"].map(str::to_owned);
        let line = command_line(&run("hook", "docker.io/library/busybox:latest", &command, &environment));
        assert!(line.ends_with(
            r#"--env A=b\x0ac docker.io/library/busybox:latest hook sh -c "apt-get update && apt-get install x""#
        ));
        assert!(!line.contains('\n'));
    }
}
