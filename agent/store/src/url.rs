//! The URLs of state stores, as kOps reads them (upstream: `util/pkg/vfs/context.go`).

use std::path::PathBuf;
use std::str::FromStr;

use super::error::StoreError;

/// A place in a store of which we know how to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreUrl {
    /// On this machine.
    Folder(PathBuf),
    /// In a bucket.
    S3(S3Url),
    /// In a bucket of Google's.
    Gs(GsUrl),
}

/// An object of Google Cloud Storage, or the prefix of some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GsUrl {
    /// The bucket's name.
    pub(super) bucket: String,
    /// The object's name, without a leading slash.
    pub(super) object: String,
}

impl std::fmt::Display for GsUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gs://{}/{}", self.bucket, self.object)
    }
}

/// An object of S3, or the prefix of some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct S3Url {
    /// The bucket's name.
    pub(super) bucket: String,
    /// The object's key, without a leading slash.
    pub(super) key: String,
}

impl std::fmt::Display for S3Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, self.key)
    }
}

impl FromStr for StoreUrl {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<StoreUrl, StoreError> {
        let bad = |problem| StoreError::BadUrl { url: url.to_owned(), problem };
        if url.starts_with('/') {
            return Ok(StoreUrl::Folder(PathBuf::from(url)));
        }
        match url.split_once("://") {
            Some(("file", path)) if path.starts_with('/') => Ok(StoreUrl::Folder(PathBuf::from(path))),
            Some(("file", _)) => Err(bad("a path must be absolute, as in file:///srv/state")),
            Some((scheme @ ("s3" | "gs"), rest)) => {
                let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(bad("it names no bucket, as in s3://BUCKET/CLUSTER"));
                }
                let (bucket, key) = (bucket.to_owned(), key.trim_start_matches('/').to_owned());
                Ok(match scheme {
                    "gs" => StoreUrl::Gs(GsUrl { bucket, object: key }),
                    _ => StoreUrl::S3(S3Url { bucket, key }),
                })
            }
            Some((scheme, _)) => {
                Err(StoreError::Unsupported { url: url.to_owned(), scheme: scheme.to_owned() })
            }
            None => Err(bad("it is neither a URL, as in s3://BUCKET/CLUSTER, nor an absolute path")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn s3(url: &str) -> S3Url {
        match url.parse().unwrap() {
            StoreUrl::S3(url) => url,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bucket_and_key_are_told_apart() {
        assert_eq!(s3("s3://b/c/d e").to_string(), "s3://b/c/d e");
        assert_eq!(s3("s3://b/c/d"), S3Url { bucket: "b".into(), key: "c/d".into() });
        assert_eq!(s3("s3://b//c"), S3Url { bucket: "b".into(), key: "c".into() });
        assert_eq!(s3("s3://b"), S3Url { bucket: "b".into(), key: String::new() });
        let google = StoreUrl::Gs(GsUrl { bucket: "b".into(), object: "c/d".into() });
        assert_eq!("gs://b/c/d".parse::<StoreUrl>().unwrap(), google);
    }

    #[test]
    fn what_is_no_url_of_a_store_says_how_one_looks() {
        for url in ["", "config", "./config", "file://config", "s3://", "s3:///key", "gs://"] {
            let error = url.parse::<StoreUrl>().unwrap_err();
            assert!(matches!(error, StoreError::BadUrl { .. }), "{url}: {error:?}");
            assert!(error.is_configuration());
        }
    }
}
