//! Finds the files that packages own. The package manager removes such files with their package.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::root::Root;
use crate::system::commands::ask;

/// The folder of dpkg's file lists. A file list has one path a line (dpkg-query(1), `--listfiles`).
const LISTS: &str = "/var/lib/dpkg/info";
/// Folders that are links into `/usr` on all but old machines. A package may list a file with or without `/usr` in its
/// path (file-hierarchy(7), "Compatibility Symlinks").
const MERGED: [&str; 4] = ["/bin/", "/lib/", "/lib64/", "/sbin/"];

/// Filters `paths` to the files of dpkg's packages.
pub(crate) fn of_dpkg(root: &Root, paths: &[&str]) -> Result<BTreeSet<String>> {
    let mut owned = BTreeSet::new();
    if paths.is_empty() {
        return Ok(owned);
    }
    let Some(lists) = root.dir(LISTS)? else { return Ok(owned) };
    for list in lists.names()?.iter().filter(|name| name.ends_with(".list")) {
        let text = lists.read(list)?;
        let text = String::from_utf8_lossy(&text);
        let listed: BTreeSet<&str> = text.lines().map(merged).collect();
        owned
            .extend(paths.iter().filter(|path| listed.contains(merged(path))).map(|path| (*path).to_owned()));
    }
    Ok(owned)
}

/// Filters `paths` to the files of rpm's packages.
pub(super) fn of_rpm(paths: &[&str]) -> Result<BTreeSet<String>> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    let query = ["rpm", "--query", "--file", "--"];
    // rpm fails if one of the files belongs to no package, but still prints the other files.
    let outcome = ask(&[&query[..], paths].concat())?;
    Ok(owned_of(paths, &outcome.stdout, &outcome.stderr))
}

/// The files in `paths` that belong to a package. rpm prints a line for each file without a package (rpm(8), "file … is
/// not owned by any package").
fn owned_of(paths: &[&str], stdout: &str, stderr: &str) -> BTreeSet<String> {
    let lines: BTreeSet<&str> = stdout.lines().chain(stderr.lines()).map(str::trim).collect();
    let has_none = |path: &&&str| {
        lines.contains(format!("file {path} is not owned by any package").as_str())
            || lines.contains(format!("error: file {path}: No such file or directory").as_str())
    };
    paths.iter().filter(|path| !has_none(path)).map(|path| (*path).to_owned()).collect()
}

/// Removes `/usr` from a path in one of the [`MERGED`] folders. So the paths of a file with and without `/usr` have the
/// same result.
fn merged(path: &str) -> &str {
    match path.strip_prefix("/usr") {
        Some(rest) if MERGED.iter().any(|folder| rest.starts_with(folder)) => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_rpm_does_not_disown_belong_to_packages() {
        let stdout = "containerd-1.7.27-1.amzn2023.x86_64\nfile /etc/a is not owned by any package\n";
        let stderr = "error: file /etc/b: No such file or directory\n";
        let owned = owned_of(&["/etc/containerd/config.toml", "/etc/a", "/etc/b"], stdout, stderr);
        assert_eq!(owned, BTreeSet::from(["/etc/containerd/config.toml".to_owned()]));
    }
}
