//! Compares this machine's clock with those of servers. Signatures and certificates are valid only if the clocks agree.

use super::finding::{Finding, Seen};

/// Seconds that an AWS signature stays valid (IAM User Guide, "Elements of an AWS API request signature"). kops-agent's controller uses the
/// same limit.
const SIGNATURES: i64 = 5 * 60;
/// A synchronized clock never differs by more seconds than this.
const NOTICEABLE: i64 = 30;

const CHECK: &str = "time";
const SET: &str = "have the clock set over the network: `timedatectl set-ntp true`, and see `timedatectl timesync-status` or \
                   `chronyc tracking`";

/// The clock of this machine, compared with those of servers.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The name of each server, and the seconds by which its clock is ahead of this machine's clock.
    pub servers: Vec<(String, i64)>,
    /// Whether a time service synchronizes this machine's clock.
    pub is_synchronized: Seen<bool>,
}

pub(super) fn findings(clock: &Clock) -> Vec<Finding> {
    let Some((nearest, least)) = clock.servers.iter().min_by_key(|(_, ahead)| ahead.abs()) else {
        return vec![without_servers(&clock.is_synchronized)];
    };
    // A cache between the machine and the server may return an old response with an old time.
    let may_be_cached = clock.is_synchronized == Ok(true) && *least < 0;
    let mut findings = vec![match least.abs() {
        off if off > NOTICEABLE && may_be_cached => Finding::warning(
            CHECK,
            format!(
                "this machine's clock is set over the network, and {}, by that of {nearest}: one of them is wrong, or an old answer \
                 came from a cache",
                differs(*least)
            ),
            format!(
                "see `timedatectl timesync-status` or `chronyc tracking`, and whether the clock of {nearest} is right"
            ),
        ),
        off if off > SIGNATURES => Finding::problem(
            CHECK,
            format!(
                "this machine's clock is {}, by that of {nearest}: its signatures are refused, and certificates are not valid yet \
                 or any more",
                differs(*least)
            ),
            SET,
        ),
        off if off > NOTICEABLE => Finding::warning(
            CHECK,
            format!("this machine's clock is {}, by that of {nearest}", differs(*least)),
            SET,
        ),
        _ => Finding::ok(CHECK, format!("this machine's clock agrees with that of {nearest}")),
    }];
    // If this machine's clock agrees with one server, a server that differs has the wrong clock.
    if least.abs() <= SIGNATURES {
        findings
            .extend(clock.servers.iter().filter(|(_, ahead)| ahead.abs() > SIGNATURES).map(|(server, ahead)| {
            Finding::warning(
                CHECK,
                format!(
                    "the clock of {server} differs by {} s from this machine's, which agrees with {nearest}",
                    ahead.abs()
                ),
                format!("see whether the clock of {server} is right"),
            )
        }));
    }
    findings
}

fn differs(ahead: i64) -> String {
    if ahead > 0 { format!("{ahead} s behind") } else { format!("{} s ahead", ahead.abs()) }
}

fn without_servers(is_synchronized: &Seen<bool>) -> Finding {
    match is_synchronized {
        Ok(true) => Finding::ok(CHECK, "this machine's clock is set over the network"),
        Ok(false) => Finding::warning(
            CHECK,
            "this machine's clock is not set over the network, and no server told the time",
            SET,
        ),
        Err(why) => Finding::unknown(
            CHECK,
            format!("no server told the time, and whether the clock is set is not known: {why}"),
            SET,
        ),
    }
}
