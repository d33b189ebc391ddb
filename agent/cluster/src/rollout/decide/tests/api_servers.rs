#![allow(clippy::unwrap_used)]
use time::Duration;

use super::super::super::Phase;
use super::super::super::testing::Cluster;

#[test]
fn no_control_plane_begins_while_the_api_server_of_one_is_not_ready() {
    let mut cluster = Cluster::new(&[("masters", 3), ("apiservers", 1), ("a", 1)]);
    cluster.of_name("masters-02").group.clear();
    for node in ["masters-00", "masters-01", "masters-02"] {
        cluster.not_ready = [node.to_owned()].into();
        assert_eq!(cluster.step(), [""; 0]);
        let why = format!("the API server of {node} is not ready: failed checks: etcd");
        assert_eq!((cluster.status.phase, &cluster.status.waits_for), (Phase::Running, &why));
    }
    cluster.not_ready = ["apiservers-00".to_owned()].into();
    assert_eq!(cluster.step(), ["masters-00"], "an API server without an etcd does not matter");
    let each = |cluster: &Cluster| cluster.questions.clone().into_values().collect::<Vec<_>>();
    assert_eq!(each(&cluster), [4, 4, 4], "only control planes are asked, once for each decision");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(each(&cluster), [4, 4, 4], "a control plane at work is not asked before it answers");

    cluster.not_ready = ["masters-00".to_owned()].into();
    cluster.act("masters-00", "");
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.groups["masters"].updating, ["masters-00"], "its etcd does not serve yet");
    assert_eq!(each(&cluster), [5, 5, 5], "the next control plane would begin");
    cluster.not_ready.clear();
    assert_eq!(cluster.step(), ["masters-01"]);
    cluster.act("masters-01", "");
    cluster.of_name("masters-02").group = "masters".into();
    assert_eq!(cluster.step(), ["masters-02"]);
    cluster.act("masters-02", "");
    assert_eq!(cluster.step(), ["apiservers-00"]);
    let asked = each(&cluster);
    cluster.act("apiservers-00", "");
    assert_eq!(cluster.run(), [["a-00"]]);
    assert_eq!((cluster.status.phase, each(&cluster)), (Phase::Done, asked), "workers cost no questions");
}

#[test]
fn a_control_plane_whose_api_server_stays_away_fails_until_it_is_back() {
    let mut cluster = Cluster::new(&[("masters", 2)]);
    cluster.rollout.check_pods_after = 60;
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.act("masters-00", "");
    cluster.not_ready = ["masters-00".to_owned()].into();
    assert_eq!(cluster.step(), [""; 0]);
    cluster.now += Duration::seconds(601);
    for _ in 0..2 {
        assert_eq!(cluster.step(), [""; 0]);
        assert_eq!(cluster.status.phase, Phase::Stopped);
        assert_eq!(
            cluster.status.groups["masters"].failures["masters-00"],
            "its run succeeded, but its API server is not ready 10m after the order: failed checks: etcd"
        );
        cluster.now += Duration::seconds(5);
    }
    // The API server is ready again. The pods are compared and the rollout continues, as for a Node that becomes Ready too late.
    cluster.not_ready.clear();
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.phase, Phase::Running);
    cluster.now += Duration::seconds(60);
    assert_eq!(cluster.step(), ["masters-01"]);
}

#[test]
fn reboots_wait_for_api_servers_too() {
    let mut cluster = Cluster::new(&[("masters", 2), ("a", 1)]);
    let boots = cluster.members.iter().map(|member| (member.node.clone(), member.boot_id.clone()));
    cluster.rollout.reboot = Some(boots.collect());
    cluster.not_ready = ["masters-01".to_owned()].into();
    assert_eq!(cluster.step(), [""; 0]);
    assert_eq!(cluster.status.waits_for, "the API server of masters-01 is not ready: failed checks: etcd");
    cluster.not_ready.clear();
    assert_eq!(cluster.step(), ["masters-00"]);
    cluster.act("masters-00", "");
    cluster.of_name("masters-00").boot_id = "boot-1".into();

    // If the API server of masters-00 were not asked, the rollout would look as if it only waits for its window.
    cluster.rollout.windows = vec!["Sat 00:00-01:00 UTC".parse().unwrap()];
    cluster.policy = cluster.policy.with_policy("cluster: {follow: automatic}");
    let rollout = cluster.rollout.clone();
    let actions = cluster.step_all(Some(&rollout));
    assert_eq!(actions.api_servers_to_ask, ["masters-00".to_owned()].into());
}
