//! The programs of protokube that a node downloads. kOps has protokube up to 1.36.
//!
//! Source: nodeup/pkg/model/protokube.go at v1.34.3, v1.35.2 and v1.36.2.

use kops_agent_spec::is_gossip_name;
use serde::Serialize;

use super::basis::Basis;
use super::{Asset, Problems};

#[derive(Clone, Debug, Serialize)]
pub struct Protokube {
    pub program: Asset,
    /// The program that applies add-ons for protokube. `None` if protokube applies no add-ons.
    pub channels: Option<Asset>,
}

/// The programs of protokube. `None` on nodes that do not run protokube.
pub(super) fn resolve(basis: &Basis<'_>, problems: &mut Problems) -> Option<Protokube> {
    let uses_gossip = basis.config.uses_legacy_gossip == Some(true);
    let needs_gossip = uses_gossip || is_gossip_name(&basis.config.cluster_name);
    if needs_gossip && !basis.config.uses_none_dns && !basis.release.has_gossip() {
        problems.add(
            "ClusterName",
            format!(
                "nodes of the cluster {} find each other by gossip, which kOps {} does not support; first set \
                 spec.topology.dns.type to None with kOps 1.36 or older",
                basis.config.cluster_name, basis.release
            ),
        );
        return None;
    }
    let applies_addons = basis.release.protokube_applies_addons();
    let has_addresses = !basis.boot.api_server_ips.is_empty() && basis.release.addresses_replace_gossip();
    let is_wanted = match basis.is_control_plane() {
        true => applies_addons || uses_gossip,
        false => uses_gossip && !has_addresses,
    };
    if !is_wanted {
        return None;
    }
    let program = problems.keep(&basis.assets_field(), basis.required("protokube"));
    let channels = match applies_addons {
        true => Some(problems.keep(&basis.assets_field(), basis.required("channels"))?),
        false => None,
    };
    Some(Protokube { program: program?, channels })
}
