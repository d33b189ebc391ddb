//! URLs as Go's `net/url` reads, changes and writes them. Also finds the URL of a file in a user's file repository (upstream:
//! `pkg/assets/builder.go`, `RemapFile`).

use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::urls::shown_url;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// The characters that Go escapes in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    scheme: String,
    user_and_host: String,
    path: Vec<u8>,
    /// The spelling of the path in the URL. `None` if the path has changed and must be escaped anew.
    written_path: Option<String>,
    /// The query and the fragment, each with its separator (`?`, `#`).
    rest: String,
}

/// The problem for a text that is not a URL. Credentials are removed from the text.
fn no_url(text: &str) -> Invalid {
    let shown = shown_url(text);
    let shown = shown.rsplit('@').next().unwrap_or_default();
    Invalid::new(format!("{shown:?} is not a URL; use the form https://host/path"))
}

impl Url {
    /// Reads an absolute URL, or returns a description of the problem.
    pub(super) fn parse(text: &str) -> Result<Url, Invalid> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| no_url(text))?;
        let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if !is_scheme || text.contains(|c: char| c.is_ascii_control()) {
            return Err(no_url(text));
        }
        let (rest, suffix) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        let (user_and_host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let decoded = unescape(path).ok_or_else(|| {
            format!("{:?} has a % without two hexadecimal digits after it", shown_url(text))
        })?;
        Ok(Url {
            scheme: scheme.to_ascii_lowercase(),
            user_and_host: user_and_host.to_owned(),
            path: decoded,
            written_path: Some(path.to_owned()),
            rest: suffix.to_owned(),
        })
    }

    fn host(&self) -> &str {
        self.user_and_host.rsplit('@').next().unwrap_or_default()
    }

    /// Joins `relative` to the path of this URL, and resolves `.`, `..` and double slashes.
    pub(super) fn join(&self, relative: &str) -> Url {
        let mut path = self.path.clone();
        if !path.is_empty() && !relative.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(relative.as_bytes());
        Url { path: clean(&path), written_path: None, ..self.clone() }
    }

    /// The URL of a file in a file repository: the repository's path followed by the file's path. If the file is already on the
    /// repository's host, its URL stays unchanged.
    pub(super) fn in_repository(&self, repository: &Url) -> Url {
        if self.host() == repository.host() {
            return self.clone();
        }
        let mut path = repository.path.clone();
        path.push(b'/');
        path.extend_from_slice(&self.path);
        // A comma in the path is escaped, because the list of assets separates URLs by commas.
        let path = clean(&path);
        let written_path = Some(escape(&path).replace(',', "%2C"));
        Url { path, written_path, ..repository.clone() }
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = match &self.written_path {
            Some(written) if written.bytes().all(may_stand_in_a_written_path) => written.clone(),
            _ => escape(&self.path),
        };
        let slash = if !path.is_empty() && !path.starts_with('/') && !self.user_and_host.is_empty() {
            "/"
        } else {
            ""
        };
        write!(f, "{}://{}{slash}{path}{}", self.scheme, self.user_and_host, self.rest)
    }
}

/// Cleans a path as Go's `path.Clean` does.
fn clean(path: &[u8]) -> Vec<u8> {
    let absolute = path.first() == Some(&b'/');
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if parts.last().is_some_and(|last| *last != b"..") => drop(parts.pop()),
            b".." if absolute => {}
            part => parts.push(part),
        }
    }
    let mut cleaned = if absolute { vec![b'/'] } else { Vec::new() };
    cleaned.extend(parts.join(&b'/'));
    cleaned
}

/// Decodes percent escapes. Returns `None` if a `%` does not start an escape.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let is_escape = |after: &str| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    text.split('%').skip(1).all(is_escape).then(|| percent_decode_str(text).collect())
}

fn escape(path: &[u8]) -> String {
    percent_encode(path, ESCAPED).to_string()
}

/// Whether Go keeps the spelling of a path with this character. If a path has a character for which this is false, Go decodes the path and
/// escapes it anew.
fn may_stand_in_a_written_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn an_unchanged_url_keeps_its_spelling() {
        for text in [
            "https://dl.k8s.io/release/v1.34.0/bin/linux/amd64/kubelet",
            "s3://bucket/a/b",
            "https://user:word@host:8443/a%2Fb?q=1#f",
            "https://host",
            "https://host/a+b,c",
        ] {
            assert_eq!(url(text).to_string(), text);
        }
        assert_eq!(url("https://host/a b").to_string(), "https://host/a%20b");
        for text in ["host/path", "1://x", "https://host/%zz", "a\n://x"] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_keeps_its_path_in_a_repository() {
        let file = url("https://dl.k8s.io/release/v1.34.0/kubelet?x=1");
        for (repository, location) in [
            ("https://mirror.example.com", "https://mirror.example.com/release/v1.34.0/kubelet"),
            ("https://mirror.example.com/a/", "https://mirror.example.com/a/release/v1.34.0/kubelet"),
            ("s3://bucket/a//b", "s3://bucket/a/b/release/v1.34.0/kubelet"),
            ("https://mirror.example.com/a,b", "https://mirror.example.com/a%2Cb/release/v1.34.0/kubelet"),
            ("https://dl.k8s.io/other", "https://dl.k8s.io/release/v1.34.0/kubelet?x=1"),
        ] {
            assert_eq!(file.in_repository(&url(repository)).to_string(), location);
        }
    }

    proptest::proptest! {
        #[test]
        fn parsing_arbitrary_text_never_panics(text in "[a-z:/%?#@. ,0-9\\PC]{0,30}", path in "[a-z/.%]{0,12}") {
            if let Ok(url) = Url::parse(&text) {
                let moved = url.join(&path).in_repository(&Url::parse("https://mirror.example.com/a").unwrap());
                proptest::prop_assert!(!moved.to_string().contains(',') || url.host() == "mirror.example.com");
            }
        }
    }

    #[test]
    fn joined_paths_are_clean() {
        let base = url("https://storage.googleapis.com/k8s-release-dev/ci/v1.36.0-alpha.1+abc/");
        assert_eq!(
            base.join("/bin/linux/amd64/kubelet").to_string(),
            "https://storage.googleapis.com/k8s-release-dev/ci/v1.36.0-alpha.1+abc/bin/linux/amd64/kubelet"
        );
        assert_eq!(url("https://host").join("/bin").to_string(), "https://host/bin");
        assert_eq!(url("https://host/a/b").join("../c").to_string(), "https://host/a/c");
    }
}
