//! Checks paths on the node that a user chose.

use kops_agent_spec::invalid::Invalid;

/// Checks that a path is absolute, without empty, `.` or `..` parts. Such a path names the same file from
/// every working directory.
pub(super) fn check(path: &str) -> Result<(), Invalid> {
    let Some(parts) = path.strip_prefix('/') else {
        return Err(Invalid::new(format!("{path:?} is relative; use an absolute path")));
    };
    if path != "/" && parts.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(Invalid::new(format!(
            "{path:?} has empty, `.` or `..` parts; write the path without them"
        )));
    }
    Ok(())
}

pub(super) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_normalized_paths_are_valid() {
        for path in ["/", "/a", "/etc/kubernetes/x.conf", "/a/..b", "/a b"] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
        for path in ["", "a", "./a", "~/a", "/a/", "//a", "/a/../b", "/a/./b"] {
            assert!(check(path).is_err(), "{path}");
        }
    }

    #[test]
    fn the_parent_is_the_path_without_its_last_part() {
        assert_eq!((parent("/a/b"), parent("/a"), parent("/")), ("/a", "/", "/"));
    }
}
