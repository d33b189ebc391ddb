//! Sets the kernel parameters of the agent's own files, one by one. If another file overrides one of them, a warning
//! names that file.
//!
//! Upstream runs `sysctl --system`. That sets the parameters of every file on the machine, and fails if one of them
//! cannot be set, even another program's. Files are read in the order of sysctl.d(5): if a later file sets a
//! parameter at every boot, the agent leaves the parameter to that file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::root::Root;
use crate::stamps::Stamp;

/// The folders of sysctl.d(5). If several folders have a file of the same name, the first folder wins.
const FOLDERS: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];
/// sysctl(8) reads this file last. On Debian, systemd reads it too, through a link in `/etc/sysctl.d`.
const LAST: &str = "/etc/sysctl.conf";

/// Upstream's command, which sets the parameters of every file.
pub(super) const COMMAND: [&str; 2] = ["sysctl", "--system"];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// The path below `/proc/sys`. It may contain `*`.
    path: String,
    value: String,
    /// Whether a failure to set the parameter is ignored.
    is_optional: bool,
}

/// The path of a file, and its settings.
type Settings = (String, Vec<Setting>);

/// Sets the kernel parameters in `files`. `proc_sys` is the folder of the kernel parameters.
pub(super) fn set(root: &Root, files: &[&str], proc_sys: &Path, progress: &dyn Progress) -> Result<()> {
    let all = in_order(root)?;
    for (at, (file, settings)) in
        all.iter().enumerate().filter(|(_, (file, _))| files.contains(&file.as_str()))
    {
        for (line, setting) in settings.iter().enumerate() {
            let found = expand(proc_sys, &setting.path);
            if found.is_empty() && !setting.path.contains('*') {
                progress.warned(&format!(
                    "{file}: this kernel has no parameter {}; a kernel module may be missing; this run continues without the parameter",
                    dotted(&setting.path)
                ));
            }
            for path in found {
                match winner(&all, at, line, &path) {
                    None => write(proc_sys, file, &path, setting, progress)?,
                    Some((_, winner)) if winner.value == setting.value => {
                        write(proc_sys, file, &path, setting, progress)?;
                    }
                    Some((winning, _)) if winning == file => {}
                    Some((winning, winner)) => progress.warned(&format!(
                        "{file} sets {name} to {}, but {winning} is read later and sets it to {}, which \
                         stays in effect; remove {name} from one of the two files",
                        setting.value,
                        winner.value,
                        name = dotted(&path)
                    )),
                }
            }
        }
        let others = others(&all, at, proc_sys);
        let noted: Vec<String> = others.iter().map(|(path, value)| format!("{path} {value}")).collect();
        let noted = (!noted.is_empty()).then(|| noted.join("\n"));
        Stamp::Parameters.put_back(root, file, noted.as_deref())?;
    }
    Ok(())
}

/// The parameters in `text` that the kernel does not have. Optional parameters and patterns with `*` are left out.
pub fn missing(text: &str, proc_sys: &Path) -> Vec<String> {
    let settings =
        parse(text).into_iter().filter(|setting| !setting.is_optional && !setting.path.contains('*'));
    settings
        .filter(|setting| !proc_sys.join(&setting.path).is_file())
        .map(|setting| dotted(&setting.path))
        .collect()
}

/// Whether a parameter in `file` has drifted. The kernel rounds or reformats some values. So a value that the kernel
/// showed after the last `set` is no drift. Patterns with `*` are left out, because network interfaces come and go.
pub(super) fn differ(root: &Root, file: &str, proc_sys: &Path) -> Result<bool> {
    let all = in_order(root)?;
    let Some(at) = all.iter().position(|(path, _)| path == file) else { return Ok(false) };
    let others = others(&all, at, proc_sys);
    if others.is_empty() {
        return Ok(false);
    }
    let noted = Stamp::Parameters.read(root, file)?.unwrap_or_default();
    Ok(others.iter().any(|(path, value)| !noted.lines().any(|line| line == format!("{path} {value}"))))
}

