//! The program that the agent's own services run. A machine may have two programs: kOps' boot script brings one, and a package brings
//! another.
//!
//! All services of the agent on a machine run one of these programs. Both programs use the same rule to choose it. If the program that
//! the units name exists and is kops-agent, the units stay. Otherwise the units get the program that decides the node. So neither program
//! changes the units that start the other program.
//!
//! A unit counts only if a run of kops-agent wrote it and it is unchanged. So a change by hand is drift, and a run repairs the unit. The
//! rule reads the other program and never runs it: the writer of a unit below a foreign root must not get the rights of this process.
//!
//! An order of a rollout does not need the rule: the process of the service that follows rollouts replaces its own program.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result};
use kops_agent_host::{LARGEST_PROGRAM, Reader};
use kops_agent_plan::desired::{ADDONS_UNIT, CONTROLLER_UNIT, FOLLOW_UNIT};
use kops_agent_plan::resource::DesiredState;
use kops_agent_process::program;
use kops_agent_spec::digest::sha256_hex_of;

use super::machine;

/// The units of the services. All services run the program of the first unit whose program is usable. `FOLLOW_UNIT` comes first, because a
/// rollout replaces the program of this unit.
const UNITS: [&str; 3] = [FOLLOW_UNIT, CONTROLLER_UNIT, ADDONS_UNIT];
/// A text that every kops-agent contains, and nodeup does not.
const MARK: &str = FOLLOW_UNIT;
/// The maximum size of a unit, in bytes. A larger unit was changed by hand.
const LARGEST_UNIT: u64 = 64 << 10;
/// The size of the header that describes the format and the machine architecture of a program, in bytes (elf(5): `e_ident`, `e_type`,
/// `e_machine`).
const HEADER: usize = 20;

#[derive(Debug, PartialEq, Eq)]
pub struct ServiceProgram {
    pub path: PathBuf,
    /// The units that start `path`, if `path` is a different build than this program.
    kept: Vec<UnitFile>,
}

/// The build of a program that can run the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    /// The file has the bytes of this program.
    This,
    Other,
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
    /// The program for the services of the machine below `root`. Even if `root` is a scratch root, the program is a file of this machine,
    /// and not a file below `root`.
    pub fn of_machine(root: &Path) -> Result<ServiceProgram> {
        let this = program::path().context("finding the path of this program")?;
        Ok(decided(&this, units(root)?, build_of))
    }

    /// Leaves the units of a different build of kops-agent unchanged, because this build may write these units differently.
    pub fn keep_units(self, desired: &mut DesiredState) {
        let ServiceProgram { path, kept } = self;
        for UnitFile { name, text } in kept {
            log::info!(
                "{name} stays as it is, because it runs {}, which is a different build of kops-agent",
                path.display()
            );
            desired.replace_unit_text(name, text);
        }
    }
}

/// Whether the services of the machine below `root` start this program. Also `true` if the units of the services name no usable program.
/// Reads the present texts of the units, because a unit that was changed by hand starts the program in its changed text until a run repairs
/// the unit.
pub fn is_this_program(root: &Path) -> Result<bool> {
    let this = program::path().context("finding the path of this program")?;
    let reader = Reader::open(root)?;
    let present = |name: &'static str| {
        let text = reader.text(&format!("/etc/systemd/system/{name}"), LARGEST_UNIT).ok()??;
        Some(UnitFile { name, text })
    };
    Ok(decided(&this, UNITS.into_iter().filter_map(present).collect(), build_of).path == this)
}

/// Decides the program of the services: the first usable program that a unit names, or else this program. `this` is the path of this
/// program. `build_of` returns the build of a program that can run the services.
fn decided(this: &Path, units: Vec<UnitFile>, build_of: impl Fn(&Path) -> Option<Build>) -> ServiceProgram {
    let usable = |path: &Path| -> Option<(PathBuf, Build)> {
        let build = if path == this { Build::This } else { build_of(path)? };
        Some((path.to_owned(), build))
    };
    let named = units.iter().filter_map(UnitFile::program).find_map(usable);
    let (path, build) = named.unwrap_or_else(|| (this.to_owned(), Build::This));
    let is_kept = |unit: &UnitFile| build == Build::Other && unit.program() == Some(path.as_path());
    let kept: Vec<UnitFile> = units.into_iter().filter(is_kept).collect();
    ServiceProgram { path, kept }
}

