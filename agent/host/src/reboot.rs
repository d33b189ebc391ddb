//! Whether this machine requires a reboot: packages ask for one, or a newer kernel is installed than the running one.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kops_agent_cluster::fleet::RebootReport;
use nix::sys::utsname::uname;

use crate::host::Host;
use crate::system::deadline::ask_within;
use crate::system::sandbox;

/// The file by which packages of Debian and Ubuntu request a reboot. The second file names these packages (update-notifier-common,
/// unattended-upgrades). Flatcar's update_engine writes the first file, too.
const MARK: &str = "run/reboot-required";
const PACKAGES: &str = "run/reboot-required.pkgs";
/// The command of the RHEL family that reports whether updated core packages require a reboot (yum-utils, dnf-utils).
const NEEDS_RESTARTING: [&str; 2] = ["needs-restarting", "-r"];
/// The sentences in the output of [`NEEDS_RESTARTING`]. The exit status is not sufficient, because 1 may also mean that the command failed.
const REQUIRED: &str = "Reboot is required";
const NOT_REQUIRED: &str = "Reboot should not be necessary";
/// Timeout of [`NEEDS_RESTARTING`]. The report of a run waits for this command.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of packages that a reason names.
const NAMED: usize = 5;

impl Host {
    /// Whether the machine on which this process runs requires a reboot. `None` if this is unknown now.
    pub fn reboot_report(&self) -> Option<RebootReport> {
        let (kernel, boot_id) = (uname().ok()?, self.boot_id().ok()?);
        // The unit's sandbox may hide /lib/modules.
        let mut reasons = reboot_reasons(&sandbox::on_machine("/"), &kernel.release().to_string_lossy());
        let why_unknown = match ask_within(&NEEDS_RESTARTING, b"", TIMEOUT) {
            Ok(None) => None,
            Ok(Some(answer))
                if [REQUIRED, NOT_REQUIRED].iter().any(|known| answer.stdout.contains(known)) =>
            {
                reasons.extend(updated_packages(&answer.stdout));
                None
            }
            Ok(Some(answer)) => Some(format!(
                "needs-restarting does not say whether a reboot is required: {}",
                answer.stderr.trim()
            )),
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why_unknown {
            log::debug!("this report does not say whether core packages require a reboot: {why}");
            // It is unknown whether core packages require a reboot. If there is no other reason, return no report, because an empty list
            // of reasons would mean that no reboot is required.
            if reasons.is_empty() {
                return None;
            }
        }
        Some(RebootReport::new(&boot_id, &reasons))
    }
}

/// The reasons for a reboot, according to the files below `root`. `running` is the running kernel's release (`uname -r`).
fn reboot_reasons(root: &Path, running: &str) -> Vec<String> {
    packages(root).into_iter().chain(newer_kernel(root, running)).collect()
}

/// The reason for a reboot, according to the output of [`NEEDS_RESTARTING`]. Each indented line of the output names one package.
fn updated_packages(output: &str) -> Option<String> {
    let names = output.lines().filter_map(|line| line.strip_prefix("  "));
    let names: BTreeSet<&str> = names.map(|name| name.trim_start_matches("* ").trim()).collect();
    output.contains(REQUIRED).then(|| with_names("core packages were updated since the boot", &names))
}

fn packages(root: &Path) -> Option<String> {
    if !root.join(MARK).exists() {
        return None;
    }
    let text = fs::read_to_string(root.join(PACKAGES)).unwrap_or_default();
    let names = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
    Some(with_names("packages ask for it", &names))
}

/// Appends at most `NAMED` of `names` to `reason`, and the number of the remaining names.
fn with_names(reason: &str, names: &BTreeSet<&str>) -> String {
    let mut named: Vec<String> = names.iter().take(NAMED).map(|name| (*name).to_owned()).collect();
    if names.len() > NAMED {
        named.push(format!("and {} more", names.len() - NAMED));
    }
    if named.is_empty() { reason.to_owned() } else { format!("{reason}: {}", named.join(", ")) }
}

/// The newest kernel of the running kernel's flavor, if it is newer than the running kernel and was installed after the boot. A kernel that
/// was installed before the boot does not count: the boot loader has not chosen it, and would not choose it at the next boot.
fn newer_kernel(root: &Path, running: &str) -> Option<String> {
    let booted = boot_time(root)?;
    let is_candidate = |(release, kernel): &(String, PathBuf)| {
        flavor(release) == flavor(running)
            && by_version(release, running) == Ordering::Greater
            && kernel.metadata().is_ok_and(|kernel| kernel.ctime() > booted)
    };
    let candidates = installed_kernels(root).into_iter().filter(is_candidate);
    let (newest, _) = candidates.max_by(|(a, _), (b, _)| by_version(a, b))?;
    Some(format!("the kernel {newest} is installed, and {running} is running"))
}

/// When the kernel booted, in seconds since 1970 (proc_stat(5)).
fn boot_time(root: &Path) -> Option<i64> {
    let text = fs::read_to_string(root.join("proc/stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The kernels that the boot loader can start, each with its release and its file. Debian and Ubuntu install kernels into `/boot`. The
/// distributions of the RHEL family install a kernel into the folder of its modules.
fn installed_kernels(root: &Path) -> Vec<(String, PathBuf)> {
    let (boot, modules) = (root.join("boot"), root.join("lib/modules"));
    let of_modules = names_in(&modules).map(|release| {
        let kernel = modules.join(&release).join("vmlinuz");
        (release, kernel)
    });
    let of_boot = names_in(&boot)
        .filter_map(|name| Some((name.strip_prefix("vmlinuz-")?.to_owned(), boot.join(&name))));
    of_boot.chain(of_modules).collect()
}

fn names_in(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The words in a kernel release, such as `generic`, or `cloud` and `amd`. A kernel whose release has other words does not
/// replace the running kernel.
fn flavor(release: &str) -> Vec<&str> {
    release.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect()
}

/// Compares the numbers in two releases, from left to right.
fn by_version(a: &str, b: &str) -> Ordering {
    let numbers = |release: &str| -> Vec<u64> {
        let digits = release.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        digits.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
    };
    numbers(a).cmp(&numbers(b))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const BOOTED_BEFORE: (&str, &str) = ("proc/stat", "cpu 1\nbtime 1700000000\n");

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    #[test]
    fn packages_that_ask_for_a_reboot_are_named_once_each() {
        let reasons = |files: &[(&str, &str)]| reboot_reasons(machine(files).path(), "6.8.0-1021-aws");
        assert_eq!(reasons(&[]), [""; 0]);
        assert_eq!(reasons(&[(MARK, "*** System restart required ***\n")]), ["packages ask for it"]);
        let packages = "libc6\nlinux-base\nlibc6\n\n";
        let expected = ["packages ask for it: libc6, linux-base"];
        assert_eq!(reasons(&[(MARK, ""), (PACKAGES, packages)]), expected);
        assert_eq!(reasons(&[(PACKAGES, packages)]), [""; 0], "only the mark asks");
        let many = reasons(&[(MARK, ""), (PACKAGES, "a\nb\nc\nd\ne\nf\ng\n")]);
        assert_eq!(many, ["packages ask for it: a, b, c, d, e, and 2 more"]);
    }

    #[test]
    fn only_the_sentence_of_needs_restarting_asks_for_a_reboot() {
        let dnf = "Core libraries or services have been updated since boot-up:\n  * kernel\n  * systemd\n\n\
                   Reboot is required to fully utilize these updates.\n";
        let expected = "core packages were updated since the boot: kernel, systemd";
        assert_eq!(updated_packages(dnf).as_deref(), Some(expected));
        let yum = "Core libraries or services have been updated:\n  kernel -> 4.14.355\n\n\
                   Reboot is required to ensure that your system benefits from these updates.\n";
        let expected = "core packages were updated since the boot: kernel -> 4.14.355";
        assert_eq!(updated_packages(yum).as_deref(), Some(expected));
        for no in ["", "No core libraries or services have been updated.\nReboot should not be necessary.\n"]
        {
            assert_eq!(updated_packages(no), None, "{no}");
        }
    }

    #[test]
    fn a_newer_kernel_of_the_same_flavor_asks_for_a_reboot() {
        for (running, installed, expected) in [
            ("6.8.0-1021-aws", "boot/vmlinuz-6.8.0-1030-aws", true),
            ("6.8.0-999-aws", "boot/vmlinuz-6.8.0-1021-aws", true),
            ("6.8.0-1021-aws", "boot/vmlinuz-6.8.0-1021-aws", false),
            ("6.8.0-1021-aws", "boot/vmlinuz-6.8.0-1009-aws", false),
            ("6.8.0-1021-aws", "boot/vmlinuz-6.11.0-26-generic", false),
            ("6.8.0-1021-aws", "boot/vmlinuz.old", false),
            // After a kernel is removed, its modules may remain.
            ("6.8.0-1021-aws", "lib/modules/6.8.0-1030-aws/modules.dep", false),
            ("6.1.0-18-cloud-amd64", "boot/vmlinuz-6.1.0-25-amd64", false),
            ("5.14.0-427.13.1.el9_4.x86_64", "lib/modules/5.14.0-503.el9_5.x86_64/vmlinuz", true),
            ("5.14.0-427.13.1.el9_4.x86_64", "boot/vmlinuz-0-rescue-5c1dfe", false),
            ("6.1.102-111.182.amzn2023.x86_64", "lib/modules/6.1.109-118.189.amzn2023.x86_64/vmlinuz", true),
        ] {
            let reasons = reboot_reasons(machine(&[(installed, ""), BOOTED_BEFORE]).path(), running);
            assert_eq!(reasons.len(), usize::from(expected), "{running} {installed}: {reasons:?}");
        }
        let installed = ("boot/vmlinuz-6.8.0-1030-aws", "");
        let since = |stat| reboot_reasons(machine(&[installed, stat]).path(), "6.8.0-1021-aws");
        assert_eq!(
            since(("proc/stat", "cpu 1\nbtime 99999999999\n")),
            [""; 0],
            "this boot has passed it over"
        );
        let reasons = since(BOOTED_BEFORE);
        assert_eq!(reasons, ["the kernel 6.8.0-1030-aws is installed, and 6.8.0-1021-aws is running"]);
    }
}
