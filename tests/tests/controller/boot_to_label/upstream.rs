//! Mixed operation. kOps' own nodeup sends requests to our server, byte for byte as Go writes them. Our node sends requests that
//! kOps' own kops-controller can read.
//!
//! Source: upstream's `pkg/apis/nodeup/bootstrap.go`, `pkg/kopscontrollerclient/client.go`, `pkg/bootstrap/challenge_server.go`, and
//! each cloud's `authenticator.go` and `verifier.go`.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::loopback::{Identity, LoopbackServer};
use parking_lot::Mutex;
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::UPSTREAM;
use crate::bootstrap::World;
use crate::clouds::Ground;
use crate::cluster::CLUSTER;

/// The port on which upstream's nodeup accepts call-backs.
const CALL_BACK: u16 = 3987;
const ID: &str = "00112233445566778899aabbccddeeff";
const SECRET: &[u8] = b"sixteen bytes it";

/// The beginning of the request for a machine's configuration, as upstream's Go code encodes it. A challenge may be the next field.
const FOR_CONFIGURATION: &str = r#"{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":null,"keypairIDs":null,"includeNodeConfig":true"#;

/// Requests a machine's configuration and its certificates as upstream's nodeup does, and returns both responses.
pub fn bootstrap<G: Ground>(ground: &G, world: &World) -> [Value; 2] {
    let identity = Identity::named(&[&format!("challenge-server.{CLUSTER}")]).unwrap();
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, CALL_BACK));
    let _call_back = G::IS_CALLED_BACK.then(|| {
        let socket = TcpListener::bind(address).unwrap();
        LoopbackServer::start_tls_for_on(socket, "call-back", &identity, None, |_| service_fn(called_back))
            .unwrap()
    });
    let challenge = match G::IS_CALLED_BACK {
        true => format!(
            r#","challenge":{{"endpoint":"[::]:{CALL_BACK}","ca":"{}","challengeID":"{ID}","challengeSecret":"{}"}}"#,
            STANDARD.encode(&identity.certificate_pem),
            STANDARD.encode(SECRET)
        ),
        false => String::new(),
    };
    let key = STANDARD.encode(KeyPair::generate().unwrap().subject_public_key_info());
    let key = json!(format!("-----BEGIN RSA PUBLIC KEY-----\n{key}\n-----END RSA PUBLIC KEY-----\n"));
    let for_certificates = format!(
        r#"{{"apiVersion":"bootstrap.kops.k8s.io/v1alpha1","certs":{{"kubelet":{key},"kubelet-server":{key}}},"keypairIDs":{{"kubernetes-ca":"7"}},"includeNodeConfig":false"#
    );
    [FOR_CONFIGURATION.to_owned(), for_certificates].map(|request| {
        let body = format!("{request}{challenge}}}");
        let token = ground.upstreams_token(UPSTREAM, body.as_bytes());
        let (status, answer) = world.ask(UPSTREAM.address, &token, &body);
        assert_eq!(status, 200, "{} {token}: {answer}", G::NAME);
        serde_json::from_str(&answer).unwrap()
    })
}

/// A gRPC message, with the status in the trailers.
type Answered = WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>;

/// Answers a call-back as gRPC for Go does. The body of the response is the length of the message, and then the message. The
/// status is in the trailers.
async fn called_back(request: Request<Incoming>) -> Result<Response<Answered>, Infallible> {
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.uri().path(), "/kops.bootstrap.v1.CallbackService/Challenge");
    let frame = request.into_body().collect().await.unwrap().to_bytes();
    // In the protobuf message, field 1 is the challenge's id, and field 2 is the random bytes.
    let id = [&[0x0a, 32], ID.as_bytes(), &[0x12, 16]].concat();
    let random = frame[5..].strip_prefix(id.as_slice()).expect("the challenge of the request");
    let digest = Sha256::new().chain_update(SECRET).chain_update(random).finalize();
    let message = [&[0, 0, 0, 0, 34, 0x0a, 32], digest.as_slice()].concat();
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from(message)).with_trailers(ready(Some(Ok(trailers))));
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

/// A request that a server received.
#[derive(Debug)]
struct Asked {
    method: String,
    path: String,
    version: Version,
    content_type: String,
    token: String,
    body: Vec<u8>,
}

/// A stand-in for upstream's server, which records all requests. The stand-in gives a node its configuration, but denies certificates.
/// Dropping it stops the stand-in.
pub struct KopsController {
    asked: Arc<Mutex<Vec<Asked>>>,
    _server: LoopbackServer,
}

