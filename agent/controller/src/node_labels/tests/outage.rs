//! The whole loop while the cloud does not answer for an hour. A millisecond stands for a second, in the pauses of the loop
//! and in the waits of this test.

use kops_agent_tests::ec2::{Ec2 as StandIn, Instance, Mood as Ec2Mood};

use super::*;

const SECOND: Duration = Duration::from_millis(1);
const HOUR: u32 = 3600;
const NEW: usize = 20;

fn new_node(number: usize) -> String {
    format!("i-{:017x}", 0x100 + number)
}

#[tokio::test]
async fn an_hour_without_the_cloud_costs_a_call_a_minute_and_changes_nothing() {
    let ec2 = StandIn::start().unwrap();
    let nodes = Instance::of_group("c.example.com", "nodes");
    ec2.put(NAME, nodes.clone());
    (0..NEW).for_each(|number| ec2.put(&new_node(number), nodes.clone()));
    let instances = Instances::within(SECOND, Ec2::for_tests(&ec2.environment()[0].1));
    let mut cluster = Cluster::new(Mood::Good, Leadership::uncontested(), instances).await;
    cluster.node_labels.cloud_pauses = Pauses { first: SECOND, longest: 60 * SECOND };
    let waiting = format!("kops_agent_nodes_waiting_for_cloud {NEW}\n");
    let script = async {
        cluster.until(is_labelled).await;

        ec2.set_mood(Ec2Mood::Down);
        let labels = json!({"kubernetes.io/hostname": "new"});
        (0..NEW).for_each(|number| cluster.api.state().put(&new_node(number), labels.clone()));
        while !cluster.metrics().contains(&waiting) {
            tokio::time::sleep(SECOND).await;
        }
        let before = ec2.calls().len();
        // If the labels of a waiting Node change, the controller does not call the cloud.
        for number in 0..NEW {
            cluster.api.state().put(&new_node(number), json!({"kubernetes.io/hostname": "changed"}));
        }
        let begun = Instant::now();
        tokio::time::sleep(HOUR * SECOND).await;
        // Wait until the controller has made ten calls, which may take long on a busy machine.
        while ec2.calls().len() - before < 10 {
            tokio::time::sleep(SECOND).await;
        }
        let calls = ec2.calls().len() - before;
        let minutes = begun.elapsed().as_millis() as usize / 60;
        // The calls follow after 1, 2, 4, 8, 16 and 32 seconds, and then once a minute. A busy machine makes fewer calls.
        assert!(calls <= 7 + minutes, "{calls} calls in {minutes} minutes");
        assert!(ec2.calls()[before..].iter().all(|asked_for| *asked_for == 1), "of one Node each");

        // The labelled Node is still unchanged. If its labels change, the controller restores them despite the outage.
        let metrics = cluster.metrics();
        assert!(metrics.contains(&waiting), "{metrics}");
        assert!(is_labelled(&cluster.api.state()));
        assert_eq!(cluster.api.state().patches.len(), 1);
        cluster.api.state().put(NAME, json!({"kubernetes.io/hostname": NAME}));
        cluster.until(is_labelled).await;
        let events = cluster.api.state().events.clone();
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(
            (&events[0]["reason"], &events[0]["type"]),
            (&json!("CloudUnavailable"), &json!("Warning"))
        );
        assert_eq!(events[0]["involvedObject"]["name"], "kops-controller-leader");
        let message = events[0]["message"].as_str().unwrap();
        assert!(message.starts_with("EC2 answers DescribeInstances with 500 InternalError"), "{message}");

        let before = ec2.calls().len();
        ec2.set_mood(Ec2Mood::Good);
        cluster.until(|state| (0..NEW).all(|number| has_group(state, &new_node(number)))).await;
        // Within a minute, a probe asks the cloud about one Node (super::outage). After the answer, the controller asks about all other
        // Nodes together.
        let calls = &ec2.calls()[before..];
        assert!(calls.len() <= 4 && calls.iter().sum::<usize>() <= NEW + 1, "{calls:?}");
        assert!(cluster.metrics().contains("kops_agent_nodes_waiting_for_cloud 0\n"));
        assert_eq!(cluster.api.state().patches.len(), 2 + NEW);
    };
    cluster.run_during(script).await;
}
