//! A state store in a folder of this machine.

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use super::StoreError;

/// The folder.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

impl Folder {
    pub(super) fn new(root: impl AsRef<Path>) -> Folder {
        Folder { root: root.as_ref().to_owned() }
    }

    pub(super) fn read(&self, url: &str, path: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.below(url, path)?;
        std::fs::read(&path).map_err(|error| failure(url, &path, error))
    }

    pub(super) fn list(&self, url: &str, path: &str) -> Result<Vec<String>, StoreError> {
        let path = self.below(url, path)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|error| failure(url, &path, error))? {
            let entry = entry.map_err(|error| failure(url, &path, error))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    /// A path below the folder; `..` would leave it.
    fn below(&self, url: &str, path: &str) -> Result<PathBuf, StoreError> {
        let path = Path::new(path);
        if path.components().all(|component| matches!(component, Component::Normal(_) | Component::CurDir)) {
            Ok(self.root.join(path))
        } else {
            Err(StoreError::BadUrl { url: url.into(), problem: "it has .. in it".into() })
        }
    }
}

fn failure(url: &str, path: &Path, source: std::io::Error) -> StoreError {
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => StoreError::NotFound { url: url.into() },
        ErrorKind::PermissionDenied => StoreError::Forbidden { url: url.into(), problem: source.to_string() },
        _ => StoreError::Io { path: path.display().to_string(), source },
    }
}
