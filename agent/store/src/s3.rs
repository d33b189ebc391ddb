//! Buckets of S3 and of S3-compatible servers.
//!
//! The SDK signs and sends requests. This module decides about retries, deadlines, regions and the meaning of errors.

#[cfg(test)]
mod adversary_tests;
mod client;
#[cfg(test)]
mod denied_tests;
mod failure;
#[cfg(test)]
mod instance_role_tests;
pub(crate) mod settings;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{
    Config, ProvideCredentials, Region, ResponseChecksumValidation, SharedCredentialsProvider,
};
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::operation::list_objects_v2::builders::ListObjectsV2FluentBuilder;
use aws_sdk_s3::presigning::PresigningConfig;
use aws_sdk_s3::types::Object;
use kops_agent_net::Location;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::timeout;

pub use settings::S3Settings;

use super::backend::{Backend, BackendFuture, LARGEST_FILE, Opening, Place, Setup};
use super::error::StoreError;
use super::names::{directly_below, prefix};
use failure::S3Failure;
use kops_agent_net::causes::in_one_line;
use kops_agent_net::retry::Retries;

/// The environment variables of `s3://` and of all schemes in `s3_like`.
pub(super) const VARIABLES: &[&[&str]] = &[&settings::VARIABLES];

/// Maximum time to wait for credentials. A new role of an instance takes a few seconds to appear. A machine without a role does not benefit
/// from a longer wait.
const CREDENTIALS_DEADLINE: Duration = Duration::from_secs(15);

/// Lifetime of a signed URL. A download begins immediately. To resume it later, the agent requests a new URL.
const SIGNED_FOR: Duration = Duration::from_secs(15 * 60);

/// The maximum number of pages of a list. No state store has so many pages.
const MOST_PAGES: usize = 1000;
/// The maximum number of names in a list, because they are held in memory. No folder of a state store has so many names.
const MOST_NAMES: usize = 100_000;

/// A backend for the buckets of all regions.
#[derive(Debug)]
pub(super) struct S3 {
    config: Config,
    credentials: Option<SharedCredentialsProvider>,
    retries: Retries,
    clients: Mutex<Clients>,
}

/// The regions of buckets that are known so far, and a client for each region.
#[derive(Debug, Default)]
struct Clients {
    region_of_bucket: BTreeMap<String, Region>,
    of_region: BTreeMap<String, Client>,
}

pub(crate) fn open(setup: Setup) -> Opening {
    Box::pin(async move {
        let settings = setup.s3.map_or_else(S3Settings::from_environment, Ok)?;
        Ok(Box::new(S3::new(settings, ResponseChecksumValidation::WhenSupported, setup.retries).await?)
            as Box<dyn Backend>)
    })
}

pub(crate) fn rights(bucket: &str, key: &str) -> String {
    format!("s3:GetObject on arn:aws:s3:::{bucket}/{key} and s3:ListBucket on arn:aws:s3:::{bucket}")
}

impl Backend for S3 {
    fn read<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Vec<u8>> {
        Box::pin(self.attempt(file, move |client| async move {
            let answer = client.get_object().bucket(&file.bucket).key(&file.key).send().await?;
            let mut body = answer.body;
            let mut bytes = Vec::new();
            while let Some(chunk) = body.next().await {
                bytes.extend_from_slice(&chunk.map_err(S3Failure::of_body)?);
                if bytes.len() as u64 > LARGEST_FILE {
                    return Err(S3Failure::TooLarge);
                }
            }
            Ok(bytes)
        }))
    }

    fn list<'a>(&'a self, folder: &'a Place) -> BackendFuture<'a, Vec<String>> {
        Box::pin(async move {
            let mut names: Vec<String> = Vec::new();
            let mut next_page: Option<String> = None;
            for _ in 0..MOST_PAGES {
                let page = self
                    .page(folder, |request| request.delimiter("/").set_continuation_token(next_page.clone()))
                    .await?;
                let files = page.contents().iter().filter_map(|object| object.key());
                let folders = page.common_prefixes().iter().filter_map(|below| below.prefix());
                names.extend(files.chain(folders).map(str::to_owned));
                let next = page.next_continuation_token().map(str::to_owned);
                if next.is_none() {
                    return Ok(directly_below(&prefix(folder), names));
                }
                if next == next_page || names.len() > MOST_NAMES {
                    break;
                }
                next_page = next;
            }
            Err(folder.no_end())
        })
    }

