//! Threads that hash and unpack downloads give way to whatever else wants a processor: packages are installed meanwhile, which
//! takes longer, and a boot waits for both.

use rustix::process::{getpriority_process, setpriority_process};
use tokio::task::{JoinHandle, spawn_blocking};

/// How much nicer such a thread is than its process: a tenth of a processor's time is left to it beside another.
const NICER: i32 = 10;

/// Has a thread do work that may wait for the disk, with a lower priority. A thread that may not lower it works all the same.
pub(super) fn spawn_yielding<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    spawn_blocking(move || {
        let _lowered = Lowered::begin();
        work()
    })
}

/// This thread's priority before it was lowered, which it gets back however its work ends: it goes on to other work.
struct Lowered(Option<i32>);

impl Lowered {
    fn begin() -> Lowered {
        // Of this thread alone: Linux keeps a priority for each (sched(7)).
        let before = getpriority_process(None).ok();
        if let Some(before) = before {
            let _ = setpriority_process(None, before + NICER);
        }
        Lowered(before)
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // Without the right to raise a priority it stays as it is.
            let _ = setpriority_process(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn work_gives_way_and_nothing_else_does() {
        let before = getpriority_process(None).unwrap();
        // The lowest there is, where the tests themselves give way.
        let lower = (before + NICER).min(19);
        assert_eq!(spawn_yielding(|| getpriority_process(None).unwrap()).await.unwrap(), lower);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
