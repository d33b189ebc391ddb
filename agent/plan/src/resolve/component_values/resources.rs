//! Checks the resources of a component's pod. kubelet does not run a static pod that the API would reject.
//!
//! Source: `ValidateResourceRequirements` in pkg/apis/core/validation, which kubelet calls in pkg/kubelet/config/common.go.

use kops_agent_spec::Quantity;

use super::Component;
use crate::resolve::kubelet::no_quantity;

/// The requests and limits of a pod.
pub(super) struct Resources<'a> {
    pub(super) cpu_request: Option<&'a Quantity>,
    /// The CPU request that kOps sets if the user sets none.
    pub(super) usual_cpu_request: &'static str,
    pub(super) cpu_limit: Option<&'a Quantity>,
    pub(super) memory_request: Option<&'a Quantity>,
    pub(super) memory_limit: Option<&'a Quantity>,
}

impl Resources<'_> {
    pub(super) fn check(&self, component: &mut Component<'_>) {
        let usual = Quantity::from(self.usual_cpu_request);
        let amounts = [
            ("cpuRequest", self.cpu_request),
            ("cpuLimit", self.cpu_limit),
            ("memoryRequest", self.memory_request),
            ("memoryLimit", self.memory_limit),
        ];
        let name = component.name;
        for (field, amount) in amounts.iter().filter_map(|(field, amount)| Some((field, (*amount)?))) {
            match amount.as_f64() {
                None => refuse(component, field, no_quantity(&amount.0)),
                Some(number) if number < 0.0 => {
                    let problem = format!("is {amount}, so kubelet does not run {name}; use 0 or more");
                    refuse(component, field, problem);
                }
                Some(_) => {}
            }
        }
        for (field, request, limit_field, limit) in [
            ("cpuRequest", Some(self.cpu_request.unwrap_or(&usual)), "cpuLimit", self.cpu_limit),
            ("memoryRequest", self.memory_request, "memoryLimit", self.memory_limit),
        ] {
            let (Some(request), Some(limit)) = (request, limit) else { continue };
            if let (Some(amount), Some(most)) = (request.as_f64(), limit.as_f64())
                && most >= 0.0
                && amount > most
            {
                let problem = format!(
                    "is {request}, but {limit_field} is {limit}, so kubelet does not run {name}; request no more than the limit"
                );
                refuse(component, field, problem);
            }
        }
    }
}

fn refuse(component: &mut Component<'_>, field: &str, problem: String) {
    component.problems.refuse(format!("{}.{field}", component.settings), problem);
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{
        API_SERVER, CONTROLLER_MANAGER, KUBE_PROXY, SCHEDULER, assert_accepted, assert_refused,
    };

    #[test]
    fn resources_that_the_api_rejects_are_refused() {
        for settings in [API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KUBE_PROXY] {
            assert_refused(
                "1.34.0",
                settings,
                &[
                    ("cpuRequest: -100m", "cpuRequest"),
                    ("cpuRequest: lots", "cpuRequest"),
                    ("memoryLimit: -1Gi", "memoryLimit"),
                    ("cpuLimit: 50m", "cpuRequest"),
                    ("{memoryRequest: 2Gi, memoryLimit: 1Gi}", "memoryRequest"),
                ],
            );
            let same = "{cpuRequest: 500m, cpuLimit: 0.5, memoryRequest: 1Gi, memoryLimit: 1024Mi}";
            assert_accepted("1.34.0", settings, &[same]);
        }
    }
}
