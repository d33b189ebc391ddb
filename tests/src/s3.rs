//! An S3 server for tests and the demo: it checks signatures, and the folders of its root are its buckets.

use std::collections::BTreeSet;
use std::future::ready;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use parking_lot::Mutex;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::path::S3Path;
use s3s::service::S3ServiceBuilder;
use s3s::{S3Result, s3_error};
use s3s_fs::FileSystem;

use crate::example_keys::random_token;
use crate::loopback::LoopbackServer;

/// A running S3 server with one pair of keys. Dropping it stops the server.
pub struct S3Server {
    server: LoopbackServer,
    access_key_id: String,
    secret_access_key: String,
    policy: Arc<Policy>,
}

impl S3Server {
    /// Serves the folders in `root` as buckets. Requests must be signed with the server's new keys.
    pub fn start(root: &Path) -> anyhow::Result<S3Server> {
        S3Server::start_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("finding a free port")?, root)
    }

    /// Like [`S3Server::start`], on this socket.
    pub fn start_on(socket: TcpListener, root: &Path) -> anyhow::Result<S3Server> {
        let access_key_id = format!("EXAMPLE{}", random_token(13)?);
        let secret_access_key = random_token(40)?;
        let folders = FileSystem::new(root)
            .map_err(|error| anyhow!("{error:?}"))
            .with_context(|| format!("opening {} as the buckets' folder", root.display()))?;
        let mut service = S3ServiceBuilder::new(folders);
        service.set_auth(SimpleAuth::from_single(access_key_id.clone(), secret_access_key.clone()));
        let policy = Arc::new(Policy {
            root: root.to_owned(),
            forbidden: Mutex::default(),
            forbidden_below: Mutex::default(),
        });
        service.set_access(Access(Arc::clone(&policy)));
        let service = service.build();
        let server = LoopbackServer::start_on("s3", socket, move |_| service.clone())?;
        Ok(S3Server { server, access_key_id, secret_access_key, policy })
    }

    /// The value of `S3_ENDPOINT` for clients.
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// The value of `S3_ACCESS_KEY_ID` for clients.
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    /// The value of `S3_SECRET_ACCESS_KEY` for clients. After the server stops, the key is useless.
    pub fn secret_access_key(&self) -> &str {
        &self.secret_access_key
    }

    /// Denies reads of this key in all buckets.
    pub fn forbid(&self, key: &str) {
        self.policy.forbidden.lock().insert(key.to_owned());
    }

    /// Denies reads and lists below these folders of a bucket. The response does not show whether an object exists.
    pub fn forbid_below(&self, prefixes: &[&str]) {
        let mut below = self.policy.forbidden_below.lock();
        *below = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
    }

    /// Permits all reads again.
    pub fn permit_all(&self) {
        self.policy.forbidden.lock().clear();
        self.forbid_below(&[]);
    }

    /// The environment variables with which kOps and kops-agent find an S3 server that is not Amazon's (upstream:
    /// `util/pkg/vfs/s3context.go`).
    pub fn environment(&self, region: &str) -> [(&'static str, String); 4] {
        [
            ("S3_ENDPOINT", self.endpoint()),
            ("S3_REGION", region.to_owned()),
            ("S3_ACCESS_KEY_ID", self.access_key_id.clone()),
            ("S3_SECRET_ACCESS_KEY", self.secret_access_key.clone()),
        ]
    }
}

/// Decides which objects may be read and which buckets exist. For a missing bucket, s3s-fs reports a missing object.
/// Amazon's S3 reports a missing bucket, and so does this policy.
struct Policy {
    root: PathBuf,
    forbidden: Mutex<BTreeSet<String>>,
    forbidden_below: Mutex<Vec<String>>,
}

impl Policy {
    fn check(&self, context: &S3AccessContext<'_>) -> S3Result<()> {
        if context.credentials().is_none() {
            return Err(s3_error!(AccessDenied, "Signature is required"));
        }
        let (S3Path::Bucket { bucket } | S3Path::Object { bucket, .. }) = context.s3_path() else {
            return Ok(());
        };
        if !self.root.join(&**bucket).is_dir() {
            return Err(s3_error!(NoSuchBucket, "The specified bucket does not exist"));
        }
        let below = self.forbidden_below.lock();
        match context.s3_path() {
            S3Path::Object { key, .. } if below.iter().any(|prefix| key.starts_with(prefix.as_str())) => {
                Err(s3_error!(AccessDenied, "Access Denied"))
            }
            S3Path::Bucket { .. } if below.iter().any(|prefix| lists(context, prefix)) => {
                Err(s3_error!(AccessDenied, "Access Denied"))
            }
            S3Path::Object { key, .. } if self.forbidden.lock().contains(&**key) => {
                Err(s3_error!(AccessDenied, "Access Denied"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a request lists keys below a prefix.
fn lists(context: &S3AccessContext<'_>, below: &str) -> bool {
    let query = context.uri().query().unwrap_or_default();
    let prefix = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "prefix");
    prefix.map(|(_, prefix)| prefix).unwrap_or_default().starts_with(below)
}

struct Access(Arc<Policy>);

impl S3Access for Access {
    // `async_trait` generates this signature for s3s. It is written by hand, because this crate needs `async_trait` for
    // nothing else.
    fn check<'access, 'context, 'request, 'check>(
        &'access self,
        context: &'context mut S3AccessContext<'request>,
    ) -> Pin<Box<dyn Future<Output = S3Result<()>> + Send + 'check>>
    where
        'access: 'check,
        'context: 'check,
        'request: 'check,
    {
        Box::pin(ready(self.0.check(context)))
    }
}
