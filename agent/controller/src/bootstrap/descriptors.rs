//! Raises the limit of file descriptors, and computes how many connections fit into it.
//!
//! A process starts with a low limit (1024 under systemd) and may raise it. Under the low limit, unverified peers could
//! use up the descriptors that calls to the cloud and the API server need, before the limit of connections is reached.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The number of file descriptors that are reserved for everything except machines' connections.
const OTHERS: u64 = 512;

/// Raises the limit of file descriptors for the `wanted` connections. Returns how many of them are possible.
pub fn connections(wanted: usize) -> usize {
    let needed = wanted as u64 + OTHERS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return wanted };
    if soft >= needed {
        return wanted;
    }
    let raised = needed.min(hard);
    let is_raised = raised > soft && setrlimit(Resource::RLIMIT_NOFILE, raised, hard).is_ok();
    let possible = connections_of(if is_raised { raised } else { soft }, wanted);
    if possible < wanted {
        log::warn!(
            "this process may open only {soft} files (hard limit {hard}), so at most {possible} machines can \
             be connected at a time, not {wanted}; set LimitNOFILE={needed} or higher"
        );
    }
    possible
}

/// The number of connections that this many descriptors allow. Connections get at least half of the descriptors.
fn connections_of(descriptors: u64, wanted: usize) -> usize {
    let possible = descriptors.saturating_sub(OTHERS).max(descriptors / 2);
    usize::try_from(possible).unwrap_or(usize::MAX).min(wanted)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::server::Limits;
    use super::*;

    #[test]
    fn there_are_no_more_connections_than_descriptors() {
        for (descriptors, expected) in [(1 << 20, 2048), (2560, 2048), (1024, 512), (600, 300), (0, 0)] {
            assert_eq!(connections_of(descriptors, 2048), expected, "{descriptors}");
        }
    }

    #[test]
    fn the_soft_limit_of_files_is_raised_as_far_as_the_kernel_allows() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let wanted = Limits::default().connections;
        let possible = connections(wanted);
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert!(soft >= (wanted as u64 + OTHERS).min(hard), "{soft} of {hard}");
        assert_eq!(possible, connections_of(soft, wanted));
    }

    #[test]
    fn the_service_has_enough() {
        let unit = include_str!("../../../../units/kops-agent-controller.service");
        let limit: u64 =
            unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap().parse().unwrap();
        assert_eq!(
            connections_of(limit, usize::MAX).min(Limits::default().connections),
            Limits::default().connections
        );
    }
}
