//! A package in one version.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageVersion {
    pub name: String,
    /// The version with the package release, such as `0.2.0-1`.
    pub version: String,
}

impl PackageVersion {
    /// The package of a release of the agent (`packaging/packages`). The `-` of a pre-release becomes `~`, because
    /// package managers sort `~` before the release.
    pub fn of_release(name: &str, version: &str) -> PackageVersion {
        PackageVersion { name: name.to_owned(), version: format!("{}-1", version.replacen('-', "~", 1)) }
    }
}

impl fmt::Display for PackageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}
