//! Rollouts on a real API server that take workers to other authorities of `kubernetes-ca`. Nodes answer as `fleet follow` does.

use std::fs;

use crate::cluster::eventually;
use crate::rollout::Fleet;

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn workers_take_new_authorities_after_the_control_planes() {
    let fleet = Fleet::start(&[("a", 2)]);
    let file = fleet.cluster.store().join("igconfig/control-plane/masters/nodeupconfig.yaml");
    let update = |from: &str, to: &str| {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&file, text.replace(from, to)).unwrap();
    };
    let _controller = fleet.cluster.controller();
    for node in ["a-0", "a-1"] {
        fleet.runs(node, &fleet.current("node", "a"));
    }
    fleet.trusts("a-0", &"0".repeat(64));

    // If the CAs change, only the configuration hash of the control planes changes.
    update("CERTIFICATE-----a-----END", "CERTIFICATE-----b-----END");
    let (code, said) = fleet.rollout(&["start", "--check-pods-after", "0"]);
    assert_eq!(code, Some(0), "{said}");
    fleet.at_work(&["masters-0"]);
    assert_eq!((fleet.order("a-0"), fleet.order("masters-0").unwrap().get("authorities")), (None, None));
    fleet.answer("masters-0", "");
    fleet.at_work(&["a-0"]);
    let order = fleet.order("a-0").unwrap();
    assert_eq!(order["hash"], fleet.current("node", "a"));
    assert_eq!(order["authorities"].as_str().map(str::len), Some(64));
    let (_, said) = fleet.rollout(&["status"]);
    assert!(
        said.contains("a: nodes that have this configuration, but trust other certificates of kubernetes-ca"),
        "{said}"
    );

    // After a second change of the CAs, the running rollout gives new orders to the nodes.
    update("CERTIFICATE-----b-----END", "CERTIFICATE-----c-----END");
    let masters = fleet.current("control-plane", "masters");
    eventually("the controller reads it", || {
        fleet.status()["status"]["groups"]["masters"]["hash"] == masters.as_str()
    });
    fleet.answer("a-0", "");
    fleet.at_work(&["masters-0"]);
    fleet.answer("masters-0", "");
    fleet.at_work(&["a-0"]);
    assert_ne!(fleet.order("a-0").unwrap()["authorities"], order["authorities"]);
    fleet.answer("a-0", "");
    eventually("the rollout is done", || fleet.phase() == "done");
    let (code, said) = fleet.rollout(&["status"]);
    let silent = "do not report which authorities they trust (1), so update kops-agent on them: a-1";
    assert!(code == Some(0) && said.contains(silent), "{said}");

    // While the controller does not know which CAs the nodes must trust, the rollout does not finish.
    update("CAs: ", "Other: ");
    fleet.runs("masters-0", &fleet.current("control-plane", "masters"));
    let (code, said) = fleet.rollout(&["start", "--check-pods-after", "0"]);
    assert_eq!(code, Some(0), "{said}");
    eventually("the status says so", || {
        fleet
            .rollout(&["status"])
            .1
            .contains("a: the authorities that the nodes of this group must trust are unknown")
    });
    assert_eq!((fleet.phase().as_str(), fleet.order("a-1")), ("running", None));
}
