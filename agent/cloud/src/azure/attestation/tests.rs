//! Microsoft's certificate folder and its authorities are stand-ins on loopback.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap as Map;

use kops_agent_cluster::bootstrap::azure_token::{AzureToken, Expected};
use kops_agent_cluster::identity::azure::AzureCluster;
use kops_agent_tests::azure::metadata::{Document, MetadataService};
use kops_agent_tests::azure::{RESOURCE_GROUP, SUBSCRIPTION};
use kops_agent_tests::test_server::{TestServer, text};

use super::*;

const BODY: &[u8] = b"test-body";
const NOW: i64 = 1_700_000_000;
const NAME: &str = "metadata.azure.com";

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Good,
    Down,
    Redirecting,
    Astray,
    Moved,
    Huge,
}

/// A stand-in for Microsoft's certificate server, and the requests that it received.
struct Microsoft {
    server: TestServer,
    files: Arc<Mutex<Map<String, Vec<u8>>>>,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Microsoft {
    async fn start() -> Microsoft {
        kops_agent_net::tls::install_provider();
        let files = Arc::<Mutex<Map<String, Vec<u8>>>>::default();
        let (mood, asked) = (Arc::new(Mutex::new(Mood::Good)), Arc::<Mutex<Vec<String>>>::default());
        let (told, felt, log) = (files.clone(), mood.clone(), asked.clone());
        let moved = |location: &str| {
            let mut answer = text(302, "");
            answer.headers_mut().insert("location", location.parse().unwrap());
            answer
        };
        let server = TestServer::start(move |request| {
            let path = request.uri().path().to_owned();
            log.lock().push(path.clone());
            let file = told.lock().get(&path).cloned();
            let mood = *felt.lock();
            async move {
                Ok(match (mood, file) {
                    (Mood::Down, _) => text(503, ""),
                    (Mood::Redirecting, _) => moved("/pkiops/certs/issuer.crt"),
                    (Mood::Astray, _) => moved("http://localhost:1/pkiops/certs/issuer.crt"),
                    (Mood::Moved, _) if !path.starts_with("/moved/") => moved(&format!("/moved{path}")),
                    (Mood::Huge, _) => text(200, &"x".repeat(LARGEST + 1)),
                    (Mood::Good | Mood::Moved, Some(der)) => text(200, "").map(|_| der.into()),
                    (Mood::Good | Mood::Moved, None) => text(404, ""),
                })
            }
        })
        .await;
        Microsoft { server, files, mood, asked }
    }

    fn folder(&self) -> String {
        format!("{}/pkiops/certs/", self.server.url)
    }

    /// A metadata service whose certificate names `file` on the stand-in as the issuer's certificate.
    fn signer(&self, file: &str) -> MetadataService {
        let service =
            MetadataService::named(NAME, &format!("{}{file}", self.folder()), (1975, 4096)).unwrap();
        self.files.lock().insert(format!("/pkiops/certs/{file}"), service.issuer.clone());
        service
    }

    /// An attestation that trusts the authority of this service.
    fn attestation(&self, of: &MetadataService) -> Attestation {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(of.root.clone())).unwrap();
        Attestation::new(Arc::new(roots), &self.folder()).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

fn signer(service: &MetadataService, with_issuer: bool) -> Signer {
    let document = Document { with_issuer, ..Document::new("v", BODY, NOW) };
    let token = service.token("nodes.c", 0, &document).unwrap();
    let cluster = AzureCluster {
        name: "c".into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: RESOURCE_GROUP.into(),
    };
    AzureToken::parse(&token, BODY, &Expected { cluster: &cluster, may_be_unsigned: false, now: NOW })
        .unwrap()
        .unwrap()
        .signed
        .unwrap()
        .by
}

fn origin(address: u8) -> Origin {
    Origin::from_address([10, 0, 0, address].into())
}

async fn reason(attestation: &Attestation, signer: &Signer) -> &'static str {
    attestation.verify(signer.clone(), origin(1)).await.unwrap_err().reason
}

#[tokio::test]
async fn an_issuer_is_fetched_once_and_not_if_the_document_includes_it() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer%20(1).crt");
    let attestation = microsoft.attestation(&service);
    attestation.verify(signer(&service, true), origin(1)).await.unwrap();
    assert_eq!(microsoft.asked(), 0);
    for address in 1..4 {
        attestation.verify(signer(&service, false), origin(address)).await.unwrap();
    }
    assert_eq!(*microsoft.asked.lock(), ["/pkiops/certs/issuer%20(1).crt"]);
    // The trusted issuer stays cached although many made-up issuers are requested.
    for number in 0..2 * MOST_REMEMBERED {
        let made_up = Issuer { name: number.to_be_bytes().to_vec(), key: Vec::new(), places: Vec::new() };
        attestation.remembered(&made_up);
    }
    assert!(attestation.issuers.lock().len() <= MOST_REMEMBERED + 1);
    *microsoft.mood.lock() = Mood::Down;
    attestation.verify(signer(&service, false), origin(1)).await.unwrap();
}

#[tokio::test]
async fn an_untrusted_authority_is_rejected() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer.crt");
    let attestation = microsoft.attestation(&service);
    // The attacker's service has the names of the true service, but different keys.
    let liar = microsoft.signer("liar.crt");
    for with_issuer in [true, false] {
        assert_eq!(
            reason(&attestation, &signer(&liar, with_issuer)).await,
            "WrongSignature",
            "{with_issuer}"
        );
    }
    // This service's certificate names the true issuer, which has not signed the certificate.
    let pretender =
        MetadataService::named(NAME, &format!("{}issuer.crt", microsoft.folder()), (1975, 4096)).unwrap();
    assert_eq!(reason(&attestation, &signer(&pretender, false)).await, "WrongSignature");
    attestation.verify(signer(&service, false), origin(2)).await.unwrap();
}

