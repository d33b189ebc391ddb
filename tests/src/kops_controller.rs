//! A stand-in for kops-controller's bootstrap server with upstream's protocol. It can also misbehave as no real server may ([`Mood`]).
//!
//! It checks requests as upstream's server does, except that it cannot ask AWS for the signer of a token. It checks only
//! the token's form and the hash in it. Source: upstream's `cmd/kops-controller/pkg/server/server.go` and
//! `pkg/bootstrap/awsbootstrap`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use parking_lot::Mutex;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SubjectPublicKeyInfo, date_time_ymd,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::example_keys::Keyset;
use crate::example_store::{CLUSTER, REGION};
use crate::loopback::{Identity, LoopbackServer};

/// The name in the certificate of the example cluster's kops-controller.
pub fn server_name() -> String {
    format!("kops-controller.internal.{CLUSTER}")
}

/// The data of the only node that the server serves.
#[derive(Clone)]
pub struct Served {
    /// The CA that signs the certificates of the server and of its nodes.
    pub authority: Keyset,
    pub node_name: String,
    /// The text of the `nodeupconfig.yaml` of the node's group.
    pub nodeup_config: String,
    /// The secret `dockerconfig`.
    pub docker_config: String,
    /// The group's boot config, for nodes that follow their group. `None` on upstream's server.
    pub boot_config: Option<String>,
    /// The text of the store's `kops-version.txt`. `None` on upstream's server.
    pub kops_version: Option<String>,
    /// The text of the store's file that describes the current kops-agent program. `None` on upstream's server.
    pub program: Option<String>,
}

/// The way in which the server responds to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mood {
    Honest,
    /// Answers correctly, but with certificates that expire within a day.
    ShortLived,
    /// Answers with this status and text.
    Refusing(u16, &'static str),
    /// Never answers.
    Silent,
    /// Sends a body that never ends.
    Endless,
    /// Answers with HTML instead of JSON.
    Babbling,
    /// Answers with an empty JSON object.
    Empty,
    /// Omits the certificate with this name.
    Without(&'static str),
    /// Issues certificates for a key that is not the node's.
    OtherKey,
    /// Issues certificates that are signed by a different CA with the right name.
    OtherAuthority,
    /// Issues certificates for a different node.
    OtherNode,
    OtherConfiguration,
}

/// A request, and the mood of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Configuration(Mood),
    ProgramFile(Mood),
    Certificates(Vec<String>, Mood),
    /// Marks the next recorded request as a renewal. In a renewal, the node must authenticate with its kubelet's certificate.
    ToRenew,
    /// A request for a path that upstream's server does not serve.
    Elsewhere(String),
}

/// A running stand-in for kops-controller. Dropping it stops the stand-in.
pub struct KopsController {
    server: LoopbackServer,
    state: Arc<State>,
}

struct State {
    served: Served,
    impostor: Keyset,
    /// Whether the server serves `/renew`, like the server of kops-agent.
    renews: bool,
    moods: Mutex<VecDeque<Mood>>,
    asked: Mutex<Vec<Asked>>,
    problems: Mutex<Vec<String>>,
    tokens: Mutex<BTreeSet<String>>,
}

impl KopsController {
    /// Starts the server under the server name of the example cluster.
    pub fn start(served: Served) -> anyhow::Result<KopsController> {
        KopsController::start_as(&server_name(), served)
    }

    /// Starts a server that renews certificates, like the server of kops-agent (`docs/certificate-renewal.md`).
    pub fn start_renewing(served: Served) -> anyhow::Result<KopsController> {
        KopsController::start_renewing_at((Ipv4Addr::LOCALHOST, 0).into(), served)
    }

    /// Like `start_renewing`, at this address.
    pub fn start_renewing_at(address: SocketAddr, served: Served) -> anyhow::Result<KopsController> {
        KopsController::start_at(address, &server_name(), served, true)
    }

    /// Like `start_renewing`, on this socket.
    pub fn start_renewing_on(socket: TcpListener, served: Served) -> anyhow::Result<KopsController> {
        KopsController::serve(socket, &server_name(), served, true)
    }

