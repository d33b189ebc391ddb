//! Finds the kOps version on this machine, if neither the state store nor kops-controller tells the version. A worker
//! of kOps 1.35 has the same configuration as a worker of kOps 1.36, but the boot script of each release downloads
//! that release's nodeup.

use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use kops_agent_host::Reader;
use kops_agent_spec::kops_release::{Evidence, Told, VARIABLE};
use kops_agent_spec::{BootConfig, nodeup_urls};

use kops_agent_source::SourceOptions;

use crate::environment::Environment;

/// The user-data of the instance, as cloud-init keeps it (cloud-init: `get_ipath_cur` in `cloudinit/helpers.py`).
const USER_DATA: &str = "/var/lib/cloud/instance/user-data.txt";
/// Maximum size of the user-data or of a script, in bytes. A larger file is ignored.
const LARGEST: u64 = 4 << 20;
/// Maximum number of ancestor processes to search for the boot script. The script may start this process from a
/// subshell.
const MOST_ANCESTORS: usize = 4;

/// The version of the kOps that wrote `boot`, from files of this machine. `None` if the files do not tell the version.
/// Also `None` if `boot` is not the boot config in the user-data, because a newer kOps may have written `boot`.
pub fn find(options: &SourceOptions, boot: &BootConfig) -> Option<Told> {
    let conf = options.conf.to_str().and_then(|conf| conf.strip_prefix("file://")).map(Path::new);
    let conf = regular_file(conf.unwrap_or(&options.conf));
    if conf.as_ref().is_some_and(|conf| !is_of(conf, boot)) {
        return None;
    }
    let variable = Environment::of_machine(&options.node_root).get(VARIABLE).filter(|set| !set.is_empty());
    if let Some(version) = variable {
        return Some(Told { version, by: Evidence::Variable });
    }
    let of_instance = user_data_of_instance(&options.node_root);
    let user_data = conf.into_iter().chain(of_instance).filter(|user_data| is_of(user_data, boot));
    user_data.filter_map(|user_data| Told::by_user_data(&nodeup_urls(&user_data))).next()
}

/// The user-data of the instance whose files are under `root`. `None` if cloud-init has not kept the user-data, or if
/// the user-data cannot be read.
pub fn user_data_of_instance(root: &Path) -> Option<Vec<u8>> {
    let read = Reader::open(root).and_then(|reader| reader.read(USER_DATA, LARGEST));
    read.unwrap_or_else(|error| {
        log::debug!("the user-data cannot be read: {error}");
        None
    })
}

/// Whether the boot config in user-data names the same cluster, instance group and configuration as `boot`.
fn is_of(user_data: &[u8], boot: &BootConfig) -> bool {
    BootConfig::from_user_data(user_data).is_ok_and(|written| {
        written.cluster_name == boot.cluster_name
            && written.instance_group_name == boot.instance_group_name
            && written.nodeup_config_hash == boot.nodeup_config_hash
    })
}

/// The kOps version in the boot script that started this process. Only the first run has a boot script, so the unit
/// stores the version for later runs.
pub fn of_boot_script() -> Option<String> {
    version_by_ancestors(Path::new("/proc"), std::process::id())
}

fn version_by_ancestors(proc: &Path, pid: u32) -> Option<String> {
    let parent = |pid: &u32| parent(&proc.join(pid.to_string())).filter(|parent| *parent > 1);
    let ancestors = std::iter::successors(parent(&pid), parent).take(MOST_ANCESTORS);
    ancestors.filter_map(|pid| version_by_script(&proc.join(pid.to_string()))).next()
}

/// The ID of the parent process, from the folder of a process in `/proc` (`proc_pid_status(5)`).
fn parent(process: &Path) -> Option<u32> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// The kOps version in the script that a process runs.
fn version_by_script(process: &Path) -> Option<String> {
    let command = fs::read(process.join("cmdline")).ok()?;
    let arguments =
        command.split(|byte| *byte == 0).map(|argument| Path::new(std::ffi::OsStr::from_bytes(argument)));
    let scripts = arguments.filter(|argument| argument.is_absolute()).filter_map(regular_file);
    let scripts = scripts.filter(|script| script.starts_with(b"#!"));
    scripts.filter_map(|script| Told::by_user_data(&nodeup_urls(&script))).map(|told| told.version).next()
}

/// The content of a regular file. `None` if the file is missing, too large or unreadable.
fn regular_file(path: &Path) -> Option<Vec<u8>> {
    let is_small_file =
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() <= LARGEST);
    let file = is_small_file.then(|| fs::File::open(path).ok())??;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SCRIPT: &str = "#!/bin/bash\nNODEUP_URL_AMD64=https://artifacts.k8s.io/binaries/kops/1.35.2/linux/amd64/nodeup,https://x/y\n";

    #[test]
    fn the_script_above_this_process_tells_the_version() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("nodeup.sh");
        fs::write(&script, SCRIPT).unwrap();
        let process = |pid: u32, parent: u32, command: &str| {
            let process = folder.path().join(pid.to_string());
            fs::create_dir_all(&process).unwrap();
            fs::write(process.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).unwrap();
            fs::write(process.join("cmdline"), command.replace(' ', "\0")).unwrap();
        };
        let told = || version_by_ancestors(folder.path(), 40);
        let command = format!("/bin/bash {}", script.display());
        process(40, 39, "./nodeup --install-systemd-unit");
        process(39, 38, "/bin/bash -c x");
        process(38, 1, &command);
        process(1, 0, &command);
        assert_eq!(told().as_deref(), Some("1.35.2"));
        fs::write(&script, SCRIPT.replace("#!/bin/bash\n", "")).unwrap();
        assert_eq!(told(), None, "it is no script");
        process(38, 1, "/sbin/cron -f");
        assert_eq!(told(), None, "the first process is no script");
        assert_eq!(version_by_ancestors(folder.path(), 99), None);
    }
}
