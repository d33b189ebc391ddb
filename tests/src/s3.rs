//! An S3 server for tests and the demo: it checks signatures, and the folders of its root are its buckets.

use std::path::Path;

use anyhow::{Context, anyhow};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use s3s_fs::FileSystem;

use crate::loopback::LoopbackServer;
use crate::random;

/// A running S3 server with one pair of keys; dropping it stops it.
pub struct S3Server {
    server: LoopbackServer,
    access_key_id: String,
    secret_access_key: String,
}

impl S3Server {
    /// Serves the folders in `root` as buckets, to those who sign with the keys it makes up.
    ///
    /// # Errors
    /// If `root` is no folder, or there is no free port.
    pub fn start(root: &Path) -> anyhow::Result<S3Server> {
        let access_key_id = format!("EXAMPLE{}", random::token(13)?);
        let secret_access_key = random::token(40)?;
        let folders = FileSystem::new(root)
            .map_err(|error| anyhow!("{error:?}"))
            .with_context(|| format!("opening {} as the buckets' folder", root.display()))?;
        let mut service = S3ServiceBuilder::new(folders);
        service.set_auth(SimpleAuth::from_single(access_key_id.clone(), secret_access_key.clone()));
        let server = LoopbackServer::start("s3", service.build())?;
        Ok(S3Server { server, access_key_id, secret_access_key })
    }

    /// `S3_ENDPOINT` for its clients.
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// `S3_ACCESS_KEY_ID` for its clients.
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    /// `S3_SECRET_ACCESS_KEY` for its clients; worth nothing once the server has stopped.
    pub fn secret_access_key(&self) -> &str {
        &self.secret_access_key
    }

    /// The variables by which kOps and kops-agent find an S3 server that is not Amazon's
    /// (upstream: `util/pkg/vfs/s3context.go`).
    pub fn environment(&self, region: &str) -> [(&'static str, String); 4] {
        [
            ("S3_ENDPOINT", self.endpoint()),
            ("S3_REGION", region.to_owned()),
            ("S3_ACCESS_KEY_ID", self.access_key_id.clone()),
            ("S3_SECRET_ACCESS_KEY", self.secret_access_key.clone()),
        ]
    }
}
