//! The packages that a user adds, and whether the machine updates its packages.
//!
//! Sources: apt-get(8), "install"; dnf's manual, "Specifying Packages", "Specifying Groups", "Install Command".

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::urls::shown_url;

use super::Problems;
use super::distribution::PackageFormat;

const OF_APT: &str = "apt installs NAME, NAME:ARCHITECTURE, NAME=VERSION, NAME/RELEASE, patterns such as NAME*, tasks \
                      (NAME^) and the absolute path of a .deb file";
const OF_DNF: &str = "dnf installs NAME, NAME-VERSION, groups (@NAME), modules (@NAME:STREAM), patterns such as NAME*, \
                      URLs, and the absolute path of a file";

/// Checks that the distribution's package manager reads each entry as a package to install, and not as an option.
pub(super) fn resolve(config: &NodeupConfig, format: PackageFormat, problems: &mut Problems) {
    let (is_known, forms): (fn(&str) -> bool, _) = match format {
        PackageFormat::Deb => (is_known_to_apt, OF_APT),
        PackageFormat::Rpm => (is_known_to_dnf, OF_DNF),
        PackageFormat::None => return,
    };
    for (index, package) in config.packages.iter().enumerate() {
        let field = format!("packages[{index}]");
        let is_url = package.contains("://");
        if !is_known(package) {
            problems.add(field, format!("{:?} is no package; {forms}", shown_url(package)));
        } else if is_url && shown_url(package) != *package {
            problems.add(
                field,
                format!(
                    "the URL {} has a login or a query, which plans and the arguments of dnf would show; use a URL without login and query",
                    shown_url(package)
                ),
            );
        } else if package.starts_with("http://") {
            problems.warn(
                field,
                format!(
                    "the download of {package} is not encrypted, so anyone on the network path can change the package; \
                     use an https:// URL"
                ),
            );
        }
    }
}

/// Whether this machine updates its own packages. With the policy `external`, another tool updates them.
pub(super) fn updates_itself(config: &NodeupConfig, problems: &mut Problems) -> bool {
    match config.update_policy.as_str() {
        "external" => false,
        "automatic" | "" => true,
        other => {
            problems.add("UpdatePolicy", format!("{other:?} is no update policy; set automatic or external"));
            true
        }
    }
}

fn is_known_to_apt(package: &str) -> bool {
    let (name, version) = match package.split_once('=') {
        Some((name, version)) => (name, Some(version)),
        None => (package, None),
    };
    let (name, release) = match name.split_once('/') {
        Some(_) if is_path(package) => return package.ends_with(".deb"),
        Some((name, release)) => (name, Some(release)),
        None => (name, None),
    };
    let name = name.strip_suffix('^').unwrap_or(name);
    // A trailing minus means that apt removes the package.
    is_pattern(name, "+-._:")
        && !name.ends_with('-')
        && version.is_none_or(|version| is_pattern(version, "+-._:~"))
        && release.is_none_or(|release| is_pattern(release, "+-._~"))
}

fn is_known_to_dnf(package: &str) -> bool {
    match (package.strip_prefix('@'), package.split_once("://")) {
        (_, Some((scheme, rest))) => {
            matches!(scheme, "http" | "https" | "ftp" | "file") && !rest.is_empty() && is_one_word(rest)
        }
        (Some(group), _) => is_pattern(group, "+-._:~^/"),
        _ if is_path(package) => true,
        _ => is_pattern(package, "+-._:~=^"),
    }
}

/// Whether a text starts like a package's name, and has only letters, digits, characters in `others`, and the pattern characters `*?[]`.
fn is_pattern(text: &str, others: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || others.contains(c) || "*?[]".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '*') && text.chars().all(is_allowed)
}

fn is_path(text: &str) -> bool {
    text.starts_with('/') && is_one_word(text)
}

fn is_one_word(text: &str) -> bool {
    !text.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(format: PackageFormat, package: &str) -> Problems {
        let config = NodeupConfig { packages: vec![package.to_owned()], ..NodeupConfig::default() };
        let mut problems = Problems::default();
        resolve(&config, format, &mut problems);
        problems
    }

    fn are_taken(format: PackageFormat, packages: &[&str]) -> Vec<bool> {
        packages.iter().map(|package| problems_of(format, package).iter().next().is_none()).collect()
    }

    #[test]
    fn each_package_manager_accepts_its_own_forms() {
        let both = ["nfs-common", "libstdc++6", "g++", "nginx=1.2-3~x", "linux-headers-*"];
        let of_apt = ["vim:amd64", "vim/bookworm-backports", "standard^", "/opt/agent.deb"];
        let of_dnf = [
            "@development-tools",
            "@nodejs:18/minimal",
            "https://h.example.com/agent.rpm",
            "/opt/agent.rpm",
            "/usr/bin/vim",
        ];
        let neither = ["", "-y", "--root=/x", "../x.deb", "a b", "vim;x", "s3://b/agent.rpm", "https://"];
        for format in [PackageFormat::Deb, PackageFormat::Rpm] {
            assert_eq!(are_taken(format, &both), [true; 5], "{format:?}");
            assert_eq!(are_taken(format, &neither), [false; 8], "{format:?}");
        }
        assert_eq!(are_taken(PackageFormat::Deb, &of_apt), [true; 4]);
        assert_eq!(are_taken(PackageFormat::Deb, &of_dnf), [false; 5]);
        assert_eq!(are_taken(PackageFormat::Rpm, &of_dnf), [true; 5]);
        assert_eq!(are_taken(PackageFormat::Rpm, &["vim/bookworm"]), [false]);
        assert_eq!(are_taken(PackageFormat::Deb, &["snapd-"]), [false], "apt would remove it");
        assert_eq!(are_taken(PackageFormat::None, &["-y"]), [true], "nothing is installed there");
    }

    #[test]
    fn package_urls_are_shown_without_login_and_http_gives_a_warning() {
        for url in ["https://me:hidden@h.example.com/a.rpm", "https://h.example.com/a.rpm?sig=hidden"] {
            let problems = problems_of(PackageFormat::Rpm, url).to_string();
            assert!(problems.contains("has a login or a query"), "{problems}");
            assert!(!problems.contains("hidden"), "{problems}");
        }
        let problems = problems_of(PackageFormat::Rpm, "http://h.example.com/a.rpm");
        assert_eq!((problems.iter().count(), problems.warnings().len()), (0, 1));
    }
}
