//! Compares this machine's clock with the clocks of servers. Signatures and certificates are valid only if the clocks agree.

use super::finding::{Finding, Seen};

/// Seconds for which an AWS signature stays valid (IAM User Guide, "Elements of an AWS API request signature"). kops-agent's controller
/// uses the same limit.
const SIGNATURES: i64 = 5 * 60;
/// A synchronized clock differs from a server's clock by at most this many seconds.
const NOTICEABLE: i64 = 30;

const CHECK: &str = "time";
pub(super) const SET: &str = "synchronize the clock over the network: `timedatectl set-ntp true`; check it with \
                   `timedatectl timesync-status` or `chronyc tracking`";

/// The difference between this machine's clock and the clocks of servers.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The name of each server, and the seconds by which the server's clock is ahead of this machine's clock.
    pub servers: Vec<(String, i64)>,
    /// Whether a time service synchronizes this machine's clock.
    pub is_synchronized: Seen<bool>,
}

pub(super) fn findings(clock: &Clock) -> Vec<Finding> {
    let Some((nearest, least)) = clock.servers.iter().min_by_key(|(_, ahead)| ahead.abs()) else {
        return vec![without_servers(&clock.is_synchronized)];
    };
    // A cache between the machine and the server may return an old response, whose time is old too.
    let may_be_cached = clock.is_synchronized == Ok(true) && *least < 0;
    let mut findings = vec![match least.abs() {
        off if off > NOTICEABLE && may_be_cached => Finding::warning(
            CHECK,
            format!(
                "this machine's clock is {}, compared with {nearest}, although it is synchronized over the network: one of the \
                 clocks is wrong, or a cache returned an old answer",
                differs(*least)
            ),
            format!("check `timedatectl timesync-status` or `chronyc tracking`, and the clock of {nearest}"),
        ),
        off if off > SIGNATURES => Finding::problem(
            CHECK,
            format!(
                "this machine's clock is {}, compared with {nearest}: servers reject this machine's signatures, and certificates \
                 may seem expired or not yet valid on this machine",
                differs(*least)
            ),
            SET,
        ),
        off if off > NOTICEABLE => Finding::warning(
            CHECK,
            format!("this machine's clock is {}, compared with {nearest}", differs(*least)),
            SET,
        ),
        _ => Finding::ok(CHECK, format!("this machine's clock agrees with the clock of {nearest}")),
    }];
    // If this machine's clock agrees with one server, a server that differs has a wrong clock.
    if least.abs() <= SIGNATURES {
        let differing = clock.servers.iter().filter(|(_, ahead)| ahead.abs() > SIGNATURES);
        findings.extend(differing.map(|(server, ahead)| {
            let seconds = ahead.abs();
            let problem = format!(
                "the clock of {server} differs by {seconds} s from this machine's clock, which agrees with {nearest}"
            );
            Finding::warning(CHECK, problem, format!("check the clock of {server}"))
        }));
    }
    findings
}

fn differs(ahead: i64) -> String {
    if ahead > 0 { format!("{ahead} s behind") } else { format!("{} s ahead", ahead.abs()) }
}

fn without_servers(is_synchronized: &Seen<bool>) -> Finding {
    match is_synchronized {
        Ok(true) => Finding::ok(CHECK, "this machine's clock is synchronized over the network"),
        Ok(false) => Finding::warning(
            CHECK,
            "this machine's clock is not synchronized over the network, and no server reported the time",
            SET,
        ),
        Err(why) => Finding::unknown(
            CHECK,
            format!("no server reported the time, and the synchronization of the clock is unknown: {why}"),
            SET,
        ),
    }
}
