//! Runs a program that may hang. The program has its own process group. At a deadline, or if another thread asks for
//! it, the whole group is killed.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;

/// Interval between two checks whether a program has ended.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// Runs one program at a time. Clones share the program, and each clone can end it.
#[derive(Clone, Default)]
pub(super) struct Runner(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Running(Child),
    Ended,
}

pub(super) struct Started {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    pub(super) group: Group,
}

/// The process group of a program: the program and its children.
#[derive(Clone, Copy)]
pub(super) struct Group(Option<Pid>);

impl Group {
    fn from_child(child: &Child) -> Group {
        Group(i32::try_from(child.id()).map(Pid::from_raw).ok())
    }

    /// Kills the processes of the group that still run.
    pub(super) fn kill(self) {
        // The group may already be gone.
        let _ = self.0.map(|group| killpg(group, Signal::SIGKILL));
    }
}

impl Runner {
    /// Starts a program. `None` after [`Runner::end`] was called.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Option<Started>> {
        let mut state = self.0.lock();
        if matches!(*state, State::Ended) {
            return Ok(None);
        }
        let mut child = command.process_group(0).spawn()?;
        let started = Started {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            group: Group::from_child(&child),
        };
        *state = State::Running(child);
        Ok(Some(started))
    }

    /// Waits for the program to end. `None` if it was killed: at `deadline`, or by [`Runner::end`].
    pub(super) fn wait(&self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        loop {
            let mut state = self.0.lock();
            let State::Running(child) = &mut *state else { return Ok(None) };
            if let Some(status) = child.try_wait()? {
                *state = State::Idle;
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                kill(child);
                child.wait()?;
                *state = State::Idle;
                return Ok(None);
            }
            drop(state);
            sleep(POLL);
        }
    }

    /// Kills the running program and prevents any later start.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        if let State::Running(child) = &mut *state {
            kill(child);
            let _ = child.wait();
        }
        *state = State::Ended;
    }
}

/// Kills a program and its children. The exit status must not have been collected yet.
fn kill(child: &mut Child) {
    Group::from_child(child).kill();
    let _ = child.kill();
}
