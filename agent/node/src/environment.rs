//! The environment variables of a run at boot, for runs that start in another way: a run from a shell must decide the
//! same node. The variables are in files that the units of the agent and of nodeup name.
//!
//! A variable that is neither in the process nor in a file is unknown. Unknown is not the same as empty.
//!
//! Source: nodeup/pkg/bootstrap/install.go; `EnvironmentFile=` in systemd.exec(5).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use kops_agent_host::Reader;
use kops_agent_plan::desired::LOGIN_VARIABLE;
use kops_agent_spec::InstanceGroupRole;
use nix::unistd::geteuid;

/// The environment file of nodeup's unit, with variables for access to the state store and the cloud. It may contain
/// credentials.
pub const OF_NODEUP: &str = "/etc/sysconfig/kops-configuration";
const OF_MACHINE: &str = "/etc/environment";
/// The environment file of the packages' units. Operators write it.
pub const OF_PACKAGE: &str = "/etc/kops-agent/environment";
/// The environment file of the controller's unit. Its variables do not affect the desired state of a node.
const OF_CONTROLLER: &str = "/etc/sysconfig/kops-agent-controller";
/// Maximum size of an environment file, in bytes.
const LONGEST: u64 = 1 << 20;

/// The environment variables of this process and of the agent's units.
#[derive(Clone, Default)]
pub struct Environment {
    of_units: BTreeMap<String, String>,
    is_without_login: bool,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").field("of_units", &self.of_units.keys()).finish()
    }
}

impl Environment {
    /// Reads the environment files of the machine whose files are below `root`. If a file cannot be read, warns and
    /// treats the file as empty.
    pub fn of_machine(root: &Path) -> Environment {
        let reader = Reader::open(root).ok();
        let read = |path: &str| {
            let told = reader.as_ref().map_or(Ok(Vec::new()), |reader| of_file(reader, path));
            told.unwrap_or_else(|why| {
                log::warn!("ignoring a file of environment variables: {why}");
                Vec::new()
            })
        };
        let of_units = [OF_NODEUP, OF_MACHINE, OF_PACKAGE].into_iter().flat_map(read).collect();
        Environment { of_units, is_without_login: false }
    }

    /// Sets the role of the machine. kOps gives cloud logins only to control planes. So on other machines, a missing
    /// login counts as empty and not as unknown.
    pub fn of_role(self, role: InstanceGroupRole) -> Environment {
        Environment { is_without_login: role != InstanceGroupRole::ControlPlane, ..self }
    }

    /// The variables of the agent's units that are not set in this process.
    pub fn beyond_process(&self) -> BTreeMap<String, String> {
        self.beyond(process)
    }

