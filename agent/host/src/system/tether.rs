//! Runs long programs. They end at a deadline, or immediately if the waiting run is asked to stop.
//!
//! A pull or an import can be ended at any time: the next one resumes or repeats it.

use std::io::{Read, Write as _};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::child::Runner;
use super::commands::{Outcome, failed, not_run, prepare, refused};
use crate::error::Result;

/// Limits the time of the programs that one operation runs. At the deadline, or when the `Leash` is dropped, the
/// running program is killed.
#[derive(Clone)]
pub struct Tether {
    deadline: Instant,
    limit: Duration,
    runner: Runner,
}

/// When this value is dropped, it kills the program that its [`Tether`] runs.
pub(crate) struct Leash(Runner);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Tether {
    /// A tether whose deadline is `limit` from now.
    pub(crate) fn new(limit: Duration) -> (Tether, Leash) {
        let runner = Runner::default();
        (Tether { deadline: Instant::now() + limit, limit, runner: runner.clone() }, Leash(runner))
    }

    /// Runs a program to its end. Fails if the program fails, or if the deadline comes first.
    pub fn run(&self, command: &[&str]) -> Result<()> {
        self.feed(command, &mut std::io::empty())
    }

    /// Runs a program to its end and feeds it `input`.
    pub fn feed(&self, command: &[&str], input: &mut dyn Read) -> Result<()> {
        let cannot = |error: std::io::Error| not_run(command, &error);
        let mut prepared = prepare(command)?;
        prepared.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let Some(started) = self.runner.start(&mut prepared).map_err(cannot)? else {
            return Err(failed(command, "did not start: the run was asked to stop".into()));
        };
        let (stdin, stderr) = (started.stdin, started.stderr);
        let (copied, said, ended) = thread::scope(|scope| {
            let listening = scope.spawn(|| {
                let mut said = Vec::new();
                stderr.map(|mut stderr| stderr.read_to_end(&mut said));
                String::from_utf8_lossy(&said).into_owned()
            });
            // A separate thread waits for the program, because this thread blocks in the write if the program hangs.
            let waiting = scope.spawn(|| self.runner.wait(self.deadline));
            let copied = stdin
                .map_or(Ok(()), |mut stdin| std::io::copy(input, &mut stdin).and_then(|_| stdin.flush()));
            let ended = waiting.join().unwrap_or(Ok(None)).map_err(cannot);
            (copied, listening.join().unwrap_or_default(), ended)
        });
        match ended? {
            Some(status) if status.success() => {
                copied.map_err(|error| failed(command, format!("did not get its input: {error}")))
            }
            Some(status) => Err(refused(command, &Outcome { status, stdout: String::new(), stderr: said })),
            None => Err(failed(
                command,
                format!("has not ended within {} s, and was killed", self.limit.as_secs()),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::super::child::POLL;
    use super::*;

    #[test]
    fn a_program_gets_its_input() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("out").display().to_string();
        let (tether, _leash) = Tether::new(Duration::from_secs(60));
        tether.feed(&["sh", "-c", &format!("cat > {path}")], &mut &b"hello"[..]).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "hello");
        // The program ends without reading its input. The error must show the program's message and not the broken
        // pipe.
        let mut endless = std::io::repeat(0).take(1 << 20);
        let error = tether.feed(&["sh", "-c", "echo broken archive >&2; exit 1"], &mut endless);
        assert!(error.unwrap_err().to_string().contains("broken archive"));
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_deadline_with_its_children() {
        let (tether, _leash) = Tether::new(Duration::from_millis(200));
        // The program reads nothing, and the input is larger than a pipe's buffer.
        let mut endless = std::io::repeat(0);
        let error = tether.feed(&["sh", "-c", "sleep 600 & sleep 600; true"], &mut endless).unwrap_err();
        assert!(error.to_string().contains("has not ended within 0 s"), "{error}");
    }

    #[test]
    fn a_program_is_ended_when_its_leash_is_dropped() {
        let (tether, leash) = Tether::new(Duration::from_secs(600));
        let temp = tempfile::tempdir().unwrap();
        let begun = temp.path().join("begun");
        let script = format!("touch {}; sleep 600; true", begun.display());
        thread::scope(|scope| {
            let running = scope.spawn(|| tether.run(&["sh", "-c", &script]));
            while !begun.exists() {
                sleep(POLL);
            }
            drop(leash);
            assert!(running.join().unwrap().is_err());
        });
        assert!(tether.run(&["true"]).unwrap_err().to_string().contains("asked to stop"));
    }
}
