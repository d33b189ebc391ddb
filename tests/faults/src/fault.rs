//! The faults that a test injects while the agent runs.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A fault that strikes at one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// From this operation on, the disk is full. Operations that need no space still succeed.
    Full,
    /// This operation alone fails with an I/O error.
    Unreadable,
    /// From this operation on, the file system is read-only.
    ReadOnly,
    /// From this operation on, the agent's limit allows no new file descriptor.
    NoDescriptors,
    /// SIGKILL ends the agent, and the operation has no effect.
    Killed,
    /// The agent gets SIGTERM, and the operation succeeds.
    Terminated,
    /// SIGSTOP stops the agent, so that a second run can start while the first is stopped. The operation succeeds.
    Stopped,
    /// The clock goes back by 30 days, and the operation succeeds.
    ClockBack,
    /// The clock goes ahead by ten years, and the operation succeeds.
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

/// The faults that this architecture supports. Clock jumps need x86_64.
pub const FAULTS: &[Fault] = if cfg!(target_arch = "x86_64") { &ALL } else { ALL.split_at(7).0 };

const DAY: i64 = 24 * 3600;

impl Fault {
    /// The clock's jump in seconds. `None` if the fault is not a clock jump.
    pub fn jump(self) -> Option<i64> {
        match self {
            Fault::ClockBack => Some(-30 * DAY),
            Fault::ClockAhead => Some(3653 * DAY),
            _ => None,
        }
    }

    /// Applies the fault to this process or to the clock. Does nothing if the fault makes file operations fail, because the file system
    /// does that.
    pub(super) fn strike(self, pid: u32, clock: &Offset) {
        let signal = match self {
            Fault::Killed => Signal::SIGKILL,
            Fault::Terminated => Signal::SIGTERM,
            Fault::Stopped => Signal::SIGSTOP,
            // The command prlimit of util-linux sets limits of a running process. The agent already uses descriptors 0 to 3.
            // With a limit of 0, fcntl(F_DUPFD) fails with EINVAL instead of EMFILE.
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

/// The difference in seconds between a process' clock and the real time.
#[derive(Clone, Debug, Default)]
pub struct Offset(Arc<AtomicI64>);

impl Offset {
    /// Sets the difference to the real time. The previous difference has no effect.
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
