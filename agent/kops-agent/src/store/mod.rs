//! Where kOps' files are: S3, folders, and folders that stand in for a store elsewhere.

mod error;
mod folder;
mod s3;

use std::path::PathBuf;

pub use error::StoreError;

use folder::Folder;
use s3::S3;

/// Everything that URLs of the state store can point to. Nothing is reached before the first read.
#[derive(Debug)]
pub struct Store {
    mirrors: Vec<Mirror>,
    s3: S3,
}

/// A folder that is read in the place of a URL and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mirror {
    url: String,
    folder: PathBuf,
}

impl Store {
    /// The stores, and for each `URL=DIR` a folder that stands in for one.
    ///
    /// # Errors
    /// A mirror that is not of the form `URL=DIR`.
    pub fn new(mirrors: &[String]) -> Result<Store, StoreError> {
        let mirrors = mirrors.iter().map(|mirror| Mirror::parse(mirror)).collect::<Result<_, _>>()?;
        Ok(Store { mirrors, s3: S3::default() })
    }

    /// The file at this URL.
    ///
    /// # Errors
    /// Why it could not be read; a missing file and a denied one are told apart.
    pub async fn read(&self, url: &str) -> Result<Vec<u8>, StoreError> {
        log::debug!("reading {url}");
        match self.place(url)? {
            Place::Folder(folder, path) => folder.read(url, &path),
            Place::S3 { bucket, key } => self.s3.read(url, &bucket, &key).await,
        }
    }

    /// The names of the files and folders directly below this URL, sorted.
    ///
    /// # Errors
    /// Why they could not be listed.
    pub async fn list(&self, url: &str) -> Result<Vec<String>, StoreError> {
        match self.place(url)? {
            Place::Folder(folder, path) => folder.list(url, &path),
            Place::S3 { bucket, key } => self.s3.list(url, &bucket, &key).await,
        }
    }

    fn place(&self, url: &str) -> Result<Place, StoreError> {
        if let Some((mirror, path)) = self.mirrors.iter().find_map(|mirror| Some((mirror, mirror.path_of(url)?))) {
            return Ok(Place::Folder(Folder::new(&mirror.folder), path.to_owned()));
        }
        let bad = |problem: &str| StoreError::BadUrl { url: url.into(), problem: problem.into() };
        if url.starts_with('/') {
            return Ok(Place::Folder(Folder::new("/"), url.trim_start_matches('/').to_owned()));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no scheme such as s3://"))?;
        match scheme {
            "file" => Ok(Place::Folder(Folder::new("/"), rest.trim_start_matches('/').to_owned())),
            "s3" => match rest.split_once('/') {
                Some((bucket, key)) if !bucket.is_empty() => {
                    Ok(Place::S3 { bucket: bucket.into(), key: key.trim_matches('/').into() })
                }
                _ => Err(bad("it needs a bucket and a path, as in s3://bucket/cluster.example.com")),
            },
            other => Err(StoreError::Unsupported { url: url.into(), scheme: other.into() }),
        }
    }
}

enum Place {
    Folder(Folder, String),
    S3 { bucket: String, key: String },
}

impl Mirror {
    fn parse(text: &str) -> Result<Mirror, StoreError> {
        match text.rsplit_once('=') {
            Some((url, folder)) if !url.is_empty() && !folder.is_empty() => {
                Ok(Mirror { url: url.trim_end_matches('/').into(), folder: folder.into() })
            }
            _ => Err(StoreError::BadUrl {
                url: text.into(),
                problem: "--store-mirror takes URL=DIR, as in s3://bucket=/srv/bucket".into(),
            }),
        }
    }

    /// The path below the mirrored URL, if `url` is it or below it.
    fn path_of<'a>(&self, url: &'a str) -> Option<&'a str> {
        let rest = url.strip_prefix(self.url.as_str())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(text: &str) -> Mirror {
        Mirror::parse(text).unwrap()
    }

    #[test]
    fn a_mirror_stands_in_for_its_url_and_all_below_it() {
        let mirror = mirror("s3://bucket/a=/srv/x=y");
        assert_eq!(mirror.folder, PathBuf::from("y"));
        let mirror = Mirror { url: "s3://bucket".into(), folder: "/srv".into() };
        assert_eq!(mirror.path_of("s3://bucket/c/config"), Some("c/config"));
        assert_eq!(mirror.path_of("s3://bucket2/c/config"), None);
    }

    #[tokio::test]
    async fn stores_that_cannot_be_read_are_refused_by_name() {
        let store = Store::new(&[]).unwrap();
        for (url, expected) in [
            ("gs://bucket/x", "gs:// stores are not supported yet"),
            ("bucket/x", "it has no scheme"),
            ("s3://bucket", "it needs a bucket and a path"),
        ] {
            let error = store.read(url).await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert!(error.is_configuration());
        }
        assert!(Store::new(&["nonsense".into()]).is_err());
    }

    #[tokio::test]
    async fn files_are_read_from_folders_and_missing_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("c")).unwrap();
        std::fs::write(folder.path().join("c/config"), "x").unwrap();
        let store = Store::new(&[format!("gs://b={}", folder.path().display())]).unwrap();
        assert_eq!(store.read("gs://b/c/config").await.unwrap(), b"x");
        assert_eq!(store.list("gs://b/c").await.unwrap(), ["config"]);
        let error = store.read("gs://b/c/none").await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
        let error = store.read("gs://b/c/../../etc/passwd").await.unwrap_err();
        assert!(matches!(error, StoreError::BadUrl { .. }), "{error}");
        let url = format!("file://{}/c/config", folder.path().display());
        assert_eq!(store.read(&url).await.unwrap(), b"x");
    }
}