    /// Starts a server with a certificate for this name.
    pub fn start_as(name: &str, served: Served) -> anyhow::Result<KopsController> {
        KopsController::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, served, false)
    }

    /// Like `start`, on this socket.
    pub fn start_on(socket: TcpListener, served: Served) -> anyhow::Result<KopsController> {
        KopsController::serve(socket, &server_name(), served, false)
    }

    fn start_at(
        address: SocketAddr,
        name: &str,
        served: Served,
        renews: bool,
    ) -> anyhow::Result<KopsController> {
        let socket = TcpListener::bind(address).context("finding a free port")?;
        KopsController::serve(socket, name, served, renews)
    }

    fn serve(
        socket: TcpListener,
        name: &str,
        served: Served,
        renews: bool,
    ) -> anyhow::Result<KopsController> {
        let identity = Identity::signed_by(&served.authority, name)?;
        let impostor = Keyset::make(&served.authority.name, served.authority.id)?;
        let state = Arc::new(State {
            served,
            impostor,
            renews,
            moods: Mutex::default(),
            asked: Mutex::default(),
            problems: Mutex::default(),
            tokens: Mutex::default(),
        });
        let handler = Arc::clone(&state);
        let authority = renews.then(|| handler.served.authority.certificate.clone());
        let service_for = move |shown: Option<Vec<u8>>| {
            let state = Arc::clone(&handler);
            service_fn(move |request| {
                let (state, shown) = (Arc::clone(&state), shown.clone());
                async move { Ok::<_, Infallible>(state.answer(request, shown.as_deref()).await) }
            })
        };
        let server = LoopbackServer::start_tls_for_on(
            socket,
            "kops-controller",
            &identity,
            authority.as_deref(),
            service_for,
        )?;
        Ok(KopsController { server, state })
    }

    /// The server's URL, with its IP address.
    pub fn url(&self) -> String {
        format!("{}/", self.server.url())
    }

    /// Sets the moods of the next requests. Later requests get honest responses. Forgets the tokens of earlier requests, because a run
    /// within the same second may send one of these tokens again.
    pub fn answer_next(&self, moods: &[Mood]) {
        self.state.tokens.lock().clear();
        *self.state.moods.lock() = moods.iter().cloned().collect();
    }

    /// The requests since the previous call of `asked`. Each path of the server accepts a token only once. This call forgets the tokens,
    /// because a run within the same second may send one of them again.
    pub fn asked(&self) -> Vec<Asked> {
        self.state.tokens.lock().clear();
        std::mem::take(&mut *self.state.asked.lock())
    }

    pub fn problems(&self) -> Vec<String> {
        self.state.problems.lock().clone()
    }
}

impl State {
    async fn answer(&self, request: Request<Incoming>, shown: Option<&[u8]>) -> Response<Answer> {
        let path = request.uri().path().to_owned();
        let is_renewal = self.renews && path == "/renew";
        if !is_renewal && path != "/bootstrap" {
            self.asked.lock().push(Asked::Elsewhere(path));
            return answer(404, "404 page not found\n");
        }
        if is_renewal {
            self.asked.lock().push(Asked::ToRenew);
            if let Err(problem) = self.check_shown(shown) {
                self.problems.lock().push(format!("{problem:#}"));
                return answer(403, "CertificateOfOtherNode");
            }
        }
        let checked = match self.check(request).await {
            Ok(checked) => checked,
            Err(problem) => {
                self.problems.lock().push(format!("{problem:#}"));
                return answer(403, "failed to verify token\n");
            }
        };
        let mood = match is_renewal {
            true => Mood::Honest,
            false => self.moods.lock().pop_front().unwrap_or(Mood::Honest),
        };
        let certs = checked["certs"].as_object();
        self.asked.lock().push(match certs {
            Some(certs) => Asked::Certificates(certs.keys().cloned().collect(), mood.clone()),
            None if checked["includeProgram"] == true => Asked::ProgramFile(mood.clone()),
            None => Asked::Configuration(mood.clone()),
        });
        match mood {
            Mood::Refusing(status, text) => return answer(status, text),
            Mood::Silent => std::future::pending().await,
            Mood::Endless => return Response::new(Answer::Endless),
            Mood::Babbling => return answer(200, "<html>Welcome</html>"),
            Mood::Empty => return answer(200, "{}\n"),
            _ => {}
        }
        let body = match certs {
            None if checked["includeProgram"] == true => Ok(json!({"program": self.served.program})),
            None => Ok(self.configuration(&mood, checked["includeBootConfig"] == true)),
            Some(certs) => self.certificates(certs, &mood),
        };
        match body {
            Ok(body) => answer(200, &format!("{body}\n")),
            Err(problem) => {
                self.problems.lock().push(format!("{problem:#}"));
                answer(400, "failed to issue\n")
            }
        }
    }

