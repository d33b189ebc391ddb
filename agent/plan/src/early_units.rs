//! The part of a node that runs before the node requests its first certificates. In a gossip cluster this part is protokube: without
//! protokube, the name of kops-controller has no address on the machine. nodeup starts protokube while it retries the request (upstream:
//! `nodeup/pkg/model/bootstrap_client.go` and `protokube.go` at v1.34.3, v1.35.2 and v1.36.2).

use crate::desired::PROTOKUBE_UNIT;
use crate::resource::{DesiredState, Kind, Resource, ResourceId};

/// Returns protokube's unit and the files whose change restarts it. Empty if the node does not run protokube.
pub fn before_certificates(desired: &DesiredState) -> DesiredState {
    let mut part = DesiredState::default();
    let protokube = ResourceId::new(Kind::Unit, PROTOKUBE_UNIT);
    if let Some(Resource::Unit(unit)) = desired.get(&protokube) {
        for resource in unit.restarted_by.iter().filter_map(|id| desired.get(id)) {
            part.add(resource.clone());
        }
        part.add(unit.clone());
    }
    part
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::resource::{File, Unit};

    #[test]
    fn the_early_part_is_protokubes_unit_and_its_files() {
        let mut desired = DesiredState::default();
        desired.add(Unit::new("kubelet.service", "[Unit]").restarted_by_files(["/kubelet"]));
        for path in ["/kubelet", "/protokube", "/environment"] {
            desired.add(File::text(path, path));
        }
        assert!(before_certificates(&desired).is_empty());
        let unit = Unit::new(PROTOKUBE_UNIT, "[Unit]").restarted_by_files(["/protokube", "/environment"]);
        desired.add(unit);
        let part = before_certificates(&desired).checked().unwrap();
        let mut names: Vec<&str> = part.iter().map(|(id, _)| id.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["/environment", "/protokube", PROTOKUBE_UNIT]);
    }
}
