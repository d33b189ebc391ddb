//! SELinux labels of the files that the agent makes, from the policy of their root. Without a policy, nothing is
//! labelled.
//!
//! A service may be unable to read a file with a wrong label. So the agent sets the label together with the owner and
//! the mode, before it writes the content.

mod file_contexts;

use crate::error::Result;
use file_contexts::FileContexts;
pub(crate) use file_contexts::FileKind;

/// The configuration file of SELinux (selinux_config(5)).
const CONFIG: &str = "/etc/selinux/config";

/// The rules of an SELinux policy for the labels of files.
#[derive(Debug)]
pub(crate) struct Policy(FileContexts);

impl Policy {
    /// Reads the policy of a root. `read` returns the content of a file in this root. `None` if SELinux is disabled or the root has no
    /// policy.
    pub(crate) fn read(read: impl Fn(&str) -> Result<Option<Vec<u8>>>) -> Result<Option<Policy>> {
        let text = |path: &str| -> Result<Option<String>> {
            Ok(read(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
        };
        let Some(name) = text(CONFIG)?.and_then(|config| policy_in_use(&config)) else { return Ok(None) };
        let path = format!("/etc/selinux/{name}/contexts/files/file_contexts");
        let Some(rules) = text(&path)? else { return Ok(None) };
        let beside =
            |suffix: &str| -> Result<String> { Ok(text(&format!("{path}.{suffix}"))?.unwrap_or_default()) };
        let (homedirs, local) = (beside("homedirs")?, beside("local")?);
        let contexts =
            FileContexts::parse(&[&rules, &homedirs, &local], &beside("subs")?, &beside("subs_dist")?);
        Ok(Some(Policy(contexts)))
    }

    /// The label for an absolute path; `None` if the policy has no label for the path.
    pub(crate) fn label(&self, path: &str, kind: FileKind) -> Option<&str> {
        self.0.label(path, kind)
    }
}

/// Whether two labels are equivalent. Like `restorecon`, compares only the types of the labels. The user in a label depends on the program
/// that made the file, so the user is ignored. The range is ignored because the agent does not set it.
pub(crate) fn is_as_good(found: Option<&str>, wanted: &str) -> bool {
    let type_of = |label: &str| label.split(':').nth(2).map(str::to_owned);
    found.and_then(type_of).is_some_and(|found| Some(found) == type_of(wanted))
}

/// The name of the SELinux policy. `None` if SELinux is disabled, or if the name is missing or not valid.
fn policy_in_use(config: &str) -> Option<String> {
    let value = |name: &str| {
        let of_name = |line: &str| Some(line.trim().strip_prefix(name)?.strip_prefix('=')?.trim().to_owned());
        config.lines().filter_map(of_name).next_back()
    };
    let is_enabled = value("SELINUX").is_some_and(|mode| matches!(mode.as_str(), "enforcing" | "permissive"));
    // Reject a value with a `/`, because SELINUXTYPE becomes part of a path.
    value("SELINUXTYPE").filter(|name| is_enabled && !name.is_empty() && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_in_use_unless_selinux_is_disabled() {
        let config = |mode: &str| format!("# SELINUX=disabled\nSELINUX={mode}\nSELINUXTYPE=targeted \n");
        assert_eq!(policy_in_use(&config("enforcing")).as_deref(), Some("targeted"));
        assert_eq!(policy_in_use(&config("permissive")).as_deref(), Some("targeted"));
        assert_eq!(policy_in_use(&config("disabled")), None);
        assert_eq!(policy_in_use("SELINUX=enforcing\nSELINUXTYPE=../x\n"), None);
        assert_eq!(policy_in_use("SELINUX=enforcing\n"), None);
    }

    #[test]
    fn a_root_without_a_policy_has_none() {
        assert!(Policy::read(|_| Ok(None)).unwrap().is_none());
        let only_config =
            |path: &str| Ok((path == CONFIG).then(|| b"SELINUX=enforcing\nSELINUXTYPE=targeted\n".to_vec()));
        assert!(Policy::read(only_config).unwrap().is_none());
    }

    #[test]
    fn labels_are_compared_by_their_types() {
        let wanted = "system_u:object_r:etc_t:s0";
        assert!(is_as_good(Some("unconfined_u:object_r:etc_t:s0:c1,c2"), wanted));
        assert!(!is_as_good(Some("system_u:object_r:var_t:s0"), wanted));
        assert!(!is_as_good(None, wanted) && !is_as_good(Some(""), wanted));
    }
}
