//! The supported stores. The table has a row for each scheme, with all differences between schemes.
//!
//! Source: the URLs of state stores that kOps reads (upstream: `util/pkg/vfs/context.go`).

use kops_agent_spec::urls::shown_url;

use super::backend::{Misspelt, Opening, Place, Setup, Split};
use super::error::StoreError;
use super::{azureblob, folder, gs, https, s3, s3_like, swift};

/// All stores. A new store needs a [`super::backend::Backend`] in its own file, and a row in this table.
pub(crate) const SCHEMES: &[Scheme] = &[
    Scheme {
        name: "s3",
        split: in_bucket,
        open: s3::open,
        locates: true,
        rights: s3::rights,
        variables: s3::VARIABLES,
    },
    Scheme { name: "do", ..S3_LIKE },
    Scheme { name: "hos", ..S3_LIKE },
    Scheme { name: "linode", open: s3_like::without_checksums, ..S3_LIKE },
    Scheme { name: "scw", ..S3_LIKE },
    Scheme {
        name: "gs",
        split: in_bucket,
        open: gs::open,
        locates: true,
        rights: gs::rights,
        variables: &[],
    },
    Scheme {
        name: "azureblob",
        split: azureblob::split,
        open: azureblob::open,
        locates: true,
        rights: azureblob::rights,
        variables: azureblob::VARIABLES,
    },
    Scheme {
        name: "swift",
        split: in_bucket,
        open: swift::open,
        locates: true,
        rights: swift::rights,
        variables: &[],
    },
    Scheme {
        name: "https",
        split: https::split,
        open: https::open,
        locates: false,
        rights: https::rights,
        variables: &[],
    },
    Scheme {
        name: IN_CLEAR,
        split: https::split,
        open: https::open,
        locates: false,
        rights: https::rights,
        variables: &[],
    },
    Scheme {
        name: "file",
        split: folder::split,
        open: folder::open,
        locates: false,
        rights: folder::rights,
        variables: &[],
    },
];

/// The default fields for schemes whose S3 server is set by environment variables.
const S3_LIKE: Scheme = Scheme {
    name: "",
    split: in_bucket,
    open: s3_like::open,
    locates: true,
    rights: s3_like::rights,
    variables: s3::VARIABLES,
};

/// The scheme without encryption. Anyone on the network path can read and change the files. So a state store may not use this scheme. Only
/// the URL of a file that an operator names, such as an add-on, may use it.
const IN_CLEAR: &str = "http";

/// URL schemes that kOps supports, but from which nodes read no files. [`never_read`] makes an exception for [`IN_CLEAR`]. Each entry has
/// the scheme, and a text with the reason and the remedy.
const NEVER_READ: [(&str, &str); 3] = [
    (
        IN_CLEAR,
        "any hop on the way could read its keys, and change the configuration of this node; use an https:// \
         URL",
    ),
    (
        // In upstream, all operations on a `k8s://` URL fail (`KubernetesPath` in util/pkg/vfs/k8sfs.go).
        "k8s",
        "the API server in which kOps stores the cluster has no files for nodes, and kOps' own nodeup cannot read any there; set \
         spec.configStore.base to a store with files for nodes",
    ),
    // Upstream defines this scheme in `buildMemFSPath` (util/pkg/vfs/context.go).
    ("memfs", "it is the memory of one process, in tests of kOps; give the ConfigBase of a cluster"),
];

/// A kind of store, identified by the scheme of its URLs.
pub(crate) struct Scheme {
    /// The part of a URL before `://`.
    pub(crate) name: &'static str,
    /// Splits the part of a URL after `://`.
    split: fn(&str) -> Result<Split<'_>, Misspelt>,
    /// Makes the backend. It is called before the first request.
    pub(crate) open: fn(Setup) -> Opening,
    /// Whether downloads from this store need the store's backend. `false` for `https`, `http` and `file`.
    locates: bool,
    /// The permissions that a role needs to read a key of a bucket.
    rights: fn(&str, &str) -> String,
    /// The environment variables that only this store reads, in groups. A group has an effect only if its first variable is set. The list
    /// omits variables that the store's cloud also reads.
    variables: &'static [&'static [&'static str]],
}

/// The environment variables that the agent reads only for stores, in groups without duplicates. A group has an effect only if its first
/// variable is set. The list omits variables that the agent also reads for a cloud.
pub fn variables() -> Vec<&'static [&'static str]> {
    let mut groups = Vec::new();
    for group in SCHEMES.iter().flat_map(|scheme| scheme.variables) {
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
    groups
}

/// Splits `BUCKET/KEY`.
fn in_bucket(rest: &str) -> Result<Split<'_>, Misspelt> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    match bucket {
        "" => Err(Misspelt { problem: "it names no bucket", example: "BUCKET/CLUSTER" }),
        bucket => Ok(Split { bucket, key: key.trim_start_matches('/') }),
    }
}

