//! A download and the files that are made from it.

use super::space::unpacked;
use super::staging::Want;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The SHA-256, in lower-case hexadecimal.
    pub(crate) sha256: String,
    /// The mirrors, in the order in which they are tried.
    pub(crate) urls: Vec<String>,
    /// The files to make from the download. The download also stays in the cache.
    pub(crate) wants: Vec<Want>,
}

impl Request {
    /// The name of the download in the cache and in messages.
    pub(crate) fn name(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }

    pub(super) fn is_unpacked(&self) -> bool {
        self.wants.iter().any(|want| want.member.is_some())
    }

    pub(super) fn unpacked(&self, size: u64) -> u64 {
        let wholes = self.wants.iter().filter(|want| want.member.is_none()).count();
        unpacked(size, wholes, self.is_unpacked())
    }
}
