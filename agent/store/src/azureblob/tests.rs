//! Tests against a stand-in on loopback. It serves the files of a folder as Azure's storage, and Azure's
//! metadata.

#![allow(clippy::unwrap_used)]

use std::fs;

use kops_agent_net::LocationClient;
use kops_agent_tests::azure_blob::{AzureBlob as StandIn, Mood};

use super::*;

/// The names and contents of the blobs in the container `state`.
const BLOBS: [(&str, &str); 8] = [
    ("c/cluster-completed.spec", "1"),
    ("c/config", "kind: Cluster"),
    ("c/igconfig/node/nodes/nodeupconfig.yaml", "333"),
    ("c/instancegroup/control-plane", "4444"),
    ("c/instancegroup/nodes", "55555"),
    ("c/pki/ca & <co>", "666666"),
    ("cc/config", "7777777"),
    ("release/v1/a+b c%2Fd", "hello"),
];

struct Azure {
    _folder: tempfile::TempDir,
    server: StandIn,
    blob: AzureBlob,
}

impl Azure {
    fn new() -> Azure {
        kops_agent_net::tls::install_provider();
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in BLOBS {
            let file = folder.path().join("state").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let server = StandIn::start(folder.path()).unwrap();
        let retries = Retries { deadline: Duration::from_millis(100), ..Retries::default() };
        let tokens = Tokens::at(server.url(), STORAGE, None, retries).unwrap();
        let endpoint = Some(format!("{}/kopsstate", server.url()));
        let client = http::client().unwrap();
        Azure {
            _folder: folder,
            blob: AzureBlob { client, endpoint, account: None, retries, tokens },
            server,
        }
    }

    async fn read(&self, key: &str) -> Result<Vec<u8>, StoreError> {
        self.blob.read(&place(&format!("azureblob://kopsstate/state/{key}"))).await
    }

    async fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.blob.list(&place(&format!("azureblob://kopsstate/state/{key}"))).await
    }
}

fn place(url: &str) -> Place {
    crate::schemes::place(url).unwrap().1
}

