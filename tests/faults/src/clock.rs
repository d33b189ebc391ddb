//! Shifts the time that a process sees. The process does not notice.
//!
//! A static program cannot get another libc, and no namespace has its own real-time clock. But a tracer can blank the
//! address of the vDSO in the program's auxiliary vector (getauxval(3), `AT_SYSINFO_EHDR`). Then the program asks the
//! kernel for the time, as on machines without a vDSO, and the tracer changes each result.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::errno::Errno;
use nix::libc::{
    AT_NULL, AT_SYSINFO_EHDR, CLOCK_REALTIME, CLOCK_REALTIME_COARSE, PTRACE_EVENT_EXEC,
    PTRACE_SYSCALL_INFO_EXIT, SYS_clock_gettime, SYS_gettimeofday, SYS_time,
};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::fault::Offset;

/// `AT_IGNORE` of elf(5). The libc crate does not define it.
const AT_IGNORE: u64 = 1;
const WORD: u64 = 8;
/// The maximum number of words in the environment of a program.
const MOST_WORDS: u64 = 1 << 16;

/// Runs a command with this clock until it ends. Kills the command after `longest`. The command has only the environment and arguments that
/// `command` sets. Its standard error goes to `stderr`. Calls `asked` each time the command has requested the time.
pub fn run(
    command: &Command,
    stderr: File,
    clock: &Offset,
    longest: Duration,
    asked: &dyn Fn(),
) -> anyhow::Result<(u32, ExitStatus)> {
    // The process starts as a shell. The shell waits until the process is traced, and then executes the command.
    let mut waiting = Command::new("/bin/sh");
    waiting.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    waiting.args(["-c", "read -r go; exec \"$@\"", "sh"]).arg(command.get_program()).args(command.get_args());
    waiting.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(stderr);
    let mut child = waiting.spawn().context("running /bin/sh")?;
    let traced = Traced { pid: Pid::from_raw(i32::try_from(child.id())?), clock, asked };
    let options = Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(traced.pid, options).context("tracing the agent")?;
    let (done, ended) = channel();
    let pid = traced.pid;
    let watch = thread::spawn(move || kill_late(pid, &ended, longest));
    // When its standard input ends, the shell executes the command.
    drop(child.stdin.take());
    let status = traced.to_its_end();
    drop(done);
    let _ = watch.join();
    Ok((child.id(), status?))
}

/// Kills a process unless its end is reported within `longest`.
fn kill_late(pid: Pid, ended: &Receiver<()>, longest: Duration) {
    if ended.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
        let _ = kill(pid, Signal::SIGKILL);
    }
}

struct Traced<'a> {
    pid: Pid,
    clock: &'a Offset,
    asked: &'a dyn Fn(),
}

impl Traced<'_> {
    fn to_its_end(&self) -> anyhow::Result<ExitStatus> {
        let mut memory = None;
        loop {
            // With `__WNOTHREAD`, waitpid waits only for processes that this thread traces. Other threads trace other agents.
            let status = waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))
                .context("waiting for the agent")?;
            let (pid, signal) = match status {
                WaitStatus::Exited(pid, code) if pid == self.pid => {
                    return Ok(ExitStatus::from_raw(code << 8));
                }
                WaitStatus::Signaled(pid, signal, _) if pid == self.pid => {
                    return Ok(ExitStatus::from_raw(signal as i32));
                }
                WaitStatus::PtraceEvent(pid, _, PTRACE_EVENT_EXEC) => {
                    let of_agent = Memory::new(pid)?;
                    of_agent.hide_vdso(ptrace::getregs(pid)?.rsp)?;
                    memory = Some(of_agent);
                    (pid, None)
                }
                WaitStatus::PtraceSyscall(pid) => {
                    if let Some(memory) = &memory {
                        alive(self.move_time(pid, memory))?;
                    }
                    (pid, None)
                }
                WaitStatus::PtraceEvent(pid, ..) => (pid, None),
                WaitStatus::Stopped(pid, signal) => (pid, Some(signal)),
                _ => continue,
            };
            alive(ptrace::syscall(pid, signal).map_err(anyhow::Error::from))?;
        }
    }

    /// If a thread has just left a system call that returns the time, changes the returned time.
    #[allow(non_upper_case_globals)] // The names of libc's constants, such as `SYS_time`.
    fn move_time(&self, pid: Pid, memory: &Memory) -> anyhow::Result<()> {
        if ptrace::syscall_info(pid)?.op != PTRACE_SYSCALL_INFO_EXIT {
            return Ok(());
        }
        let mut registers = ptrace::getregs(pid)?;
        let clock = i32::try_from(registers.rdi).unwrap_or(-1);
        let at = match i64::try_from(registers.orig_rax).unwrap_or(-1) {
            SYS_clock_gettime if matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) => registers.rsi,
            SYS_gettimeofday if registers.rdi != 0 => registers.rdi,
            SYS_time => {
                registers.rax = registers.rax.wrapping_add_signed(self.clock.seconds());
                ptrace::setregs(pid, registers)?;
                (self.asked)();
                return Ok(());
            }
            _ => return Ok(()),
        };
        (self.asked)();
        memory.add(at, self.clock.seconds())
    }
}

