//! Nodes that claim to be another machine, and the roles that they lose.

use super::*;

const IMPOSTOR: &str = "i-00000000000000666";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Stores a Node that claims the instance of another Node. The Node has the labels that upstream gives to such an impostor.
fn put_impostor(cluster: &Cluster, name: &str) {
    let labels = json!({
        "kubernetes.io/hostname": name, "team": "a", CONTROL_PLANE: "", "kops.k8s.io/kops-controller-pki": "",
        "kops.k8s.io/instancegroup": "control-plane"
    });
    cluster.api.state().put_saying(name, NAME, labels);
}

#[tokio::test]
async fn a_node_that_is_certainly_another_machine_loses_the_roles_that_it_was_given() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    put_impostor(&cluster, IMPOSTOR);
    let reasons = |state: &State| -> Vec<String> {
        state.events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
    };
    cluster.run_until(|state| reasons(state).contains(&"RoleLabelsRemoved".to_owned())).await;
    let state = cluster.api.state();
    let left = json!({"kubernetes.io/hostname": IMPOSTOR, "team": "a", "kops.k8s.io/instancegroup": "control-plane"});
    assert_eq!(state.nodes[IMPOSTOR]["metadata"]["labels"], left);
    assert!(reasons(&state).contains(&"InstanceOfOtherNode".to_owned()));
    let event = state.events.iter().find(|event| event["reason"] == "RoleLabelsRemoved").unwrap();
    assert!(event["message"].as_str().unwrap().contains(CONTROL_PLANE), "{event}");
    assert!(is_labelled(&state));
}

#[tokio::test]
async fn once_takes_roles_away_too_and_a_dry_run_shows_it() {
    let mut cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    put_impostor(&cluster, IMPOSTOR);
    cluster.node_labels.mode = Mode::Show;
    let shown = cluster.node_labels.run_once().await.unwrap();
    assert!(shown.patches[IMPOSTOR].labels.as_ref().unwrap().remove.contains(CONTROL_PLANE), "{shown:?}");
    assert!(shown.problems.contains_key(IMPOSTOR));
    assert_eq!(cluster.api.state().patches.len(), 0);
    cluster.node_labels.mode = Mode::Apply(Leadership::uncontested());
    assert_eq!(cluster.node_labels.run_once().await.unwrap().patched, 2);
    assert!(cluster.api.state().nodes[IMPOSTOR]["metadata"]["labels"].get(CONTROL_PLANE).is_none());
}

#[tokio::test]
async fn where_most_nodes_are_refused_the_configuration_is_and_nothing_is_taken_away() {
    let cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    put_impostor(&cluster, IMPOSTOR);
    put_impostor(&cluster, "i-00000000000000667");
    for _ in 0..2 {
        cluster.node_labels.run_once().await.unwrap();
    }
    assert_eq!(cluster.api.state().patches.len(), 1, "the one that is believed");
}

#[tokio::test]
async fn with_tags_labels_are_those_that_upstream_gives_whatever_the_store_has() {
    let mut cluster = Cluster::start(Mood::Good, Leadership::uncontested()).await;
    cluster.node_labels.labels_from = LabelsFrom::Tags;
    put_impostor(&cluster, IMPOSTOR);
    let labels = json!({"kubernetes.io/hostname": NAME, GROUP_LABEL: "edited", CONTROL_PLANE: ""});
    cluster.api.state().put(NAME, labels);
    cluster.run_until(|state| state.patches.len() == 1).await;
    // The instance's tags contain no labels. Upstream removes the roles that the tags do not contain, and keeps all other labels.
    let left = json!({"kubernetes.io/hostname": NAME, GROUP_LABEL: "edited"});
    assert_eq!(cluster.api.state().nodes[NAME]["metadata"]["labels"], left);
    // Upstream accepts this Node and would add its roles again, so the controller does not remove them.
    cluster.node_labels.run_once().await.unwrap();
    assert!(cluster.api.state().nodes[IMPOSTOR]["metadata"]["labels"].get(CONTROL_PLANE).is_some());
    assert_eq!(cluster.api.state().patches.len(), 1);
}
