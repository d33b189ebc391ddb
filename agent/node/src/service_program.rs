//! The program that the agent's own services run. A machine may have two programs: kOps' boot script brings one, and a package brings
//! another.
//!
//! All own services of a machine run one program, and every command of both programs follows one rule. The program that the units name
//! stays, while it exists and has the commands of the services. Otherwise the program that decides the node takes its place. So neither
//! program changes the units of the other.
//!
//! An order of a rollout does not need the rule: the process of the service that follows rollouts replaces its own program.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kops_agent_host::system::programs;
use kops_agent_plan::resource::DesiredState;
use kops_agent_process::program;
use kops_agent_process::version::VERSION;

use super::own_services::{ADDONS, CONTROLLER, FOLLOW, OwnService};

/// The services. Of the programs that their units start, the first usable one is the program of all services. `FOLLOW` comes first, because
/// a rollout replaces its program.
const SERVICES: [OwnService; 3] = [FOLLOW, CONTROLLER, ADDONS];
/// The directories of unit files below the root, in systemd's order (systemd.unit(5)).
const FOLDERS: [&str; 3] = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];
/// The beginning of kops-agent's output of `--version`. nodeup's output begins with a different name.
const NAME: &str = "kops-agent ";
/// How long another program may take to print its version or its help.
const PRINTED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
pub struct ServiceProgram {
    pub path: PathBuf,
    /// The units that start `path`, if `path` is a different version than this program.
    kept: Vec<UnitFile>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnitFile {
    name: &'static str,
    text: String,
}

impl UnitFile {
    /// The program that the unit starts. `None` if the unit starts no program, for example because it is masked.
    fn program(&self) -> Option<&Path> {
        let command = self.text.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
        command.split(' ').next().map(Path::new).filter(|program| program.is_absolute())
    }
}

impl ServiceProgram {
    /// The program for the services of the machine below `root`. The program's path starts at `/`, even if the units are below a scratch
    /// root.
    pub fn of_machine(root: &Path) -> io::Result<ServiceProgram> {
        Ok(decided(&program::path()?, units(root), version_of))
    }

    pub fn is_this_program(&self) -> io::Result<bool> {
        Ok(self.path == program::path()?)
    }

