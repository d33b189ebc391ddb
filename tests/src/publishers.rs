//! Stand-ins for the publishers of Kubernetes' downloads: an HTTPS proxy that answers for every host itself. It serves
//! only the checksum files that each publisher has beside a download.
//!
//! The agent reaches it in the way it reaches the internet from behind a company's proxy. `HTTPS_PROXY` is its address,
//! and `SSL_CERT_FILE` is the authority that signed the hosts' certificates.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use anyhow::Context;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::CertificateParams;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::authority::Authority;

/// Running stand-ins for the publishers of downloads. Dropping this value stops them.
#[derive(Debug)]
pub struct Publishers {
    address: std::net::SocketAddr,
    authority: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

struct World {
    authority: Authority,
    checksum_files: BTreeMap<String, String>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Publishers {
    /// Publishes the SHA-256 digests of downloads. The keys of `sha256` are the URLs of the downloads. Writes the CA certificate
    /// of the publishers to `folder`.
    pub fn start(sha256: &BTreeMap<String, String>, folder: &Path) -> anyhow::Result<Publishers> {
        let authority = Authority::new("publishers of a test")?;
        let authority_file = folder.join("publishers.pem");
        std::fs::write(&authority_file, &authority.pem).context("writing the publishers' authority")?;

        let asked = Arc::new(Mutex::new(Vec::new()));
        let world =
            Arc::new(World { authority, checksum_files: checksum_files(sha256), asked: Arc::clone(&asked) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let (stop, stopped) = oneshot::channel::<Infallible>();
        let thread = thread::Builder::new().name("publishers".to_owned()).spawn(move || {
            // The error is dropped, because clients see that the server has failed.
            let _ = runtime.block_on(async {
                let listener = TcpListener::from_std(socket)?;
                tokio::select! {
                    done = accept_forever(listener, world) => done,
                    _ = stopped => Ok(()),
                }
            });
        })?;
        Ok(Publishers { address, authority: authority_file, asked, stop: Some(stop), thread: Some(thread) })
    }

    /// The environment variables that direct a program to these publishers.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("HTTPS_PROXY", format!("http://{}", self.address)),
            ("SSL_CERT_FILE", self.authority.display().to_string()),
        ]
    }

    /// All requested URLs so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

impl Drop for Publishers {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread has ended, or ends because `stop` is dropped. Its result does not matter.
            let _ = thread.join();
        }
    }
}

/// The publishers' checksum files. Kubernetes and most other publishers have `<file>.sha256`, containerd has
/// `<file>.sha256sum`, and runc has one list for each release.
fn checksum_files(sha256: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (url, hash) in sha256 {
        let Some((folder, name)) = url.rsplit_once('/') else { continue };
        if name.starts_with("runc.") {
            files
                .entry(format!("{folder}/runc.sha256sum"))
                .or_default()
                .push_str(&format!("{hash} *{name}\n"));
        } else if name.starts_with("containerd-") {
            files.insert(format!("{url}.sha256sum"), format!("{hash}  {name}\n"));
        } else {
            files.insert(format!("{url}.sha256"), format!("{hash}\n"));
        }
    }
    files
}

async fn accept_forever(listener: TcpListener, world: Arc<World>) -> std::io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        tokio::spawn(tunnel(connection, Arc::clone(&world)));
    }
}

/// Answers the requests in a client's tunnel to a host, in place of that host.
async fn tunnel(connection: TcpStream, world: Arc<World>) -> anyhow::Result<()> {
    let mut connection = BufReader::new(connection);
    let mut request = String::new();
    connection.read_line(&mut request).await?;
    let mut header = String::new();
    while connection.read_line(&mut header).await? > 2 {
        header.clear();
    }
    let host = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(':').next());
    let host = host.with_context(|| format!("not a request for a tunnel: {request:?}"))?.to_owned();
    connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;

    let acceptor = TlsAcceptor::from(Arc::new(server_config(&host, &world)?));
    let tls = acceptor.accept(connection).await?;
    let answer = service_fn(|request: Request<Incoming>| {
        let url = format!("https://{host}{}", request.uri().path());
        let file = world.checksum_files.get(&url).cloned();
        world.asked.lock().push(url);
        async move {
            let status = if file.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            let mut response = Response::new(file.unwrap_or_default());
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new().serve_connection(TokioIo::new(tls), answer).await?;
    Ok(())
}

fn server_config(host: &str, world: &World) -> anyhow::Result<ServerConfig> {
    let own = world.authority.issue(&CertificateParams::new(vec![host.to_owned()])?)?;
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(own.private_key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?)
}