    fn beyond(&self, process: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
        let is_of_units = |(name, _): &(&String, &String)| process(name).is_none();
        self.of_units.iter().filter(is_of_units).map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The value of a variable in this process. If it is not set there, the value in the agent's units.
    pub fn get(&self, name: &str) -> Option<String> {
        self.get_beside(name, process)
    }

    fn get_beside(&self, name: &str, process: impl Fn(&str) -> Option<String>) -> Option<String> {
        process(name).or_else(|| self.of_units.get(name).cloned())
    }

    /// The value of the first variable in `names` that is not empty. All variables come either from this process or from
    /// the agent's units, so that two logins are never mixed. If a login is set but all variables in `names` are empty,
    /// the result is empty. If no login is set, the result is `None`, or empty for a role whose machines need no login.
    pub fn login(&self, names: &[String]) -> Option<String> {
        self.login_beside(names, process)
    }

    fn login_beside(&self, names: &[String], process: impl Fn(&str) -> Option<String>) -> Option<String> {
        let is_set = |value: Option<String>| value.is_some_and(|value| !value.is_empty());
        let is_of_process = is_set(process(LOGIN_VARIABLE));
        if !is_of_process && !is_set(self.of_units.get(LOGIN_VARIABLE).cloned()) {
            return self.is_without_login.then(String::new);
        }
        let source = |name: &String| match is_of_process {
            true => process(name),
            false => self.of_units.get(name).cloned(),
        };
        Some(names.iter().filter_map(source).find(|value| !value.is_empty()).unwrap_or_default())
    }

    pub fn why_no_login() -> String {
        format!(
            "{LOGIN_VARIABLE} is set neither in this run's environment nor in {OF_NODEUP}, so there is no login to the cloud. Set it and \
             the other variables of the login in one of these two places"
        )
    }
}

fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Executes this program again with the environment variables of the agent's units. Does nothing if this process has
/// all of the variables. Variables that are already set do not change.
///
/// Libraries read these variables from the process's environment, which is set when a process starts. So this process
/// executes itself again, with the same process ID.
pub fn run_again_with_all() {
    // Only root can read the units' environment files, because they may contain keys.
    if !geteuid().is_root() {
        return;
    }
    let missing = Environment::of_machine(Path::new("/")).beyond_process();
    if missing.is_empty() {
        return;
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    log::debug!("starting again with these variables of the agent's units: {:?}", missing.keys());
    // `/proc/self/exe` is the running program, even if its file was replaced after the start.
    let failed = Command::new("/proc/self/exe").arg0(name).args(arguments).envs(missing).exec();
    log::warn!(
        "cannot restart kops-agent with the environment variables of its units, so this run ignores these \
         variables: {failed}"
    );
}

/// All variables in the environment files of the agent's units, and in the files `others`. Overridden values are
/// included, because a program may have received them earlier and they may be secret. Also returns why files cannot
/// be read.
pub fn set_by_files(root: &Path, others: &[String]) -> (Vec<(String, String)>, Vec<String>) {
    let Ok(reader) = Reader::open(root) else { return (Vec::new(), Vec::new()) };
    let own = [OF_NODEUP, OF_MACHINE, OF_PACKAGE, OF_CONTROLLER];
    let paths: BTreeSet<&str> = own.into_iter().chain(others.iter().map(String::as_str)).collect();
    let (mut set, mut unread) = (Vec::new(), Vec::new());
    for path in paths {
        match of_file(&reader, path) {
            Ok(variables) => set.extend(variables),
            Err(why) => unread.push(why),
        }
    }
    (set, unread)
}

pub fn of_process() -> Vec<(String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// The variables in a file. A missing file has no variables.
fn of_file(reader: &Reader, path: &str) -> Result<Vec<(String, String)>, String> {
    let text = reader.text(path, LONGEST).map_err(|error| error.to_string())?;
    Ok(variables(&text.unwrap_or_default()))
}

/// The line that sets a variable in an environment file. systemd, [`variables`] and a shell that reads the file
/// (docs/take-over-nodes.md) all read the same value. In double quotes, a backslash escapes the double quote, the
/// backslash, the dollar sign and the backtick (systemd: `parse_env_file_internal` in src/basic/env-file.c), and `%`
/// has no meaning. A plain value has no quotes, as in nodeup's file.
pub fn line(name: &str, value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+=,@%".contains(c);
    if value.chars().all(is_plain) {
        return format!("{name}={value}\n");
    }
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    format!("{name}=\"{escaped}\"\n")
}

/// The variables in the text of a file, in the file's order.
pub fn variables(text: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line_end = rest.find('\n').unwrap_or(rest.len());
        let line = &rest[..line_end];
        let name = line.split_once('=').map(|(name, _)| name.trim());
        let is_comment = line.trim_start().starts_with(['#', ';']);
        match name.filter(|name| !is_comment && !name.is_empty()) {
            None => rest = rest.get(line_end + 1..).unwrap_or_default(),
            Some(name) => {
                let at = line.find('=').unwrap_or_default() + 1;
                let (value, after) = value(&rest[at..]);
                variables.push((name.to_owned(), value));
                rest = after;
            }
        }
    }
    variables
}

/// Parses a value. Returns the value, and the text after the value's last line.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // The length of the value without trailing unquoted spaces.
    let mut kept = 0;
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (None, '\n') => {
                value.truncate(kept);
                return (value, &text[at + 1..]);
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => {
                quote = None;
                kept = value.len();
            }
            (None | Some('"'), '\\') => match chars.next() {
                Some((_, '\n')) | None => {}
                Some((_, escaped)) => {
                    if quote.is_some() && !matches!(escaped, '"' | '\\' | '`' | '$') {
                        value.push('\\');
                    }
                    value.push(escaped);
                    kept = value.len();
                }
            },
            (None, c) if c.is_whitespace() => {
                if kept > 0 {
                    value.push(c);
                }
            }
            (_, c) => {
                value.push(c);
                kept = value.len();
            }
        }
    }
    value.truncate(kept);
    (value, "")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::process::Command;

    use super::*;

    fn machine(of_nodeup: &str, of_machine: &str) -> Environment {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/sysconfig")).unwrap();
        fs::write(root.path().join("etc/sysconfig/kops-configuration"), of_nodeup).unwrap();
        fs::write(root.path().join("etc/environment"), of_machine).unwrap();
        Environment::of_machine(root.path())
    }

