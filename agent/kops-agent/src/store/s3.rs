//! S3, and servers that speak its protocol.
//!
//! Which one and with whose credentials is decided as kOps decides it (util/pkg/vfs/s3context.go):
//! `S3_ENDPOINT` names another server, with `S3_REGION`, `S3_ACCESS_KEY_ID` and
//! `S3_SECRET_ACCESS_KEY`; without it the SDK's own chain finds the instance's role. A bucket is asked
//! for its own region, which need not be the instance's.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;
use tokio::sync::Mutex;

use super::StoreError;
use crate::http;

/// How long one request is tried for, all its attempts together.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(15);
/// Attempts that fit under the deadline, each after a wait that doubles and is spread at random.
const ATTEMPTS: u32 = 10;
/// The region that S3 itself assumes.
const DEFAULT_REGION: &str = "us-east-1";

/// A client for each bucket, made when it is first read.
#[derive(Debug, Default)]
pub(super) struct S3 {
    clients: Mutex<BTreeMap<String, Client>>,
}

impl S3 {
    pub(super) async fn read(&self, url: &str, bucket: &str, key: &str) -> Result<Vec<u8>, StoreError> {
        let client = self.client(url, bucket).await?;
        let object =
            client.get_object().bucket(bucket).key(key).send().await.map_err(|error| failure(url, bucket, &error))?;
        let body = object.body.collect().await.map_err(|error| unreachable(url, DisplayErrorContext(&error)))?;
        Ok(body.into_bytes().to_vec())
    }

    pub(super) async fn list(&self, url: &str, bucket: &str, key: &str) -> Result<Vec<String>, StoreError> {
        let client = self.client(url, bucket).await?;
        let prefix = format!("{key}/");
        let mut pages = client.list_objects_v2().bucket(bucket).prefix(&prefix).delimiter("/").into_paginator().send();
        let mut names = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(|error| failure(url, bucket, &error))?;
            let objects = page.contents().iter().filter_map(|object| object.key());
            let folders = page.common_prefixes().iter().filter_map(|folder| folder.prefix());
            let below = objects.chain(folders).filter_map(|path| path.strip_prefix(&prefix));
            names.extend(below.map(|name| name.trim_end_matches('/').to_owned()).filter(|name| !name.is_empty()));
        }
        names.sort();
        Ok(names)
    }

    async fn client(&self, url: &str, bucket: &str) -> Result<Client, StoreError> {
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(bucket) {
            return Ok(client.clone());
        }
        let client = match variable("S3_ENDPOINT") {
            Some(endpoint) => other_server(url, endpoint)?,
            None => aws(url, bucket).await?,
        };
        clients.insert(bucket.to_owned(), client.clone());
        Ok(client)
    }
}

/// A client for the server of `S3_ENDPOINT`.
fn other_server(url: &str, endpoint: String) -> Result<Client, StoreError> {
    let needed = |name: &str| {
        variable(name).ok_or_else(|| StoreError::Settings {
            url: url.into(),
            problem: format!("{name} must be set where S3_ENDPOINT is"),
        })
    };
    let endpoint = if endpoint.contains("://") { endpoint } else { format!("https://{endpoint}") };
    let credentials =
        Credentials::new(needed("S3_ACCESS_KEY_ID")?, needed("S3_SECRET_ACCESS_KEY")?, None, None, "environment");
    let region = variable("S3_REGION").unwrap_or_else(|| DEFAULT_REGION.into());
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http_client(url)?)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .region(Region::new(region))
        .endpoint_url(endpoint)
        .force_path_style(true)
        .retry_config(retries())
        .timeout_config(timeouts())
        .build();
    Ok(Client::from_conf(config))
}

/// A client for AWS in the bucket's own region.
async fn aws(url: &str, bucket: &str) -> Result<Client, StoreError> {
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client(url)?)
        .retry_config(retries())
        .timeout_config(timeouts())
        .load()
        .await;
    let region = config.region().cloned().unwrap_or_else(|| Region::new(DEFAULT_REGION));
    let own = bucket_region(&in_region(&config, region.clone()), bucket).await;
    Ok(in_region(&config, own.map_or(region, Region::new)))
}

fn in_region(config: &SdkConfig, region: Region) -> Client {
    Client::from_conf(aws_sdk_s3::config::Builder::from(config).region(region).build())
}

/// The bucket's region, asked from any region: S3 names it in a header whether or not it grants the request.
async fn bucket_region(client: &Client, bucket: &str) -> Option<String> {
    match client.head_bucket().bucket(bucket).send().await {
        Ok(head) => head.bucket_region().map(str::to_owned),
        Err(error) => error.raw_response()?.headers().get("x-amz-bucket-region").map(str::to_owned),
    }
}

fn retries() -> RetryConfig {
    RetryConfig::standard().with_max_attempts(ATTEMPTS).with_max_backoff(Duration::from_secs(10))
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(Duration::from_secs(5))
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(DEADLINE)
        .build()
}

fn http_client(url: &str) -> Result<SharedHttpClient, StoreError> {
    http::aws_client().map_err(|error| StoreError::Settings { url: url.into(), problem: format!("{error:#}") })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a failed request means to the person who has to change something.
fn failure<E>(url: &str, bucket: &str, error: &SdkError<E, HttpResponse>) -> StoreError
where
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let status = error.raw_response().map(|response| response.status().as_u16());
    match (error.code(), status) {
        (Some("NoSuchBucket"), _) => StoreError::NoBucket { url: url.into(), bucket: bucket.into() },
        (Some("NoSuchKey"), _) | (_, Some(404)) => StoreError::NotFound { url: url.into() },
        (code, Some(401 | 403)) => {
            StoreError::Forbidden { url: url.into(), problem: code.unwrap_or("the store answered 403").into() }
        }
        _ => unreachable(url, DisplayErrorContext(error)),
    }
}

fn unreachable(url: &str, problem: impl std::fmt::Display) -> StoreError {
    StoreError::Unreachable { url: url.into(), deadline: DEADLINE, problem: problem.to_string() }
}
