//! Labels that the API server rejects do not keep a Node from its other labels.

use kops_agent_tests::ec2::{Ec2 as StandIn, Instance};

use super::*;

const LABEL_TAG: &str = "k8s.io/cluster-autoscaler/node-template/label/";
const ROLE: &str = "node-role.kubernetes.io/node";

/// A cluster with one instance, whose tags contain these labels.
async fn cluster(ec2: &StandIn, labels: &[(&str, &str)]) -> Cluster {
    let tag = |instance: Instance, (key, value): &(&str, &str)| {
        instance.tagged(&format!("{LABEL_TAG}{key}"), value)
    };
    ec2.put(NAME, labels.iter().fold(Instance::of_group("c.example.com", "nodes"), tag));
    let instances = Instances::new(Ec2::for_tests(&ec2.environment()[0].1), CloudCalls::default());
    Cluster::new(Mood::Good, Leadership::uncontested(), instances).await
}

fn label(state: &State, label: &str) -> Value {
    state.nodes[NAME]["metadata"]["labels"][label].clone()
}

async fn all_but_one_are_set(refused: (&str, &str), told: &str, patches: usize) {
    let ec2 = StandIn::start().unwrap();
    let cluster = cluster(&ec2, &[(ROLE, ""), refused, ("tier", "web")]).await;
    cluster.run_until(|state| !state.events.is_empty()).await;
    {
        let state = cluster.api.state();
        assert!(is_labelled(&state));
        assert_eq!((label(&state, ROLE), label(&state, "tier")), (json!(""), json!("web")));
        assert_eq!(label(&state, refused.0), Value::Null);
        let event = &state.events[0];
        assert_eq!(
            (&event["reason"], &event["involvedObject"]["name"]),
            (&json!("LabelsLeftOut"), &json!(NAME))
        );
        let message = event["message"].as_str().unwrap();
        assert!(message.starts_with("1 of its labels are left out: ") && message.contains(told), "{message}");
        assert_eq!(state.patches.len(), patches);
    }
    cluster.run_until(|_| cluster.node_labels.metrics.labels_left_out.get() > 0).await;
}

#[tokio::test]
async fn a_value_that_no_label_can_have_keeps_a_node_from_no_other_label() {
    all_but_one_are_set(("team", "data platform"), "is not a valid value of the label team", 1).await;
}

#[tokio::test]
async fn a_label_that_a_policy_refuses_keeps_a_node_from_no_other_label() {
    all_but_one_are_set((REFUSED_LABEL, "a"), "refused-by-policy=a: ValidatingAdmissionPolicy", 5).await;
}

#[tokio::test]
async fn a_dry_run_shows_the_others() {
    let ec2 = StandIn::start().unwrap();
    let mut cluster = cluster(&ec2, &[(ROLE, ""), ("team", "data platform")]).await;
    cluster.node_labels.mode = Mode::Show;
    let found = cluster.node_labels.run_once().await.unwrap();
    let set = &found.patches[NAME].labels.as_ref().unwrap().set;
    assert!(set.contains_key(ROLE) && !set.contains_key("team"), "{set:?}");
}
