//! A booted machine: running programs on it, waiting for what it does, and what it is left with.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::script;

/// A machine; dropping it ends it.
pub struct Machine {
    name: &'static str,
    /// What `tests/machines/machine` boots it with, after its folder.
    namespace: String,
    root: String,
    options: Vec<String>,
    folder: TempDir,
    leader: Mutex<String>,
}

/// How a program on a machine ended; with 124 if it was ended because it took minutes.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Machine {
    /// Boots `root` in this network namespace, after `prepare` has laid out files in a folder that is laid over it.
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

    /// [`Machine::boot`], without waiting for more than its PID 1.
    pub fn power_on(
        name: &'static str,
        namespace: &str,
        root: &Path,
        options: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Machine {
        // Not on a file system of memory, as /tmp may be: overlayfs may not be put on another's upper folder either.
        // Its name tells tests/machines/sweep whose it is.
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

    /// Powers on one that is off, with the disk that it has, without waiting for more than its PID 1.
    pub fn power_on_again(&self) {
        let at = self.work().display().to_string();
        let mut arguments = vec!["up", &self.namespace, &self.root, &at];
        arguments.extend(self.options.iter().map(String::as_str));
        script("machines/machine", &arguments);
        self.has_another_leader("");
    }

    /// Powers it off, and waits until it is.
    pub fn power_off(&self) {
        // The connection to systemd may end before its answer comes.
        self.try_run(&["systemctl", "poweroff"]);
        let process = fs::read_to_string(self.work().join("pid")).unwrap();
        let is_on = format!("/proc/{}", process.trim());
        self.until("it is off", || (!Path::new(&is_on).exists()).then_some(()));
        self.leader.lock().clear();
    }

    /// Cuts its power: all that it runs ends at once, without a word.
    pub fn cut_power(&self) {
        script("machines/machine", &["cut", &self.work().display().to_string()]);
        self.leader.lock().clear();
    }

    /// The folder that is laid over its root: what it has written is there, also while it is off.
    pub fn files(&self) -> PathBuf {
        self.work().join("files")
    }

    pub fn reboot(&self) {
        self.reboot_at_work();
        self.has_booted();
    }

    /// Reboots one that will have more to do than it can, without waiting for more than its PID 1.
    pub fn reboot_at_work(&self) {
        let before = self.leader();
        // The connection to systemd may end before its answer comes.
        self.try_run(&["systemctl", "reboot"]);
        self.has_another_leader(&before);
    }

    /// Waits until it has another PID 1 than before.
    fn has_another_leader(&self, before: &str) {
        let leader = self.until("it has a PID 1", || {
            let leader =
                Command::new(crate::path_of("machines/machine")).arg("leader").arg(self.work()).output();
            let leader = String::from_utf8(leader.unwrap().stdout).unwrap();
            Some(leader.trim().to_owned()).filter(|leader| !leader.is_empty() && leader != before)
        });
        *self.leader.lock() = leader;
    }

    /// Waits until systemd has nothing more to start.
    fn has_booted(&self) {
        self.until("it has booted", || {
            let state = self.try_run(&["systemctl", "is-system-running"]).stdout;
            matches!(state.trim(), "running" | "degraded").then_some(())
        });
    }

    /// The process id of its PID 1; empty before there is one.
    fn leader(&self) -> String {
        self.leader.lock().clone()
    }

    /// What the test calls it.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The command that has a shell on it.
    pub fn shell(&self) -> String {
        format!("nsenter --target {} --mount --uts --ipc --net --pid --root --wd -- bash -l", self.leader())
    }

    /// Runs a program to its end.
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
        Ended::of(nsenter.output().unwrap())
    }

    /// Runs a program that must succeed, and returns what it printed.
    #[track_caller]
    pub fn run(&self, command: &[&str]) -> String {
        let ended = self.try_run(command);
        assert_eq!(ended.code, Some(0), "{command:?} on {}: {}", self.name, self.explain(&ended));
        ended.stdout
    }

    /// Runs a program of this host's, which must succeed, from the machine's place in the network; returns what it
    /// printed.
    #[track_caller]
    pub fn run_beside(&self, command: &[&str]) -> String {
        let leader = self.leader();
        let output =
            Command::new("nsenter").args(["--target", &leader, "--net", "--"]).args(command).output();
        let ended = Ended::of(output.unwrap());
        assert_eq!(ended.code, Some(0), "{command:?} beside {}: {ended:#?}", self.name);
        ended.stdout
    }

    /// What there is to know after something went wrong.
    pub fn explain(&self, ended: &Ended) -> String {
        let failed = self.try_run(&["systemctl", "--failed", "--no-pager", "--plain"]).stdout;
        let journal =
            self.try_run(&["journalctl", "--no-pager", "--lines=60", "--output=short-monotonic"]).stdout;
        format!("{ended:#?}\n{}{}\n{failed}\n{journal}", ended.stdout, ended.stderr)
    }

    /// A file of the machine.
    pub fn read(&self, path: &str) -> String {
        self.run(&["cat", path])
    }

    /// Writes a file of the machine, with its folder.
    pub fn write(&self, path: &str, text: &str) {
        self.run(&["mkdir", "--parents", Path::new(path).parent().unwrap().to_str().unwrap()]);
        self.run(&["sh", "-c", "printf %s \"$1\" >\"$0\"", path, text]);
    }

    /// A property of a unit.
    pub fn show(&self, unit: &str, property: &str) -> String {
        self.run(&["systemctl", "show", "--value", "--property", property, unit]).trim().to_owned()
    }

    /// Asks again and again until there is an answer.
    #[track_caller]
    pub fn until<T>(&self, what: &str, answer: impl Fn() -> Option<T>) -> T {
        self.until_within(Duration::from_secs(300), what, answer)
    }

    #[track_caller]
    fn until_within<T>(&self, timeout: Duration, what: &str, answer: impl Fn() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            if let Some(answer) = answer() {
                return answer;
            }
            if since.elapsed() > timeout {
                let console = fs::read_to_string(self.work().join("console.log")).unwrap_or_default();
                let journal = if self.leader().is_empty() {
                    String::new()
                } else {
                    self.try_run(&["journalctl", "--no-pager", "--lines=100"]).stdout
                };
                panic!("{}: waited in vain until {what}\n{console}\n{journal}", self.name);
            }
            thread::sleep(Duration::from_millis(100));
        }
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
    fn of(output: Output) -> Ended {
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
