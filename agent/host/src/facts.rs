//! Observes the facts of this machine that decisions depend on: system, processor, memory, network, SELinux.
//!
//! Each file has its own parser function, so that a test needs no such machine.

mod interfaces;
mod login_users;
mod root_volume;

use std::io;
use std::path::{Path, PathBuf};

use kops_agent_spec::facts::{Architecture, CloudFacts, Distro, Facts, Selinux};
use kops_agent_spec::failure::{Failing, Kind};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::utsname::uname;
use thiserror::Error;

use interfaces::{AddressOfInterface, collect_interfaces};
use login_users::parse_login_users;
pub use root_volume::root_volume_gib;

/// Why this machine cannot be described.
#[derive(Debug, Error)]
pub enum FactsError {
    #[error(
        "this machine's distribution is unknown: neither {} nor {} exists; is this the root of a Linux system?",
        etc.display(),
        usr_lib.display()
    )]
    NoOsRelease { etc: PathBuf, usr_lib: PathBuf },
    #[error("{} has no ID, so this machine's distribution is unknown; correct the file", file.display())]
    NoDistroId { file: PathBuf },
    #[error(
        "this machine's architecture, {machine}, is not supported; kOps runs on x86_64 (amd64) and aarch64 (arm64)"
    )]
    UnsupportedArchitecture {
        /// The output of `uname -m`.
        machine: String,
    },
    #[error("cannot read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("cannot ask the kernel for {what}: {source}")]
    Kernel { what: &'static str, source: Errno },
}

impl Failing for FactsError {
    fn kind(&self) -> Kind {
        match self {
            FactsError::NoOsRelease { .. } | FactsError::NoDistroId { .. } => Kind::UnknownDistribution,
            FactsError::UnsupportedArchitecture { .. } => Kind::UnsupportedArchitecture,
            FactsError::Unreadable { .. } | FactsError::Kernel { .. } => Kind::FactsUnreadable,
        }
    }
}

/// Observes the machine whose files are below `root`. For this machine, `root` is `/`.
///
/// Architecture, kernel, host name and interfaces always come from the running kernel. The binary adds the facts of the cloud. Fails if the
/// distribution or the architecture is unknown.
pub fn observe_host(root: &Path) -> Result<Facts, FactsError> {
    let kernel = uname().map_err(|source| FactsError::Kernel { what: "its name (uname)", source })?;
    let interfaces = getifaddrs()
        .map_err(|source| FactsError::Kernel { what: "network interfaces (getifaddrs)", source })?;
    Ok(Facts {
        arch: parse_architecture(&kernel.machine().to_string_lossy())?,
        distro: observe_distro(root)?,
        hostname_addresses: read_if_there(&root.join("etc/hosts"))?
            .map(|hosts| parse_hosts(&hosts, &kernel.nodename().to_string_lossy()))
            .unwrap_or_default(),
        hostname: kernel.nodename().to_string_lossy().into_owned(),
        login_users: parse_login_users(
            &read_if_there(&root.join("etc/passwd"))?.unwrap_or_default(),
            &read_if_there(&root.join("etc/group"))?.unwrap_or_default(),
        ),
        interfaces: collect_interfaces(interfaces.map(AddressOfInterface::from), |name| {
            let interface = root.join("sys/class/net").join(name);
            interface.exists() && !interface.join("device").exists()
        }),
        bpf_mounted_by_systemd: observe_bpf_mount(root)?,
        nvidia_runtime: Some(observe_nvidia(root)),
        fstab: read_if_there(&root.join("etc/fstab"))?,
        systemd_resolved: root.join("run/systemd/resolve/resolv.conf").exists(),
        kernel: Some(kernel.release().to_string_lossy().into_owned()),
        memory_bytes: read_if_there(&root.join("proc/meminfo"))?.as_deref().and_then(parse_memory),
        processors: read_if_there(&root.join("proc/cpuinfo"))?.as_deref().and_then(parse_processors),
        nameservers: read_if_there(&root.join("etc/resolv.conf"))?
            .as_deref()
            .map(parse_nameservers)
            .unwrap_or_default(),
        selinux: read_if_there(&root.join("sys/fs/selinux/enforce"))?.as_deref().and_then(parse_selinux),
        cloud: CloudFacts::default(),
    })
}

/// Whether the machine has an NVIDIA driver and NVIDIA's container runtime. The driver counts if its module is loaded or its tool
/// `nvidia-smi` exists.
fn observe_nvidia(root: &Path) -> bool {
    let is_there = |path: &str| root.join(path).exists();
    let has_driver =
        ["proc/driver/nvidia/version", "sys/module/nvidia", "usr/bin/nvidia-smi"].into_iter().any(is_there);
    has_driver && is_there("usr/bin/nvidia-container-runtime")
}

