//! `kops-agent fleet follow` as a service of a machine. The service follows rollouts. This file adds its
//! unit.

use crate::resolve::NodeConfig;
use crate::resource::{DesiredState, Unit};

use super::own_service;
use super::paths::BOOT_CONFIG;

pub const UNIT: &str = "kops-agent-follow.service";
const UNIT_TEXT: &str = include_str!("../../../../units/kops-agent-follow.service");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowService {
    pub program: String,
    /// Path of the machine's boot config.
    pub conf: String,
}

pub(super) fn add(node: &NodeConfig, service: &FollowService, state: &mut DesiredState) {
    let text = own_service::unit_text(node, UNIT_TEXT, &service.program).replace(BOOT_CONFIG, &service.conf);
    state.add(Unit::new(UNIT, text));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::{Services, desired, desired_with};
    use crate::resolve::testing::{control_plane, resolved};
    use crate::resource::{Kind, Resource, ResourceId};

    #[test]
    fn the_service_adds_only_its_unit_to_every_machine() {
        let service = FollowService { program: "/opt/agent".into(), conf: "/opt/conf/kube_env.yaml".into() };
        for node in [control_plane(|_| {}), resolved(|_| {}).unwrap()] {
            let before = desired(&node).unwrap();
            let services = Services { follow: Some(&service), ..Services::default() };
            let after = desired_with(&node, services).unwrap();
            let new: Vec<_> = after.iter().map(|(id, _)| id).filter(|id| before.get(id).is_none()).collect();
            assert_eq!(new, [&ResourceId::new(Kind::Unit, UNIT)]);
            assert!(before.iter().all(|(id, resource)| after.get(id) == Some(resource)));
            let Some(Resource::Unit(unit)) = after.get(new[0]) else { panic!("{new:?}") };
            let command = "\nExecStart=/opt/agent fleet follow --conf /opt/conf/kube_env.yaml\n";
            let text = unit.text.as_deref().unwrap();
            assert!(text.contains(command), "{text}");
        }
    }
}
