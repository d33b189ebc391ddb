//! Reads files of manifests. In CI, a pull request may have files of any size, so only the beginning of a large file is kept.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The maximum size of a manifest in bytes. A larger file was not written by a person, so it is not parsed.
pub(super) const LARGEST: usize = 4 << 20;
/// The size of a part, in bytes. A file larger than [`LARGEST`] is not parsed, but searched part by part for kOps' API.
const PART: usize = 64 << 10;
/// Each kOps manifest has one of these texts in its `apiVersion`. `kops.k8s.io/` alone would also match labels in manifests of other
/// programs.
const APIS: [&str; 2] = ["kops.k8s.io/v1alpha", "kops/v1alpha"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    /// The whole content, or only the first [`LARGEST`] + 1 bytes if the file is larger.
    pub(super) beginning: Vec<u8>,
    pub(super) names_kops: bool,
    pub(super) read: usize,
}

impl Bytes {
    /// Reads the `beginning` of a file. If `is_searched` is true and the file is larger than [`LARGEST`], reads on in parts until the name
    /// of one of kOps' APIs is found. Never reads more than `most` + 1 bytes.
    pub(super) fn from_file(path: &Path, most: usize, is_searched: bool) -> io::Result<Bytes> {
        Bytes::from_reader(File::open(path)?, most, is_searched)
    }

    fn from_reader(file: impl Read, most: usize, is_searched: bool) -> io::Result<Bytes> {
        let mut file = file.take(most as u64 + 1);
        let mut beginning = Vec::new();
        file.by_ref().take(LARGEST as u64 + 1).read_to_end(&mut beginning)?;
        let mut bytes = Bytes { names_kops: names_kops(&beginning), read: beginning.len(), beginning };
        let mut part = end(&bytes.beginning).to_vec();
        while is_searched && bytes.is_too_large() && !bytes.names_kops {
            let read = file.by_ref().take(PART as u64).read_to_end(&mut part)?;
            if read == 0 {
                break;
            }
            bytes.read += read;
            bytes.names_kops = names_kops(&part);
            // The name of kOps' API may begin in this part, and end in the next part.
            part = end(&part).to_vec();
        }
        Ok(bytes)
    }

    pub(super) fn is_too_large(&self) -> bool {
        self.beginning.len() > LARGEST
    }
}

/// The last bytes of a part. A name of kOps' API that continues in the next part begins in these bytes.
fn end(part: &[u8]) -> &[u8] {
    let longest = APIS.iter().map(|api| api.len()).max().unwrap_or_default();
    &part[part.len().saturating_sub(longest - 1)..]
}

pub(super) fn names_kops(text: &[u8]) -> bool {
    let begins = |at: usize| APIS.iter().any(|api| text[at..].starts_with(api.as_bytes()));
    text.iter().enumerate().any(|(at, byte)| *byte == b'k' && begins(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, most: usize) -> Bytes {
        Bytes::from_reader(text.as_bytes(), most, true).unwrap()
    }

    #[test]
    fn kops_api_is_found_anywhere_in_a_large_file() {
        let far = LARGEST + 2 * PART;
        let mut text = "#".repeat(far);
        assert!(!read(&text, far).names_kops);
        for api in APIS {
            // The name is at the beginning or the end of the file, or crosses the end of `beginning` or of the first part.
            let across =
                [LARGEST + 1, LARGEST + 1 + PART].map(|end| [1, api.len() - 1].map(|bytes| end - bytes));
            for place in across.into_iter().flatten().chain([0, far - api.len()]) {
                text.replace_range(place..place + api.len(), api);
                let bytes = read(&text, far);
                assert!(bytes.names_kops && bytes.is_too_large(), "{place}");
                assert!(bytes.read <= (place + api.len() + PART).max(LARGEST + 1), "{place}");
                text.replace_range(place..place + api.len(), &"#".repeat(api.len()));
            }
        }
    }

    #[test]
    fn a_file_is_read_only_as_far_as_needed() {
        let text = "#".repeat(LARGEST + 10 * PART);
        assert_eq!(read(&text, 10).read, 11);
        assert_eq!(read(&text, LARGEST + PART).read, LARGEST + PART + 1);
        assert_eq!(read(&text, text.len()).read, text.len());
        assert_eq!(Bytes::from_reader(text.as_bytes(), text.len(), false).unwrap().read, LARGEST + 1);
        let small = read("a: 1\n", 100);
        assert_eq!((small.read, small.is_too_large(), small.names_kops), (5, false, false));
        assert!(read("apiVersion: kops/v1alpha2\n", 100).names_kops);
    }
}
