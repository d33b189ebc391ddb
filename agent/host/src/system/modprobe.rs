//! Finds the line of modprobe.d(5) that forbids a kernel module.

use crate::error::Result;
use crate::root::Root;

const FOLDERS: [&str; 5] = [
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
    "/lib/modprobe.d",
];

/// The modprobe configuration line that prevents loading a module, and the path of the file with this line. `None` if
/// no line prevents it.
pub(super) fn forbidding_line(root: &Root, module: &str) -> Result<Option<String>> {
    for folder in FOLDERS {
        let Some(dir) = root.dir(folder)? else { continue };
        for name in dir.names()?.into_iter().filter(|name| name.ends_with(".conf")) {
            let text = root.read(&format!("{folder}/{name}"))?.unwrap_or_default();
            if let Some(line) = String::from_utf8_lossy(&text).lines().find(|line| forbids(line, module)) {
                return Ok(Some(format!("`{}` in {folder}/{name}", line.trim())));
            }
        }
    }
    Ok(None)
}

/// Whether a configuration line prevents loading a module. At boot, systemd does not load a blacklisted module. An
/// `install` line also prevents loading if its command is `true` or `false`. Any other command may load the module.
fn forbids(line: &str, module: &str) -> bool {
    let same = |name: &str| name.replace('-', "_") == module.replace('-', "_");
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["blacklist", name] => same(name),
        ["install", name, program, ..] => {
            same(name) && (program.ends_with("/true") || program.ends_with("/false"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_forbids_a_module_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("etc/modprobe.d")).unwrap();
        let text = "# blacklist ip_set\noptions nf_tables x=1\nblacklist br-netfilter\ninstall nf_conntrack /bin/false\n\
                    install ip_vs /sbin/modprobe --ignore-install ip_vs\n";
        std::fs::write(folder.path().join("etc/modprobe.d/hardening.conf"), text).unwrap();
        let root = Root::open(folder.path()).unwrap();
        for (module, line) in [
            ("br_netfilter", Some("`blacklist br-netfilter` in /etc/modprobe.d/hardening.conf")),
            ("nf_conntrack", Some("`install nf_conntrack /bin/false` in /etc/modprobe.d/hardening.conf")),
            ("ip_set", None),
            ("nf_tables", None),
            ("ip_vs", None),
        ] {
            assert_eq!(forbidding_line(&root, module).unwrap().as_deref(), line, "{module}");
        }
    }
}
