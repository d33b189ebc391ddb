//! The Lease by which one process at a time applies add-ons.

use crate::lease::Contest;

/// The Lease for add-ons. Upstream's channels pods do not use it, and may run at the same time.
pub(super) const CONTEST: Contest =
    Contest { lease: "kops-agent-addons", doing: "this process applies add-ons" };
