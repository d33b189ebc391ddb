//! The distributions that nodes run, as data. A difference between distributions is a field here, not a condition in a component.
//!
//! Source: util/pkg/distributions in upstream, and the per-distribution branches of nodeup/pkg/model.

use serde::Serialize;

use kops_agent_spec::facts::Distro;

use kops_agent_spec::kops_release::{KopsRelease, Releases};

/// How a distribution installs packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PackageFormat {
    /// `deb` packages, which apt installs.
    Deb,
    /// `rpm` packages, which dnf installs.
    Rpm,
    /// The distribution installs no packages: its root is read-only and already has all programs.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Project {
    Debian,
    Ubuntu,
    Rhel,
    CentOS,
    Rocky,
    Fedora,
    AmazonLinux2,
    AmazonLinux2023,
    Flatcar,
    ContainerOS,
}

/// A supported version of a distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Distribution {
    pub project: Project,
    /// The distribution's version. 0 if the version does not matter.
    pub version: f32,
    pub package_format: PackageFormat,
    /// Whether `/etc/resolv.conf` always points to systemd-resolved's stub on the loopback address.
    pub has_loopback_resolv_conf: bool,
    /// Whether kube-proxy must use nftables because the kernel lacks the modules for iptables.
    pub force_nftables: bool,
    /// The directory for Kubernetes' keys and certificates.
    pub srv_kubernetes: &'static str,
    /// The directory for users' files that an API server needs to reach nodes through a proxy.
    pub srv_sshproxy: &'static str,
    /// The directories in which programs look for the distribution's trusted certificates. If a directory is missing, a pod that mounts the
    /// directory creates it.
    pub ssl_directories: &'static [&'static str],
    /// The directory for kubectl and other programs.
    pub kubernetes_bin: &'static str,
    /// The directory for kubelet and the programs that it runs.
    pub kubelet_bin: &'static str,
    /// kubelet's default directory of volume plugins.
    pub volume_plugin_directory: &'static str,
    /// Whether the distribution includes containerd. If so, the agent configures containerd but does not install it.
    pub brings_containerd: bool,
    /// The names with which people log in, the most likely name first. Empty if the names are unknown.
    pub login_users: &'static [&'static str],
    /// The packages of `iptables` and `nft`.
    pub firewall_packages: &'static [&'static str],
    /// Whether systemd-networkd configures the network.
    pub has_networkd: bool,
    /// Whether systemd-networkd also configures an interface that is attached later.
    pub networkd_configures_new_interfaces: bool,
    /// Whether cloud-init reconfigures the network when an interface is attached.
    pub has_cloud_init_hotplug: bool,
    /// The version of the C library, glibc, if it is older than 2.34.
    #[serde(skip)]
    pub old_glibc: Option<&'static str>,
}

/// The directories of trusted certificates on a distribution with a read-only root. The list has only existing directories, because a mount
/// cannot create a directory below a read-only `/usr`.
const READ_ONLY_ROOT_SSL: &[&str] =
    &["/etc/ssl", "/etc/pki/tls", "/etc/pki/ca-trust", "/usr/share/ca-certificates"];

const USUAL: Distribution = Distribution {
    project: Project::Debian,
    version: 0.0,
    package_format: PackageFormat::Deb,
    has_loopback_resolv_conf: false,
    force_nftables: false,
    srv_kubernetes: "/srv/kubernetes",
    srv_sshproxy: "/srv/sshproxy",
    ssl_directories: &[
        "/etc/ssl",
        "/etc/pki/tls",
        "/etc/pki/ca-trust",
        "/usr/share/ssl",
        "/usr/ssl",
        "/usr/lib/ssl",
        "/usr/local/openssl",
        "/var/ssl",
        "/etc/openssl",
    ],
    kubernetes_bin: "/usr/local/bin",
    kubelet_bin: "/usr/local/bin",
    volume_plugin_directory: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
    brings_containerd: false,
    login_users: &[],
    firewall_packages: &[],
    has_networkd: false,
    networkd_configures_new_interfaces: false,
    has_cloud_init_hotplug: false,
    old_glibc: None,
};

/// The package `iptables`, for distributions that have it.
const IPTABLES: &[&str] = &["iptables"];
/// The package `iptables-nft`, for Amazon Linux 2023. This distribution has only the nftables variant of iptables.
const IPTABLES_NFT: &[&str] = &["iptables-nft"];
/// The package `nftables`, and the package whose `iptables` uses nftables. The second package is needed because some network plugins run
/// `iptables`.
const NFTABLES: &[&str] = &["nftables", "iptables-nft"];

const fn debian(version: f32) -> Distribution {
    Distribution {
        project: Project::Debian,
        version,
        login_users: login_users(Project::Debian),
        firewall_packages: IPTABLES,
        has_networkd: version >= 12.0,
        networkd_configures_new_interfaces: version >= 12.0,
        has_cloud_init_hotplug: version >= 12.0,
        old_glibc: if version < 11.0 {
            Some("2.28")
        } else if version < 12.0 {
            Some("2.31")
        } else {
            None
        },
        ..USUAL
    }
}

