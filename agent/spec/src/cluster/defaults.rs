//! Defaults that kOps sets whenever it reads a Cluster (upstream: `SetDefaults_ClusterSpec` of both
//! versions).

use super::ClusterSpec;
use crate::authentication::RBACAuthorizationSpec;

impl ClusterSpec {
    pub(super) fn set_defaults(&mut self) {
        let topology = self.networking.topology.get_or_insert_default();
        if topology.dns.is_empty() {
            topology.dns = "Public".to_owned();
        }
        let authorization = self.authorization.get_or_insert_default();
        if authorization.rbac.is_none() && authorization.always_allow.is_none() {
            authorization.rbac = Some(RBACAuthorizationSpec {});
        }
        if let Some(flannel) = &mut self.networking.flannel
            && flannel.backend.is_empty()
        {
            flannel.backend = "udp".to_owned();
        }
    }
}
