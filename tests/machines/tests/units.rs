//! Units, images and volumes that fail or block, under a real systemd. kubelet runs and is enabled at boot in every case,
//! except if its volume is missing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kops_agent_machines::machine::Machine;
use kops_agent_machines::network::{Family, Network};
use kops_agent_machines::script;

/// The time in which a unit must stop. It is less than `DefaultTimeoutStopSec` (90 s), after which systemd kills the unit.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

const DRIVER: &str = "/root/unit-driver";

const KUBELET: &str = "[Unit]\nAfter=containerd.service\n[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
const CONTAINERD: &str = "[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
/// This unit never reports that it is ready, so its start times out.
const LATE_CONTAINERD: &str = "[Service]\nType=notify\nTimeoutStartSec=2\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
const ENDLESS: &str =
    "[Unit]\nBefore=containerd.service\n[Service]\nType=oneshot\nExecStart=sleep infinity\n";

/// Folders of unit files. In each call, `unit-driver` converges the machine to one of these folders.
const NODES: [(&str, &[(&str, &str)]); 5] = [
    ("volume", &[("containerd.service", CONTAINERD), ("kubelet.service", KUBELET)]),
    ("late", &[("containerd.service", LATE_CONTAINERD), ("kubelet.service", KUBELET)]),
    (
        "hooks",
        &[
            ("containerd.service", CONTAINERD),
            ("kubelet.service", KUBELET),
            ("fails-hook.service", "[Service]\nType=oneshot\nExecStart=false\n"),
            (
                "waits-hook.service",
                "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
                 ExecStart=sh -c 'until systemctl is-active kubelet.service; do sleep 0.1; done'\n",
            ),
            (
                "cloud-hook.service",
                "[Unit]\nAfter=cloud-final.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n",
            ),
        ],
    ),
    (
        "ordered",
        &[
            ("containerd.service", CONTAINERD),
            ("kubelet.service", KUBELET),
            (
                "between-hook.service",
                "[Unit]\nAfter=user-data.service\nBefore=kubelet.service\n\
                 [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\n",
            ),
        ],
    ),
    (
        "endless",
        &[("containerd.service", CONTAINERD), ("kubelet.service", KUBELET), ("disk.service", ENDLESS)],
    ),
];

/// A stand-in for the unit of cloud-init's last stage, which runs user-data and thereby the agent.
const CLOUD_FINAL: &str = "[Service]\nType=oneshot\nExecStart=/root/unit-driver /root/hooks masked.service\nTimeoutStartSec=infinity\n";

/// A stand-in for a unit that runs user-data. The node has a hook that is ordered after this unit and before kubelet.
const USER_DATA: &str =
    "[Service]\nType=oneshot\nExecStart=/root/unit-driver /root/ordered\nTimeoutStartSec=infinity\n";

/// A stand-in for `ctr`: the pull of the image `hanging` never ends, and every other pull fails.
const CTR: &str = "#!/bin/sh\ncase \"$*\" in\n*pull*hanging*) exec sleep infinity ;;\n\
                   *pull*) echo 'no such image' >&2; exit 1 ;;\nesac\n";

fn boot(suite: &str, options: &[&str]) -> (Machine, Network) {
    let root = PathBuf::from(script("machines/root", &[suite]).trim()).join("rootfs");
    let network = Network::up(&[("units", Family::Ipv4.address(10))]);
    let machine = Machine::boot("units", &network.namespace("units"), &root, options, lay_out);
    (machine, network)
}

/// A blank loop device.
struct Disk {
    device: String,
    _image: tempfile::NamedTempFile,
}

