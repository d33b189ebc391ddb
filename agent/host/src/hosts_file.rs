//! kOps' block in `/etc/hosts`. The rest of the file stays unchanged.
//!
//! The marker lines are kOps' own (pkg/dns/hosts/hosts.go), because other parts of kOps write to the same block.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::resource::HostsEntry;

use crate::error::Result;
use crate::root::{Entry, Root};
use crate::staged::{Staged, place};

pub(crate) const PATH: &str = "/etc/hosts";

const BEGIN: &str = "# Begin host entries managed by kops - do not edit";
const END: &str = "# End host entries managed by kops";

/// Writes these entries. Removes each entry that has no addresses.
pub(crate) fn write_entries(root: &Root, entries: &[&HostsEntry]) -> Result<()> {
    let before = root.read(PATH)?.unwrap_or_default();
    let after = with_entries(&String::from_utf8_lossy(&before), entries);
    let (mode, owner) = match root.parent(PATH)? {
        Some((dir, name)) => match dir.entry(&name)? {
            Some(Entry::File(metadata)) => (metadata.mode, Some((metadata.uid, metadata.gid))),
            _ => (0o644, None),
        },
        None => (0o644, None),
    };
    let mut staged = Staged::new(root, PATH, mode, owner)?;
    staged.write(after.as_bytes())?;
    place(vec![staged.seal()?])
}

pub(crate) fn remove_entries(root: &Root, hostnames: &[&str]) -> Result<()> {
    let removed: Vec<HostsEntry> = hostnames
        .iter()
        .map(|hostname| HostsEntry { hostname: (*hostname).to_owned(), ..HostsEntry::default() })
        .collect();
    write_entries(root, &removed.iter().collect::<Vec<_>>())
}

/// The entry of a host name in kOps' block of the hosts file.
pub(crate) fn find(text: &str, hostname: &str) -> Option<HostsEntry> {
    let addresses: Vec<String> =
        block(text).filter(|(_, name)| name == hostname).map(|(address, _)| address).collect();
    (!addresses.is_empty()).then(|| HostsEntry {
        hostname: hostname.into(),
        addresses,
        ..HostsEntry::default()
    })
}

/// The text of the hosts file with `entries` in kOps' block. Each entry replaces the earlier entry of its host name.
pub(crate) fn with_entries(text: &str, entries: &[&HostsEntry]) -> String {
    let ours: BTreeSet<&str> = entries.iter().map(|entry| entry.hostname.as_str()).collect();
    let mut lines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (address, name) in block(text).filter(|(_, name)| !ours.contains(name.as_str())) {
        lines.entry(address).or_default().insert(name);
    }
    for entry in entries {
        for address in &entry.addresses {
            lines.entry(address.clone()).or_default().insert(entry.hostname.clone());
        }
    }
    let mut out = outside(text);
    out.push_str(&format!("\n{BEGIN}\n"));
    for (address, names) in lines {
        let names: Vec<String> = names.into_iter().collect();
        out.push_str(&format!("{address}\t{}\n", names.join(" ")));
    }
    out.push_str(&format!("{END}\n"));
    out
}

/// The pairs of an address and a name in kOps' block of the hosts file.
fn block(text: &str) -> impl Iterator<Item = (String, String)> {
    let inside = text
        .lines()
        .skip_while(|line| line.trim() != BEGIN)
        .take_while(|line| line.trim() != END)
        .filter(|line| !line.trim_start().starts_with('#'));
    inside.flat_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().unwrap_or_default().to_owned();
        words.map(move |name| (address.clone(), name.to_owned()))
    })
}

/// The text of the hosts file without kOps' block, and without empty lines at the end of the text.
fn outside(text: &str) -> String {
    let mut kept = String::new();
    let mut is_inside = false;
    for line in text.lines() {
        match line.trim() {
            BEGIN => is_inside = true,
            END => is_inside = false,
            _ if is_inside => {}
            _ => {
                kept.push_str(line);
                kept.push('\n');
            }
        }
    }
    let end = kept.trim_end().len();
    kept.truncate(end);
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hostname: &str, addresses: &[&str]) -> HostsEntry {
        let addresses = addresses.iter().map(|x| (*x).into()).collect();
        HostsEntry { hostname: hostname.into(), addresses, ..HostsEntry::default() }
    }

    #[test]
    fn the_block_is_changed_and_the_rest_is_not() {
        let before = "127.0.0.1 localhost\n\n\n# Begin host entries managed by kops - do not edit\n\
                      10.0.0.1\tapi.internal other\n# End host entries managed by kops\n::1 ip6-localhost\n";
        assert_eq!(find(before, "api.internal"), Some(entry("api.internal", &["10.0.0.1"])));
        assert_eq!(find(before, "localhost"), None);
        let after =
            with_entries(before, &[&entry("api.internal", &["10.0.0.2", "10.0.0.3"]), &entry("gone", &[])]);
        assert_eq!(
            after,
            "127.0.0.1 localhost\n\n\n::1 ip6-localhost\n\n\
             # Begin host entries managed by kops - do not edit\n10.0.0.1\tother\n10.0.0.2\tapi.internal\n\
             10.0.0.3\tapi.internal\n# End host entries managed by kops\n"
        );
        assert_eq!(with_entries(&after, &[&entry("api.internal", &["10.0.0.2", "10.0.0.3"])]), after);
    }

    #[test]
    fn a_new_file_begins_with_the_block() {
        let text = with_entries("", &[&entry("a", &["10.0.0.1"])]);
        assert_eq!(find(&text, "a"), Some(entry("a", &["10.0.0.1"])));
    }
}
