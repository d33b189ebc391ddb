//! The agent's node against kops-controller of each kOps release, with the boot configs that the releases write and the
//! bytes that their servers send.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};

use kops_agent_cloud::callback::{Caller, Proof};
use kops_agent_pki::PemPair;
use kops_agent_spec::facts::HetznerFacts;
use kops_agent_tests::authority::{Authority, common_name};
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::kops_releases::{
    RELEASES, RecordedServer, Release, certificates_request, configuration_request,
};
use reqwest::header::HeaderValue;

use super::*;

const CONFIGURATION: &str = "{\"nodeConfig\":{\"nodeupConfig\":\"CAs: {}\\nusesNoneDNS: true\\n\",\"nodeSecrets\":{\"dockerconfig\":\"e30=\"}}}\n";
const CERTIFICATES: &str = "{\"Certs\":{\"kubelet\":\"PEM\"}}\n";
const REFUSED: (u16, &str) = (403, "failed to verify token");

fn kops_controller(release: &Release, server: &RecordedServer, authority: &Keyset) -> KopsController {
    let text = release.boot_config(&server.url(), &authority.certificate);
    let boot = BootConfig::parse(text.as_bytes(), "kube_env.yaml").unwrap();
    let mut facts = Facts::default();
    facts.cloud.hetzner = Some(HetznerFacts { instance_id: "42".into(), ..HetznerFacts::default() });
    KopsController::new(&boot, None, &facts, Duration::ZERO).called_back_at((Ipv4Addr::LOCALHOST, 0).into())
}

/// The JSON of a request's challenge.
fn challenge(body: &str) -> String {
    let request = BootstrapRequest::parse(body.as_bytes()).unwrap();
    serde_json::to_string(&request.challenge.unwrap()).unwrap()
}

