//! Configurations of groups for which kOps writes none. The fixtures are the example cluster's store, in a folder or a bucket, and a
//! mirror of its downloads that serves their hashes.

use std::sync::atomic::AtomicUsize;

use futures_util::future::join_all;
use kops_agent_cloud::verify::{Answer, Refusal, VerifiedNode};
use kops_agent_store::S3Settings;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{self, CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES, releases};
use tokio::sync::Semaphore;

use super::super::derived_configs::{DerivedConfigs, Limits};
use super::*;

const LIMITS: Limits = Limits {
    waited_for: Duration::from_secs(60),
    done_within: Duration::from_secs(60),
    good_for: Duration::ZERO,
};

/// The state store of a cluster whose machines download from a mirror.
struct Example {
    _folder: tempfile::TempDir,
    store: ExampleStore,
}

impl Example {
    fn new(mirror: &str) -> Example {
        let folder = tempfile::tempdir().unwrap();
        let Authority { pem: certificate, key: private_key, .. } = new_authority("kubernetes-ca");
        let keyset = Keyset { name: "kubernetes-ca".into(), id: 7, certificate, private_key };
        let store = ExampleStore::write_with_keys(folder.path(), Some(mirror), &[keyset]).unwrap();
        // On metal, kOps writes no `igconfig`.
        fs::remove_dir_all(store.cluster_folder().join("igconfig")).unwrap();
        Example { _folder: folder, store }
    }

    fn in_folder(&self) -> Arc<Store> {
        let mirror = format!("{CONFIG_BASE}={}", self.store.cluster_folder().display());
        Arc::new(Store::new(&[mirror]).unwrap())
    }

    fn derived(&self, limits: Limits) -> DerivedConfigs {
        DerivedConfigs::new(self.in_folder(), CONFIG_BASE, limits)
    }

    /// Replaces text in a file of the cluster's folder.
    fn edit(&self, file: &str, from: &str, to: &str) {
        let file = self.store.cluster_folder().join(file);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(file, text.replace(from, to)).unwrap();
    }
}

fn mirror() -> Downloads {
    kops_agent_net::tls::install_provider();
    Downloads::start(&releases()).unwrap()
}

fn lists_of_hashes(downloads: &Downloads) -> usize {
    downloads.requests().iter().filter(|request| request.ends_with(".sha256")).count()
}

fn assert_refused(refused: Result<String, Refusal>, answer: Answer, reason: &str, problem: &str) {
    let refusal = refused.unwrap_err();
    assert_eq!((refusal.answer, refusal.reason), (answer, reason), "{}", refusal.message);
    assert!(refusal.message.contains(problem), "{}", refusal.message);
}

#[tokio::test]
async fn machines_that_start_together_share_one_derivation_and_later_ones_its_hashes() {
    let downloads = mirror();
    let example = Example::new(&downloads.url());
    let derived = example.derived(Limits { good_for: Duration::from_secs(60), ..LIMITS });
    let asked = join_all((0..100).map(|_| derived.of_group(NODES))).await;
    let config = asked[0].clone().unwrap();
    assert!(
        config.contains("ClusterName: demo.example.com") && config.contains(&downloads.url()),
        "{config}"
    );
    assert!(asked.iter().all(|other| other.as_ref() == Ok(&config)));
    let lists = lists_of_hashes(&downloads);
    assert!(0 < lists && lists <= 2 * downloads.paths().len(), "{lists}: {:?}", downloads.requests());

    example.edit("instancegroup/nodes", "nodeLabels:", "nodeLabels:\n    example.com/new: label");
    assert_eq!(derived.of_group(NODES).await.unwrap(), config, "it is good for a minute");
}

#[tokio::test]
async fn an_edited_group_is_served_and_no_hash_is_requested_twice() {
    let downloads = mirror();
    let example = Example::new(&downloads.url());
    let derived = example.derived(LIMITS);
    let before = derived.of_group(NODES).await.unwrap();
    let lists = lists_of_hashes(&downloads);
    example.edit("instancegroup/nodes", "nodeLabels:", "nodeLabels:\n    example.com/new: label");
    let after = derived.of_group(NODES).await.unwrap();
    assert!(!before.contains("example.com/new") && after.contains("example.com/new: label"), "{after}");
    assert_eq!(lists_of_hashes(&downloads), lists);
}

#[tokio::test]
async fn a_group_that_is_not_there_or_not_of_workers_or_wrong_has_none() {
    let downloads = mirror();
    let example = Example::new(&downloads.url());
    let derived = example.derived(LIMITS);
    let refused = |asked, problem| assert_refused(asked, Answer::BadRequest, "NoNodeConfig", problem);
    refused(derived.of_group("others").await, "the cluster has no instance group others; it has: ");
    refused(derived.of_group(CONTROL_PLANE).await, "has the role ControlPlane");
    example.edit("instancegroup/nodes", "role: Node", "role: [Node]");
    refused(derived.of_group(NODES).await, "cannot read field spec.role of");
}

