//! The variables that a run at boot has in its environment, for a run that was started otherwise: from a shell that has
//! none of them a machine must be decided no other way. They are in the files that the agent's units name, and nodeup's.
//!
//! What is in neither place is not known, which is something else than empty.
//!
//! Source: nodeup/pkg/bootstrap/install.go; `EnvironmentFile=` in systemd.exec(5).

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use kops_agent_spec::InstanceGroupRole;

/// What nodeup's unit needs to reach the state store and the cloud; there may be credentials in it.
pub const OF_NODEUP: &str = "/etc/sysconfig/kops-configuration";
/// The whole machine's.
const OF_MACHINE: &str = "/etc/environment";
/// The packages', for operators to write in.
const OF_PACKAGE: &str = "/etc/kops-agent/environment";

/// Is set with every login to OpenStack, whatever else that takes: kOps passes on all of a login where this is set
/// (`buildEnvironmentVariables` in pkg/model/resources/nodeup.go).
const OPENSTACK_LOGIN: &str = "OS_AUTH_URL";

/// The variables of this process, and those that the agent's units are given.
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
    /// That of a machine whose files are below `root`. A file that cannot be read tells nothing.
    pub fn of_machine(root: &Path) -> Environment {
        let texts = [OF_NODEUP, OF_MACHINE, OF_PACKAGE].map(|path| read(root, path));
        let of_units = texts.iter().flat_map(|text| variables(text)).collect();
        Environment { of_units, is_without_login: false }
    }

    /// The same for a machine of this role: kOps gives a login to the control plane only, so elsewhere none that is set is
    /// none that there is.
    pub fn of_role(self, role: InstanceGroupRole) -> Environment {
        Environment { is_without_login: role != InstanceGroupRole::ControlPlane, ..self }
    }

    /// All variables of this process and of the agent's units, those of units before those of the process.
    pub fn all(&self) -> Vec<(String, String)> {
        let of_process = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        self.of_units.clone().into_iter().chain(of_process).collect()
    }

    /// A variable of this process, or else of the agent's units.
    pub fn get(&self, name: &str) -> Option<String> {
        self.get_beside(name, process)
    }

    fn get_beside(&self, name: &str, process: impl Fn(&str) -> Option<String>) -> Option<String> {
        process(name).or_else(|| self.of_units.get(name).cloned())
    }

    /// The first of these variables of a login to OpenStack that has a value; empty where none has. `None` where there is
    /// no login that is known: parts of two are never put together.
    pub fn openstack_login(&self, names: &[String]) -> Option<String> {
        self.openstack_login_beside(names, process)
    }

    fn openstack_login_beside(
        &self,
        names: &[String],
        process: impl Fn(&str) -> Option<String>,
    ) -> Option<String> {
        let is_set = |value: Option<String>| value.is_some_and(|value| !value.is_empty());
        let is_of_process = is_set(process(OPENSTACK_LOGIN));
        if !is_of_process && !is_set(self.of_units.get(OPENSTACK_LOGIN).cloned()) {
            return self.is_without_login.then(String::new);
        }
        let source = |name: &String| match is_of_process {
            true => process(name),
            false => self.of_units.get(name).cloned(),
        };
        Some(names.iter().filter_map(source).find(|value| !value.is_empty()).unwrap_or_default())
    }

    /// Why there is no login to OpenStack, and what to do.
    pub fn why_no_openstack_login() -> String {
        format!(
            "{OPENSTACK_LOGIN} is set neither in this run's environment nor in {OF_NODEUP}, so how to log in to OpenStack is \
             not known; set it and what belongs to it in either"
        )
    }
}

fn process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn read(root: &Path, path: &str) -> String {
    let file = root.join(path.trim_start_matches('/'));
    std::fs::read_to_string(&file).unwrap_or_else(|error| {
        if error.kind() != ErrorKind::NotFound {
            log::warn!("what {} sets is not known: {error}", file.display());
        }
        String::new()
    })
}

/// The variables that a file sets, in its order.
fn variables(text: &str) -> Vec<(String, String)> {
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

/// A value, and what follows its line.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    // Spaces that nothing has quoted end with the line.
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
    fn the_process_comes_before_the_machine_and_that_before_nodeup() {
        let environment = machine("A=nodeup\nB=nodeup\nC=nodeup\n", "A=machine\nB=machine\n");
        let process = |name: &str| (name == "A").then(|| "process".to_owned());
        let get = |name| environment.get_beside(name, process);
        assert_eq!(get("A").as_deref(), Some("process"));
        assert_eq!(get("B").as_deref(), Some("machine"));
        assert_eq!(get("C").as_deref(), Some("nodeup"));
        assert_eq!(get("D"), None);
        assert_eq!(Environment::of_machine(Path::new("/nowhere")).get_beside("A", no_process), None);
    }

    #[test]
    fn a_login_is_whole_or_unknown() {
        let login = |environment: &Environment, process: &[(&str, &str)], name: &str| {
            let process = |name: &str| {
                process.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
            };
            environment.openstack_login_beside(&[name.to_owned()], process)
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
