//! A discovery service on loopback, which speaks TLS and lets in only clients with a certificate of the cluster's authority.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kops_agent_tests::authority::{Authority, Pair, common_name};
use parking_lot::Mutex;
use rcgen::CertificateParams;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

fn authority(name: &str) -> Authority {
    Authority::new(name).unwrap()
}

/// A certificate followed by the certificate of its authority, and the key of the first certificate.
fn issued(by: &Authority, name: &str) -> PemPair {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name = common_name(name);
    let Pair { certificate, private_key } = by.issue(&params).unwrap();
    PemPair { certificate: certificate + &by.pem, private_key }
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

/// The requests to the discovery service: method, path with query, content type, body, and number of client
/// certificates.
type Asked = Arc<Mutex<Vec<(String, String, String, String, usize)>>>;

/// Starts a discovery service, which answers with `status`. Returns its URL and the requests that it got.
async fn service(server: &Authority, clients: &Authority, status: u16) -> (String, Asked) {
    let own = issued(server, "localhost");
    let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(own.private_key.as_bytes()).unwrap();
    let verifier = WebPkiClientVerifier::builder(roots(clients)).build().unwrap();
    let config =
        ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/universe", listener.local_addr().unwrap().port());
    let asked = Asked::default();
    let noted = asked.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let shown = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
            let noted = noted.clone();
            let answer = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let noted = noted.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let content_type = head.headers["content-type"].to_str().unwrap().to_owned();
                    noted.lock().push((
                        head.method.to_string(),
                        head.uri.to_string(),
                        content_type,
                        String::from_utf8(body.to_vec()).unwrap(),
                        shown,
                    ));
                    let said = match status {
                        201 => "{}".to_owned(),
                        404 => "no such universe".to_owned(),
                        _ => "\u{1b}[2Jno ".repeat(1 << 20),
                    };
                    let answer = Response::builder().status(status).body(said).unwrap();
                    Ok::<_, std::convert::Infallible>(answer)
                }
            });
            let _hung_up =
                Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
        }
    });
    (url, asked)
}

fn registration(url: &str) -> DiscoveryRegistration {
    DiscoveryRegistration {
        name: "register".into(),
        url: url.into(),
        certificate: "discovery-service-client".into(),
        object: r#"{"apiVersion":"discovery.kops.k8s.io/v1alpha1","kind":"DiscoveryEndpoint",
                    "metadata":{"name":"node-1","namespace":"c-example-com"},"spec":{}}"#
            .into(),
    }
}

fn client(server: &Authority, identity: &PemPair) -> Client {
    let config =
        tls::client_config_trusting_as(&server.pem, &identity.certificate, &identity.private_key).unwrap();
    http::client_with(config).unwrap()
}

#[tokio::test]
async fn a_node_applies_its_endpoint_as_the_user_of_its_certificate() {
    tls::install_provider();
    let (server, clients) = (authority("server"), authority("discovery-ca"));
    let (url, asked) = service(&server, &clients, 201).await;
    let node = issued(&clients, "node-1");
    register(&client(&server, &node), &registration(&url)).await.unwrap();
    let (method, path, content_type, body, shown) = asked.lock().remove(0);
    assert_eq!((method.as_str(), content_type.as_str(), shown), ("PATCH", "application/apply-patch+yaml", 2));
    assert_eq!(
        path,
        "/universe/apis/discovery.kops.k8s.io/v1alpha1/namespaces/c-example-com/discoveryendpoints/node-1\
         ?fieldManager=nodeup-register&force=false"
    );
    assert_eq!(body, registration(&url).object);
}

#[tokio::test]
async fn failures_of_a_registration_are_reported() {
    tls::install_provider();
    let (server, clients) = (authority("server"), authority("discovery-ca"));
    let (url, _asked) = service(&server, &clients, 404).await;
    let node = issued(&clients, "node-1");
    let error = register(&client(&server, &node), &registration(&url)).await.unwrap_err();
    assert_eq!(error.to_string(), "it answers 404 Not Found no such universe");
    let (long, _asked) = service(&server, &clients, 500).await;
    let error = register(&client(&server, &node), &registration(&long)).await.unwrap_err().to_string();
    assert!(error.starts_with("it answers 500 Internal Server Error  [2Jno "), "{error}");
    assert!(error.len() < LONGEST_ANSWER + 100, "{error}");
    let stranger = issued(&authority("discovery-ca"), "node-1");
    assert!(register(&client(&server, &stranger), &registration(&url)).await.is_err());
    let impostor = register(&client(&clients, &node), &registration(&url)).await.unwrap_err().to_string();
    assert!(impostor.contains("certificate"), "{impostor}");
    let gone = register(&client(&server, &node), &registration("https://localhost:1/universe")).await;
    assert!(gone.unwrap_err().to_string().contains("refused"));
}