    /// Returns the ETags of objects as versions ([`version`]).
    fn versions<'a>(
        &'a self,
        folder: &'a Place,
        first: &'a str,
        last: &'a str,
    ) -> BackendFuture<'a, BTreeMap<String, String>> {
        Box::pin(async move {
            let below = prefix(folder);
            // S3 lists the names after `start_after`, which is `first` without its last byte. So the list includes `first`.
            let mut start_after = format!("{below}{}", &first[..first.len().saturating_sub(1)]);
            let mut versions = BTreeMap::new();
            for _ in 0..MOST_PAGES {
                let before = start_after.clone();
                let page = self.page(folder, |request| request.start_after(&start_after)).await?;
                let mut is_beyond = false;
                for object in page.contents() {
                    let Some(name) = object.key().and_then(|key| key.strip_prefix(&below)) else {
                        continue;
                    };
                    is_beyond |= name > last;
                    if (first..=last).contains(&name) {
                        versions.insert(name.to_owned(), version(object));
                    }
                    start_after = format!("{below}{name}");
                }
                if is_beyond || page.is_truncated() != Some(true) || page.contents().is_empty() {
                    return Ok(versions);
                }
                // S3 sorts the names. If the last name of a page is not after the previous page's last name, the list never ends.
                if start_after <= before || versions.len() > MOST_NAMES {
                    break;
                }
            }
            Err(folder.no_end())
        })
    }

    /// Returns a signed URL. It gives access to the file for [`SIGNED_FOR`], without credentials.
    fn locate<'a>(&'a self, file: &'a Place) -> BackendFuture<'a, Location> {
        Box::pin(self.attempt(file, move |client| async move {
            // This request checks whether the file may be read, and finds the bucket's region. Signing a URL checks neither. The request is
            // a GET, because a response to HEAD does not contain the reason of an error.
            let get = || client.get_object().bucket(&file.bucket).key(&file.key);
            let first = get().range("bytes=0-0").send().await?;
            let lifetime = PresigningConfig::expires_in(SIGNED_FOR)
                .map_err(|error| S3Failure::passing(in_one_line(&error)))?;
            let signed = get().presigned(lifetime).await?;
            let url = Url::parse(signed.uri()).map_err(|error| S3Failure::passing(in_one_line(&error)))?;
            let size = first.content_range().and_then(|range| range.rsplit_once('/')?.1.parse().ok());
            Ok(Location::new(url).of_size(size))
        }))
    }
}

impl S3 {
    /// Makes a backend with these settings. `checksums` decides when the SDK verifies the checksums of responses.
    pub(super) async fn new(
        settings: S3Settings,
        checksums: ResponseChecksumValidation,
        retries: Retries,
    ) -> Result<S3, StoreError> {
        let (config, credentials) = client::config(settings, checksums).await?;
        Ok(S3 { config, credentials, retries, clients: Mutex::default() })
    }

    /// A page of the objects below a folder.
    async fn page(
        &self,
        folder: &Place,
        narrowed: impl Fn(ListObjectsV2FluentBuilder) -> ListObjectsV2FluentBuilder,
    ) -> Result<ListObjectsV2Output, StoreError> {
        self.attempt(folder, |client| {
            let request = client.list_objects_v2().bucket(&folder.bucket).prefix(prefix(folder));
            let request = narrowed(request);
            async move { Ok(request.send().await?) }
        })
        .await
    }