impl KopsController {
    /// Starts a server at this address, with a certificate for kops-controller's name.
    pub fn start(authority: &Keyset, address: SocketAddr, nodeup_config: &str) -> KopsController {
        let identity =
            Identity::signed_by(authority, &format!("kops-controller.internal.{CLUSTER}")).unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let keep = asked.clone();
        let configuration = json!({"Certs": {}, "nodeConfig": {"nodeupConfig": nodeup_config}}).to_string();
        let configuration = Bytes::from(configuration);
        let service = move |request: Request<Incoming>| {
            let (keep, configuration) = (keep.clone(), configuration.clone());
            async move {
                let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
                let (content_type, token) = (header("content-type"), header("authorization"));
                let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
                let version = request.version();
                let body = request.into_body().collect().await.unwrap().to_bytes().to_vec();
                let is_for_configuration = body.starts_with(FOR_CONFIGURATION.as_bytes());
                keep.lock().push(Asked { method, path, version, content_type, token, body });
                let mut response = Response::new(Full::new(configuration));
                if !is_for_configuration {
                    *response.body_mut() = Full::new(Bytes::from_static(b"failed to verify token\n"));
                    *response.status_mut() = hyper::StatusCode::FORBIDDEN;
                }
                Ok::<_, Infallible>(response)
            }
        };
        let services = move |_| service_fn(service.clone());
        let socket = TcpListener::bind(address).unwrap();
        let server = LoopbackServer::start_tls_for_on(socket, "upstream", &identity, None, services).unwrap();
        KopsController { asked, _server: server }
    }

    /// Checks that the node has requested first its configuration and then its certificates, in a format that upstream's server reads.
    pub fn has_understood<G: Ground>(&self, ground: &G) {
        let asked = self.asked.lock();
        assert!(asked.len() >= 2, "{asked:?}");
        let mut tokens = Vec::new();
        for (asked, is_for_configuration) in asked.iter().zip([true, false]) {
            assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/bootstrap"));
            assert_eq!((asked.version, asked.content_type.as_str()), (Version::HTTP_11, "application/json"));
            let text = std::str::from_utf8(&asked.body).unwrap();
            assert_eq!(text.starts_with(FOR_CONFIGURATION), is_for_configuration, "{text}");
            let body: Value = serde_json::from_slice(&asked.body).unwrap();
            let mut expected = vec!["apiVersion", "certs", "includeNodeConfig", "keypairIDs"];
            if G::IS_CALLED_BACK {
                expected.insert(2, "challenge");
                assert_eq!(names(&body["challenge"]), ["ca", "challengeID", "challengeSecret", "endpoint"]);
                let bytes = |name: &str| STANDARD.decode(body["challenge"][name].as_str().unwrap()).unwrap();
                assert!(bytes("ca").starts_with(b"-----BEGIN CERTIFICATE-----\n"));
                assert!(bytes("challengeSecret").len() >= 16);
                assert_eq!(body["challenge"]["challengeID"].as_str().unwrap().len(), ID.len());
            }
            assert_eq!(names(&body), expected);
            assert_eq!(body["includeNodeConfig"], is_for_configuration);
            if !is_for_configuration {
                assert_eq!(body["keypairIDs"], json!({"kubernetes-ca": "7"}));
                assert_eq!(names(&body["certs"]), ["kube-proxy", "kubelet", "kubelet-server"]);
            }
            ground.check_as_upstream(super::MACHINE, &asked.token, &asked.body);
            tokens.push(asked.token.clone());
        }
    }
}

/// The names of an object's fields, in order.
pub fn names(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Decodes the base64 JSON after a prefix. Signed tokens have this format.
pub fn decoded(token: &str, prefix: &str) -> Value {
    let payload = token.strip_prefix(prefix).unwrap_or_else(|| panic!("{token}"));
    serde_json::from_slice(&STANDARD.decode(payload).unwrap()).unwrap()
}

/// Checks a token in the signed format of GCE and metal, and returns the token's data. The token must be new and for this request. The
/// data must have the common fields and the fields in `others`.
pub fn claims(token: &str, prefix: &str, others: &[&str], body: &[u8]) -> Value {
    let token = decoded(token, prefix);
    assert_eq!(names(&token), ["data", "signature"]);
    let bytes = |field: &Value| STANDARD.decode(field.as_str().unwrap()).unwrap();
    assert!(!bytes(&token["signature"]).is_empty());
    let data: Value = serde_json::from_slice(&bytes(&token["data"])).unwrap();
    let mut expected = [others, &["audience", "instance", "requestHash", "timestamp"]].concat();
    expected.sort_unstable();
    assert_eq!(names(&data), expected);
    assert_eq!(data["audience"], "kops.k8s.io/node-bootstrap");
    assert_eq!(bytes(&data["requestHash"]), Sha256::digest(body).to_vec());
    assert!((now() - data["timestamp"].as_i64().unwrap()).abs() < 300);
    data
}

/// Seconds since 1970.
pub fn now() -> i64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs().try_into().unwrap()
}