#[tokio::test]
async fn kops_controller_of_each_release_serves_our_node() {
    kops_agent_net::tls::install_provider();
    let authority = Keyset::make("kubernetes-ca", 7).unwrap();
    for release in &RELEASES {
        let answers = [(200, CONFIGURATION), (200, CERTIFICATES), (409, "node already registered")];
        let server = RecordedServer::start(release, &authority, &answers).unwrap();
        let kops_controller = kops_controller(release, &server, &authority);

        let (_, given) = kops_controller.node_config().await.unwrap();
        assert_eq!(given.nodeup_config, "CAs: {}\nusesNoneDNS: true\n", "{}", release.name);
        assert_eq!(given.node_secrets["dockerconfig"].0, b"{}");
        let one = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
        let (keys, ids) = (one("kubelet", "KEY"), one("kubernetes-ca", "7"));
        let given = kops_controller.certificates(keys, ids, Ok).await.unwrap();
        assert_eq!(given["kubelet"], "PEM", "{}", release.name);
        let error = kops_controller.node_config().await.unwrap_err().to_string();
        assert!(error.contains("answers with 409"), "{}: {error}", release.name);

        let asked = server.asked();
        let challenges: Vec<String> = asked.iter().map(|asked| challenge(&asked.body)).collect();
        let expected = [
            configuration_request(Some(&challenges[0])),
            certificates_request(r#"{"kubelet":"KEY"}"#, r#"{"kubernetes-ca":"7"}"#, Some(&challenges[1])),
            configuration_request(Some(&challenges[2])),
        ];
        assert_eq!(asked.iter().map(|asked| asked.body.as_str()).collect::<Vec<_>>(), expected);
        assert!(asked.iter().all(|asked| asked.token == "x-hetzner-id 42"), "{}", release.name);
        assert!(challenges[0] != challenges[1] && challenges[1] != challenges[2]);
    }
}

#[tokio::test]
async fn a_boot_config_of_another_release_trusts_no_server_of_this_one() {
    kops_agent_net::tls::install_provider();
    let authority = Keyset::make("kubernetes-ca", 7).unwrap();
    let [of_1_34, .., of_1_37] = &RELEASES;
    for (told, is) in [(of_1_34, of_1_37), (of_1_37, of_1_34)] {
        let server = RecordedServer::start(is, &authority, &[(200, CONFIGURATION)]).unwrap();
        let error = kops_controller(told, &server, &authority).node_config().await.unwrap_err().to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        assert!(server.asked().is_empty());
    }
}

/// An authenticator whose token is the number of tokens that servers have refused so far.
#[derive(Default)]
struct Counting(AtomicUsize);

#[async_trait::async_trait]
impl Authenticator for Counting {
    async fn token(&self, _: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        Ok(HeaderValue::from(self.0.load(Ordering::Relaxed)))
    }

    fn refused(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn only_a_refused_token_changes_the_form_of_tokens() {
    kops_agent_net::tls::install_provider();
    let authority = Keyset::make("kubernetes-ca", 7).unwrap();
    let answers = [REFUSED, (400, "callback failed"), (500, "internal error"), REFUSED, (200, CONFIGURATION)];
    let server = RecordedServer::start(&RELEASES[0], &authority, &answers).unwrap();
    let asking = Asking {
        authenticator: Box::new(Counting::default()),
        trust: tls::client_config_trusting(&authority.certificate).unwrap(),
        callback: None,
        request: BootstrapRequest::for_node_config(),
        identity: Identity::default(),
    };
    // The test has bound the port but does not listen, so connections to the port are refused.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let silent = format!("https://{}/", bound.local_addr().unwrap());
    let servers = Server::from_urls(&[silent, server.url()], "").unwrap();
    let accept = |answer: BootstrapResponse| Ok(answer.node_config);
    for _ in 1..answers.len() {
        asking.round(&servers, &asking.trust, accept).await.unwrap_err();
    }
    let (given_by, given) = asking.round(&servers, &asking.trust, accept).await.unwrap();
    assert!(given_by == server.url() && given.is_some());
    let tokens: Vec<String> = server.asked().into_iter().map(|asked| asked.token).collect();
    assert_eq!(tokens, ["0", "1", "1", "1", "2"]);
}

/// kops-controller of kOps 1.34.0 and 1.34.1 expects another form of the proof than other releases do. If the machine uses the form for
/// other releases, kops-controller answers `callback failed`. The machine then changes the form, but only if it received a call-back before
/// this answer.
#[tokio::test]
async fn an_answered_call_back_that_failed_changes_the_form_of_the_proof() {
    kops_agent_net::tls::install_provider();
    let authority = Keyset::make("kubernetes-ca", 7).unwrap();
    let callers = Authority::new("kubernetes-ca").unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = common_name(&challenge::caller_name("c.example.com"));
    let issued = callers.issue(&params).unwrap();
    let identity = PemPair { certificate: issued.certificate, private_key: issued.private_key };
    let failed = (400, "callback failed");
    let server = RecordedServer::start(&RELEASES[0], &authority, &[failed; 3]).unwrap();
    let callback =
        CallbackServer::start("c.example.com", &callers.pem, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let asking = Asking {
        authenticator: Box::new(Counting::default()),
        trust: tls::client_config_trusting(&authority.certificate).unwrap(),
        callback: Some(callback),
        request: BootstrapRequest::for_node_config(),
        identity: Identity::default(),
    };
    let servers = Server::from_urls(&[server.url()], "").unwrap();
    let accept = |answer: BootstrapResponse| Ok(answer.node_config);
    // Calls back as kops-controller does, and returns the proof that the machine gives for the last request.
    let proof = async || {
        let last = server.asked().pop().unwrap();
        let challenge = BootstrapRequest::parse(last.body.as_bytes()).unwrap().challenge.unwrap();
        let address = challenge.endpoint.parse().unwrap();
        let caller = Caller::new("c.example.com");
        caller.call(address, &challenge, &identity, [7; 16]).await.unwrap()
    };
    asking.round(&servers, &asking.trust, accept).await.unwrap_err();
    asking.round(&servers, &asking.trust, accept).await.unwrap_err();
    assert_eq!(proof().await, Proof::OfSecret, "no challenge was answered before");
    asking.round(&servers, &asking.trust, accept).await.unwrap_err();
    assert_eq!(proof().await, Proof::Constant);
}
