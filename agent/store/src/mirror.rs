//! A folder that replaces a store: `--store-mirror URL=DIR`.

use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::backend::Place;
use super::error::StoreError;
use super::folder;

/// A folder that replaces everything below `url`.
///
/// A URL with `..` below `url` is rejected, because it could lead out of the folder. Links in the folder may lead out of it, because the
/// operator made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreMirror {
    /// The mirrored URL, without a trailing slash.
    pub(super) url: String,
    folder: PathBuf,
}

impl FromStr for StoreMirror {
    type Err = StoreError;

    fn from_str(argument: &str) -> Result<StoreMirror, StoreError> {
        let bad = || StoreError::BadMirror { argument: argument.to_owned() };
        let (url, folder) = argument.split_once('=').ok_or_else(bad)?;
        if folder.is_empty() || !(url.contains("://") || url.starts_with('/')) {
            return Err(bad());
        }
        Ok(StoreMirror { url: url.trim_end_matches('/').to_owned(), folder: PathBuf::from(folder) })
    }
}

impl StoreMirror {
    pub(super) fn covers(&self, url: &str) -> bool {
        self.below(url).is_some()
    }

    /// The place of a URL in the folder. Fails if the URL would lead out of the folder.
    pub(super) fn place_of(&self, url: &str) -> Result<Place, StoreError> {
        let mut path = self.folder.clone();
        let below = self.below(url).unwrap_or_default().trim_start_matches('/');
        for component in Path::new(below).components() {
            match component {
                Component::Normal(name) => path.push(name),
                Component::CurDir => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                    let problem = "it leads out of the folder of its mirror".to_owned();
                    return Err(StoreError::BadUrl { url: url.to_owned(), problem });
                }
            }
        }
        let key = path.to_string_lossy().into_owned();
        Ok(Place { url: url.to_owned(), bucket: String::new(), key, rights: folder::READ_ACCESS.to_owned() })
    }

    fn below<'a>(&self, url: &'a str) -> Option<&'a str> {
        let rest = url.strip_prefix(&self.url)?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }
}
