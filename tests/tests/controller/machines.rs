//! `fleet plan` on a real API server: the leading controller publishes the machines that the instance groups want, nodes
//! publish their own.

use std::fs;

use serde_json::{Value, json};

use crate::cluster::{Cluster, eventually, plain_agent};
use crate::rollout::{Fleet, OLD, ended};

fn edit(cluster: &Cluster, group: &str, machine_type: &str) {
    let text = format!(
        "{{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {{name: {group}}}, spec: \
         {{role: Node, image: ami-1, machineType: {machine_type}, rootVolumeSize: 64}}}}"
    );
    fs::write(cluster.store().join("instancegroup").join(group), text).unwrap();
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_that_needs_a_new_machine_is_named_with_the_reason() {
    let fleet = Fleet::start(&[("a", 2)]);
    edit(&fleet.cluster, "a", "m5.large");
    let plan = |arguments: &[&str]| {
        let mut command = plain_agent();
        command.args(["fleet", "plan"]).args(arguments).arg("--kubeconfig").arg(&fleet.admin);
        let (code, said) = ended(&mut command);
        assert_eq!(code, Some(0), "{said}");
        said
    };
    let said = plan(&[]);
    assert!(said.contains("unknown whether nodes need new machines: no controller has written"), "{said}");

    fleet.report_now("a-0", fleet.current("node", "a").as_str());
    let machine =
        json!({"schemaVersion": 1, "machineType": "t3.large", "image": "ami-1", "rootVolumeGiB": 64});
    fleet.cluster.annotate_node("a-0", "kops-agent/machine", machine.to_string());
    let controller = fleet.cluster.controller();
    let expected = "a: needs a new machine: machine type t3.large, spec has m5.large (a-0)";
    eventually("the specs are published", || plan(&[]).contains(expected));
    let items: Value = serde_json::from_str(&plan(&["--instance-group", "a", "-o", "json"])).unwrap();
    let compared = &items["items"][0]["nodes"][0]["machine"];
    let difference = json!(["machine type t3.large, spec has m5.large"]);
    assert_eq!(compared, &json!({"needsNewMachine": difference, "notCompared": []}));

    // A rollout changes the configuration of a node, but not its machine type.
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    fleet.runs("a-0", OLD);
    fleet.runs("a-1", &fleet.current("node", "a"));
    let (code, said) = fleet.rollout(&["start", "--check-pods-after", "0"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["a-0"]);
    fleet.answer("a-0", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    assert!(plan(&[]).contains(expected));

    // The spec changes, and a new controller becomes the leader.
    controller.terminate();
    edit(&fleet.cluster, "a", "t3.large");
    let _controller = fleet.cluster.controller();
    eventually("the new spec counts", || !plan(&[]).contains("needs a new machine"));
}