#[tokio::test]
async fn a_publisher_that_never_answers_ends_a_derivation_in_time() {
    kops_agent_net::tls::install_provider();
    let silent = TestServer::start(|_| std::future::pending()).await;
    let limits = Limits { done_within: Duration::from_millis(50), ..LIMITS };
    let asked = Example::new(&silent.url).derived(limits).of_group(NODES).await;
    assert_refused(asked, Answer::Unavailable, "NodeConfigUnavailable", "do not answer within 50ms");
}

#[tokio::test]
async fn hashes_that_arrived_before_a_failure_are_not_requested_again() {
    kops_agent_net::tls::install_provider();
    let (is_slow, asked) = (Arc::new(AtomicBool::new(true)), Arc::<Mutex<Vec<String>>>::default());
    let (slow, paths) = (is_slow.clone(), asked.clone());
    let publisher = TestServer::start(move |request| {
        let path = request.uri().path().to_owned();
        let is_stuck = slow.load(Ordering::SeqCst) && of_kubelet(&path);
        paths.lock().push(path);
        async move {
            if is_stuck {
                std::future::pending::<()>().await;
            }
            Ok(text(200, &"a".repeat(64)))
        }
    })
    .await;
    let example = Example::new(&publisher.url);
    let limits = Limits { done_within: Duration::from_millis(500), ..LIMITS };
    let derived = example.derived(limits);
    let asked_since = || std::mem::take(&mut *asked.lock());
    // The first attempt requests the hashes of all files. On a busy machine, the attempt may time out too early, while hashes of files
    // other than kubelet are also missing.
    let mut have_others_been_asked = false;
    for attempt in 1.. {
        assert_refused(
            derived.of_group(NODES).await,
            Answer::Unavailable,
            "NodeConfigUnavailable",
            "do not answer within",
        );
        let asked = asked_since();
        if have_others_been_asked && !asked.is_empty() && asked.iter().all(|path| of_kubelet(path)) {
            break;
        }
        have_others_been_asked |= asked.iter().any(|path| !of_kubelet(path));
        assert!(attempt < 100, "asked again for {asked:?}");
    }
    is_slow.store(false, Ordering::SeqCst);
    while let Err(refusal) = derived.of_group(NODES).await {
        assert_eq!(refusal.answer, Answer::Unavailable, "{}", refusal.message);
    }
    // Only kubelet's hashes are requested again, for both architectures.
    let asked: BTreeSet<String> = asked_since().into_iter().collect();
    assert!(asked.len() == 2 && asked.iter().all(|path| of_kubelet(path)), "{asked:?}");
}

fn of_kubelet(path: &str) -> bool {
    path.contains("kubelet")
}

#[tokio::test]
async fn one_that_takes_longer_than_a_machine_waits_is_there_when_it_comes_again() {
    kops_agent_net::tls::install_provider();
    let (answers, asked) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default());
    let (turn, count) = (answers.clone(), asked.clone());
    let publisher = TestServer::start(move |_| {
        let (turn, count) = (turn.clone(), count.clone());
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            turn.acquire().await.unwrap().forget();
            Ok(text(200, &"a".repeat(64)))
        }
    })
    .await;
    let example = Example::new(&publisher.url);
    let limits =
        Limits { waited_for: Duration::from_millis(50), good_for: Duration::from_secs(60), ..LIMITS };
    let derived = example.derived(limits);
    let early = derived.of_group(NODES).await;
    assert_refused(
        early,
        Answer::Unavailable,
        "NodeConfigUnavailable",
        "the machine gets the result when it asks again",
    );
    answers.add_permits(1000);
    let config = loop {
        match derived.of_group(NODES).await {
            Ok(config) => break config,
            Err(refusal) => assert_eq!(refusal.answer, Answer::Unavailable, "{}", refusal.message),
        }
    };
    assert!(config.contains(&"a".repeat(64)), "{config}");
    let all = asked.load(Ordering::SeqCst);
    derived.of_group(NODES).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), all);
}

#[tokio::test]
async fn a_keyset_that_may_not_be_read_is_no_absent_one() {
    let downloads = mirror();
    let example = Example::new(&downloads.url());
    let buckets = example.store.buckets();
    let s3 = TestServer::start(move |request| {
        let file = buckets.join(request.uri().path().trim_start_matches('/'));
        async move {
            let is_denied = file.to_string_lossy().contains("/pki/");
            Ok(match fs::read_to_string(file) {
                _ if is_denied => text(403, "<Error><Code>AccessDenied</Code></Error>"),
                Ok(found) => text(200, &found),
                Err(_) => text(404, "<Error><Code>NoSuchKey</Code></Error>"),
            })
        }
    })
    .await;
    let settings = S3Settings::Server {
        endpoint: s3.url.clone(),
        region: example_store::REGION.into(),
        access_key_id: "the-id".into(),
        secret_access_key: "the-secret".into(),
    };
    let store = Arc::new(Store::new(&[]).unwrap().with_s3_settings(settings));
    let asked = DerivedConfigs::new(store, CONFIG_BASE, LIMITS).of_group(NODES).await;
    assert_refused(
        asked,
        Answer::Unavailable,
        "NodeConfigUnavailable",
        "the keyset kubernetes-ca cannot be read",
    );
}

