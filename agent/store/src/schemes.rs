//! The stores that are supported: a row each. All that differs between two schemes is in their rows.
//!
//! Source: the URLs of state stores, as kOps reads them (upstream: `util/pkg/vfs/context.go`).

use super::backend::{Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;
use super::{azureblob, folder, gs, s3, s3_like, swift};

/// Every store. A new one is a file with its [`super::backend::Backend`], and a row.
pub(crate) const SCHEMES: &[Scheme] = &[
    Scheme { name: "s3", split: in_bucket, open: s3::open, locates: true, rights: s3::rights },
    Scheme { name: "do", split: in_bucket, open: s3_like::open, locates: true, rights: s3_like::rights },
    Scheme { name: "hos", split: in_bucket, open: s3_like::open, locates: true, rights: s3_like::rights },
    Scheme {
        name: "linode",
        split: in_bucket,
        open: s3_like::without_checksums,
        locates: true,
        rights: s3_like::rights,
    },
    Scheme { name: "scw", split: in_bucket, open: s3_like::open, locates: true, rights: s3_like::rights },
    Scheme { name: "gs", split: in_bucket, open: gs::open, locates: true, rights: gs::rights },
    Scheme {
        name: "azureblob",
        split: azureblob::split,
        open: azureblob::open,
        locates: true,
        rights: azureblob::rights,
    },
    Scheme { name: "swift", split: in_bucket, open: swift::open, locates: true, rights: swift::rights },
    Scheme { name: "file", split: folder::split, open: folder::open, locates: false, rights: folder::rights },
];

/// A kind of store, by the scheme of its URLs.
pub(crate) struct Scheme {
    /// What comes before `://`.
    pub(crate) name: &'static str,
    /// Takes apart what comes after `://`.
    split: fn(&str) -> Result<Split<'_>, Misspelt>,
    /// Sets its backend up, before the first of its URLs is asked for.
    pub(crate) open: fn(Setup) -> Opening,
    /// Whether downloads may be there. Downloads from files of this machine need no store.
    locates: bool,
    /// What a role needs in order to read a key of a bucket there.
    rights: fn(&str, &str) -> String,
}

/// `BUCKET/KEY`.
fn in_bucket(rest: &str) -> Result<Split<'_>, Misspelt> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    match bucket {
        "" => Err(Misspelt { problem: "it names no bucket", example: "BUCKET/CLUSTER" }),
        bucket => Ok(Split { bucket, key: key.trim_start_matches('/') }),
    }
}

/// The row of a URL, and what the URL means there. An absolute path is a `file://` URL, too.
///
/// # Errors
/// If there is no such row, or its URLs are written otherwise.
pub(crate) fn place(url: &str) -> Result<(usize, Place), StoreError> {
    let bad = |problem: String| StoreError::BadUrl { url: url.to_owned(), problem };
    let (name, rest) = match url.split_once("://") {
        _ if url.starts_with('/') => ("file", url),
        Some(parts) => parts,
        None => {
            let problem = "it is neither a URL, as in s3://BUCKET/CLUSTER, nor an absolute path";
            return Err(bad(problem.to_owned()));
        }
    };
    let row = SCHEMES.iter().position(|scheme| scheme.name == name);
    let row = row.ok_or_else(|| StoreError::Unsupported {
        url: url.to_owned(),
        scheme: name.to_owned(),
        supported: in_words(),
    })?;
    let split = (SCHEMES[row].split)(rest)
        .map_err(|Misspelt { problem, example }| bad(format!("{problem}, as in {name}://{example}")))?;
    let (bucket, key) = (split.bucket.to_owned(), split.key.to_owned());
    let rights = (SCHEMES[row].rights)(&bucket, &key);
    Ok((row, Place { url: url.to_owned(), bucket, key, rights }))
}

/// Whether downloads may have this URL.
pub(crate) fn locates(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(name, _)| SCHEMES.iter().any(|scheme| scheme.locates && scheme.name == name))
}

/// All of them, as in `s3://, gs:// and file://`.
fn in_words() -> String {
    let names: Vec<String> = SCHEMES.iter().map(|scheme| format!("{}://", scheme.name)).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parts(url: &str) -> (&'static str, String, String) {
        let (row, place) = place(url).unwrap();
        assert_eq!(place.url, url);
        (SCHEMES[row].name, place.bucket, place.key)
    }

    #[test]
    fn bucket_and_key_are_told_apart() {
        let in_buckets = SCHEMES.iter().filter(|scheme| scheme.locates && scheme.name != "azureblob");
        for scheme in in_buckets.map(|scheme| scheme.name) {
            for (rest, bucket, key) in
                [("b/c/d e", "b", "c/d e"), ("b/c/", "b", "c/"), ("b//c", "b", "c"), ("b", "b", "")]
            {
                let expected = (scheme, bucket.to_owned(), key.to_owned());
                assert_eq!(parts(&format!("{scheme}://{rest}")), expected);
            }
        }
        for (rest, bucket, key) in
            [("acct/b/c/d", "acct/b", "c/d"), ("acct/b", "acct/b", ""), ("acct/b//c", "acct/b", "c")]
        {
            let expected = ("azureblob", bucket.to_owned(), key.to_owned());
            assert_eq!(parts(&format!("azureblob://{rest}")), expected);
        }
        for url in ["/srv/state", "file:///srv/state"] {
            assert_eq!(parts(url), ("file", String::new(), "/srv/state".to_owned()));
        }
    }

    #[test]
    fn what_is_no_url_of_a_store_says_how_one_looks() {
        for url in [
            "",
            "config",
            "./config",
            "file://config",
            "s3://",
            "s3:///key",
            "gs://",
            "azureblob://b",
            "azureblob://A/b/c",
        ] {
            let error = place(url).unwrap_err();
            assert!(matches!(error, StoreError::BadUrl { .. }), "{url}: {error:?}");
            assert!(error.is_configuration());
        }
        let error = place("gs:///key").unwrap_err().to_string();
        assert!(error.contains("it names no bucket, as in gs://BUCKET/CLUSTER"), "{error}");
    }

    #[test]
    fn every_scheme_has_its_row_in_the_page_of_stores() {
        let page = include_str!("../../../docs/clouds-and-stores.md");
        for scheme in SCHEMES {
            let name = format!("`{}://`", scheme.name);
            let mut rows =
                page.lines().filter(|line| line.starts_with("| `") && !line.contains("refused by name"));
            assert!(rows.any(|row| row.contains(&name)), "docs/clouds-and-stores.md has no row of {name}");
        }
    }
}