    /// Checks that the client has authenticated with the certificate of the node's kubelet.
    fn check_shown(&self, shown: Option<&[u8]>) -> anyhow::Result<()> {
        let (_, certificate) = X509Certificate::from_der(shown.context("no certificate is shown")?)?;
        let expected = format!("O=system:nodes, CN=system:node:{}", self.served.node_name);
        let subject = certificate.subject().to_string();
        ensure!(subject == expected, "the certificate is of {subject}");
        Ok(())
    }

    /// Checks a request as upstream's server does, and returns its body.
    async fn check(&self, request: Request<Incoming>) -> anyhow::Result<Value> {
        ensure!(request.method() == Method::POST, "not POST");
        ensure!(request.version() == Version::HTTP_11, "not HTTP/1.1");
        ensure!(request.headers()["content-type"] == "application/json", "not JSON");
        let path = request.uri().path().to_owned();
        let token = request.headers().get("authorization").context("no token")?.to_str()?.to_owned();
        let body = request.into_body().collect().await?.to_bytes();
        check_aws_token(&token, &body, REGION)?;
        // Each path accepts a token once. If `/bootstrap` rejects a token with 409, the node may send this token to `/renew`.
        ensure!(self.tokens.lock().insert(format!("{path} {token}")), "a token was used twice");
        let body: Value = serde_json::from_slice(&body)?;
        ensure!(body["apiVersion"] == "bootstrap.kops.k8s.io/v1alpha1", "another version");
        let wants_configuration = body["includeNodeConfig"].as_bool().context("no includeNodeConfig")?;
        if body["includeProgram"] == true {
            return Ok(body);
        }
        ensure!(wants_configuration == body["certs"].is_null(), "both or neither");
        ensure!(wants_configuration == body["keypairIDs"].is_null(), "keypairIDs do not fit");
        if !wants_configuration {
            let expected = json!({ &self.served.authority.name: self.served.authority.id.to_string() });
            ensure!(body["keypairIDs"] == expected, "keypairIDs are {}", body["keypairIDs"]);
        }
        Ok(body)
    }

    fn configuration(&self, mood: &Mood, with_boot_config: bool) -> Value {
        let mut text = self.served.nodeup_config.clone();
        if *mood == Mood::OtherConfiguration {
            text.push_str("# changed on the way\n");
        }
        let secrets = json!({ "dockerconfig": STANDARD.encode(&self.served.docker_config) });
        let mut answer = json!({ "nodeConfig": { "nodeupConfig": text, "nodeSecrets": secrets } });
        if let Some(version) = &self.served.kops_version {
            answer["nodeConfig"]["kopsVersion"] = version.as_str().into();
        }
        if let Some(boot_config) = self.served.boot_config.as_ref().filter(|_| with_boot_config) {
            answer["bootConfig"] = boot_config.as_str().into();
        }
        answer
    }

    fn certificates(&self, certs: &serde_json::Map<String, Value>, mood: &Mood) -> anyhow::Result<Value> {
        let mut issued = BTreeMap::new();
        for (name, key) in certs {
            let certificate = self.certificate(name, key.as_str().context("a key is no text")?, mood)?;
            if name != name_in(mood) {
                issued.insert(name, certificate);
            }
        }
        Ok(json!({ "Certs": issued }))
    }

