//! Reads kOps' files from a state store: a folder, a bucket of S3, of an S3-compatible server or of Google, a container
//! of Azure or OpenStack, or a web server.
//!
//! All access is read-only: a node never writes to the state store.

mod assets;
mod azureblob;
mod backend;
mod error;
mod failure;
mod folder;
mod gs;
mod https;
mod mirror;
mod names;
mod s3;
mod s3_like;
mod schemes;
mod swift;

use std::collections::BTreeMap;

use tokio::sync::OnceCell;

pub use backend::LARGEST_FILE;
pub use error::StoreError;
pub use s3::S3Settings;
pub use schemes::variables;

use backend::{Backend, Place, Setup};
use folder::Folder;
use kops_agent_net::retry::Retries;
use kops_agent_net::{Said, http};
use mirror::StoreMirror;
use schemes::SCHEMES;

/// The result of reading an optional file.
#[derive(Debug)]
pub enum Found<T, D = StoreError> {
    /// The file exists and has this content.
    There(T),
    Absent,
    /// Why this machine may not read the file. The file may exist or be missing.
    Denied(D),
}

impl<T, D> Found<T, D> {
    /// Converts the content with `make`. `Absent` and `Denied` stay unchanged.
    pub fn try_map<U, E>(self, make: impl FnOnce(T) -> Result<U, E>) -> Result<Found<U, D>, E> {
        Ok(match self {
            Found::There(found) => Found::There(make(found)?),
            Found::Absent => Found::Absent,
            Found::Denied(why) => Found::Denied(why),
        })
    }
}

/// The state stores that a node may read.
///
/// Each store is set up at the first request for one of its URLs.
#[derive(Debug)]
pub struct Store {
    mirrors: Vec<StoreMirror>,
    s3_settings: Option<S3Settings>,
    retries: Retries,
    /// Whether files may be read over `http://`.
    reads_in_clear: bool,
    /// One backend for each row of [`SCHEMES`].
    backends: [OnceCell<Box<dyn Backend>>; SCHEMES.len()],
}

impl Store {
    /// `store_mirrors` has the arguments of `--store-mirror`. Each argument `URL=DIR` replaces everything below a URL by a folder.
    pub fn new(store_mirrors: &[String]) -> Result<Store, StoreError> {
        let mirrors = store_mirrors.iter().map(|argument| argument.parse()).collect::<Result<_, _>>()?;
        Ok(Store {
            mirrors,
            s3_settings: None,
            retries: Retries::default(),
            reads_in_clear: false,
            backends: std::array::from_fn(|_| OnceCell::new()),
        })
    }

    /// Uses these S3 settings in place of the settings in the environment.
    pub fn with_s3_settings(self, settings: S3Settings) -> Store {
        Store { s3_settings: Some(settings), ..self }
    }

    pub fn with_retries(self, retries: Retries) -> Store {
        Store { retries, ..self }
    }

    /// Also allows `http://` URLs. Upstream allows them for add-ons that an operator names.
    pub fn reading_in_clear(self) -> Store {
        Store { reads_in_clear: true, ..self }
    }

    pub fn retries(&self) -> Retries {
        self.retries
    }

    /// Reads the file at a URL. Fails if the response is a web page.
    pub async fn read(&self, url: &str) -> Result<Vec<u8>, StoreError> {
        let (backend, file) = self.find(url).await?;
        let bytes = backend.read(&file).await?;
        match http::is_page(&bytes) {
            true => Err(StoreError::Page { url: file.url, said: Said::of_body(&bytes).in_words() }),
            false => Ok(bytes),
        }
    }

    /// Reads a file that may be missing. Some stores also deny access if a file is missing. So if the store denies access, this method
    /// lists the folder. The result is `Absent` if the list lacks the file. Otherwise, and if the folder cannot be listed, the result is
    /// `Denied`.
    pub async fn read_if_present(&self, url: &str) -> Result<Found<Vec<u8>>, StoreError> {
        let denied = match self.read(url).await {
            Ok(bytes) => return Ok(Found::There(bytes)),
            Err(StoreError::NotFound { .. }) => return Ok(Found::Absent),
            Err(denied @ StoreError::Forbidden { .. }) => denied,
            Err(error) => return Err(error),
        };
        let listed = match url.rsplit_once('/') {
            Some((folder, name)) => {
                self.list(folder).await.map(|names| names.iter().any(|found| found == name))
            }
            None => return Ok(Found::Denied(denied)),
        };
        Ok(match listed {
            Ok(false) => Found::Absent,
            Ok(true) | Err(_) => Found::Denied(denied),
        })
    }

    /// The sorted names of the files and folders directly below a URL. A missing folder counts as empty, because buckets have no empty
    /// folders and all stores must behave equally. Fails if the folder may not be read.
    pub async fn list(&self, url: &str) -> Result<Vec<String>, StoreError> {
        let (backend, folder) = self.find(url).await?;
        backend.list(&folder).await
    }

    /// The files below a URL whose relative paths lie between `first` and `last`, both included. The value of each file is a version text,
    /// which changes with the file's content. One request covers hundreds of files. Fails if the folder may not be read.
    pub async fn versions(
        &self,
        url: &str,
        first: &str,
        last: &str,
    ) -> Result<BTreeMap<String, String>, StoreError> {
        let (backend, folder) = self.find(url.trim_end_matches('/')).await?;
        backend.versions(&folder, first, last).await
    }