/// Turns ESRCH into `None`. ESRCH means that the process was killed, and the next wait reports its end.
fn alive<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.downcast_ref::<Errno>() == Some(&Errno::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Memory(File);

impl Memory {
    fn new(pid: Pid) -> anyhow::Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Memory(file.with_context(|| format!("opening {path}"))?))
    }

    fn word(&self, at: u64) -> anyhow::Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, at).context("reading the agent's memory")?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set_word(&self, at: u64, value: u64) -> anyhow::Result<()> {
        self.0.write_all_at(&value.to_ne_bytes(), at).context("writing the agent's memory")
    }

    /// Adds seconds to a `timespec` or `timeval`, whose first word is the seconds.
    fn add(&self, at: u64, seconds: i64) -> anyhow::Result<()> {
        self.set_word(at, self.word(at)?.wrapping_add_signed(seconds))
    }

    /// Hides the vDSO from a program that has just been loaded. `stack` is the address of the number of arguments. The arguments, a
    /// zero, the environment, a zero, and the auxiliary vector follow. Source: the processor supplements of the System V ABI.
    fn hide_vdso(&self, stack: u64) -> anyhow::Result<()> {
        let arguments = self.word(stack)?;
        let mut at = stack + (arguments + 2) * WORD;
        let end = at + MOST_WORDS * WORD;
        while self.word(at)? != 0 {
            at += WORD;
            ensure!(at < end, "the agent's environment has no end");
        }
        at += WORD;
        loop {
            match self.word(at)? {
                AT_SYSINFO_EHDR => return self.set_word(at, AT_IGNORE),
                AT_NULL => return Ok(()),
                _ => at += 2 * WORD,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read as _, Seek as _};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn year_by(seconds: i64) -> String {
        let (clock, asked) = (Offset::default(), Cell::new(0));
        clock.jump(seconds);
        let mut said = tempfile::tempfile().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec date -u +%Y >&2"]);
        let (_, status) =
            run(&command, said.try_clone().unwrap(), &clock, LONGEST, &|| asked.set(asked.get() + 1))
                .unwrap();
        assert!(status.success(), "{status:?}");
        assert!(asked.get() > 0, "nothing asked for the time");
        said.rewind().unwrap();
        let mut text = String::new();
        said.read_to_string(&mut text).unwrap();
        text.trim().to_owned()
    }

    #[test]
    fn a_program_sees_the_shifted_clock() {
        let (now, then) = (year_by(0), year_by(3653 * 24 * 3600));
        assert_eq!(then.parse::<i32>().unwrap() - now.parse::<i32>().unwrap(), 10, "{now} {then}");
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "while :; do :; done"]);
        let stderr = tempfile::tempfile().unwrap();
        let (_, status) =
            run(&command, stderr, &Offset::default(), Duration::from_millis(100), &|| ()).unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }
}
