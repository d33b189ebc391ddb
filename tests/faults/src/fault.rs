//! What goes wrong with a machine while the agent runs on it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What goes wrong at an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The disk is full from then on: what takes no room still works.
    Full,
    /// The disk does not do this one thing.
    Unreadable,
    /// The file system is read-only from then on.
    ReadOnly,
    /// The agent gets no new file descriptor from then on, by its limit.
    NoDescriptors,
    /// The agent is killed, and the operation never done.
    Killed,
    /// The agent is asked to end, and the operation done.
    Terminated,
    /// The agent is stopped, so that another can come meanwhile, and the operation done.
    Stopped,
    /// The clock goes back by a month, and the operation is done.
    ClockBack,
    /// The clock goes ahead by ten years, and the operation is done.
    ClockAhead,
}

const ALL: [Fault; 9] = [
    Fault::Full,
    Fault::Unreadable,
    Fault::ReadOnly,
    Fault::NoDescriptors,
    Fault::Killed,
    Fault::Terminated,
    Fault::Stopped,
    Fault::ClockBack,
    Fault::ClockAhead,
];

/// All that can be had here: a clock jumps on x86_64 only.
pub const FAULTS: &[Fault] = if cfg!(target_arch = "x86_64") { &ALL } else { ALL.split_at(7).0 };

const DAY: i64 = 24 * 3600;

impl Fault {
    /// By how many seconds the clock jumps, if that is what goes wrong.
    pub fn jump(self) -> Option<i64> {
        match self {
            Fault::ClockBack => Some(-30 * DAY),
            Fault::ClockAhead => Some(3653 * DAY),
            _ => None,
        }
    }

    /// Does to this process, or to the clock, what the fault does; an operation that fails is the file system's.
    pub(super) fn strike(self, pid: u32, clock: &Offset) {
        let signal = match self {
            Fault::Killed => Signal::SIGKILL,
            Fault::Terminated => Signal::SIGTERM,
            Fault::Stopped => Signal::SIGSTOP,
            // Another process's limits are set by prlimit(2), which util-linux has a command for. Descriptors 0 to 3 are
            // taken by any program at work; with a limit of none at all, fcntl(F_DUPFD) answers EINVAL, and not EMFILE.
            Fault::NoDescriptors => {
                let _ = Command::new("prlimit").args(["--pid", &pid.to_string(), "--nofile=4:4"]).status();
                return;
            }
            Fault::ClockBack | Fault::ClockAhead => return clock.jump(self.jump().unwrap_or_default()),
            Fault::Full | Fault::Unreadable | Fault::ReadOnly => return,
        };
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// By how many seconds a process' clock is wrong.
#[derive(Clone, Debug, Default)]
pub struct Offset(Arc<AtomicI64>);

impl Offset {
    /// Has the clock jump to this many seconds from what is right.
    pub fn jump(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    pub fn seconds(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    pub fn now(&self) -> SystemTime {
        let by = Duration::from_secs(self.seconds().unsigned_abs());
        if self.seconds() < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
    }
}