    /// Sends a request to the bucket's region, and retries it after transient failures.
    async fn attempt<T, F>(&self, object: &Place, request: impl Fn(Client) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, S3Failure>>,
    {
        let deadline = |failure: &S3Failure| match failure {
            S3Failure::Passing { .. } => Duration::MAX,
            S3Failure::NoCredentials { .. } => CREDENTIALS_DEADLINE,
            _ => Duration::ZERO,
        };
        let request = &request;
        let time = self.retries.attempt;
        let attempt = || async move {
            let attempt = self.attempt_in_right_region(object, request);
            let result = timeout(time, attempt).await;
            let result =
                result.unwrap_or_else(|_| Err(S3Failure::passing(format!("no answer within {time:.0?}"))));
            match result {
                Err(failure) => Err(self.explain(failure).await),
                Ok(value) => Ok(value),
            }
        };
        let result = self.retries.run(&object.url, attempt, deadline).await;
        result.map_err(|gave_up| failure::store_error(object, &self.region_of(&object.bucket), gave_up))
    }

    async fn attempt_in_right_region<T, F>(
        &self,
        object: &Place,
        request: &impl Fn(Client) -> F,
    ) -> Result<T, S3Failure>
    where
        F: Future<Output = Result<T, S3Failure>>,
    {
        let client = self.client_for(&object.bucket);
        match request(client.clone()).await {
            Err(S3Failure::OtherRegion { region, .. }) => {
                let region = match region {
                    Some(region) => region,
                    None => region_by_asking(&client, &object.bucket).await?,
                };
                log::debug!("bucket {} is in region {region}", object.bucket);
                self.remember_region(&object.bucket, region);
                request(self.client_for(&object.bucket)).await
            }
            result => result,
        }
    }

    /// If a request was not sent, finds out whether credentials are missing, because the SDK's error does not say this.
    async fn explain(&self, failure: S3Failure) -> S3Failure {
        let S3Failure::NotSent { cause } = failure else { return failure };
        match &self.credentials {
            Some(provider) => match timeout(Duration::from_secs(10), provider.provide_credentials()).await {
                Ok(Ok(_)) => S3Failure::NotSent { cause },
                Ok(Err(error)) => S3Failure::NoCredentials { cause: in_one_line(&error) },
                Err(_) => S3Failure::NoCredentials { cause: "asking for them takes too long".into() },
            },
            None => S3Failure::NotSent { cause },
        }
    }

    fn client_for(&self, bucket: &str) -> Client {
        let region = self.region_of(bucket);
        let mut clients = self.clients.lock();
        let client = clients.of_region.entry(region.clone()).or_insert_with(|| {
            Client::from_conf(self.config.to_builder().region(Region::new(region)).build())
        });
        client.clone()
    }

    /// The region for requests to a bucket: the bucket's own region, or the configured region if the bucket's region is unknown.
    fn region_of(&self, bucket: &str) -> String {
        let clients = self.clients.lock();
        let region = clients.region_of_bucket.get(bucket).or(self.config.region());
        region.map(ToString::to_string).unwrap_or_default()
    }

    fn remember_region(&self, bucket: &str, region: Region) {
        let mut clients = self.clients.lock();
        clients.region_of_bucket.insert(bucket.to_owned(), region);
    }
}

/// A version text that changes with an object's content: its ETag, or its time and size if an S3-compatible server lists no ETag.
fn version(object: &Object) -> String {
    match object.e_tag() {
        Some(etag) if !etag.is_empty() => etag.to_owned(),
        _ => format!("{:?} {:?}", object.last_modified(), object.size()),
    }
}

/// Asks S3 for the region of a bucket. The caller needs this request only if S3's redirect does not contain the region. In the answer, an
/// empty or missing name means us-east-1, and `EU` means eu-west-1.
async fn region_by_asking(client: &Client, bucket: &str) -> Result<Region, S3Failure> {
    let answer = client.get_bucket_location().bucket(bucket).send().await?;
    Ok(Region::new(match answer.location_constraint().map(|region| region.as_str().to_owned()) {
        None => "us-east-1".to_owned(),
        Some(region) if region.is_empty() => "us-east-1".to_owned(),
        Some(region) if region == "EU" => "eu-west-1".to_owned(),
        Some(region) => region,
    }))
}