#[tokio::test]
async fn a_nodeupconfig_in_the_store_comes_first_and_a_control_plane_gets_nothing() {
    let (world, downloads) = (World::new().await, mirror());
    let example = Example::new(&downloads.url());
    let grants = |derives| {
        let secrets = format!("{CONFIG_BASE}/secrets");
        Grants::new(example.in_folder(), CONFIG_BASE, &secrets, &[], world.keystore.clone())
            .deriving_configs(derives)
    };
    let node = VerifiedNode { instance_group: NODES.into(), ..VerifiedNode::default() };
    let request = BootstrapRequest::parse(&request(Value::Null, Value::Null, true)).unwrap();
    let refused = grants(false).give(&node, &request).await.unwrap_err();
    assert_eq!((refused.answer, refused.reason), (Answer::BadRequest, "NoNodeConfig"));
    let given = grants(true).give(&node, &request).await.unwrap().node_config.unwrap();
    assert!(given.nodeup_config.contains("ClusterName: demo.example.com"));

    let written = example.store.cluster_folder().join("igconfig/node").join(NODES);
    fs::create_dir_all(&written).unwrap();
    fs::write(written.join("nodeupconfig.yaml"), NODEUP_CONFIG).unwrap();
    let given = grants(true).give(&node, &request).await.unwrap().node_config.unwrap();
    assert_eq!(given.nodeup_config, NODEUP_CONFIG);

    for (derives, group) in [(true, CONTROL_PLANE), (false, CONTROL_PLANE), (true, "of-no-cluster")] {
        let refused = grants(derives).refuse_all_but_workers(group).await.unwrap_err();
        assert_eq!((refused.answer, refused.reason), (Answer::NotVerified, "GroupOfOtherRole"));
    }
    grants(true).refuse_all_but_workers(NODES).await.unwrap();
    example.edit("instancegroup/nodes", "role: Node", "role: [Node]");
    let unclear = grants(true).refuse_all_but_workers(NODES).await.unwrap_err();
    assert_eq!(unclear.answer, Answer::Unavailable, "{}", unclear.message);
}

#[tokio::test]
async fn a_node_that_follows_gets_the_boot_config_that_new_machines_of_its_group_get() {
    let world = World::new().await;
    let example = Example::new("https://files.example.com");
    let written = example.store.cluster_folder().join("igconfig/node").join(NODES);
    fs::create_dir_all(&written).unwrap();
    fs::write(written.join("nodeupconfig.yaml"), NODEUP_CONFIG).unwrap();
    let secrets = format!("{CONFIG_BASE}/secrets");
    let grants = Grants::new(example.in_folder(), CONFIG_BASE, &secrets, &[], world.keystore.clone());
    let node = VerifiedNode { instance_group: NODES.into(), ..VerifiedNode::default() };
    let request = BootstrapRequest::for_node_config();
    assert_eq!(grants.give(&node, &request).await.unwrap().boot_config, None);
    let given = grants.give(&node, &request.with_boot_config(true)).await.unwrap();
    let boot = BootConfig::parse(given.boot_config.unwrap().as_bytes(), "bootConfig").unwrap();
    assert_eq!(boot.nodeup_config_hash, kops_agent_spec::NodeupConfig::hash(NODEUP_CONFIG.as_bytes()));
    assert_eq!((boot.cluster_name.as_str(), boot.instance_group_name.as_str()), ("demo.example.com", NODES));
    let keyset =
        example.in_folder().read(&format!("{CONFIG_BASE}/pki/private/kubernetes-ca/keyset.yaml")).await;
    let keyset = kops_agent_spec::Keyset::parse(&keyset.unwrap(), "keyset.yaml").unwrap();
    assert_eq!(boot.config_server.unwrap().ca_certificates, keyset.trusted_certificates_pem());

    fs::remove_file(example.store.cluster_folder().join("instancegroup").join(NODES)).unwrap();
    let gone = Grants::new(example.in_folder(), CONFIG_BASE, &secrets, &[], world.keystore.clone());
    let refused =
        gone.give(&node, &BootstrapRequest::for_node_config().with_boot_config(true)).await.unwrap_err();
    assert_eq!((refused.answer, refused.reason), (Answer::Unavailable, "BootConfigUnavailable"));
}
