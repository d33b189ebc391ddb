//! What is read of the store for machines.

use std::future::pending;
use std::pin::pin;

use super::*;
use kops_agent_cloud::verify::VerifiedNode;
use kops_agent_store::S3Settings;

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
    let settings = S3Settings::Server {
        endpoint: s3.url.clone(),
        region: REGION.into(),
        access_key_id: "the-id".into(),
        secret_access_key: "the-secret".into(),
    };
    let store = Arc::new(Store::new(&[]).unwrap().with_s3_settings(settings));
    let grants = Grants::of(store, "s3://state/c", "s3://state/c/secrets", &[], world.keystore.clone());
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
