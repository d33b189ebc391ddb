//! A socket that replaces systemd's socket for the messages of a run (sd_notify(3)).

use std::io;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// How many waits of one second may pass without a message from a run. A working run sends messages more often, so the
/// limit only ends a failing test.
const LONGEST_SILENCE: u32 = 120;

/// The socket that receives a run's messages to systemd, and the folder of the socket.
pub struct Listener {
    folder: TempDir,
    socket: UnixDatagram,
}

impl Listener {
    pub fn new() -> Listener {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        Listener { folder, socket }
    }

    pub fn listen_to<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"))
    }

    /// All messages up to the first message for which `is_last` is true. If there is no such message, the error has
    /// the reason and all messages.
    pub fn until(&self, is_last: impl Fn(&str) -> bool) -> Result<Vec<String>, String> {
        let mut all: Vec<String> = Vec::new();
        while !all.iter().any(|line| is_last(line)) {
            let told =
                self.next().map_err(|error| format!("nothing more is told ({error}) after {all:#?}"))?;
            all.extend(told);
        }
        Ok(all)
    }

    /// The assignments (`NAME=VALUE`) of the next message.
    fn next(&self) -> io::Result<Vec<String>> {
        let mut message = vec![0; 64 * 1024];
        let mut silent = 0;
        loop {
            let error = match self.socket.recv(&mut message) {
                Ok(size) => {
                    return Ok(String::from_utf8_lossy(&message[..size])
                        .lines()
                        .map(str::to_owned)
                        .collect());
                }
                Err(error) => error,
            };
            // If the process is stopped for a moment, a read fails with EINTR (signal(7)). If the whole machine is
            // stopped, the read times out. In both cases, the test reads again.
            let is_passing = matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock);
            if !is_passing || silent == LONGEST_SILENCE {
                return Err(error);
            }
            silent += 1;
        }
    }
}
