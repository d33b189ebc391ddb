//! A test machine: boots it, runs programs on it, reads and writes its files, and waits for its state.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use std::{fs, process};

use kops_agent_tests::polling::poll;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::script;

/// The timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A test machine. Dropping it kills the machine's processes and removes its disk.
pub struct Machine {
    name: &'static str,
    /// The network namespace, which `tests/machines/machine up` gets as an argument, like `root` and `options`.
    namespace: String,
    root: String,
    options: Vec<String>,
    folder: TempDir,
    leader: Mutex<String>,
}

/// The result of a program on a machine. If the program exceeds its timeout of 300 s, the exit code is 124.
#[derive(Debug)]
pub struct Ended {
    /// The exit code. `None` if a signal ended the program.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Machine {
    /// Boots `root` in this network namespace and waits until systemd has finished the boot. Before the boot, `prepare`
    /// writes files into the folder that is the upper layer over `root`.
    pub fn boot(
        name: &'static str,
        namespace: &str,
        root: &Path,
        options: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Machine {
        let machine = Machine::power_on(name, namespace, root, options, prepare);
        machine.has_booted();
        machine
    }

    /// Like [`Machine::boot`], but waits only until the machine has a PID 1.
    pub fn power_on(
        name: &'static str,
        namespace: &str,
        root: &Path,
        options: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Machine {
        // The folder is not in /tmp, which may be a tmpfs or an overlayfs. A tmpfs would need memory, and an overlayfs cannot
        // be the upper layer of the machine's overlayfs. tests/machines/sweep reads the id of the test's process from the
        // folder's name.
        let prefix = format!("kops-agent-machine.{}-", process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in("/var/tmp").unwrap();
        let files = folder.path().join("machine/files");
        fs::create_dir_all(&files).unwrap();
        prepare(&files);
        let machine = Machine {
            name,
            namespace: namespace.to_owned(),
            root: root.display().to_string(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            folder,
            leader: Mutex::default(),
        };
        machine.power_on_again();
        machine
    }

    /// Powers on a machine that is off. The machine keeps its disk. Waits only until the machine has a PID 1.
    pub fn power_on_again(&self) {
        let at = self.work().display().to_string();
        let mut arguments = vec!["up", &self.namespace, &self.root, &at];
        arguments.extend(self.options.iter().map(String::as_str));
        script("machines/machine", &arguments);
        self.has_another_leader("");
    }

    /// Powers the machine off, and waits until its process has ended.
    pub fn power_off(&self) {
        // systemctl may fail, because systemd may close the connection before it responds.
        self.try_run(&["systemctl", "poweroff"]);
        let process = fs::read_to_string(self.work().join("pid")).unwrap();
        let is_on = format!("/proc/{}", process.trim());
        self.until("it is off", || (!Path::new(&is_on).exists()).then_some(()));
        self.leader.lock().clear();
    }

    /// Simulates a power cut: kills all processes of the machine with SIGKILL.
    pub fn cut_power(&self) {
        script("machines/machine", &["cut", &self.work().display().to_string()]);
        self.leader.lock().clear();
    }

    /// The upper layer of the machine's root file system. It contains the files that the machine has written, even while the
    /// machine is off. Files in /var/lib/containerd and /var/lib/kubelet are in separate folders.
    pub fn files(&self) -> PathBuf {
        self.work().join("files")
    }

    pub fn reboot(&self) {
        self.reboot_at_work();
        self.has_booted();
    }

    /// Runs `act`, which makes the machine reboot. Waits until the machine has booted again.
    pub fn is_rebooted_by(&self, act: impl FnOnce()) {
        let before = self.leader();
        act();
        self.has_another_leader(&before);
        self.has_booted();
    }

    /// Reboots a machine that may not finish its boot. Waits only until the machine has a new PID 1.
    pub fn reboot_at_work(&self) {
        let before = self.leader();
        // systemctl may fail, because systemd may close the connection before it responds.
        self.try_run(&["systemctl", "reboot"]);
        self.has_another_leader(&before);
    }

    /// Waits until the machine's PID 1 is a process other than `before`. Records the host's id of the new process.
    fn has_another_leader(&self, before: &str) {
        let leader = self.until("it has a PID 1", || {
            let leader =
                Command::new(crate::path_of("machines/machine")).arg("leader").arg(self.work()).output();
            let leader = String::from_utf8(leader.unwrap().stdout).unwrap();
            Some(leader.trim().to_owned()).filter(|leader| !leader.is_empty() && leader != before)
        });
        *self.leader.lock() = leader;
    }

    /// Waits until systemd has finished the boot, even if a unit failed.
    fn has_booted(&self) {
        self.until("it has booted", || {
            let state = self.try_run(&["systemctl", "is-system-running"]).stdout;
            matches!(state.trim(), "running" | "degraded").then_some(())
        });
    }

    /// The host's process id of the machine's PID 1. Empty while the machine is off.
    fn leader(&self) -> String {
        self.leader.lock().clone()
    }

    pub fn name(&self) -> &str {
        self.name
    }

    /// The command that opens a shell on the machine.
    pub fn shell(&self) -> String {
        format!("nsenter --target {} --mount --uts --ipc --net --pid --root --wd -- bash -l", self.leader())
    }

    /// Runs a program on the machine, with a timeout of 300 s.
    pub fn try_run(&self, command: &[&str]) -> Ended {
        let mut nsenter = Command::new("nsenter");
        nsenter.args([
            "--target",
            &self.leader(),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd",
        ]);
        nsenter.args(["--", "env", "--ignore-environment", PATH, "timeout", "300"]).args(command);
        Ended::from_command(nsenter.output().unwrap())
    }

    /// Runs a program on the machine, and returns the program's standard output. Panics if the program fails.
    #[track_caller]
    pub fn run(&self, command: &[&str]) -> String {
        let ended = self.try_run(command);
        assert_eq!(ended.code, Some(0), "{command:?} on {}: {}", self.name, self.explain(&ended));
        ended.stdout
    }

    /// Runs a program from the host in the machine's network namespace, and returns its output. Panics if the program fails.
    #[track_caller]
    pub fn run_beside(&self, command: &[&str]) -> String {
        let leader = self.leader();
        let output =
            Command::new("nsenter").args(["--target", &leader, "--net", "--"]).args(command).output();
        let ended = Ended::from_command(output.unwrap());
        assert_eq!(ended.code, Some(0), "{command:?} beside {}: {ended:#?}", self.name);
        ended.stdout
    }

    /// Describes a failure: the program's result, the failed units, and the end of the journal.
    pub fn explain(&self, ended: &Ended) -> String {
        let failed = self.try_run(&["systemctl", "--failed", "--no-pager", "--plain"]).stdout;
        let journal =
            self.try_run(&["journalctl", "--no-pager", "--lines=60", "--output=short-monotonic"]).stdout;
        format!("{ended:#?}\n{}{}\n{failed}\n{journal}", ended.stdout, ended.stderr)
    }

    pub fn read(&self, path: &str) -> String {
        self.run(&["cat", path])
    }

    /// Writes a file on the machine. Creates the folder of the file if it is missing.
    pub fn write(&self, path: &str, text: &str) {
        self.run(&["mkdir", "--parents", Path::new(path).parent().unwrap().to_str().unwrap()]);
        self.run(&["sh", "-c", "printf %s \"$1\" >\"$0\"", path, text]);
    }

    pub fn show(&self, unit: &str, property: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", property, unit]).trim().to_owned()
    }

    /// Calls `answer` until it returns `Some`. Panics after 300 s. The message contains the console's and the journal's text.
    #[track_caller]
    pub fn until<T>(&self, what: &str, answer: impl Fn() -> Option<T>) -> T {
        poll(TIMEOUT, answer).unwrap_or_else(|| {
            let console = fs::read_to_string(self.work().join("console.log")).unwrap_or_default();
            let journal = if self.leader().is_empty() {
                String::new()
            } else {
                self.try_run(&["journalctl", "--no-pager", "--lines=100"]).stdout
            };
            panic!("{}: waited in vain until {what}\n{console}\n{journal}", self.name);
        })
    }

    fn work(&self) -> PathBuf {
        self.folder.path().join("machine")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        script("machines/machine", &["down", &self.work().display().to_string()]);
    }
}

impl Ended {
    fn from_command(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