const fn ubuntu(version: f32) -> Distribution {
    Distribution {
        project: Project::Ubuntu,
        version,
        login_users: login_users(Project::Ubuntu),
        has_loopback_resolv_conf: true,
        firewall_packages: IPTABLES,
        has_networkd: version >= 22.04,
        has_cloud_init_hotplug: version >= 24.04,
        old_glibc: if version < 22.04 { Some("2.31") } else { None },
        ..USUAL
    }
}

const fn rpm(project: Project, version: f32, firewall_packages: &'static [&'static str]) -> Distribution {
    Distribution {
        project,
        version,
        package_format: PackageFormat::Rpm,
        firewall_packages,
        login_users: login_users(project),
        old_glibc: match project {
            Project::Rhel | Project::Rocky | Project::CentOS if version < 9.0 => Some("2.28"),
            Project::AmazonLinux2 => Some("2.26"),
            _ => None,
        },
        ..USUAL
    }
}

const fn login_users(project: Project) -> &'static [&'static str] {
    match project {
        Project::Debian => &["admin", "root"],
        Project::Ubuntu => &["ubuntu", "root"],
        Project::CentOS => &["centos"],
        Project::Rhel | Project::AmazonLinux2 | Project::AmazonLinux2023 => &["ec2-user"],
        Project::Rocky => &["rocky"],
        Project::Fedora | Project::Flatcar | Project::ContainerOS => &[],
    }
}

/// A distribution whose kernel has no modules for iptables.
const fn rpm_without_iptables(project: Project, version: f32) -> Distribution {
    Distribution { force_nftables: true, ..rpm(project, version, NFTABLES) }
}

const AMAZON_LINUX_2023: Distribution = Distribution {
    has_networkd: true,
    networkd_configures_new_interfaces: true,
    ..rpm(Project::AmazonLinux2023, 2023.0, IPTABLES_NFT)
};

/// `ID` and `VERSION_ID` of `/etc/os-release`, and the kOps releases that support the distribution (`FindDistribution` in
/// util/pkg/distributions/identify.go). A `VERSION_ID` that ends in a dot matches every version with this beginning.
const SUPPORTED: &[(&str, &str, Releases, Distribution)] = &[
    ("amzn", "2", Releases::UpTo(35), rpm(Project::AmazonLinux2, 2.0, IPTABLES)),
    ("amzn", "2023", Releases::All, AMAZON_LINUX_2023),
    ("debian", "10", Releases::UpTo(35), debian(10.0)),
    ("debian", "11", Releases::All, debian(11.0)),
    ("debian", "12", Releases::All, debian(12.0)),
    ("debian", "13", Releases::All, debian(13.0)),
    ("fedora", "41", Releases::All, rpm_without_iptables(Project::Fedora, 41.0)),
    ("fedora", "42", Releases::Since(35), rpm_without_iptables(Project::Fedora, 42.0)),
    ("fedora", "43", Releases::Since(35), rpm_without_iptables(Project::Fedora, 43.0)),
    ("fedora", "44", Releases::Since(35), rpm_without_iptables(Project::Fedora, 44.0)),
    ("ubuntu", "20.04", Releases::UpTo(35), ubuntu(20.04)),
    ("ubuntu", "22.04", Releases::All, ubuntu(22.04)),
    ("ubuntu", "24.04", Releases::All, ubuntu(24.04)),
    ("ubuntu", "25.10", Releases::Since(35), ubuntu(25.10)),
    ("ubuntu", "26.04", Releases::Since(35), ubuntu(26.04)),
    ("centos", "9.", Releases::Since(35), rpm(Project::CentOS, 9.0, NFTABLES)),
    ("centos", "10.", Releases::Since(35), rpm_without_iptables(Project::CentOS, 10.0)),
    ("rhel", "8.", Releases::All, rpm(Project::Rhel, 8.0, IPTABLES)),
    ("rhel", "9.", Releases::All, rpm(Project::Rhel, 9.0, IPTABLES)),
    ("rhel", "10.", Releases::Since(35), rpm_without_iptables(Project::Rhel, 10.0)),
    ("rocky", "8.", Releases::All, rpm(Project::Rocky, 8.0, IPTABLES)),
    ("rocky", "9.", Releases::All, rpm(Project::Rocky, 9.0, NFTABLES)),
    ("rocky", "10.", Releases::Since(35), rpm_without_iptables(Project::Rocky, 10.0)),
    (
        "flatcar",
        ".",
        Releases::All,
        Distribution {
            project: Project::Flatcar,
            package_format: PackageFormat::None,
            has_loopback_resolv_conf: true,
            ssl_directories: READ_ONLY_ROOT_SSL,
            kubernetes_bin: "/opt/kops/bin",
            kubelet_bin: "/opt/kubernetes/bin",
            volume_plugin_directory: "/var/lib/kubelet/volumeplugins/",
            brings_containerd: true,
            login_users: &["core"],
            ..USUAL
        },
    ),
    // Older kOps releases also support Container-Optimized OS. With those releases, kubelet mounts volumes through a helper,
    // which the agent does not install (`addContainerizedMounter` in nodeup/pkg/model/kubelet.go at v1.35.2).
    (
        "cos",
        ".",
        Releases::Since(36),
        Distribution {
            project: Project::ContainerOS,
            package_format: PackageFormat::None,
            srv_kubernetes: "/etc/srv/kubernetes",
            srv_sshproxy: "/etc/srv/sshproxy",
            ssl_directories: READ_ONLY_ROOT_SSL,
            kubernetes_bin: "/home/kubernetes/bin",
            kubelet_bin: "/home/kubernetes/bin",
            volume_plugin_directory: "/home/kubernetes/flexvolume/",
            brings_containerd: true,
            ..USUAL
        },
    ),
];

