//! The TCP sockets that processes listen on, with their processes (proc_pid_net(5), proc_pid_fd(5)).

use std::collections::BTreeMap;
use std::path::Path;

use kops_agent_plan::doctor::{Listener, Seen};

use super::processes::{name_of, numbers};
use super::unseen;

/// `TCP_LISTEN` of the kernel's `include/net/tcp_states.h`.
const LISTENING: &str = "0A";

/// All of them, those of IPv4 before those of IPv6.
///
/// # Errors
/// There is no `/proc/net/tcp`. Where there is no IPv6 nothing listens there.
pub fn listeners(root: &Path) -> Seen<Vec<Listener>> {
    let file = root.join("proc/net/tcp");
    let ipv4 = std::fs::read_to_string(&file).map_err(|error| unseen(&file, &error))?;
    let ipv6 = std::fs::read_to_string(root.join("proc/net/tcp6")).unwrap_or_default();
    let sockets: Vec<(u16, String)> = [ipv4, ipv6].iter().flat_map(|text| parse(text)).collect();
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let owners = owners(root);
    let mut listeners: Vec<Listener> = sockets
        .into_iter()
        .map(|(port, inode)| Listener { port, process: owners.get(&inode).cloned() })
        .collect();
    listeners.sort();
    listeners.dedup();
    Ok(listeners)
}

/// Ports and inodes of the sockets that listen.
fn parse(text: &str) -> Vec<(u16, String)> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, .., _] = fields[..] else { return None };
        let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
        (state == LISTENING).then(|| Some((port, (*fields.get(9)?).to_owned())))?
    };
    text.lines().skip(1).filter_map(socket).collect()
}

/// The processes that have sockets open, by the inodes of these. What may not be looked at is left out.
fn owners(root: &Path) -> BTreeMap<String, (String, u32)> {
    let mut owners = BTreeMap::new();
    for number in numbers(root).unwrap_or_default() {
        let folder = root.join(format!("proc/{number}"));
        let Ok(open) = std::fs::read_dir(folder.join("fd")) else { continue };
        for link in open.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()) {
            let inode = link.to_str().and_then(|link| link.strip_prefix("socket:[")?.strip_suffix(']'));
            if let Some((inode, name)) = inode.zip(name_of(&folder)) {
                owners.entry(inode.to_owned()).or_insert((name, number));
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_told_from_connections() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100 0 0 10 0\n\
                    1: 0100007F:280A 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 20 4 30 10 -1\n\
                    2: cut\n";
        assert_eq!(parse(text), [(10250, "4711".to_owned())]);
    }
}
