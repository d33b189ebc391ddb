//! Units of kops-agent's own services. kops-agent's packages install these units too.

use crate::resolve::NodeConfig;
use crate::resource::{Kind, ResourceId};

use super::paths::PACKAGED_PROGRAM;
use super::{ADDONS_UNIT, CONTROLLER_UNIT, FOLLOW_UNIT, upkeep};

const SERVICE: &str = "[Service]\n";
/// The line that turns off the verification of OpenStack's certificates. kOps sets this variable for its own components
/// (`BuildSystemComponentEnvVars` in util/pkg/env/standard.go).
const ANY_CERTIFICATE_OF_OPENSTACK: &str = "Environment=KOPS_OS_TLS_INSECURE_SKIP_VERIFY=true\n";

/// The text of a packaged unit, adapted to this node and to the path of its program.
pub(super) fn unit_text(node: &NodeConfig, packaged: &str, program: &str) -> String {
    let text = packaged.replace(PACKAGED_PROGRAM, program);
    match node.config.takes_any_certificate_of_openstack() {
        true => text.replacen(SERVICE, &format!("{SERVICE}{ANY_CERTIFICATE_OF_OPENSTACK}"), 1),
        false => text,
    }
}

/// The resources that only serve kops-agent itself: its units, its timers, its link in `PATH` and its completions. A different version of
/// kops-agent may write these resources differently. No component of Kubernetes uses them.
pub fn own_resources() -> Vec<ResourceId> {
    let units = [CONTROLLER_UNIT, ADDONS_UNIT, FOLLOW_UNIT].map(|unit| ResourceId::new(Kind::Unit, unit));
    units.into_iter().chain(upkeep::ids()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::desired;
    use crate::resolve::testing::control_plane;

    #[test]
    fn no_part_of_a_component_counts_as_the_agents_own() {
        let own = own_resources();
        assert!(own.contains(&ResourceId::new(Kind::Unit, "kops-agent-verify.timer")));
        let node = desired(&control_plane(|_| {})).unwrap();
        let shared: Vec<String> =
            node.iter().map(|(id, _)| id).filter(|id| own.contains(id)).map(ToString::to_string).collect();
        assert_eq!(shared, [""; 0]);
    }

    #[test]
    fn services_verify_openstacks_certificates_unless_the_spec_turns_it_off() {
        let text = |insecure| {
            let node = control_plane(|inputs| {
                let openstack = inputs.config.openstack.get_or_insert_default();
                openstack.insecure_skip_verify = insecure;
            });
            let is_warned =
                node.warnings.iter().any(|warning| warning.field == "Openstack.insecureSkipVerify");
            (unit_text(&node, "[Unit]\n[Service]\nUser=x\n", "/opt/agent"), is_warned)
        };
        let verifying = ("[Unit]\n[Service]\nUser=x\n".to_owned(), false);
        assert_eq!((text(None), text(Some(false))), (verifying.clone(), verifying));
        let environment = "[Service]\nEnvironment=KOPS_OS_TLS_INSECURE_SKIP_VERIFY=true\nUser=x\n";
        assert_eq!(text(Some(true)), (format!("[Unit]\n{environment}"), true));
    }
}
