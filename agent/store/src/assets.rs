//! Locates downloads in buckets with this machine's own credentials. kOps' file repository (`spec.assets.fileRepository`) may be such a
//! bucket. The shared HTTP client of all downloads fetches the files.

use kops_agent_net::{Buckets, Locating, Location, NotLocated};
use percent_encoding::percent_decode_str;

use super::backend::Place;
use super::{Store, StoreError, schemes};

impl Store {
    /// The location of a file: an HTTP request to a bucket, or a path in a mirror folder. `None` for a URL that can be downloaded without a
    /// store.
    pub async fn locate_download(&self, url: &str) -> Result<Option<Location>, StoreError> {
        if !self.locates(url) {
            return Ok(None);
        }
        let (backend, place) = self.find(url).await?;
        let place = if self.mirror_of(url).is_some() { place } else { decoded(place) };
        if place.key.is_empty() {
            return Err(StoreError::BadUrl { url: url.to_owned(), problem: "it names no file".to_owned() });
        }
        backend.locate(&place).await.map(Some)
    }
}

/// Decodes the key of a place. kOps escapes the key in the URL of a download (upstream: `RemapFile` in pkg/assets/builder.go), but the
/// bucket has the key without escapes.
fn decoded(place: Place) -> Place {
    Place { key: percent_decode_str(&place.key).decode_utf8_lossy().into_owned(), ..place }
}

impl Buckets for Store {
    fn locates(&self, url: &str) -> bool {
        self.mirror_of(url).is_some() || schemes::locates(url)
    }

    fn locate<'a>(&'a self, url: &'a str) -> Locating<'a> {
        Box::pin(async move {
            match self.locate_download(url).await {
                Ok(Some(location)) => Ok(location),
                Ok(None) => Err(NotLocated {
                    reason: "it is in no bucket".into(),
                    is_refused: false,
                    may_pass: false,
                }),
                Err(error) => Err(not_located(url, &error)),
            }
        })
    }
}

/// Converts a store's error into the error of a download. The message omits the URL, because the caller adds it.
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
    let is_refused = matches!(error, StoreError::Forbidden { .. } | StoreError::Credentials { .. });
    NotLocated { reason, is_refused, may_pass: matches!(error, StoreError::Unreachable { .. }) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_mirror_serves_downloads_of_a_bucket() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&[format!("gs://assets={}", folder.path().display())]).unwrap();
        let location = store.locate_download("gs://assets/release/kubelet").await.unwrap().unwrap();
        assert_eq!(location.url.to_file_path().unwrap(), folder.path().join("release/kubelet"));
        assert!(store.locate_download("https://dl.k8s.io/release/kubelet").await.unwrap().is_none());
        assert!(store.locates("gs://other/kubelet") && !store.locates("file:///kubelet"));
    }

    #[test]
    fn errors_of_downloads_give_the_reason_without_the_url() {
        let url = "s3://assets/kubelet".to_owned();
        let missing = not_located(&url, &StoreError::NotFound { url: url.clone(), place: String::new() });
        assert!(
            missing.reason.starts_with("it does not exist; check spec.assets.fileRepository"),
            "{missing:?}"
        );
        let forbidden = not_located(
            &url,
            &StoreError::Forbidden { url: url.clone(), said: String::new(), advice: String::new() },
        );
        assert!(forbidden.reason.starts_with("access denied (403)") && !forbidden.may_pass, "{forbidden:?}");
        assert!(forbidden.is_refused && !missing.is_refused, "{missing:?} {forbidden:?}");
    }
}