/// The addresses of a host name in `/etc/hosts`, without loopback addresses.
fn parse_hosts(hosts: &str, name: &str) -> Vec<String> {
    hosts
        .lines()
        .filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address: std::net::IpAddr = words.next()?.parse().ok()?;
            (words.any(|word| word == name) && !address.is_loopback()).then(|| address.to_string())
        })
        .collect()
}

fn observe_distro(root: &Path) -> Result<Distro, FactsError> {
    let etc = root.join("etc/os-release");
    let usr_lib = root.join("usr/lib/os-release");
    let (file, text) = match (read_if_there(&etc)?, read_if_there(&usr_lib)?) {
        (Some(text), _) => (etc, text),
        (None, Some(text)) => (usr_lib, text),
        (None, None) => return Err(FactsError::NoOsRelease { etc, usr_lib }),
    };
    let distro = parse_os_release(&text);
    if distro.id.is_empty() { Err(FactsError::NoDistroId { file }) } else { Ok(distro) }
}

/// Whether systemd itself mounted the BPF file system, so that the agent writes no mount unit. False if the file of a mount unit exists.
/// For example, the agent may have written the file for an older systemd.
fn observe_bpf_mount(root: &Path) -> Result<bool, FactsError> {
    let mounts = read_if_there(&root.join("proc/self/mounts"))?.unwrap_or_default();
    let has_unit = ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"]
        .iter()
        .any(|folder| root.join(folder).join("sys-fs-bpf.mount").exists());
    Ok(!has_unit && is_bpf_mounted(&mounts))
}

/// Whether `/proc/self/mounts` has the BPF file system at its usual path.
fn is_bpf_mounted(mounts: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some("/sys/fs/bpf") && fields.next() == Some("bpf")
    })
}

fn read_if_there(file: &Path) -> Result<Option<String>, FactsError> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FactsError::Unreadable { file: file.to_owned(), source }),
    }
}

/// The fields `ID` and `VERSION_ID` of an os-release file. A missing field is empty.
pub fn parse_os_release(text: &str) -> Distro {
    let mut distro = Distro::default();
    for (name, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
        match name {
            "ID" => distro.id = unquoted(value),
            "VERSION_ID" => distro.version_id = unquoted(value),
            _ => {}
        }
    }
    distro
}

fn unquoted(value: &str) -> String {
    value.trim_matches(['"', '\'']).to_owned()
}

/// Parses the architecture that `uname -m` prints.
pub fn parse_architecture(machine: &str) -> Result<Architecture, FactsError> {
    match machine {
        "x86_64" => Ok(Architecture::Amd64),
        "aarch64" => Ok(Architecture::Arm64),
        other => Err(FactsError::UnsupportedArchitecture { machine: other.to_owned() }),
    }
}

/// The field `MemTotal` of `/proc/meminfo`, in bytes.
pub fn parse_memory(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn parse_processors(cpuinfo: &str) -> Option<u32> {
    let is_name = |line: &&str| line.split_once(':').is_some_and(|(name, _)| name.trim() == "processor");
    u32::try_from(cpuinfo.lines().filter(is_name).count()).ok().filter(|count| *count > 0)
}

/// The name servers of a resolv.conf, in the order of the file.
pub fn parse_nameservers(resolv_conf: &str) -> Vec<String> {
    resolv_conf
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            if words.next() == Some("nameserver") { words.next() } else { None }
        })
        .map(str::to_owned)
        .collect()
}