/// The parameters whose kernel value differs from the file, with the kernel's value. Parameters that a later file
/// overrides are left out.
fn others(all: &[Settings], at: usize, proc_sys: &Path) -> Vec<(String, String)> {
    let mut others = Vec::new();
    for (line, setting) in all[at].1.iter().enumerate().filter(|(_, setting)| !setting.path.contains('*')) {
        // A parameter that cannot be read is skipped: some parameters are write-only.
        let Ok(present) = std::fs::read_to_string(proc_sys.join(&setting.path)) else { continue };
        let is_left =
            winner(all, at, line, &setting.path).is_some_and(|(_, winner)| winner.value != setting.value);
        if !is_left && plain(&present) != setting.value {
            others.push((setting.path.clone(), plain(&present)));
        }
    }
    others
}

/// The setting that overrides line `line` of file number `at`: the last one of all later settings for the parameter
/// `path`. `None` if no later setting overrides this line.
fn winner<'a>(all: &'a [Settings], at: usize, line: usize, path: &str) -> Option<(&'a str, &'a Setting)> {
    let again = all[at].1[line + 1..].iter().map(|later| (all[at].0.as_str(), later));
    let later = all[at + 1..]
        .iter()
        .flat_map(|(file, settings)| settings.iter().map(move |later| (file.as_str(), later)));
    again.chain(later).rfind(|(_, later)| matches(&later.path, path))
}

/// All sysctl.d(5) files, in the order in which they are read.
fn in_order(root: &Root) -> Result<Vec<Settings>> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        let Some(dir) = root.dir(folder)? else { continue };
        for name in dir.names()?.into_iter().filter(|name| name.ends_with(".conf") && !name.starts_with('.'))
        {
            by_name.entry(name.clone()).or_insert_with(|| format!("{folder}/{name}"));
        }
    }
    let mut files = Vec::new();
    for path in by_name.into_values().chain([LAST.to_owned()]) {
        if let Some(bytes) = root.read(&path)? {
            files.push((path, parse(&String::from_utf8_lossy(&bytes))));
        }
    }
    Ok(files)
}

fn parse(text: &str) -> Vec<Setting> {
    let line = |line: &str| {
        let line = line.trim();
        if line.starts_with(['#', ';']) {
            return None;
        }
        // A name without a value excludes a parameter from patterns with `*`. Only systemd-sysctl follows this rule, at
        // boot, so the agent ignores the line.
        let (name, value) = line.split_once('=')?;
        let (name, is_optional) = match name.trim().strip_prefix('-') {
            Some(name) => (name.trim_start(), true),
            None => (name.trim(), false),
        };
        Some(Setting { path: slashed(name), value: plain(value), is_optional })
    };
    text.lines().filter_map(line).collect()
}

/// Converts the name of a parameter to its path. The separator of the name is `.` or `/`, whichever comes first in the
/// name. The other one is an ordinary character of the name.
fn slashed(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'.' => swapped(name),
        _ => name.to_owned(),
    }
}

/// The name of a parameter with `.` as separator.
fn dotted(path: &str) -> String {
    swapped(path)
}

fn swapped(name: &str) -> String {
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// A value with single spaces in place of tabs, because the kernel separates numbers by tabs.
fn plain(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The existing parameters that match a pattern.
fn expand(proc_sys: &Path, pattern: &str) -> Vec<String> {
    if !pattern.contains('*') {
        return if proc_sys.join(pattern).is_file() { vec![pattern.to_owned()] } else { vec![] };
    }
    let mut found = vec![String::new()];
    for part in pattern.split('/') {
        let below = |above: &String| -> Vec<String> {
            let join =
                |name: &str| if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            if !part.contains('*') {
                return vec![join(part)];
            }
            let entries = std::fs::read_dir(proc_sys.join(above)).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let mut names: Vec<String> = names.filter(|name| matches_part(part, name)).collect();
            names.sort();
            names.iter().map(|name| join(name)).collect()
        };
        found = found.iter().flat_map(below).collect();
    }
    found.retain(|path| proc_sys.join(path).is_file());
    found
}

fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    pattern.len() == path.len() && pattern.iter().zip(path).all(|(pattern, name)| matches_part(pattern, name))
}

/// Whether a name matches a part of a pattern. The part may contain `*`.
fn matches_part(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            (0..=rest.len())
                .filter(|at| rest.is_char_boundary(*at))
                .any(|at| matches_part(after, &rest[at..]))
        }),
    }
}

