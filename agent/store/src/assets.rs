//! Downloads that are in buckets, asked for with this machine's own credentials; a file repository of kOps may be
//! one (`spec.assets.fileRepository`). What is asked for is left to the one HTTP client of all downloads.

use kops_agent_net::{Buckets, Locating, Location, NotLocated};
use reqwest::Url;
use reqwest::header::HeaderMap;

use super::url::{S3Url, StoreUrl};
use super::{Store, StoreError};

impl Store {
    /// How to ask over HTTP for what is at the URL of a bucket, or in a folder that takes its place; `None` for other
    /// URLs, of which nothing has to be known.
    ///
    /// # Errors
    /// If it is not there, may not be read, or its store cannot be reached.
    pub async fn locate_download(&self, url: &str) -> Result<Option<Location>, StoreError> {
        let unusable =
            || StoreError::BadUrl { url: url.to_owned(), problem: "nothing can be asked for there" };
        let plain = |located: Url, size| Location { url: located, headers: HeaderMap::new(), size };
        if let Some(file) = self.mirrored(url)? {
            let file = std::path::absolute(file).map_err(|_| unusable())?;
            return Ok(Some(plain(Url::from_file_path(file).map_err(|()| unusable())?, None)));
        }
        let Some((scheme @ ("s3" | "gs"), rest)) = url.split_once("://") else { return Ok(None) };
        if scheme == "s3" {
            let StoreUrl::S3(object) = url.parse()? else { return Err(unusable()) };
            let (signed, size) = self.s3().await?.sign(&decoded(object)).await?;
            return Ok(Some(plain(Url::parse(&signed).map_err(|_| unusable())?, size)));
        }
        let (bucket, object) = rest.split_once('/').ok_or_else(unusable)?;
        self.gs().await?.locate(url, bucket, object).await.map(Some)
    }
}

/// kOps writes the URLs of downloads with escapes (upstream: `RemapFile` in pkg/assets/builder.go), which are none of
/// the key's.
fn decoded(object: S3Url) -> S3Url {
    S3Url { key: super::gs::unescaped(&object.key), ..object }
}

impl Buckets for Store {
    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a> {
        Box::pin(async move {
            match self.locate_download(url).await {
                Ok(Some(location)) => Ok(location),
                Ok(None) => Err(NotLocated { reason: "it is in no bucket".into(), may_pass: false }),
                Err(error) => Err(not_located(url, &error)),
            }
        })
    }
}

/// The same for those who name the URL themselves, and did not ask for a file of the state store.
fn not_located(url: &str, error: &StoreError) -> NotLocated {
    const REPOSITORY: &str =
        "check spec.assets.fileRepository, and whether `kops get assets --copy` has filled it";
    let reason = match error {
        StoreError::NotFound { .. } => format!("it does not exist; {REPOSITORY}"),
        StoreError::WrongBucket { bucket, .. } => format!("there is no bucket {bucket:?}; {REPOSITORY}"),
        error => {
            let said = error.to_string();
            said.strip_prefix(url).map_or(said.clone(), |rest| rest.trim_start_matches([':', ' ']).to_owned())
        }
    };
    NotLocated { reason, may_pass: matches!(error, StoreError::Unreachable { .. }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_folder_may_take_a_buckets_place_for_downloads_too() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&[format!("gs://assets={}", folder.path().display())]).unwrap();
        let location = store.locate_download("gs://assets/release/kubelet").await.unwrap().unwrap();
        assert_eq!(location.url.to_file_path().unwrap(), folder.path().join("release/kubelet"));
        assert!(store.locate_download("https://dl.k8s.io/release/kubelet").await.unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_said_of_downloads_and_without_the_url() {
        let url = "s3://assets/kubelet".to_owned();
        let missing = not_located(&url, &StoreError::NotFound { url: url.clone(), place: String::new() });
        assert!(
            missing.reason.starts_with("it does not exist; check spec.assets.fileRepository"),
            "{missing:?}"
        );
        let forbidden = not_located(&url, &StoreError::Forbidden { url: url.clone() });
        assert!(forbidden.reason.starts_with("access denied (403)") && !forbidden.may_pass, "{forbidden:?}");
    }
}
