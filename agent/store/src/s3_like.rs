//! S3-compatible stores with their own schemes.
//!
//! The server and the key are in `S3_ENDPOINT`, `S3_REGION`, `S3_ACCESS_KEY_ID` and `S3_SECRET_ACCESS_KEY`, which kOps gives to
//! control-plane machines. If no endpoint is set, a URL with such a scheme is an error. The agent never asks Amazon's servers for such a
//! URL.
//!
//! Source: upstream's `buildDOPath`, `buildHetznerPath`, `buildLinodePath` and `buildSCWPath` in
//! util/pkg/vfs/context.go, `getCustomS3Config` in util/pkg/vfs/s3context.go, `buildEnvironmentVariables` in
//! pkg/model/resources/nodeup.go.

#[cfg(test)]
mod tests;

use aws_sdk_s3::config::ResponseChecksumValidation;

use super::backend::{Backend, Opening, Setup};
use super::s3::S3;
use super::s3::settings::S3Settings;

pub(crate) fn open(setup: Setup) -> Opening {
    open_with(setup, ResponseChecksumValidation::WhenSupported)
}

/// Opens a store on an S3 server, without requesting checksums of the responses (upstream: `buildLinodePath`).
pub(crate) fn without_checksums(setup: Setup) -> Opening {
    open_with(setup, ResponseChecksumValidation::WhenRequired)
}

fn open_with(setup: Setup, checksums: ResponseChecksumValidation) -> Opening {
    Box::pin(async move {
        let settings = match setup.s3 {
            Some(server @ S3Settings::Server { .. }) => server,
            Some(S3Settings::Aws) | None => S3Settings::of_server(setup.scheme)?,
        };
        Ok(Box::new(S3::new(settings, checksums, setup.retries).await?) as Box<dyn Backend>)
    })
}

pub(crate) fn rights(bucket: &str, _: &str) -> String {
    format!("a key (S3_ACCESS_KEY_ID) that may read and list the bucket {bucket}")
}
