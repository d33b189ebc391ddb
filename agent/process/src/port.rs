//! Finds the program that listens on a TCP port of this machine. It does not touch the port.
//!
//! Source: proc_pid_net(5) (`/proc/net/tcp`: the local address in hex, state 0A for listening, the socket's inode) and
//! proc_pid_fd(5).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::program;

const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// `TCP_LISTEN` in the kernel's `include/net/tcp_states.h`.
const LISTENING: &str = "0A";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    Free,
    /// Another process that runs this program.
    ThisProgram,
    /// A program with this name. The kernel cuts the name to 15 characters.
    Program(String),
    /// A process that this process may not inspect.
    NotSeen,
}

pub fn holder(port: u16) -> Result<Holder> {
    let mut sockets = BTreeSet::new();
    for table in TABLES {
        match fs::read_to_string(table) {
            Ok(text) => sockets.extend(listening(&text, port)),
            // The kernel has no IPv6.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("reading {table}")),
        }
    }
    if sockets.is_empty() {
        return Ok(Holder::Free);
    }
    let this = program::path().ok();
    let mut found = Holder::NotSeen;
    for process in fs::read_dir("/proc").context("listing the processes")?.flatten() {
        let process = process.path();
        if !has_socket(&process, &sockets) {
            continue;
        }
        // An upgrade may have replaced the program's file. A process with the old file still counts as this program.
        if this.is_some()
            && fs::read_link(process.join("exe")).ok().map(|exe| program::of_process(&exe)) == this
        {
            return Ok(Holder::ThisProgram);
        }
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        found = Holder::Program(name.trim().to_owned());
    }
    Ok(found)
}

/// The inodes of the sockets that listen on a port, from one of the kernel's tables.
fn listening(table: &str, port: u16) -> impl Iterator<Item = String> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let mut fields = line.split_whitespace();
        let (local, state) = (fields.nth(1)?, fields.nth(1)?);
        let inode = fields.nth(5)?;
        (local.ends_with(&port) && state == LISTENING).then(|| inode.to_owned())
    })
}

fn has_socket(process: &Path, sockets: &BTreeSet<String>) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let target = fs::read_link(descriptor.path()).unwrap_or_default();
        let inode = target.to_str().and_then(|target| target.strip_prefix("socket:["));
        inode.and_then(|inode| inode.strip_suffix(']')).is_some_and(|inode| sockets.contains(inode))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_port_of_this_process_is_this_programs_and_free_afterwards() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert_eq!(holder(port).unwrap(), Holder::ThisProgram);
            drop(listener);
            // If another test starts a child process, the child has a copy of the listener until its exec. So the port may not be free yet.
            let deadline = Instant::now() + Duration::from_secs(60);
            while holder(port).unwrap() != Holder::Free {
                assert!(Instant::now() < deadline, "{:?}", holder(port));
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn only_listening_sockets_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: \
                     0100007F:0F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000 10011        0 4711 1 x\n   1: \
                     0100007F:0F94 0100007F:9C40 01 00000000:00000000 00:00000000 00000000 10011        0 4712 1 x\n";
        assert_eq!(listening(table, 3988).collect::<Vec<_>>(), ["4711"]);
        assert_eq!(listening(table, 40000).count(), 0);
    }
}