/// The units on the machine below `root` that have not changed since a run of kops-agent wrote them, in the order of [`UNITS`].
fn units(root: &Path) -> Result<Vec<UnitFile>> {
    if !machine::has_record(root) {
        return Ok(Vec::new());
    }
    let units =
        machine::open(root)?.units_as_left(&UNITS).context("reading the units of the agent's services")?;
    Ok(units.into_iter().map(|(name, text)| UnitFile { name, text }).collect())
}

/// The build of a program. `None` if the file is missing, cannot be read or executed, is for another architecture, or is not kops-agent.
fn build_of(path: &Path) -> Option<Build> {
    let file = fs::metadata(path).ok()?;
    if !file.is_file() || file.permissions().mode() & 0o111 == 0 || file.len() > LARGEST_PROGRAM {
        return None;
    }
    if header_of(path).ok()? != header_of(Path::new("/proc/self/exe")).ok()? {
        return None;
    }
    if sha256_hex_of(File::open(path).ok()?).ok()? == program::sha256().ok()? {
        return Some(Build::This);
    }
    let mark = AhoCorasick::new([MARK]).ok()?;
    mark.stream_find_iter(File::open(path).ok()?).next()?.ok()?;
    Some(Build::Other)
}

fn header_of(path: &Path) -> io::Result<[u8; HEADER]> {
    let mut header = [0; HEADER];
    File::open(path)?.read_exact(&mut header)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::Permissions;

    use kops_agent_plan::resource::Unit;

    use super::*;

    const BOOT_SCRIPTS: &str = "/opt/kops/bin/nodeup";
    const PACKAGED: &str = "/usr/bin/kops-agent";

    fn unit(name: &'static str, program: &str) -> UnitFile {
        UnitFile { name, text: format!("[Service]\nExecStart={program} --flag\n") }
    }

    /// Calls [`decided`] for a program at `this`. `others` is the build of every other program.
    fn rule(this: &str, units: &[UnitFile], others: Option<Build>) -> ServiceProgram {
        decided(Path::new(this), units.to_vec(), |_| others)
    }

    #[test]
    fn both_programs_choose_the_program_that_the_units_name() {
        for named in [BOOT_SCRIPTS, PACKAGED] {
            for name in UNITS {
                let units = [unit(name, named)];
                for this in [BOOT_SCRIPTS, PACKAGED] {
                    let expected = ServiceProgram { path: named.into(), kept: Vec::new() };
                    assert_eq!(rule(this, &units, Some(Build::This)), expected, "{this}");
                }
            }
        }
        assert_eq!(
            rule(PACKAGED, &[], Some(Build::This)).path,
            Path::new(PACKAGED),
            "no unit names a program"
        );
        let masked = UnitFile { name: FOLLOW_UNIT, text: String::new() };
        assert_eq!(rule(PACKAGED, &[masked], Some(Build::This)).path, Path::new(PACKAGED));
    }

    #[test]
    fn the_program_that_follows_rollouts_runs_the_other_services_too() {
        let units = [unit(FOLLOW_UNIT, BOOT_SCRIPTS), unit(ADDONS_UNIT, PACKAGED)];
        for this in [BOOT_SCRIPTS, PACKAGED] {
            assert_eq!(rule(this, &units, Some(Build::This)).path, Path::new(BOOT_SCRIPTS));
        }
    }

    #[test]
    fn only_the_units_of_another_build_keep_their_texts() {
        let units = [unit(FOLLOW_UNIT, BOOT_SCRIPTS), unit(CONTROLLER_UNIT, PACKAGED)];
        let decided = rule(PACKAGED, &units, Some(Build::Other));
        assert_eq!(decided, ServiceProgram { path: BOOT_SCRIPTS.into(), kept: vec![units[0].clone()] });
        let own = rule(BOOT_SCRIPTS, &units, Some(Build::Other));
        assert_eq!(own, ServiceProgram { path: BOOT_SCRIPTS.into(), kept: Vec::new() });
    }

    #[test]
    fn a_kept_text_replaces_the_text_of_this_build() {
        let mut desired = DesiredState::default();
        desired.add(Unit::new(FOLLOW_UNIT, "of this build"));
        let units = [unit(FOLLOW_UNIT, BOOT_SCRIPTS), unit(ADDONS_UNIT, BOOT_SCRIPTS)];
        rule(PACKAGED, &units, Some(Build::Other)).keep_units(&mut desired);
        let mut expected = DesiredState::default();
        expected.add(Unit::new(FOLLOW_UNIT, units[0].text.clone()));
        assert_eq!(desired, expected, "a service that is not wanted gets no unit");
    }

    #[test]
    fn a_program_that_cannot_run_the_services_is_replaced() {
        let units = [unit(FOLLOW_UNIT, BOOT_SCRIPTS)];
        let expected = ServiceProgram { path: PACKAGED.into(), kept: Vec::new() };
        assert_eq!(rule(PACKAGED, &units, None), expected);
    }

    #[test]
    fn the_program_of_each_packaged_unit_is_found() {
        let texts = [
            include_str!("../../../units/kops-agent-follow.service"),
            include_str!("../../../units/kops-agent-controller.service"),
            include_str!("../../../units/kops-agent-addons.service"),
        ];
        for (name, text) in UNITS.into_iter().zip(texts) {
            let unit = UnitFile { name, text: text.to_owned() };
            assert_eq!(unit.program(), Some(Path::new(PACKAGED)), "{name}");
        }
    }

    #[test]
    fn only_an_executable_kops_agent_has_a_build() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let build = |content: &[u8], mode: u32| {
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            build_of(&path)
        };
        assert_eq!(build_of(&path), None, "the program is missing");
        assert_eq!(build_of(folder.path()), None, "a folder is no program");
        let header = header_of(Path::new("/proc/self/exe")).unwrap();
        let other = [&header[..], b" another build with ", MARK.as_bytes()].concat();
        assert_eq!(build(&other, 0o644), None, "the program is not executable");
        assert_eq!(build(&other, 0o755), Some(Build::Other));
        assert_eq!(build(&[&header[..], b" nodeup"].concat(), 0o755), None);
        assert_eq!(build(MARK.as_bytes(), 0o755), None, "the file has another format");
        assert_eq!(build(b"", 0o755), None, "the power was cut before the content was written");
        assert_eq!(build_of(Path::new("/proc/self/exe")), Some(Build::This));
        File::options().write(true).open(&path).unwrap().set_len(LARGEST_PROGRAM + 1).unwrap();
        assert_eq!(build_of(&path), None, "the file is too large");
    }

    #[test]
    fn units_count_only_as_a_run_left_them() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/systemd/system");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(FOLLOW_UNIT), unit(FOLLOW_UNIT, BOOT_SCRIPTS).text).unwrap();
        assert_eq!(units(root.path()).unwrap(), [], "no run has written the unit");
        let record = root.path().join("var/lib/kops-agent/record.json");
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, "{}").unwrap();
        assert!(machine::has_record(root.path()));
        assert_eq!(units(root.path()).unwrap(), [], "the record does not name the unit");
        assert!(is_this_program(root.path()).unwrap(), "the program of the unit is missing");
        let other = root.path().join("program");
        let header = header_of(Path::new("/proc/self/exe")).unwrap();
        fs::write(&other, [&header[..], MARK.as_bytes()].concat()).unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join(FOLLOW_UNIT), unit(FOLLOW_UNIT, other.to_str().unwrap()).text).unwrap();
        assert!(!is_this_program(root.path()).unwrap(), "a changed unit starts the program that it names");
    }
}