impl Disk {
    fn attach() -> Disk {
        let image = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        image.as_file().set_len(64 << 20).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(image.path()).output().unwrap();
        assert!(attached.status.success(), "{attached:?}");
        Disk { device: String::from_utf8(attached.stdout).unwrap().trim().to_owned(), _image: image }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

fn lay_out(files: &Path) {
    let own = files.join("root");
    for (folder, units) in NODES {
        fs::create_dir_all(own.join(folder)).unwrap();
        for (name, text) in units {
            fs::write(own.join(folder).join(name), text).unwrap();
        }
    }
    let units = files.join("etc/systemd/system");
    fs::create_dir_all(&units).unwrap();
    fs::write(units.join("cloud-final.service"), CLOUD_FINAL).unwrap();
    fs::write(units.join("user-data.service"), USER_DATA).unwrap();
    symlink("/dev/null", units.join("masked.service")).unwrap();
    let ctr = files.join("usr/local/bin/ctr");
    fs::create_dir_all(ctr.parent().unwrap()).unwrap();
    fs::write(&ctr, CTR).unwrap();
    fs::set_permissions(&ctr, fs::Permissions::from_mode(0o755)).unwrap();
    let driver = files.join(DRIVER.trim_start_matches('/'));
    fs::copy(env!("CARGO_BIN_EXE_unit-driver"), &driver).unwrap();
    fs::set_permissions(&driver, fs::Permissions::from_mode(0o755)).unwrap();
}

fn joins(machine: &Machine) {
    for (property, value) in [("ActiveState", "active"), ("UnitFileState", "enabled")] {
        assert_eq!(machine.show("kubelet.service", property), value, "kubelet's {property}");
    }
}

fn a_runtime_whose_start_times_out(machine: &Machine) {
    let ended = machine.try_run(&[DRIVER, "/root/late"]);
    assert_eq!(ended.code, Some(1), "{}", machine.explain(&ended));
    assert!(
        ended.stderr.contains("cannot start containerd.service: it has failed with the result timeout"),
        "{ended:?}"
    );
    joins(machine);
}

fn hooks_that_fail_wait_for_kubelet_and_for_the_stage_that_waits_for_us(machine: &Machine) {
    machine.run(&["systemctl", "stop", "kubelet.service", "containerd.service"]);
    let ended = machine.try_run(&["systemctl", "start", "cloud-final.service"]);
    let journal = machine.run(&["journalctl", "--no-pager", "--output=cat", "--unit=cloud-final.service"]);
    assert_eq!(ended.code, Some(1), "{}", machine.explain(&ended));
    for said in [
        "cannot start fails-hook.service: it has failed with the result exit-code; see `journalctl -u fails-hook.service`",
        "cloud-hook.service is still starting, and this run does not wait for it",
    ] {
        assert!(journal.contains(said), "no {said:?} in {journal}");
    }
    for unsaid in ["containerd.service:", "cannot start waits-hook", "masked.service"] {
        assert!(!journal.contains(unsaid), "{unsaid:?} in {journal}");
    }
    assert_eq!(machine.show("masked.service", "LoadState"), "masked", "the operator's mask stays");
    joins(machine);
    assert_eq!(machine.show("waits-hook.service", "ActiveState"), "active");
    machine.until("the hook after cloud-final has run", || {
        (machine.show("cloud-hook.service", "ActiveState") == "active").then_some(())
    });
}

fn a_stop_signal_ends_a_wait(machine: &Machine) {
    machine.run(&["systemd-run", "--quiet", "--unit=driver", "--collect", DRIVER, "/root/endless"]);
    machine.until("the unit without end is being started", || {
        (machine.show("disk.service", "ActiveState") == "activating").then_some(())
    });
    let since = Instant::now();
    machine.run(&["systemctl", "stop", "driver.service"]);
    assert!(since.elapsed() < STOP_TIMEOUT, "it took {:?}", since.elapsed());
    machine.run(&["systemctl", "stop", "disk.service"]);
}

/// If the pull of an image hangs or fails, a new machine still becomes a node, without the image.
fn images_that_hang_or_fail(machine: &Machine) {
    let hanging = [DRIVER, "/root/volume", "image:registry.invalid/hanging:1"];
    machine.run(&[&["systemd-run", "--quiet", "--unit=driver", "--collect"][..], &hanging].concat());
    machine.until("the image is being pulled", || {
        let tasks = machine.show("driver.service", "TasksCurrent").parse::<u32>().ok()?;
        let kubelet_runs = machine.show("kubelet.service", "ActiveState") == "active";
        (kubelet_runs && tasks > 0).then_some(())
    });
    let since = Instant::now();
    machine.run(&["systemctl", "stop", "driver.service"]);
    assert!(since.elapsed() < STOP_TIMEOUT, "it took {:?}", since.elapsed());
    joins(machine);

    let ended = machine.try_run(&[DRIVER, "/root/volume", "image:registry.invalid/gone:1"]);
    assert_eq!(ended.code, Some(1), "{}", machine.explain(&ended));
    assert!(ended.stderr.contains("registry.invalid/gone:1` failed"), "{ended:?}");
    assert!(ended.stderr.contains("no such image"), "{ended:?}");
    joins(machine);
}

/// The hook starts after the unit that runs the agent has ended, and kubelet starts after the hook. So the agent must wait neither for the
/// hook nor for kubelet.
fn a_hook_between_the_run_and_kubelet(machine: &Machine) {
    let since = Instant::now();
    machine.run(&["systemctl", "start", "user-data.service"]);
    assert!(since.elapsed() < Duration::from_secs(300), "it took {:?}", since.elapsed());
    let journal = machine.run(&["journalctl", "--no-pager", "--output=cat", "--unit=user-data.service"]);
    for unit in ["between-hook.service", "kubelet.service"] {
        let said = format!("{unit} is still starting, and this run does not wait for it");
        assert!(journal.contains(&said), "no {said:?} in {journal}");
    }
    machine.until("kubelet runs after the hook", || {
        let is_active = |unit: &str| machine.show(unit, "ActiveState") == "active";
        (is_active("between-hook.service") && is_active("kubelet.service")).then_some(())
    });
    joins(machine);
}

fn no_unit_keeps_kubelet_down(suite: &str) {
    let (machine, _network) = boot(suite, &[]);
    a_runtime_whose_start_times_out(&machine);
    hooks_that_fail_wait_for_kubelet_and_for_the_stage_that_waits_for_us(&machine);
    a_stop_signal_ends_a_wait(&machine);
}

/// The time at which a unit last became active, in microseconds since the boot.
fn active_since(machine: &Machine, unit: &str) -> u64 {
    machine.show(unit, "ActiveEnterTimestampMonotonic").parse().unwrap()
}

/// Checks that kubelet and the runtime do not run while their volume is not mounted. Otherwise they would write to the root
/// disk, into the empty folder at the mount point.
fn nothing_runs_without_its_volume(machine: &Machine) {
    for unit in ["containerd.service", "kubelet.service"] {
        assert_eq!(machine.show(unit, "ActiveState"), "inactive", "{unit}");
    }
}

fn a_first_boot_without_the_volume(machine: &Machine) {
    const MISSING: &str = "/dev/disk/by-label/none=/data";
    machine.run(&["systemd-run", "--quiet", "--unit=driver", "--collect", DRIVER, "/root/volume", MISSING]);
    machine.until("the device is waited for", || {
        (machine.try_run(&["test", "-d", "/data"]).code == Some(0)).then_some(())
    });
    let since = Instant::now();
    machine.run(&["systemctl", "stop", "driver.service"]);
    assert!(since.elapsed() < STOP_TIMEOUT, "it took {:?}", since.elapsed());

    let ended = machine.try_run(&[DRIVER, "/root/volume", MISSING]);
    assert_eq!(ended.code, Some(1), "{}", machine.explain(&ended));
    assert!(ended.stderr.contains("the device did not appear within 60 s"), "{ended:?}");
    assert!(
        ended.stderr.contains("cannot start kubelet.service: the volume of /data is not mounted"),
        "{ended:?}"
    );
    nothing_runs_without_its_volume(machine);
    for unit in ["containerd.service", "kubelet.service"] {
        assert_eq!(machine.show(unit, "UnitFileState"), "disabled", "{unit}");
    }
}

fn a_volume_is_there_before_its_users_after_a_reboot(suite: &str) {
    let disk = Disk::attach();
    let (machine, _network) = boot(suite, &[&format!("--bind={}", disk.device)]);
    a_first_boot_without_the_volume(&machine);
    let volume = format!("{}=/data", disk.device);
    let ended = machine.try_run(&[DRIVER, "/root/volume", &volume]);
    assert_eq!(ended.code, Some(0), "{}", machine.explain(&ended));
    machine.write("/data/file", "kept");
    machine.reboot();
    machine
        .until("kubelet runs", || (machine.show("kubelet.service", "ActiveState") == "active").then_some(()));
    assert_eq!(machine.read("/data/file"), "kept");
    let mounted = machine.run(&["findmnt", "--noheadings", "--output=SOURCE,OPTIONS", "/data"]);
    assert!(mounted.contains(&disk.device) && mounted.contains("noatime"), "{mounted}");
    let since = active_since(&machine, "data.mount");
    for user in ["containerd.service", "kubelet.service"] {
        assert!(since <= active_since(&machine, user), "{user} was there before its volume");
    }
    let again = machine.try_run(&[DRIVER, "/root/volume", &volume]);
    assert_eq!(again.stdout, "converged\n", "{}", machine.explain(&again));

    let unit = machine.read("/etc/systemd/system/data.mount");
    machine.write("/etc/systemd/system/data.mount", &unit.replace(&disk.device, "/dev/nowhere"));
    machine.reboot();
    nothing_runs_without_its_volume(&machine);
    machine.write("/etc/systemd/system/data.mount", &unit);
    machine.run(&["systemctl", "daemon-reload"]);
    machine.run(&["systemctl", "start", "kubelet.service"]);
    assert_eq!(machine.read("/data/file"), "kept");
    joins(&machine);
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn on_debian_12_a_volume_survives_a_reboot() {
    a_volume_is_there_before_its_users_after_a_reboot("bookworm");
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn on_debian_12_no_image_keeps_kubelet_down() {
    images_that_hang_or_fail(&boot("bookworm", &[]).0);
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn on_debian_12_a_hook_after_the_run_is_left_to_systemd() {
    a_hook_between_the_run_and_kubelet(&boot("bookworm", &[]).0);
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn on_debian_12_no_unit_keeps_kubelet_down() {
    no_unit_keeps_kubelet_down("bookworm");
}

#[test]
#[ignore = "boots machines: tests/machines/run"]
fn on_debian_13_no_unit_keeps_kubelet_down() {
    no_unit_keeps_kubelet_down("trixie");
}
