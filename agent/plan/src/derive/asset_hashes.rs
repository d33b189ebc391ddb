//! Where the SHA-256 of a download comes from. We ship no list of our own: hashes come from the publisher,
//! from a file that the user gives, or from a `nodeupconfig.yaml` that is itself pinned.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::digest::parse_sha256;
use kops_agent_spec::NodeupConfig;
use kops_agent_spec::urls::hash_and_urls;

/// A source of hashes.
pub trait AssetHashes {
    /// The SHA-256 of a file in lower-case hexadecimal, if it is known. `canonical_url` is where its
    /// publisher has it, `download_url` where this cluster takes it from.
    fn sha256(&self, canonical_url: &str, download_url: &str) -> Option<String>;
}

/// Hashes that were told, by URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownHashes(BTreeMap<String, String>);

/// A line of a list of hashes that is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} is no `sha256  URL`: {problem}")]
pub struct MalformedHashLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: String,
}

impl KnownHashes {
    /// Those of the assets that another configuration lists.
    pub fn of_config(config: &NodeupConfig) -> KnownHashes {
        let mut hashes = KnownHashes::default();
        for entry in config.assets.values().flatten() {
            let (Some(hash), urls) = hash_and_urls(entry) else { continue };
            for url in urls.split(',') {
                hashes.insert(url, hash);
            }
        }
        for image in config.images.values().flatten() {
            for source in &image.sources {
                hashes.insert(source, &image.hash);
            }
        }
        hashes
    }

    /// Reads lines of `sha256  URL`; empty lines and those that start with `#` do not count.
    ///
    /// # Errors
    /// The first line that is none.
    pub fn parse(text: &str) -> Result<KnownHashes, MalformedHashLine> {
        let mut hashes = KnownHashes::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed =
                |problem: &str| MalformedHashLine { line: number + 1, problem: problem.to_owned() };
            let (hash, url) =
                line.split_once(char::is_whitespace).ok_or_else(|| malformed("it has one word"))?;
            let hash = parse_sha256(hash)
                .ok_or_else(|| malformed("it does not start with 64 hexadecimal digits"))?;
            hashes.0.insert(url.trim().to_owned(), hash);
        }
        Ok(hashes)
    }

    /// Every hash, after its URL.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(url, sha256)| (url.as_str(), sha256.as_str()))
    }

    /// Remembers all that another knows; where both know a file, the other's counts.
    pub fn extend(&mut self, other: KnownHashes) {
        self.0.extend(other.0);
    }

    /// Remembers the hash of a file; what is no SHA-256 is not remembered.
    pub fn insert(&mut self, url: &str, sha256: &str) {
        if let Some(sha256) = parse_sha256(sha256) {
            self.0.insert(url.to_owned(), sha256);
        }
    }
}

impl AssetHashes for KnownHashes {
    fn sha256(&self, canonical_url: &str, download_url: &str) -> Option<String> {
        self.0.get(download_url).or_else(|| self.0.get(canonical_url)).cloned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_are_read_or_named() {
        let hash = "AB".repeat(32);
        let hashes = KnownHashes::parse(&format!("# mine\n\n{hash}  https://a/b\n")).unwrap();
        assert_eq!(hashes.sha256("https://a/b", "https://mirror/b"), Some("ab".repeat(32)));
        assert_eq!(hashes.sha256("https://a/c", "https://a/c"), None);
        assert_eq!(
            KnownHashes::parse("\nabc https://a/b").unwrap_err().to_string(),
            "line 2 is no `sha256  URL`: it does not start with 64 hexadecimal digits"
        );
        assert!(KnownHashes::parse(&hash).unwrap_err().to_string().contains("one word"));
    }
}