#[tokio::test]
async fn a_state_store_is_read_and_listed_page_by_page() {
    let azure = Azure::new();
    for page in [5000, 2, 1] {
        azure.server.set_page(page);
        assert_eq!(azure.read("c/config").await.unwrap(), b"kind: Cluster");
        assert_eq!(azure.read("c/pki/ca & <co>").await.unwrap(), b"666666");
        assert_eq!(
            azure.list("c").await.unwrap(),
            ["cluster-completed.spec", "config", "igconfig", "instancegroup", "pki"]
        );
        assert_eq!(azure.list("c/instancegroup/").await.unwrap(), ["control-plane", "nodes"]);
        assert_eq!(azure.list("c/pki").await.unwrap(), ["ca & <co>"]);
        assert_eq!(azure.list("").await.unwrap(), ["c", "cc", "release"]);
        assert_eq!(azure.list("none").await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn versions_are_etags_of_the_blobs_between_two() {
    let azure = Azure::new();
    let folder = place("azureblob://kopsstate/state/c/");
    azure.server.set_page(1);
    let versions = async |first, last| {
        let versions = azure.blob.versions(&folder, first, last).await.unwrap();
        versions.into_iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>()
    };
    assert_eq!(
        versions("config", "instancegroup/control-plane").await,
        ["config 0x8DD", "igconfig/node/nodes/nodeupconfig.yaml 0x8D3", "instancegroup/control-plane 0x8D4"]
    );
    let before = azure.server.calls().len();
    assert_eq!(versions("instancegroup/a", "instancegroup/d").await, ["instancegroup/control-plane 0x8D4"]);
    assert_eq!(azure.server.calls().len() - before, 2, "pages after the last name are not requested");
    assert_eq!(versions("config", "config").await, ["config 0x8DD"]);
}

#[tokio::test]
async fn requests_for_blobs_share_one_token_of_the_identity() {
    let azure = Azure::new();
    let file = place("azureblob://kopsstate/state/release/v1/a+b c%2Fd");
    let client = LocationClient::new().unwrap();
    for _ in 0..3 {
        let location = azure.blob.locate(&file).await.unwrap();
        assert_eq!((location.size, location.has_headers()), (Some(5), true));
        assert!(location.url.path().ends_with("/state/release%2Fv1%2Fa%2Bb%20c%252Fd"), "{location:?}");
        let answer = client.request(Method::GET, &location).send().await.unwrap();
        assert_eq!(kops_agent_net::http::said(answer, 1000).await, "hello");
        assert!(!format!("{location:?} {:?}", azure.blob).contains("the-token"));
    }
    let calls = azure.server.calls();
    assert_eq!(calls.iter().filter(|call| call.contains("/metadata/identity")).count(), 1, "{calls:?}");
}

#[tokio::test]
async fn each_failure_has_its_own_error() {
    let azure = Azure::new();
    assert!(matches!(azure.read("c/none").await.unwrap_err(), StoreError::NotFound { .. }));
    let elsewhere = place("azureblob://kopsstate/none/c");
    for error in [azure.blob.read(&elsewhere).await.map(drop), azure.blob.list(&elsewhere).await.map(drop)] {
        let error = error.unwrap_err();
        assert!(matches!(error, StoreError::WrongBucket { .. }), "{error:?}");
        assert!(error.to_string().contains("\"kopsstate/none\""), "{error}");
    }
    let said = |mood: Mood, told: &'static [&'static str]| {
        azure.server.set_mood(mood);
        let azure = &azure;
        async move {
            for error in [azure.read("c/config").await.map(drop), azure.list("c").await.map(drop)] {
                let error = error.unwrap_err();
                assert!(
                    !matches!(error, StoreError::NotFound { .. } | StoreError::WrongBucket { .. }),
                    "{error:?}"
                );
                let error = error.to_string();
                assert!(
                    told.iter().all(|told| error.contains(told)) && !error.contains("the-token"),
                    "{mood:?}: {error}"
                );
            }
        }
    };
    said(Mood::Forbidding, &["access denied (403)", "Storage Blob Data Reader", "container kopsstate/state"])
        .await;
    said(
        Mood::Walled,
        &[
            "access denied (403): the store says \"AuthorizationFailure: ",
            "network rules of the storage account",
        ],
    )
    .await;
    said(Mood::Archiving, &["answers 409 BlobArchived: ", "set the blob's tier to Hot"]).await;
    said(Mood::Distrusting, &["refuses this machine's credentials", "AuthenticationFailed"]).await;
    said(Mood::Deleting, &["answers 409 ContainerBeingDeleted"]).await;
    said(Mood::Missing, &["answers 404"]).await;
    said(Mood::Blocked, &["the store says \"Blocked by the gateway\"; this is no answer of Azure's storage"])
        .await;
    said(Mood::Busy, &["cannot be reached: it answers 503 Service Unavailable ServerBusy"]).await;
    azure.server.set_mood(Mood::Forbidding);
    let located = azure.blob.locate(&place("azureblob://kopsstate/state/c/config")).await.unwrap_err();
    assert!(matches!(located, StoreError::Forbidden { .. }), "{located:?}");

    for mood in [Mood::Babbling, Mood::Truncating, Mood::Endless] {
        azure.server.set_mood(mood);
        let error = azure.list("c").await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { status: 200, .. }), "{mood:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once() {
    let azure = Azure::new();
    azure.server.set_mood(Mood::Revoking);
    assert_eq!(azure.read("c/config").await.unwrap(), b"kind: Cluster");
    let without = Azure::new();
    without.server.set_mood(Mood::WithoutIdentity);
    let error = without.read("c/config").await.unwrap_err();
    assert!(matches!(error, StoreError::Credentials { .. }), "{error:?}");
    assert!(error.to_string().contains("this machine has no managed identity"), "{error}");
}

#[test]
fn the_variable_marks_urls_of_older_kops() {
    let parts = |rest, account| {
        let Split { bucket, key } = split_beside(rest, account).ok().unwrap();
        (bucket, key)
    };
    assert_eq!(parts("kopsstate/state/c/config", None), ("kopsstate/state", "c/config"));
    assert_eq!(parts("kopsstate/state/c/config", Some("kopsstate")), ("kopsstate/state", "c/config"));
    assert_eq!(parts("state/c/config", Some("kopsstate")), ("state", "c/config"));
    assert_eq!(parts("cluster-configs/c", Some("kopsstate")), ("cluster-configs", "c"));
    for rest in [
        "",
        "/",
        "kopsstate",
        "kopsstate/",
        "KopsState/state",
        "ab/state",
        "evil.example.com/state",
        "a@b/state",
    ] {
        assert!(split_beside(rest, None).is_err(), "{rest}");
    }
    assert!(split_beside("", Some("kopsstate")).is_err());
}

#[tokio::test]
async fn each_account_has_a_server_of_its_own() {
    let azure = Azure::new();
    let of = |endpoint: Option<&str>, account: Option<&str>, bucket: &str| {
        let blob = AzureBlob {
            client: http::client().unwrap(),
            endpoint: endpoint.map(str::to_owned),
            account: account.map(str::to_owned),
            retries: Retries::default(),
            tokens: Tokens::at(azure.server.url(), STORAGE, None, Retries::default()).unwrap(),
        };
        let place =
            Place { bucket: bucket.into(), key: "c/d".into(), ..place("azureblob://kopsstate/state/c") };
        blob.address(&place)
    };
    assert_eq!(of(None, None, "acct/state").unwrap(), "https://acct.blob.core.windows.net/state/c%2Fd");
    assert_eq!(of(None, Some("acct"), "state").unwrap(), "https://acct.blob.core.windows.net/state/c%2Fd");
    let elsewhere = "https://acct.blob.core.usgovcloudapi.net";
    assert_eq!(of(Some(elsewhere), None, "acct/state").unwrap(), format!("{elsewhere}/state/c%2Fd"));
    let error = of(None, Some("not an account"), "state").unwrap_err();
    assert!(error.to_string().contains("AZURE_STORAGE_ACCOUNT"), "{error}");
}
