//! The files of the store that are read for machines.

use std::future::pending;
use std::pin::pin;

use super::*;
use kops_agent_cloud::verify::VerifiedNode;
use kops_agent_store::S3Settings;

fn settings_of(s3: &TestServer) -> S3Settings {
    S3Settings::Server {
        endpoint: s3.url.clone(),
        region: REGION.into(),
        access_key_id: "the-id".into(),
        secret_access_key: "the-secret".into(),
    }
}

#[tokio::test]
async fn a_file_that_does_not_come_delays_no_request_for_another() {
    let world = World::new().await;
    let is_asked = Arc::<AtomicBool>::default();
    let asked = is_asked.clone();
    let s3 = TestServer::start(move |request| {
        let (path, asked) = (request.uri().path().to_owned(), asked.clone());
        async move {
            if path.contains("/stuck/") {
                asked.store(true, Ordering::Relaxed);
                pending::<()>().await;
            }
            let found = path.ends_with("/nodes/nodeupconfig.yaml");
            Ok(if found {
                text(200, NODEUP_CONFIG)
            } else {
                text(404, "<Error><Code>NoSuchKey</Code></Error>")
            })
        }
    })
    .await;
    let store = Arc::new(Store::new(&[]).unwrap().with_s3_settings(settings_of(&s3)));
    let grants = Grants::new(store, "s3://state/c", "s3://state/c/secrets", &[], world.keystore.clone());
    let of_group = |group: &str| VerifiedNode { instance_group: group.into(), ..VerifiedNode::default() };
    let (stuck, nodes) = (of_group("stuck"), of_group("nodes"));
    let request = BootstrapRequest::parse(&request(Value::Null, Value::Null, true)).unwrap();

    let mut waiting = pin!(grants.give(&stuck, &request));
    let until_asked = async {
        while !is_asked.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        _ = &mut waiting => panic!("no answer"),
        () = until_asked => {}
    }
    for _ in 0..2 {
        let given = grants.give(&nodes, &request).await.unwrap();
        assert_eq!(given.node_config.unwrap().nodeup_config, NODEUP_CONFIG);
    }
}

/// Writes the group `nodes` into the store: its InstanceGroup with the role `saved`, and its configuration below the folder of each
/// role in `written`.
fn of_roles(world: &World, saved: Option<&str>, written: &[&str]) {
    let store = world.folder.path().join("store");
    fs::remove_dir_all(store.join("igconfig")).unwrap();
    for folder in written {
        let folder = store.join("igconfig").join(folder).join("nodes");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("nodeupconfig.yaml"), NODEUP_CONFIG).unwrap();
    }
    fs::create_dir_all(store.join("igconfig")).unwrap();
    fs::create_dir_all(store.join("instancegroup")).unwrap();
    let file = store.join("instancegroup/nodes");
    match saved {
        Some(role) => {
            fs::write(file, format!("{{kind: InstanceGroup, spec: {{role: {role}, new: {{}}}}}}")).unwrap()
        }
        None => drop(fs::remove_file(file)),
    }
}

#[tokio::test]
async fn only_machines_of_groups_with_the_role_node_or_api_server_get_the_identity_of_a_node() {
    let given: [(Option<&str>, &[&str], bool); 13] = [
        (None, &["node"], true),
        (None, &["apiserver"], true),
        (Some("Node"), &["node"], true),
        (Some("APIServer"), &["apiserver"], true),
        (Some("Node"), &["node", "bastion"], true),
        (Some("Bastion"), &[], false),
        (Some("Bastion"), &["bastion"], false),
        // The group was recreated as a bastion. kOps writes no configuration for a bastion that has no user-data, so the configuration
        // of the old role stays.
        (Some("Bastion"), &["node"], false),
        (Some("Master"), &["control-plane"], false),
        (Some("OfANewerKops"), &["node"], false),
        (None, &["bastion"], false),
        (None, &["node", "control-plane"], false),
        (None, &[], false),
    ];
    for (saved, written, is_given) in given {
        let world = World::new().await;
        of_roles(&world, saved, written);
        let machine = world.machine(ID);
        let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
        let (status, answer) = world.ask(&world.v1(&machine, &body), body).await;
        let expected = if is_given { 200 } else { 403 };
        assert_eq!(status, expected, "{saved:?} {written:?}: {answer}");
        assert_eq!(world.counted("GroupOfOtherRole"), !is_given, "{saved:?} {written:?}");
        assert_eq!(world.counted("Granted"), is_given, "{saved:?} {written:?}");
    }
}

#[tokio::test]
async fn the_node_of_a_bastion_renews_nothing() {
    let world = World::new().await;
    of_roles(&world, Some("Bastion"), &["node"]);
    let machine = super::renewal::node(&world, ID);
    let body = for_certificates(&["kubelet"], &KeyPair::generate().unwrap());
    let token = world.v1(&machine, &body);
    let shown = super::renewal::kubelet(&world, ID);
    let answered = super::renewal::renew(&world, Some(&shown), &token, body).await;
    assert_eq!(answered, (403, "GroupOfOtherRole".to_owned()));
}

#[tokio::test]
async fn a_group_that_was_known_to_be_of_workers_is_one_while_the_store_is_away() {
    let world = World::new().await;
    let is_away = Arc::<AtomicBool>::default();
    let away = is_away.clone();
    let s3 = TestServer::start(move |request| {
        let (path, is_away) = (request.uri().path().to_owned(), away.load(Ordering::Relaxed));
        async move {
            Ok(match path.ends_with("/instancegroup/nodes") || path.ends_with("/instancegroup/others") {
                _ if is_away => text(403, "<Error><Code>AccessDenied</Code></Error>"),
                true => text(200, "{spec: {role: Node}}"),
                false => text(404, "<Error><Code>NoSuchKey</Code></Error>"),
            })
        }
    })
    .await;
    let store = Arc::new(Store::new(&[]).unwrap().with_s3_settings(settings_of(&s3)));
    let grants = Grants::new(store, "s3://state/c", "s3://state/c/secrets", &[], world.keystore.clone());
    grants.refuse_all_but_workers("nodes").await.unwrap();
    is_away.store(true, Ordering::Relaxed);
    grants.forget_files();
    grants.refuse_all_but_workers("nodes").await.unwrap();
    let unknown = grants.refuse_all_but_workers("others").await.unwrap_err();
    assert_eq!(unknown.reason, "StoreUnavailable", "{}", unknown.message);
}