    /// Keeps the units of a different version as that version wrote them, because this version may write them differently.
    pub fn keep_units(self, desired: &mut DesiredState) {
        let ServiceProgram { path, kept } = self;
        for UnitFile { name, text } in kept {
            log::info!(
                "{name} stays as it is: it runs {}, which is another version of kops-agent than this program",
                path.display()
            );
            desired.replace_unit_text(name, text);
        }
    }
}

/// Decides the program of the services: the first usable program that a unit names, or else this program. `this` is the path of this
/// program. `version_of` returns the version of a program that can run the services.
fn decided(
    this: &Path,
    units: Vec<UnitFile>,
    version_of: impl Fn(&Path) -> Option<String>,
) -> ServiceProgram {
    let usable = |path: &Path| -> Option<(PathBuf, String)> {
        let version = if path == this { VERSION.to_owned() } else { version_of(path)? };
        Some((path.to_owned(), version))
    };
    let named = units.iter().filter_map(UnitFile::program).find_map(usable);
    let (path, version) = named.unwrap_or_else(|| (this.to_owned(), VERSION.to_owned()));
    let is_kept = |unit: &UnitFile| version != VERSION && unit.program() == Some(path.as_path());
    let kept: Vec<UnitFile> = units.into_iter().filter(is_kept).collect();
    ServiceProgram { path, kept }
}

/// The units of the services on the machine below `root`, in the order of `SERVICES`.
fn units(root: &Path) -> Vec<UnitFile> {
    let read = |service: &OwnService| {
        let mut files = FOLDERS.iter().map(|folder| root.join(folder).join(service.unit));
        let text = fs::read_to_string(files.find(|file| file.exists())?).ok()?;
        Some(UnitFile { name: service.unit, text })
    };
    SERVICES.iter().filter_map(read).collect()
}

/// The version of a program that can run the services. `None` if the program is missing, is not kops-agent, or does not have the
/// commands of the services. If the program does not answer in time, its version is unknown and therefore empty: a busy machine must
/// not change its units.
fn version_of(program: &Path) -> Option<String> {
    let is_executable = |file: fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    let path = program.to_str().filter(|_| fs::metadata(program).is_ok_and(is_executable))?;
    let ask = |arguments: &[&str]| programs::ask(&[&[path][..], arguments].concat(), PRINTED_WITHIN);
    let version = match ask(&["--version"]) {
        Ok(answer) if answer.is_success => answer.stdout.trim().strip_prefix(NAME)?.to_owned(),
        Ok(_) => return None,
        Err(error) => {
            log::debug!("the services keep {path}, although it does not print its version: {error}");
            return Some(String::new());
        }
    };
    let lacks = |service: &OwnService| {
        let help = [service.command, &["--help"]].concat();
        matches!(ask(&help), Ok(answer) if !answer.is_success)
    };
    (!SERVICES.iter().any(lacks)).then_some(version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use kops_agent_plan::resource::Unit;

    use super::*;

    /// Writes the program to `$1` in a separate process. A program cannot start while this process has its file open for writing.
    const WRITE: &str = "printf '%s' \"$0\" >\"$1\" && chmod \"$2\" \"$1\"";
    const BOOT_SCRIPTS: &str = "/opt/kops/bin/nodeup";
    const PACKAGED: &str = "/usr/bin/kops-agent";

    fn unit(service: &OwnService, program: &str) -> UnitFile {
        let text = format!("[Service]\nExecStart={program} {}\n", service.command.join(" "));
        UnitFile { name: service.unit, text }
    }

    /// Calls [`decided`] for a program at `this`. `others` is the version of every other program.
    fn rule(this: &str, units: &[UnitFile], others: Option<&str>) -> ServiceProgram {
        decided(Path::new(this), units.to_vec(), |_| others.map(str::to_owned))
    }

    #[test]
    fn both_programs_choose_the_program_that_the_units_name() {
        for named in [BOOT_SCRIPTS, PACKAGED] {
            for service in &SERVICES {
                let units = [unit(service, named)];
                for this in [BOOT_SCRIPTS, PACKAGED] {
                    let expected = ServiceProgram { path: named.into(), kept: Vec::new() };
                    assert_eq!(rule(this, &units, Some(VERSION)), expected, "{this}");
                }
            }
        }
        assert_eq!(rule(PACKAGED, &[], Some(VERSION)).path, Path::new(PACKAGED), "no unit names a program");
        let masked = UnitFile { name: FOLLOW.unit, text: String::new() };
        assert_eq!(rule(PACKAGED, &[masked], Some(VERSION)).path, Path::new(PACKAGED));
    }

    #[test]
    fn the_program_that_follows_rollouts_runs_the_other_services_too() {
        let units = [unit(&FOLLOW, BOOT_SCRIPTS), unit(&ADDONS, PACKAGED)];
        for this in [BOOT_SCRIPTS, PACKAGED] {
            assert_eq!(rule(this, &units, Some(VERSION)).path, Path::new(BOOT_SCRIPTS));
        }
    }

    #[test]
    fn only_the_units_of_another_version_keep_their_texts() {
        let units = [unit(&FOLLOW, BOOT_SCRIPTS), unit(&CONTROLLER, PACKAGED)];
        let decided = rule(PACKAGED, &units, Some("0.0.1 (other)"));
        assert_eq!(decided, ServiceProgram { path: BOOT_SCRIPTS.into(), kept: vec![units[0].clone()] });
        let own = rule(BOOT_SCRIPTS, &units, Some("0.0.1 (other)"));
        assert_eq!(own, ServiceProgram { path: BOOT_SCRIPTS.into(), kept: Vec::new() });
    }

    #[test]
    fn a_kept_text_replaces_the_text_of_this_version() {
        let mut desired = DesiredState::default();
        desired.add(Unit::new(FOLLOW.unit, "of this version"));
        let units = [unit(&FOLLOW, BOOT_SCRIPTS), unit(&ADDONS, BOOT_SCRIPTS)];
        rule(PACKAGED, &units, Some("0.0.1 (other)")).keep_units(&mut desired);
        let mut expected = DesiredState::default();
        expected.add(Unit::new(FOLLOW.unit, units[0].text.clone()));
        assert_eq!(desired, expected, "a service that is not wanted gets no unit");
    }

    #[test]
    fn a_program_that_cannot_run_the_services_is_replaced() {
        let units = [unit(&FOLLOW, BOOT_SCRIPTS)];
        let expected = ServiceProgram { path: PACKAGED.into(), kept: Vec::new() };
        assert_eq!(rule(PACKAGED, &units, None), expected);
    }

    #[test]
    fn the_units_start_the_commands_of_the_services() {
        let texts = [
            include_str!("../../../units/kops-agent-follow.service"),
            include_str!("../../../units/kops-agent-controller.service"),
            include_str!("../../../units/kops-agent-addons.service"),
        ];
        for (service, text) in SERVICES.iter().zip(texts) {
            let start = format!("\nExecStart={PACKAGED} {} --", service.command.join(" "));
            assert!(text.contains(&start), "{start:?} is not in {text}");
            let unit = UnitFile { name: service.unit, text: text.to_owned() };
            assert_eq!(unit.program(), Some(Path::new(PACKAGED)));
        }
    }

    #[test]
    fn only_a_kops_agent_with_the_commands_of_the_services_has_a_version() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let answers = |script: &str, mode: &str| {
            let script = format!("#!/bin/sh\ncase \"$*\" in {script} esac\n");
            let mut write = Command::new("sh");
            write.args(["-c", WRITE, &script]).arg(&program).arg(mode);
            assert!(write.status().unwrap().success());
            version_of(&program)
        };
        assert_eq!(version_of(&program), None, "the program is missing");
        let other = "--version) echo 'kops-agent 0.0.1 (other)';;";
        assert_eq!(answers(other, "644"), None, "the program is not executable");
        assert_eq!(answers("*) echo 'nodeup version 1.33.0'; exit 2;;", "755"), None);
        assert_eq!(answers("*) echo 'nodeup version 1.33.0';;", "755"), None);
        assert_eq!(answers(other, "755").as_deref(), Some("0.0.1 (other)"));
        for command in ["fleet follow", "controller", "addons run"] {
            let without = format!("{other} '{command} --help') exit 2;;");
            assert_eq!(answers(&without, "755"), None, "{command}");
        }
    }
}