#[tokio::test]
async fn a_document_with_a_wrong_signature_is_rejected_without_a_request() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer.crt");
    let attestation = microsoft.attestation(&service);
    // The document contains a certificate with the signer's name, but with a different key.
    let mut other = signer(&service, false);
    other.certificate = signer(&microsoft.signer("issuer.crt"), false).certificate;
    let refusal = attestation.verify(other, origin(1)).await.unwrap_err();
    assert_eq!(refusal.reason, "WrongSignature");
    assert!(refusal.message.contains("the key of its certificate has not signed it"), "{}", refusal.message);
    assert_eq!(microsoft.asked(), 0);
}

#[tokio::test]
async fn certificate_chains_are_tried_in_one_order_only() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer.crt");
    let decoys: Vec<Vec<u8>> = (0..7).map(|_| microsoft.signer("decoy.crt").root).collect();
    let honest = signer(&service, true);
    let der = |bytes: &Vec<u8>| CertificateDer::from(bytes.clone());
    let all: Vec<CertificateDer<'_>> =
        [&service.root, &service.issuer].into_iter().chain(&decoys).map(der).collect();
    let chain = one_after_the_other(&honest.certificate, &all);
    assert_eq!(chain, [der(&service.issuer), der(&service.root)]);
    assert!(one_after_the_other(b"garbage", &all).is_empty());
    // An authority that is its own issuer appears only once.
    assert_eq!(one_after_the_other(&service.root, &all[..1]), [der(&service.root)]);
}

#[tokio::test]
async fn a_certificate_outside_its_validity_is_rejected() {
    let microsoft = Microsoft::start().await;
    for years in [(1990, 2000), (4000, 4096)] {
        let service = MetadataService::named(NAME, "", years).unwrap();
        let attestation = microsoft.attestation(&service);
        assert_eq!(reason(&attestation, &signer(&service, true)).await, "WrongSignature", "{years:?}");
    }
}

#[tokio::test]
async fn issuers_are_fetched_only_from_microsofts_folder() {
    let microsoft = Microsoft::start().await;
    let elsewhere = Microsoft::start().await;
    let folder = microsoft.folder();
    for place in [
        String::new(),
        format!("{}issuer.crt", elsewhere.folder()),
        folder.clone(),
        format!("{folder}../../secret"),
        format!("{folder}%2e%2e/%2e%2e/secret"),
        format!("{folder}issuer.crt?x=1"),
        format!("{folder}issuer.crt#x"),
        folder.replace("http://", "http://user:password@") + "issuer.crt",
        folder.replace("http://", "ldap://") + "issuer.crt",
        "issuer.crt".into(),
        folder.replace("pkiops", "other") + "issuer.crt",
    ] {
        let service = MetadataService::named(NAME, &place, (1975, 4096)).unwrap();
        let attestation = microsoft.attestation(&service);
        assert_eq!(reason(&attestation, &signer(&service, false)).await, "WrongSignature", "{place}");
    }
    assert_eq!((microsoft.asked(), elsewhere.asked()), (0, 0));
}

#[tokio::test]
async fn an_unreachable_service_is_not_a_permanent_rejection() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer.crt");
    let attestation = microsoft.attestation(&service);
    for (mood, expected) in [
        (Mood::Down, "IssuerUnavailable"),
        (Mood::Redirecting, "IssuerUnavailable"),
        (Mood::Astray, "IssuerUnavailable"),
        (Mood::Huge, "WrongSignature"),
    ] {
        *microsoft.mood.lock() = mood;
        assert_eq!(reason(&attestation, &signer(&service, false)).await, expected);
    }
    *microsoft.mood.lock() = Mood::Good;
    attestation.verify(signer(&service, false), origin(2)).await.unwrap();

    let service = microsoft.signer("elsewhere.crt");
    microsoft.files.lock().insert("/moved/pkiops/certs/elsewhere.crt".into(), service.issuer.clone());
    *microsoft.mood.lock() = Mood::Moved;
    microsoft.attestation(&service).verify(signer(&service, false), origin(3)).await.unwrap();
    *microsoft.mood.lock() = Mood::Good;

    // The URL serves garbage, nothing, or the certificate of an unrelated issuer.
    let other = microsoft.signer("other.crt");
    for (file, der) in
        [("garbage.crt", b"garbage".to_vec()), ("empty.crt", Vec::new()), ("root.crt", other.root.clone())]
    {
        let service = microsoft.signer(file);
        microsoft.files.lock().insert(format!("/pkiops/certs/{file}"), der);
        let attestation = microsoft.attestation(&service);
        assert_eq!(reason(&attestation, &signer(&service, false)).await, "WrongSignature", "{file}");
    }
}

#[tokio::test]
async fn made_up_issuers_cost_few_requests_and_do_not_block_honest_machines() {
    let microsoft = Microsoft::start().await;
    let service = microsoft.signer("issuer.crt");
    let attestation = microsoft.attestation(&service);
    let liars: Vec<Signer> = (0..12)
        .map(|number| {
            let place = format!("{}none-{number}.crt", microsoft.folder());
            signer(&MetadataService::named(NAME, &place, (1975, 4096)).unwrap(), false)
        })
        .collect();
    let lies =
        futures_util::future::join_all(liars.into_iter().map(|liar| attestation.verify(liar, origin(9))));
    let honest = signer(&service, false);
    let (_, honest) = tokio::join!(lies, attestation.verify(honest, origin(1)));
    honest.unwrap();
    assert!(microsoft.asked() < 10, "{:?}", microsoft.asked.lock());
}