/// Parses the content of `/sys/fs/selinux/enforce`.
pub fn parse_selinux(enforce: &str) -> Option<Selinux> {
    match enforce.trim() {
        "1" => Some(Selinux::Enforcing),
        "0" => Some(Selinux::Permissive),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    #[test]
    fn os_release_is_read_with_and_without_quotes() {
        let ubuntu = "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n";
        assert_eq!(parse_os_release(ubuntu), Distro { id: "ubuntu".into(), version_id: "24.04".into() });
        let amazon = "# comment\nID=\"amzn\"\nVERSION_ID='2023'";
        assert_eq!(parse_os_release(amazon), Distro { id: "amzn".into(), version_id: "2023".into() });
        assert_eq!(parse_os_release("NAME=x\nno assignment\n"), Distro::default());
    }

    #[test]
    fn an_architecture_without_kubernetes_is_refused_by_name() {
        assert_eq!(parse_architecture("x86_64").unwrap(), Architecture::Amd64);
        assert_eq!(parse_architecture("aarch64").unwrap(), Architecture::Arm64);
        let error = parse_architecture("riscv64").unwrap_err().to_string();
        assert!(error.contains("riscv64, is not supported"), "{error}");
    }

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(parse_memory("MemTotal:        8009216 kB\nMemFree: 1 kB\n"), Some(8_201_437_184));
        assert_eq!(parse_memory("MemFree: 1 kB\n"), None);
        assert_eq!(parse_memory("MemTotal: many kB\n"), None);
    }

    #[test]
    fn name_servers_are_in_order_without_comments() {
        let text = "# nameserver 1.1.1.1\nsearch ec2.internal\nnameserver 127.0.0.53\n  nameserver\tfd00::2 \nnameserver\n";
        assert_eq!(parse_nameservers(text), ["127.0.0.53", "fd00::2"]);
    }

    #[test]
    fn the_mode_of_selinux_is_read() {
        assert_eq!(parse_selinux("1"), Some(Selinux::Enforcing));
        assert_eq!(parse_selinux("0\n"), Some(Selinux::Permissive));
        assert_eq!(parse_selinux(""), None);
    }

    #[test]
    fn loopback_addresses_of_the_host_name_are_left_out() {
        let hosts = "127.0.1.1 vm # itself\n10.0.0.5 vm.local vm\n10.0.0.6 other\n";
        assert_eq!(parse_hosts(hosts, "vm"), ["10.0.0.5"]);
    }

    #[test]
    fn only_a_bpf_file_system_at_its_path_counts_as_mounted() {
        assert!(is_bpf_mounted("sysfs /sys sysfs rw 0 0\nbpf /sys/fs/bpf bpf rw,nosuid,mode=700 0 0\n"));
        assert!(!is_bpf_mounted("tmpfs /sys/fs/bpf tmpfs rw 0 0\nbpf /other bpf rw 0 0\nbroken\n"));
    }

    #[test]
    fn a_mount_by_a_unit_is_not_systemds_own() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "proc/self/mounts", "bpf /sys/fs/bpf bpf rw 0 0\n");
        assert!(observe_bpf_mount(root.path()).unwrap());
        write(root.path(), "etc/systemd/system/sys-fs-bpf.mount", "");
        assert!(!observe_bpf_mount(root.path()).unwrap());
    }

    #[test]
    fn a_root_is_observed_with_its_own_files() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "usr/lib/os-release", "ID=flatcar\nVERSION_ID=4230.2.0\n");
        write(root.path(), "etc/resolv.conf", "nameserver 10.0.0.2\n");
        write(root.path(), "run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n");
        write(root.path(), "proc/meminfo", "MemTotal: 2 kB\n");
        let processors = "processor\t: 0\nmodel name\t: processor\n\nprocessor\t: 1\nHardware\t: x\n";
        write(root.path(), "proc/cpuinfo", processors);
        write(root.path(), "sys/fs/selinux/enforce", "0");
        write(root.path(), "sys/class/net/lo/mtu", "65536");
        write(root.path(), "etc/fstab", "/dev/sda / ext4\n");

        let facts = observe_host(root.path()).unwrap();
        assert_eq!(facts.distro, Distro { id: "flatcar".into(), version_id: "4230.2.0".into() });
        assert_eq!(facts.nameservers, ["10.0.0.2"]);
        assert!(facts.systemd_resolved);
        assert_eq!((facts.memory_bytes, facts.processors), (Some(2048), Some(2)));
        assert_eq!(facts.selinux, Some(Selinux::Permissive));
        assert!(!facts.hostname.is_empty());
        let lo = facts.interfaces.iter().find(|interface| interface.name == "lo").unwrap();
        assert_eq!((lo.mac.as_deref(), lo.is_virtual), (None, true));
        assert_eq!(facts.fstab.as_deref(), Some("/dev/sda / ext4\n"));
    }

    #[test]
    fn etc_os_release_comes_before_the_one_in_usr_lib() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n");
        write(root.path(), "usr/lib/os-release", "ID=other\n");
        assert_eq!(observe_host(root.path()).unwrap().distro.id, "debian");
    }

    #[test]
    fn a_root_without_a_distribution_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let error = observe_host(root.path()).unwrap_err().to_string();
        assert!(error.contains("distribution is unknown") && error.contains("etc/os-release"), "{error}");
        write(root.path(), "etc/os-release", "NAME=Linux\n");
        let error = observe_host(root.path()).unwrap_err();
        assert!(matches!(error, FactsError::NoDistroId { .. }), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/os-release")).unwrap();
        let error = observe_host(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read ") && error.contains("etc/os-release"), "{error}");
    }
}