    fn no_process(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn files_are_read_as_systemd_reads_them() {
        let text =
            "# A=1\n;B=2\nC=a b  \nD=\"a \\\"b\\\" \\n\"\nE='a\\b'\nF=\nnothing\nG=a\\\\b\\\n c\n H = x#y";
        let expected =
            [("C", "a b"), ("D", "a \"b\" \\n"), ("E", "a\\b"), ("F", ""), ("G", "a\\b c"), ("H", "x#y")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables(text), expected);
        assert_eq!(variables(""), []);
    }

    #[test]
    fn a_written_value_is_read_unchanged_by_the_agent_and_a_shell() {
        for value in [
            "",
            "AKIA/b+c=",
            "a\\b\\\\c\\",
            "it's \"quoted\"",
            "'",
            "\"",
            " both ends ",
            "#no comment",
            "$HOME `id` %n",
            "two\nlines\\\n",
            "~/a",
            "ümlaut\t",
        ] {
            let text = format!("A=1\n{}B=2\n", line("KEY", value));
            let expected =
                [("A", "1"), ("KEY", value), ("B", "2")].map(|(name, value)| (name.into(), value.into()));
            assert_eq!(variables(&text), expected, "{text}");
            let told = Command::new("/bin/sh")
                .args(["-euc", &format!("{text}printf %s \"$KEY\"")])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(told.stdout).unwrap(), value, "{text}");
        }
        assert_eq!(line("KEY", "https://a.example.com:9000/b"), "KEY=https://a.example.com:9000/b\n");
    }

    #[test]
    fn the_process_comes_before_the_machine_and_that_before_nodeup() {
        let environment = machine("A=nodeup\nB=nodeup\nC=nodeup\n", "A=machine\nB=machine\n");
        let process = |name: &str| (name == "A").then(|| "process".to_owned());
        let get = |name| environment.get_beside(name, process);
        assert_eq!(get("A").as_deref(), Some("process"));
        assert_eq!(get("B").as_deref(), Some("machine"));
        assert_eq!(get("C").as_deref(), Some("nodeup"));
        let beyond: Vec<_> = environment.beyond(process).into_iter().collect();
        assert_eq!(
            beyond,
            [("B", "machine"), ("C", "nodeup")].map(|(name, value)| (name.into(), value.into()))
        );
        assert_eq!(get("D"), None);
        assert_eq!(Environment::of_machine(Path::new("/nowhere")).get_beside("A", no_process), None);
    }

    #[test]
    fn for_a_report_all_values_of_a_variable_are_read() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            (OF_NODEUP, "OS_PASSWORD=rotated\n"),
            (OF_MACHINE, "OS_PASSWORD=new\n"),
            (OF_CONTROLLER, "A_TOKEN=of-the-controller\n"),
            ("/etc/default/other", "B=2\n"),
        ] {
            let file = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        nix::unistd::mkfifo(&root.path().join("etc/fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let others = ["/etc/default/other".to_owned(), "/etc/fifo".to_owned()];
        let (set, unread) = set_by_files(root.path(), &others);
        let mut values: Vec<&str> = set.iter().map(|(_, value)| value.as_str()).collect();
        values.sort_unstable();
        assert_eq!(values, ["2", "new", "of-the-controller", "rotated"]);
        assert!(unread.len() == 1 && unread[0].contains("no regular file"), "{unread:?}");
    }

    #[test]
    fn a_login_is_whole_or_unknown() {
        let login = |environment: &Environment, process: &[(&str, &str)], name: &str| {
            let process = |name: &str| {
                process.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            };
            environment.login_beside(&[name.to_owned()], process)
        };
        let nodeups = machine("OS_AUTH_URL=https://a\nOS_USERNAME=a\n", "");
        assert_eq!(login(&nodeups, &[], "OS_USERNAME").as_deref(), Some("a"));
        assert_eq!(login(&nodeups, &[], "OS_PASSWORD").as_deref(), Some(""), "it logs in otherwise");
        let other = [("OS_AUTH_URL", "https://b")];
        assert_eq!(login(&nodeups, &other, "OS_USERNAME").as_deref(), Some(""), "it is another login's");
        let nothing = machine("AWS_REGION=x\n", "");
        assert_eq!(login(&nothing, &[("OS_USERNAME", "a")], "OS_USERNAME"), None);
        let api_servers = nothing.of_role(InstanceGroupRole::APIServer);
        assert_eq!(login(&api_servers, &[], "OS_USERNAME").as_deref(), Some(""), "kOps gives it none");
        let given = nodeups.of_role(InstanceGroupRole::Node);
        assert_eq!(login(&given, &[], "OS_USERNAME").as_deref(), Some("a"));
    }
}