    /// Returns the backend for a URL, and the URL's place in this backend. Sets up the backend if this is its first use.
    async fn find(&self, url: &str) -> Result<(&dyn Backend, Place), StoreError> {
        if let Some(mirror) = self.mirror_of(url) {
            return Ok((&Folder, mirror.place_of(url)?));
        }
        if let Some(never) = schemes::never_read(url, self.reads_in_clear) {
            return Err(never);
        }
        let (row, place) = schemes::place(url)?;
        let setup =
            || Setup { scheme: SCHEMES[row].name, retries: self.retries, s3: self.s3_settings.clone() };
        let backend = self.backends[row].get_or_try_init(|| (SCHEMES[row].open)(setup())).await?;
        Ok((&**backend, place))
    }

    /// The mirror for this URL. If several mirrors contain the URL, the mirror with the longest URL is used.
    fn mirror_of(&self, url: &str) -> Option<&StoreMirror> {
        self.mirrors.iter().filter(|mirror| mirror.covers(url)).max_by_key(|mirror| mirror.url.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;
    use kops_agent_spec::failure::Failing as _;

    fn write(folder: &Path, file: &str, text: &str) {
        let file = folder.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn store_with(mirrors: &[(&str, &Path)]) -> Store {
        let mirrors: Vec<String> =
            mirrors.iter().map(|(url, folder)| format!("{url}={}", folder.display())).collect();
        Store::new(&mirrors).unwrap()
    }

    #[tokio::test]
    async fn a_folder_is_read_by_url_and_by_path() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "instancegroup/nodes", "kind: InstanceGroup");
        write(folder.path(), "instancegroup/control-plane/x", "");
        let store = Store::new(&[]).unwrap();
        let path = folder.path().display().to_string();
        for base in [path.clone(), format!("file://{path}"), format!("file://{path}/")] {
            let base = base.trim_end_matches('/');
            let file = store.read(&format!("{base}/instancegroup/nodes")).await.unwrap();
            assert_eq!(file, b"kind: InstanceGroup");
            let names = store.list(&format!("{base}/instancegroup/")).await.unwrap();
            assert_eq!(names, ["control-plane", "nodes"]);
        }
        let opened = SCHEMES.iter().zip(&store.backends).filter(|(_, backend)| backend.initialized());
        let opened: Vec<&str> = opened.map(|(scheme, _)| scheme.name).collect();
        assert_eq!(opened, ["file"], "a folder needs no S3 client");
    }

    #[tokio::test]
    async fn a_missing_file_is_absent_and_an_empty_folder_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(&[]).unwrap();
        let url = format!("file://{}/cluster/config", folder.path().display());
        let error = store.read(&url).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error:?}");
        assert!(error.to_string().contains(&url), "{error}");
        assert!(error.kind().is_configuration());
        assert_eq!(store.list(&url).await.unwrap(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_folder_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        let error = Store::new(&[]).unwrap().read(&url).await.unwrap_err();
        assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_file_that_is_too_large_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("large");
        fs::File::create(&file).unwrap().set_len(LARGEST_FILE + 1).unwrap();
        let error = Store::new(&[]).unwrap().read(&file.display().to_string()).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_mirror_serves_any_store_and_the_longest_wins() {
        let all = tempfile::tempdir().unwrap();
        let one = tempfile::tempdir().unwrap();
        write(all.path(), "a.example.com/config", "from all");
        write(all.path(), "b.example.com/config", "from all");
        write(one.path(), "config", "from one");
        let store = store_with(&[("gs://state", all.path()), ("gs://state/b.example.com", one.path())]);
        assert_eq!(store.read("gs://state/a.example.com/config").await.unwrap(), b"from all");
        assert_eq!(store.read("gs://state/b.example.com/config").await.unwrap(), b"from one");
        assert_eq!(store.list("gs://state").await.unwrap(), ["a.example.com", "b.example.com"]);

        let error = store.read("gs://state/c.example.com/config").await.unwrap_err().to_string();
        assert!(error.contains("gs://state/c.example.com/config"), "{error}");
        assert!(error.contains(&all.path().display().to_string()), "says where it looked: {error}");
    }

    #[tokio::test]
    async fn a_mirror_covers_whole_names_only() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "-other/config", "not this");
        let store = store_with(&[("vault://state", folder.path())]);
        let error = store.read("vault://state-other/config").await.unwrap_err();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn no_url_leads_out_of_a_mirror() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "secret", "outside");
        write(folder.path(), "mirror/inside", "inside");
        let mirror = folder.path().join("mirror");
        let store = store_with(&[("s3://state/", &mirror)]);
        assert_eq!(store.read("s3://state//./inside").await.unwrap(), b"inside");
        for url in ["s3://state/../secret", "s3://state/a/../../secret", "s3://state/.."] {
            let error = store.read(url).await.unwrap_err();
            assert!(matches!(error, StoreError::BadUrl { .. }), "{url}: {error:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_is_not_supported_is_refused_by_name() {
        let store = Store::new(&[]).unwrap();
        for (scheme, told) in [
            ("vault", "vault:// stores are not supported yet; supported are s3://"),
            ("http", "http:// is no state store of a node: any hop on the way could read its keys"),
            (
                "k8s",
                "k8s:// is no state store of a node: the API server in which kOps stores the cluster has no files",
            ),
            ("memfs", "memfs:// is no state store of a node: it is the memory of one process"),
        ] {
            let error = store.read(&format!("{scheme}://state/config")).await.unwrap_err();
            assert!(error.to_string().contains(told), "{error}");
            assert!(error.kind().is_configuration());
        }
    }

    #[test]
    fn a_mirror_of_another_form_is_refused() {
        for argument in ["s3://state", "=/srv", "s3://state=", "state=/srv"] {
            let error = Store::new(&[argument.to_owned()]).unwrap_err();
            assert!(error.to_string().contains("--store-mirror"), "{argument}: {error}");
            assert!(error.kind().is_configuration());
        }
    }
}