impl Distribution {
    /// The distribution with this name and version. `None` if nodes of this kOps release cannot run it.
    pub fn find(distro: &Distro, release: KopsRelease) -> Option<&'static Distribution> {
        SUPPORTED
            .iter()
            .filter(|(_, _, releases, _)| release.is_in(*releases))
            .find(|(id, version, _, _)| *id == distro.id && version_matches(version, &distro.version_id))
            .map(|(_, _, _, distribution)| distribution)
    }

    /// `ID` and `VERSION_ID` of each distribution that this kOps release supports.
    pub fn supported(release: KopsRelease) -> impl Iterator<Item = Distro> {
        let supported = SUPPORTED.iter().filter(move |(_, _, releases, _)| release.is_in(*releases));
        supported.map(|(id, version, _, _)| Distro {
            id: (*id).to_owned(),
            version_id: version.trim_end_matches('.').to_owned(),
        })
    }

    /// Every distribution that this kOps release supports, for messages: `debian 12, debian 13, …`.
    pub fn supported_names(release: KopsRelease) -> String {
        SUPPORTED
            .iter()
            .filter(|(_, _, releases, _)| release.is_in(*releases))
            .map(|(id, version, _, _)| match version.trim_end_matches('.') {
                "" => (*id).to_owned(),
                version => format!("{id} {version}"),
            })
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether packages are `deb` and named as Debian names them.
    pub fn is_debian_family(&self) -> bool {
        self.package_format == PackageFormat::Deb
    }

    /// Whether packages are `rpm` and named as Red Hat names them.
    pub fn is_rhel_family(&self) -> bool {
        self.package_format == PackageFormat::Rpm
    }
}

/// Whether a version matches a supported version: `"9."` matches 9 and every 9.x, and `"."` matches every version.
fn version_matches(supported: &str, version: &str) -> bool {
    match supported.strip_suffix('.') {
        Some("") => true,
        Some(major) => version == major || version.starts_with(supported),
        None => version == supported,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn find(id: &str, version: &str) -> Option<Project> {
        let distro = Distro { id: id.into(), version_id: version.into() };
        Distribution::find(&distro, KopsRelease::NEWEST).map(|d| d.project)
    }

    #[test]
    fn distributions_are_found_by_their_os_release() {
        assert_eq!(find("debian", "12"), Some(Project::Debian));
        assert_eq!(find("rhel", "9.4"), Some(Project::Rhel));
        assert_eq!(find("rhel", "9"), Some(Project::Rhel));
        assert_eq!(find("flatcar", "4230.2.0"), Some(Project::Flatcar));
        assert_eq!(find("cos", "117"), Some(Project::ContainerOS));
        assert_eq!(find("amzn", "2023"), Some(Project::AmazonLinux2023));
    }

    #[test]
    fn other_distributions_are_not_found() {
        assert_eq!(find("debian", "9"), None);
        assert_eq!(find("ubuntu", "18.04"), None);
        assert_eq!(find("rocky", "90"), None);
        assert_eq!(find("alpine", "3.20"), None);
        assert!(Distribution::supported_names(KopsRelease::NEWEST).contains("rocky 10"));
    }

    #[test]
    fn dropped_distributions_are_found_in_older_releases() {
        for (id, version) in [("amzn", "2"), ("debian", "10"), ("ubuntu", "20.04")] {
            let distro = Distro { id: id.into(), version_id: version.into() };
            let releases: Vec<String> = KopsRelease::supported()
                .filter(|release| Distribution::find(&distro, *release).is_some())
                .map(|release| release.to_string())
                .collect();
            assert_eq!(releases, ["1.34", "1.35"], "{id} {version}");
        }
    }
}
