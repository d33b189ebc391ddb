//! Which one of the processes that could apply add-ons does.

use crate::lease::Contest;

/// What processes contend for. Upstream's pods do not, and may run beside.
pub(super) const CONTEST: Contest =
    Contest { lease: "kops-agent-addons", doing: "add-ons are applied by this process" };
