//! Runs programs that may hang. At a deadline, the program and its children are killed.

use std::io::{ErrorKind, Read, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::child::Runner;
use super::commands::{Outcome, failed, not_run, prepare};
use crate::error::Result;

/// Runs a program to its end and feeds it `input`. `None` if the program is not installed. A failed program is not an
/// error: the caller checks the exit status. Fails if the program has not ended after `within`.
pub(crate) fn ask_within(command: &[&str], input: &[u8], within: Duration) -> Result<Option<Outcome>> {
    ask_prepared(command, prepare(command)?, input, within)
}

/// Like `ask_within`, for a command that the caller has prepared, including its environment.
pub(super) fn ask_prepared(
    command: &[&str],
    mut prepared: Command,
    input: &[u8],
    within: Duration,
) -> Result<Option<Outcome>> {
    let deadline = Instant::now() + within;
    let cannot = |error: std::io::Error| not_run(command, &error);
    prepared.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let runner = Runner::default();
    let started = match runner.start(&mut prepared) {
        Ok(Some(started)) => started,
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let outputs = (read(started.stdout), read(started.stderr));
    if let Some(mut stdin) = started.stdin {
        let input = input.to_vec();
        // A program may end without reading its input. Then the write fails, and the exit status says why the program
        // ended.
        thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let ended = runner.wait(deadline).map_err(cannot)?.and_then(|status| {
        let of = |output: &Receiver<Vec<u8>>| {
            output.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
        };
        Some((status, of(&outputs.0)?, of(&outputs.1)?))
    });
    let Some((status, stdout, stderr)) = ended else {
        // Even if the program has ended, a child may still hold an output open.
        started.group.kill();
        let seconds = within.as_secs_f32();
        return Err(failed(command, format!("has not ended within {seconds} s, and was killed")));
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Some(Outcome { status, stdout: text(stdout), stderr: text(stderr) }))
}

/// The maximum size of a stored output, in bytes. The rest is read and discarded, so that the program does not block.
const LONGEST_OUTPUT: u64 = 32 << 20;

/// Reads an output to the end, on a separate thread.
fn read(output: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut all = Vec::new();
        // If reading fails, the bytes read so far are the result.
        let _ = output.map(|mut output| {
            output.by_ref().take(LONGEST_OUTPUT).read_to_end(&mut all)?;
            std::io::copy(&mut output, &mut std::io::sink())
        });
        let _ = sender.send(all);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: Duration = Duration::from_secs(60);

    #[test]
    fn a_failure_is_an_outcome_and_a_missing_program_is_none() {
        let outcome = ask_within(&["sh", "-c", "cat; echo no >&2; exit 3"], b"fed", AMPLE).unwrap().unwrap();
        assert_eq!((outcome.status.code(), &*outcome.stdout, &*outcome.stderr), (Some(3), "fed", "no\n"));
        assert!(ask_within(&["no-such-program-anywhere"], b"", AMPLE).unwrap().is_none());
        assert!(
            ask_within(&["/dev/null"], b"", AMPLE).is_err(),
            "an existing file that is no program is an error"
        );
    }

    #[test]
    fn input_and_output_may_exceed_the_buffer_of_a_pipe() {
        let much = vec![b'x'; 1 << 20];
        let outcome = ask_within(&["cat"], &much, AMPLE).unwrap().unwrap();
        assert_eq!(outcome.stdout.len(), much.len());
        assert!(
            ask_within(&["true"], &much, AMPLE).unwrap().unwrap().status.success(),
            "a program may leave its input unread"
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let began = Instant::now();
        let short = Duration::from_millis(200);
        // The second script ends immediately and leaves a child that holds its output open.
        for script in ["trap '' TERM; sleep 600 & sleep 600", "sleep 600 &"] {
            let error = ask_within(&["sh", "-c", script], b"", short).err().unwrap().to_string();
            assert!(error.contains("not ended within 0.2 s"), "{error}");
        }
        assert!(began.elapsed() < AMPLE);
    }
}
