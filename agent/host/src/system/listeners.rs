//! The listening TCP sockets and their processes (proc_pid_net(5), proc_pid_fd(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::processes::{name_of, numbers};
use crate::error::{Error, Result};

/// `TCP_LISTEN` of the kernel's `include/net/tcp_states.h`.
const LISTENING: &str = "0A";

/// The addresses and inodes of the listening sockets. A missing `/proc/net/tcp6` is no error: without IPv6, the
/// kernel does not have this file.
pub fn sockets(root: &Path) -> Result<Vec<(SocketAddr, String)>> {
    let file = root.join("proc/net/tcp");
    let ipv4 = std::fs::read_to_string(&file)
        .map_err(|error| Error::path("look at", file.display().to_string(), error))?;
    let ipv6 = std::fs::read_to_string(root.join("proc/net/tcp6")).unwrap_or_default();
    Ok([ipv4, ipv6].iter().flat_map(|text| parse(text)).collect())
}

/// The name and PID of each process with an open socket, by the inode of the socket. Processes that the agent may not
/// inspect are left out.
pub fn owners(root: &Path) -> BTreeMap<String, (String, u32)> {
    let mut owners = BTreeMap::new();
    for number in numbers(root).unwrap_or_default() {
        let folder = root.join(format!("proc/{number}"));
        let Ok(open) = std::fs::read_dir(folder.join("fd")) else { continue };
        for link in open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()) {
            if let Some((inode, name)) = inode_of(&link).zip(name_of(&folder)) {
                owners.entry(inode.to_owned()).or_insert((name, number));
            }
        }
    }
    owners
}

/// The inodes of the sockets that receive connections to an address. Without a socket at exactly this address, the
/// sockets that listen at all addresses receive the connections.
pub(crate) fn sockets_at(root: &Path, address: SocketAddr) -> Result<BTreeSet<String>> {
    let of_port: Vec<(SocketAddr, String)> =
        sockets(root)?.into_iter().filter(|(local, _)| local.port() == address.port()).collect();
    let among = |is_it: &dyn Fn(IpAddr) -> bool| -> BTreeSet<String> {
        of_port.iter().filter(|(local, _)| is_it(local.ip())).map(|(_, inode)| inode.clone()).collect()
    };
    let there = among(&|local| local.to_canonical() == address.ip());
    Ok(if there.is_empty() {
        among(&|local| local.is_unspecified() && (local.is_ipv6() || address.is_ipv4()))
    } else {
        there
    })
}

/// Whether a process has one of these sockets open. `folder` is the process's folder in `/proc`.
pub(crate) fn has_any(folder: &Path, sockets: &BTreeSet<String>) -> bool {
    let Ok(open) = std::fs::read_dir(folder.join("fd")) else { return false };
    let mut links = open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| inode_of(&link).is_some_and(|inode| sockets.contains(inode)))
}

/// The inode of a socket, from the target of a link in `/proc/PID/fd`.
fn inode_of(link: &Path) -> Option<&str> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')
}

/// Parses an address in the kernel's format: each 32 bits are a number in this machine's byte order.
fn address(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

fn parse(text: &str) -> Vec<(SocketAddr, String)> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, .., _] = fields[..] else { return None };
        let (host, port) = local.rsplit_once(':')?;
        let local = SocketAddr::new(address(host)?, u16::from_str_radix(port, 16).ok()?);
        (state == LISTENING).then(|| Some((local, (*fields.get(9)?).to_owned())))?
    };
    text.lines().skip(1).filter_map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_no_listening_sockets() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
                    1: 0100007F:280A 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n\
                    2: cut\n";
        assert_eq!(parse(text), [("0.0.0.0:10250".parse().unwrap(), "4711".to_owned())]);
    }
}