fn write(proc_sys: &Path, file: &str, path: &str, setting: &Setting, progress: &dyn Progress) -> Result<()> {
    let target: PathBuf = proc_sys.join(path);
    // Some parameters are write-only, so a failed read is no error.
    if std::fs::read_to_string(&target).is_ok_and(|present| plain(&present) == setting.value) {
        return Ok(());
    }
    let Err(error) = std::fs::write(&target, format!("{}\n", setting.value)) else { return Ok(()) };
    let failed = Error::Path {
        doing: "set the kernel parameter",
        path: format!("{} to {}, as {file} says", dotted(path), setting.value),
        reason: crate::error::explain(&error),
    };
    if setting.is_optional {
        progress.warned(&failed.to_string());
        return Ok(());
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    const OURS: &str = "/etc/sysctl.d/99-k8s-general.conf";

    #[derive(Default)]
    struct Said(Mutex<Vec<String>>);

    impl Progress for Said {
        fn warned(&self, what: &str) {
            self.0.lock().push(what.to_owned());
        }
    }

    /// A root directory with sysctl files. Its kernel parameters are below `proc/sys`.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn with(files: &[(&str, &str)], parameters: &[(&str, &str)]) -> Machine {
            let folder = tempfile::tempdir().unwrap();
            let parameters = parameters.iter().map(|(path, value)| (format!("/proc/sys/{path}"), *value));
            for (path, text) in files.iter().map(|(path, text)| ((*path).to_owned(), *text)).chain(parameters)
            {
                let path = folder.path().join(path.trim_start_matches('/'));
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            Machine(folder)
        }

        fn set(&self) -> (Result<()>, Vec<String>) {
            let said = Said::default();
            let root = Root::open(self.0.path()).unwrap();
            let ended = set(&root, &[OURS], &self.0.path().join("proc/sys"), &said);
            (ended, said.0.into_inner())
        }

        fn value(&self, path: &str) -> String {
            std::fs::read_to_string(self.0.path().join("proc/sys").join(path)).unwrap().trim().to_owned()
        }
    }

    #[test]
    fn only_the_agents_parameters_are_set() {
        let machine = Machine::with(
            &[
                (OURS, "# text\n; text\nvm.max_map_count = 1048576\nnet.ipv4.tcp_wmem = 4096 87380\n"),
                ("/etc/sysctl.d/10-theirs.conf", "kernel.no_such = 1\nkernel.panic = 60\n"),
            ],
            &[
                ("vm/max_map_count", "65530\n"),
                ("net/ipv4/tcp_wmem", "4096\t87380\n"),
                ("kernel/panic", "0\n"),
            ],
        );
        let (ended, said) = machine.set();
        ended.unwrap();
        assert_eq!(
            (machine.value("vm/max_map_count").as_str(), machine.value("kernel/panic").as_str()),
            ("1048576", "0")
        );
        // A parameter that already has the value is not written.
        assert_eq!(machine.value("net/ipv4/tcp_wmem"), "4096\t87380");
        assert_eq!(said, [""; 0]);
    }

    #[test]
    fn a_later_file_wins_and_is_named() {
        let machine = Machine::with(
            &[
                (OURS, "vm.a = 1\nvm.b = 1\nvm.c = 1\nvm.d = 1\nvm.d = 2\nvm.e = 1\n"),
                ("/usr/lib/sysctl.d/99-zz.conf", "vm/a = 7\nvm.b = 1\nvm.e = 5\n"),
                // This file masks the distribution's file of the same name.
                ("/etc/sysctl.d/99-zz.conf", "vm/a = 8\nvm.b = 1\n"),
                ("/run/sysctl.d/10-before.conf", "vm.c = 9\n"),
                (LAST, "vm.? = 9\n"),
            ],
            &[("vm/a", "0"), ("vm/b", "0"), ("vm/c", "0"), ("vm/d", "0"), ("vm/e", "0")],
        );
        let (ended, said) = machine.set();
        ended.unwrap();
        assert_eq!(
            ["a", "b", "c", "d", "e"].map(|name| machine.value(&format!("vm/{name}"))),
            ["0", "1", "1", "2", "1"]
        );
        assert_eq!(
            said,
            ["/etc/sysctl.d/99-k8s-general.conf sets vm.a to 1, but /etc/sysctl.d/99-zz.conf is read later \
              and sets it to 8, which stays in effect; remove vm.a from one of the two files"]
        );
    }

    #[test]
    fn a_changed_value_is_drift_and_a_value_that_the_kernel_rounded_is_not() {
        let machine = Machine::with(
            &[
                (OURS, "vm.a = 1\nvm.b = 1\nvm.gone = 1\n-vm.rounded = none\nnet.*.c = 1\n"),
                ("/etc/sysctl.d/99-zz.conf", "vm.b = 2\n"),
            ],
            &[("vm/a", "0"), ("vm/b", "0"), ("net/x/c", "0")],
        );
        // A link to a real kernel parameter. The kernel rejects the value `none`, so the parameter still differs from
        // the file.
        let rounded = machine.0.path().join("proc/sys/vm/rounded");
        std::os::unix::fs::symlink("/proc/self/oom_score_adj", &rounded).unwrap();
        let root = Root::open(machine.0.path()).unwrap();
        let differs = || differ(&root, OURS, &machine.0.path().join("proc/sys")).unwrap();
        assert!(differs(), "before the first set, every value is drift");
        machine.set().0.unwrap();
        assert!(!differs());
        let write = |path: &str, value: &str| {
            std::fs::write(machine.0.path().join("proc/sys").join(path), value).unwrap();
        };
        write("vm/b", "3");
        write("net/x/c", "3");
        assert!(!differs(), "parameters of other files and patterns are no drift");
        write("vm/a", "3\n");
        assert!(differs());
        machine.set().0.unwrap();
        assert_eq!(machine.value("vm/a"), "1");
        assert!(!differs());
        std::fs::remove_file(&rounded).unwrap();
        write("vm/rounded", "7");
        assert!(differs(), "the value differs from the file and from the value after the last set");
    }

    #[test]
    fn a_star_matches_existing_interfaces() {
        let machine = Machine::with(
            &[(
                OURS,
                "net.ipv4.conf.lxc*.rp_filter=0\nnet.ipv4.conf.eth0/5.rp_filter=0\nnet.ipv4.conf.no*.rp_filter=0\n",
            )],
            &[
                ("net/ipv4/conf/lxc1/rp_filter", "1"),
                ("net/ipv4/conf/lxc2/rp_filter", "1"),
                ("net/ipv4/conf/eth0/rp_filter", "1"),
                ("net/ipv4/conf/eth0.5/rp_filter", "1"),
            ],
        );
        let (ended, said) = machine.set();
        ended.unwrap();
        let value = |name: &str| machine.value(&format!("net/ipv4/conf/{name}/rp_filter"));
        assert_eq!(["lxc1", "lxc2", "eth0", "eth0.5"].map(value), ["0", "0", "1", "0"]);
        assert_eq!(said, [""; 0]);
    }

    #[test]
    fn a_missing_parameter_is_a_warning_and_a_refused_value_is_an_error() {
        let machine =
            Machine::with(&[(OURS, "net.bridge.bridge-nf-call-iptables = 1\nvm.a = 1\n")], &[("vm/a", "0")]);
        let (ended, said) = machine.set();
        ended.unwrap();
        assert!(said[0].contains("no parameter net.bridge.bridge-nf-call-iptables"), "{said:?}");
        assert_eq!(machine.value("vm/a"), "1");

        // A link to a real kernel parameter, which rejects the value `none`.
        for (line, fails) in [("vm.refused = none\n", true), ("-vm.refused = none\n", false)] {
            let machine = Machine::with(&[(OURS, line)], &[("vm/a", "0")]);
            std::os::unix::fs::symlink(
                "/proc/self/oom_score_adj",
                machine.0.path().join("proc/sys/vm/refused"),
            )
            .unwrap();
            let (ended, said) = machine.set();
            let problem = ended.err().map(|error| error.to_string()).into_iter().chain(said).next().unwrap();
            assert!(
                problem.contains("vm.refused to none, as /etc/sysctl.d/99-k8s-general.conf says"),
                "{problem}"
            );
            assert_eq!(machine.set().0.is_err(), fails);
        }
    }
}
