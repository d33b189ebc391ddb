//! How a node understands answers about slots. Tests in `tests/controller` check, against a real API server, which node gets a
//! slot.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_cluster::pacing::message::{SlotAction, SlotRequest};
use kops_agent_source::bootstrap_client::NoAnswer;
use kops_agent_spec::facts::Facts;

use super::renewal::kubelet;
use super::*;

const REQUEST: SlotRequest = SlotRequest { action: SlotAction::Acquire, max_unavailable: 1 };

/// A root folder with the kubeconfig of the kubelet on node `ID`.
fn root(world: &World) -> tempfile::TempDir {
    world.ready.lock().insert(ID.into());
    let pair = kubelet(world, ID);
    let [certificate, key] = [pair.certificate, pair.key].map(|pem| STANDARD.encode(pem));
    let kubeconfig = format!("client-certificate-data: {certificate}\nclient-key-data: {key}\n");
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("var/lib/kubelet")).unwrap();
    fs::write(root.path().join("var/lib/kubelet/kubeconfig"), kubeconfig).unwrap();
    root
}

/// Sends a slot request of the node `ID` to these servers. Returns why no server gave an answer.
async fn asked(world: &World, root: &Path, servers: &[String]) -> NoAnswer {
    let controller =
        KopsController::new(&world.boot_config_of("aws", servers), None, &Facts::default(), Duration::ZERO)
            .for_node_at(root);
    controller.slot(REQUEST).await.unwrap_err()
}

#[tokio::test]
async fn only_a_server_that_knows_of_no_slots_is_taken_for_one_without() {
    let world = World::new().await;
    let root = root(&world);
    let ours = format!("https://{}/", world.address);
    // The path `/upstream/` answers 404, as upstream's server does for `/slot`.
    let upstream = format!("https://{}/upstream/", world.address);
    let nowhere = "https://127.0.0.1:1/".to_owned();
    let asked = async |servers: &[&String]| {
        let servers: Vec<String> = servers.iter().map(|server| (*server).clone()).collect();
        asked(&world, root.path(), &servers).await
    };
    assert_eq!(asked(&[&upstream]).await, NoAnswer::NotServed);
    assert_eq!(asked(&[&nowhere, &upstream]).await, NoAnswer::NotServed, "a control plane that is down");
    let NoAnswer::Unknown(why) = asked(&[&nowhere]).await else { panic!("nothing answers") };
    assert!(why.contains("127.0.0.1:1"), "{why}");
    for servers in [vec![&ours], vec![&upstream, &ours], vec![&ours, &nowhere, &upstream]] {
        let NoAnswer::Unknown(why) = asked(&servers).await else { panic!("there is one that has slots") };
        assert!(why.contains("answers with 500") && why.contains("has no label"), "{why}");
    }
    world.ready.lock().clear();
    let NoAnswer::Unknown(why) = asked(&[&ours]).await else { panic!("its Node is gone") };
    assert!(why.contains("403 (NodeNotFound)"), "{why}");
    fs::remove_file(root.path().join("var/lib/kubelet/kubeconfig")).unwrap();
    let NoAnswer::Unknown(why) = asked(&[&ours]).await else { panic!("it has nothing to show") };
    assert!(why.contains("cannot authenticate with kubelet's certificate"), "{why}");
}

#[tokio::test]
async fn a_node_that_repeats_requests_for_slots_is_limited() {
    let world = World::new().await;
    let root = root(&world);
    let ours = [format!("https://{}/", world.address)];
    for _ in 0..30 {
        asked(&world, root.path(), &ours).await;
    }
    let NoAnswer::Unknown(why) = asked(&world, root.path(), &ours).await else { panic!("it is too often") };
    assert!(why.contains("429") && why.contains("asks too often"), "{why}");
    assert!(world.counted("SlotTooOften"));
}