/// The index of the URL's scheme in `SCHEMES`, and the file or folder that the URL names. An absolute path means a `file://` URL.
pub(crate) fn place(url: &str) -> Result<(usize, Place), StoreError> {
    let (name, rest) = match url.split_once("://") {
        _ if url.starts_with('/') => ("file", url),
        Some(parts) => parts,
        None => {
            let problem = "it is neither a URL such as s3://BUCKET/CLUSTER nor an absolute path".to_owned();
            return Err(StoreError::BadUrl { url: url.to_owned(), problem });
        }
    };
    let row = SCHEMES.iter().position(|scheme| scheme.name == name);
    let row = row.ok_or_else(|| unsupported(url, name))?;
    let misspelt = |Misspelt { problem, example }: Misspelt| StoreError::BadUrl {
        url: shown_url(url),
        problem: format!("{problem}; use the form {name}://{example}"),
    };
    let split = (SCHEMES[row].split)(rest).map_err(misspelt)?;
    let (bucket, key) = (split.bucket.to_owned(), split.key.to_owned());
    let rights = (SCHEMES[row].rights)(&bucket, &key);
    Ok((row, Place { url: url.to_owned(), bucket, key, rights }))
}

/// The error for a URL that nodes may not read. `None` if nodes may read it. If `in_clear` is true, [`IN_CLEAR`] URLs are allowed.
pub(crate) fn never_read(url: &str, in_clear: bool) -> Option<StoreError> {
    let (name, _) = url.split_once("://")?;
    let mut never = NEVER_READ.into_iter().filter(|(scheme, _)| !in_clear || *scheme != IN_CLEAR);
    let (scheme, reason) = never.find(|(scheme, _)| *scheme == name)?;
    Some(StoreError::NeverRead { url: url.to_owned(), scheme, reason })
}

fn unsupported(url: &str, scheme: &str) -> StoreError {
    let names = SCHEMES.iter().map(|scheme| scheme.name).filter(|name| *name != IN_CLEAR);
    let names: Vec<String> = names.map(|name| format!("{name}://")).collect();
    let supported = match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    };
    StoreError::Unsupported { url: url.to_owned(), scheme: scheme.to_owned(), supported }
}

/// Whether a download from this URL needs the backend of a store.
pub(crate) fn locates(url: &str) -> bool {
    url.split_once("://")
        .is_some_and(|(name, _)| SCHEMES.iter().any(|scheme| scheme.locates && scheme.name == name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;
    use kops_agent_spec::failure::Failing as _;

    fn parts(url: &str) -> (&'static str, String, String) {
        let (row, place) = place(url).unwrap();
        assert_eq!(place.url, url);
        (SCHEMES[row].name, place.bucket, place.key)
    }

    #[test]
    fn bucket_and_key_are_split() {
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
    fn the_error_of_an_invalid_url_shows_a_valid_one() {
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
            assert!(error.kind().is_configuration());
        }
        let error = place("gs:///key").unwrap_err().to_string();
        assert!(error.contains("it names no bucket; use the form gs://BUCKET/CLUSTER"), "{error}");
    }

    #[test]
    fn the_url_of_a_web_server_has_no_login_and_no_query() {
        assert_eq!(
            parts("https://h.example.com:8443/state/c"),
            ("https", "h.example.com:8443".into(), "state/c".into())
        );
        for (url, told) in [
            ("https://user:hidden@h/state", "a login in it"),
            ("https://hidden@h", "a login in it"),
            ("https://h/state?signature=hidden", "a query"),
            ("https://h/state#hidden", "a query"),
            ("https:///state", "it names no host; use the form https://HOST/CLUSTER"),
        ] {
            let error = place(url).unwrap_err();
            assert!(matches!(error, StoreError::BadUrl { .. }), "{url}: {error:?}");
            assert!(error.to_string().contains(told), "{error}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
    }

    #[test]
    fn a_group_of_variables_of_several_schemes_is_listed_once() {
        let of = |name: &str| SCHEMES.iter().find(|scheme| scheme.name == name).unwrap().variables;
        assert_eq!(of("s3"), of("do"));
        let (all, distinct) = (variables(), variables().into_iter().collect::<BTreeSet<_>>());
        assert_eq!(all.len(), distinct.len(), "{all:?}");
        assert_eq!(distinct, SCHEMES.iter().flat_map(|scheme| scheme.variables).copied().collect());
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
