//! The stand-in for a package manager.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use kops_agent_plan::resource::PackageSource;
use serde::{Deserialize, Serialize};

use super::Recorder;
use crate::assets::Progress;
use crate::error::{Error, Result};
use crate::system::packages::{PackageManager, PackageVersion, find_source, of_dpkg, write_source};

/// A package of a repository, with at most one file.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Packaged {
    content: Option<PathBuf>,
    /// The path at which the package installs the file. It is an absolute path of the machine, not a path below the
    /// recorder's root.
    path: PathBuf,
}

impl Packaged {
    /// Replaces the file by a rename, as package managers do.
    fn unpack(&self) -> std::io::Result<()> {
        let Some(content) = &self.content else { return Ok(()) };
        let new = self.path.with_extension("unpacked");
        fs::copy(content, &new)?;
        fs::rename(new, &self.path)
    }
}

impl PackageManager for Recorder {
    fn installed(&self, packages: &[&str]) -> Result<BTreeSet<String>> {
        let wanted: BTreeSet<&str> = packages.iter().copied().collect();
        Ok(self.read(|state| {
            state.packages.iter().filter(|name| wanted.contains(name.as_str())).cloned().collect()
        }))
    }

    fn install(&self, packages: &[&str], _progress: &dyn Progress) -> Result<()> {
        self.note(&format!("packages: install {}", packages.join(" ")), |state| {
            state.packages.extend(packages.iter().map(|name| (*name).to_owned()));
        })
    }

    fn versions(&self, names: &[&str]) -> Result<Vec<PackageVersion>> {
        Ok(self.read(|state| {
            let versions = state.packages.iter().filter_map(|package| package.split_once('='));
            let versions = versions.filter(|(name, _)| names.contains(name));
            let version = |(name, version): (&str, &str)| PackageVersion {
                name: name.to_owned(),
                version: version.to_owned(),
            };
            versions.map(version).collect()
        }))
    }

    fn not_offered(&self, packages: &[PackageVersion], _: &dyn Progress) -> Result<Vec<PackageVersion>> {
        self.is_permitted("read", "package lists")?;
        let is_missing =
            |package: &&PackageVersion| self.read(|state| !state.repository.contains_key(&argument(package)));
        Ok(packages.iter().filter(is_missing).cloned().collect())
    }

    fn replace(&self, packages: &[PackageVersion], _: &dyn Progress) -> Result<()> {
        for package in packages {
            let argument = argument(package);
            self.is_permitted("install", &argument)?;
            let packaged = self.read(|state| state.repository.get(&argument).cloned());
            let packaged = packaged.ok_or_else(|| Error::Path {
                doing: "find",
                path: argument.clone(),
                reason: "no repository has it".to_owned(),
            })?;
            let unpacked = packaged.unpack();
            unpacked.map_err(|error| Error::path("write", packaged.path.display().to_string(), error))?;
            self.note(&format!("packages: replace {argument}"), |state| {
                let earlier = format!("{}=", package.name);
                state.packages.retain(|installed| !installed.starts_with(&earlier));
                state.packages.insert(argument.clone());
            })?;
        }
        Ok(())
    }

    fn command(&self, packages: &[PackageVersion]) -> Result<String> {
        let arguments: Vec<String> = packages.iter().map(argument).collect();
        Ok(format!("install {}", arguments.join(" ")))
    }

    fn source(&self, wanted: &PackageSource) -> Result<Option<PackageSource>> {
        find_source(&self.root, wanted)
    }

    fn add_source(&self, source: &PackageSource, key: &[u8], _progress: &dyn Progress) -> Result<()> {
        write_source(&self.root, source, key, None)?;
        self.note(&format!("packages: download the package list of {}", source.name), |_| {})
    }

    fn owned(&self, paths: &[&str]) -> Result<BTreeSet<String>> {
        of_dpkg(&self.root, paths)
    }
}

fn argument(package: &PackageVersion) -> String {
    format!("{}={}", package.name, package.version)
}
