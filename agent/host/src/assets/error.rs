//! Errors of downloads, for the operator.

use std::fmt::Write as _;
use std::time::Duration;

use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::urls::shown_url;

#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// No mirror serves the right content.
    #[error("{}", unavailable(.name, .failures, *.attempts, *.waited, *.kept))]
    Unavailable {
        /// The first URL of the download.
        name: String,
        /// Each tried mirror, with its last error.
        failures: Vec<MirrorFailure>,
        /// The number of attempts, at all mirrors together.
        attempts: usize,
        /// The time from the first to the last attempt.
        waited: Duration,
        /// The number of unverified bytes in the cache. The next run resumes after these bytes.
        kept: u64,
    },
    #[error(
        "not enough disk space in {folder}: {} needed for downloads and unpacked files, {} free; free some space on that \
         file system and run again",
        in_units(*.needed), in_units(*.free)
    )]
    NoSpace {
        /// A directory on the file system that lacks space.
        folder: String,
        /// The required space, in bytes.
        needed: u64,
        /// The free space, in bytes.
        free: u64,
    },
    #[error("the archive {} has no file {member}; it has {present}", shown_url(.url))]
    NoMember {
        url: String,
        member: String,
        /// The names of some files in the archive.
        present: String,
    },
    #[error("cannot unpack {}: {reason}", shown_url(.url))]
    BadArchive { url: String, reason: String },
}

impl Failing for DownloadError {
    fn kind(&self) -> Kind {
        match self {
            DownloadError::Unavailable { .. } => Kind::DownloadUnavailable,
            DownloadError::NoSpace { .. } => Kind::NoSpace,
            DownloadError::NoMember { .. } | DownloadError::BadArchive { .. } => Kind::ArchiveWrong,
        }
    }
}

/// A mirror of a download, and the mirror's last error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorFailure {
    pub url: String,
    pub reason: String,
}

fn unavailable(
    name: &str,
    failures: &[MirrorFailure],
    attempts: usize,
    waited: Duration,
    kept: u64,
) -> String {
    let name = shown_url(name);
    let mut text = match failures {
        [] => return format!("cannot download {name:?}: no URL is given"),
        [MirrorFailure { url, reason }] => format!("cannot download {}: {reason}", shown_url(url)),
        _ => failures.iter().fold(
            format!("cannot download {name} from any of its {} mirrors", failures.len()),
            |text, MirrorFailure { url, reason }| format!("{text}; {}: {reason}", shown_url(url)),
        ),
    };
    // Ignore the results of `write!`, because writing to a String cannot fail.
    if attempts > failures.len() {
        let waited = Duration::from_millis(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
        let _ = write!(text, " (tried {attempts} times in {waited:.0?})");
    }
    if kept > 0 {
        let _ = write!(
            text,
            "; {} of it are downloaded and kept, and the next run continues from there",
            in_units(kept)
        );
    }
    text
}

pub(super) fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let (mut whole, mut rest, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit < UNITS.len() {
        (rest, whole, unit) = (whole % 1024, whole / 1024, unit + 1);
    }
    format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_down_in_their_unit() {
        for (bytes, shown) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1536, "1.5 KiB"),
            (u64::MAX, "16383.9 PiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(in_units(bytes), shown);
        }
    }

    #[test]
    fn errors_hide_the_credentials_of_urls() {
        const URL: &str = "https://user:token@mirror.example.com:8443/a/kubelet?sig=abc#x";
        const SHOWN: &str = "https://mirror.example.com:8443/a/kubelet";
        let failure = || MirrorFailure { url: URL.into(), reason: "refused".into() };
        let unavailable = |failures| DownloadError::Unavailable {
            name: URL.into(),
            failures,
            attempts: 1,
            waited: Duration::ZERO,
            kept: 0,
        };
        for error in [
            unavailable(vec![]),
            unavailable(vec![failure()]),
            unavailable(vec![failure(), failure()]),
            DownloadError::NoMember { url: URL.into(), member: "a".into(), present: "b".into() },
            DownloadError::BadArchive { url: URL.into(), reason: "broken".into() },
        ] {
            let text = error.to_string();
            assert!(text.contains(SHOWN), "{text}");
            assert!(!text.contains("token") && !text.contains("sig="), "{text}");
        }
    }

    #[test]
    fn every_mirror_is_named_with_its_reason() {
        let failure = |host: &str, reason: &str| MirrorFailure {
            url: format!("https://{host}/x"),
            reason: reason.into(),
        };
        let text = unavailable(
            "https://a/x",
            &[failure("a", "refused"), failure("b", "404 Not Found")],
            7,
            Duration::from_secs(5),
            2048,
        );
        assert_eq!(
            text,
            "cannot download https://a/x from any of its 2 mirrors; https://a/x: refused; https://b/x: 404 Not Found \
             (tried 7 times in 5s); 2.0 KiB of it are downloaded and kept, and the next run continues from there"
        );
        let once = unavailable("https://a/x", &[failure("a", "404 Not Found")], 1, Duration::ZERO, 0);
        assert_eq!(once, "cannot download https://a/x: 404 Not Found");
    }
}