    fn certificate(&self, name: &str, key: &str, mood: &Mood) -> anyhow::Result<String> {
        ensure!(key.starts_with("-----BEGIN RSA PUBLIC KEY-----\n"), "{name}: {key}");
        let key = SubjectPublicKeyInfo::from_pem(key)?;
        let node = if *mood == Mood::OtherNode { "i-0another" } else { &self.served.node_name };
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let (subject, usages, extended) = match name {
            "kubelet" => {
                params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
                (format!("system:node:{node}"), vec![], ExtendedKeyUsagePurpose::ClientAuth)
            }
            "kubelet-server" => {
                params.subject_alt_names = names(node)?;
                let usages = vec![KeyUsagePurpose::KeyEncipherment];
                (node.to_owned(), usages, ExtendedKeyUsagePurpose::ServerAuth)
            }
            "kube-proxy" => ("system:kube-proxy".to_owned(), vec![], ExtendedKeyUsagePurpose::ClientAuth),
            other => bail!("{other} is not issued"),
        };
        params.distinguished_name.push(DnType::CommonName, subject);
        params.key_usages = [vec![KeyUsagePurpose::DigitalSignature], usages].concat();
        params.extended_key_usages = vec![extended];
        params.is_ca = IsCa::ExplicitNoCa;
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = match mood {
            Mood::ShortLived => (SystemTime::now() + Duration::from_secs(24 * 60 * 60)).into(),
            _ => date_time_ymd(2045, 1, 1),
        };
        let authority = if *mood == Mood::OtherAuthority { &self.impostor } else { &self.served.authority };
        let issuer = authority.issuer()?;
        let certificate = match mood {
            Mood::OtherKey => params.signed_by(&KeyPair::generate()?, &issuer)?,
            _ => params.signed_by(&key, &issuer)?,
        };
        Ok(certificate.pem())
    }
}

fn name_in(mood: &Mood) -> &'static str {
    match mood {
        Mood::Without(name) => name,
        _ => "",
    }
}

/// The subject alternative names of a node's certificate: the node's name and its IP address in the cloud.
fn names(node: &str) -> anyhow::Result<Vec<rcgen::SanType>> {
    Ok(CertificateParams::new([node.to_owned(), "10.20.32.20".to_owned()])?.subject_alt_names)
}

/// Checks that a token has AWS' first form (`x-aws-sts`), is for this body, and is signed for this region.
pub fn check_aws_token(token: &str, body: &[u8], region: &str) -> anyhow::Result<()> {
    let payload = token.strip_prefix("x-aws-sts ").context("another kind of token")?;
    let headers: BTreeMap<String, Vec<String>> = serde_json::from_slice(&STANDARD.decode(payload)?)?;
    let header = |name: &str| match headers.get(name).map(Vec::as_slice) {
        Some([value]) => Ok(value.as_str()),
        other => bail!("{name} is {other:?}"),
    };
    let hash = STANDARD_NO_PAD.encode(Sha256::digest(body));
    ensure!(header("X-Kops-Request-Sha")? == hash, "the token is for another request");
    ensure!(header("Content-Type")? == "application/x-www-form-urlencoded; charset=utf-8", "no form");
    ensure!(header("X-Amz-Date")?.len() == "20240518T131902Z".len(), "no time");
    let authorization = header("Authorization")?;
    let parts = authorization.strip_prefix("AWS4-HMAC-SHA256 ").context("another algorithm")?;
    let parts: BTreeMap<&str, &str> = parts.split(", ").filter_map(|part| part.split_once('=')).collect();
    let signed: Vec<&str> = parts.get("SignedHeaders").context("no SignedHeaders")?.split(';').collect();
    ensure!(signed.contains(&"x-kops-request-sha") && signed.contains(&"host"), "signed are {signed:?}");
    ensure!(parts.get("Signature").is_some_and(|signature| signature.len() == 64), "no signature");
    let scope = parts.get("Credential").context("no Credential")?;
    ensure!(scope.ends_with(&format!("/{region}/sts/aws4_request")), "the scope is {scope}");
    Ok(())
}

/// The body of a response.
enum Answer {
    Text(Option<Bytes>),
    Endless,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(match &mut *self {
            Answer::Text(text) => text.take().map(|text| Ok(Frame::data(text))),
            Answer::Endless => Some(Ok(Frame::data(Bytes::from_static(&[b' '; 1 << 16])))),
        })
    }
}

fn answer(status: u16, text: &str) -> Response<Answer> {
    let mut response = Response::new(Answer::Text(Some(Bytes::from(text.to_owned()))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}
