//! A program that may hang: it runs in a process group of its own, and is killed with all that it has started at a
//! deadline, or as soon as another thread asks for that.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use parking_lot::Mutex;

/// How often a program is asked whether it has ended.
pub(super) const POLL: Duration = Duration::from_millis(5);

/// What runs one program at a time; clones share it, and each may end the program.
#[derive(Clone, Default)]
pub(super) struct Runner(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Running(Child),
    Ended,
}

/// The pipes of a program, as far as they were asked for, and its process group.
pub(super) struct Started {
    pub(super) stdin: Option<ChildStdin>,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: Option<ChildStderr>,
    pub(super) group: Group,
}

/// A program and all that it has started.
#[derive(Clone, Copy)]
pub(super) struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(i32::try_from(child.id()).map(Pid::from_raw).ok())
    }

    /// Kills all of it that still runs.
    pub(super) fn kill(self) {
        // One that has ended by itself is as good.
        let _ = self.0.map(|group| killpg(group, Signal::SIGKILL));
    }
}

impl Runner {
    /// Starts a program; `None` once [`Runner::end`] was called.
    ///
    /// # Errors
    /// It cannot be started.
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
            group: Group::of(&child),
        };
        *state = State::Running(child);
        Ok(Some(started))
    }

    /// Waits for the end of the program; `None` where it was killed, at `deadline` or by [`Runner::end`].
    ///
    /// # Errors
    /// The system cannot tell whether it has ended.
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

    /// Kills the program that runs, and lets no other start.
    pub(super) fn end(&self) {
        let mut state = self.0.lock();
        if let State::Running(child) = &mut *state {
            kill(child);
        }
        *state = State::Ended;
    }
}

/// Kills a program whose exit status was not collected yet, with all that it has started.
fn kill(child: &mut Child) {
    Group::of(child).kill();
    let _ = child.kill();
}
