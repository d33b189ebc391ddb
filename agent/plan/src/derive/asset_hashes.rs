//! Sources for the SHA-256 of a download. kops-agent has no list of hashes. The hashes come from the publisher, from a user's file, or from
//! a pinned `nodeupconfig.yaml`.

use std::collections::BTreeMap;

use thiserror::Error;

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::digest::parse_sha256;
use kops_agent_spec::urls::hash_and_urls;

pub trait AssetHashes {
    /// The SHA-256 of a file in lower-case hexadecimal. `None` if the hash is unknown. `canonical_url` is the publisher's URL, and
    /// `download_url` is the URL that this cluster uses.
    fn sha256(&self, canonical_url: &str, download_url: &str) -> Option<String>;
}

/// SHA-256 hashes of files, by the URL of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownHashes(BTreeMap<String, String>);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} does not have the form `sha256  URL`: {problem}")]
pub struct MalformedHashLine {
    /// The line number, counted from 1.
    pub line: usize,
    pub problem: String,
}

impl KnownHashes {
    /// The hashes of the assets and images in `config`.
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

    /// Reads lines of the form `sha256  URL`. Empty lines and lines that start with `#` are ignored.
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
                line.split_once(char::is_whitespace).ok_or_else(|| malformed("it has only one word"))?;
            let hash = parse_sha256(hash)
                .ok_or_else(|| malformed("it does not start with 64 hexadecimal digits"))?;
            hashes.0.insert(url.trim().to_owned(), hash);
        }
        Ok(hashes)
    }

    /// All pairs of URL and hash.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(url, sha256)| (url.as_str(), sha256.as_str()))
    }

    /// Adds all hashes of `other`. If both have a hash for a URL, the hash of `other` wins.
    pub fn extend(&mut self, other: KnownHashes) {
        self.0.extend(other.0);
    }

    /// Adds the hash of a file. A text that is not a SHA-256 is ignored.
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
    fn malformed_lines_are_reported_by_number() {
        let hash = "AB".repeat(32);
        let hashes = KnownHashes::parse(&format!("# mine\n\n{hash}  https://a/b\n")).unwrap();
        assert_eq!(hashes.sha256("https://a/b", "https://mirror/b"), Some("ab".repeat(32)));
        assert_eq!(hashes.sha256("https://a/c", "https://a/c"), None);
        assert_eq!(
            KnownHashes::parse("\nabc https://a/b").unwrap_err().to_string(),
            "line 2 does not have the form `sha256  URL`: it does not start with 64 hexadecimal digits"
        );
        assert!(KnownHashes::parse(&hash).unwrap_err().to_string().contains("one word"));
    }
}
