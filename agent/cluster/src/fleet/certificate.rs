//! The certificate of a node that expires first, and its expiry time. The node writes them into an annotation of its own Node,
//! for programs.
//!
//! The value is `TIME NAME`. The value has nothing else about the certificate, because many users can read Nodes.

use serde::Serialize;
use time::OffsetDateTime;

use kops_agent_spec::{parse_timestamp, timestamp};

pub const FIRST_CERTIFICATE: &str = "kops-agent/first-certificate-to-expire";

/// A node is not healthy if one of its certificates expires within this number of days. Nodes renew a certificate when a third of its
/// lifetime is left, which is months before the expiry. So the renewal of a certificate that expires this soon is long overdue.
pub const FEW_DAYS: i64 = 7;
const SECONDS_A_DAY: i64 = 24 * 60 * 60;
/// Maximum length of a name, in bytes. A kubelet can write any value into its own Node.
const LONGEST_NAME: usize = 100;

/// The first of a node's certificates to expire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstCertificate {
    /// A short name of the certificate: `kubelet`, `kube-scheduler/server`.
    pub name: String,
    pub expires: OffsetDateTime,
}

/// The first of a node's certificates to expire, with the days until then. The days count from the time of the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenCertificate {
    pub name: String,
    /// Expiry time, in RFC 3339.
    pub expires: String,
    /// Whole days until the certificate expires; negative if it has expired.
    pub days_left: i64,
}

impl FirstCertificate {
    /// The certificate in the file at `path`. `expires` is in seconds since 1970. `None` if this time is outside the range of dates.
    pub fn from_expiry(path: &str, expires: i64) -> Option<FirstCertificate> {
        let expires = OffsetDateTime::from_unix_timestamp(expires).ok()?;
        Some(FirstCertificate { name: short_name(path), expires })
    }

    pub(super) fn value(&self) -> String {
        format!("{} {}", timestamp(self.expires), self.name)
    }

    /// Parses an annotation's value; `None` if the format is not `TIME NAME`.
    pub(super) fn read(value: &str) -> Option<FirstCertificate> {
        let (expires, name) = value.split_once(' ')?;
        let is_name = (1..=LONGEST_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte));
        let expires = parse_timestamp(expires).filter(|_| is_name)?;
        Some(FirstCertificate { name: name.to_owned(), expires })
    }

    pub(super) fn seen(self, now: OffsetDateTime) -> SeenCertificate {
        let seconds = self.expires.unix_timestamp().saturating_sub(now.unix_timestamp());
        SeenCertificate {
            expires: timestamp(self.expires),
            days_left: seconds.div_euclid(SECONDS_A_DAY),
            name: self.name,
        }
    }
}

impl SeenCertificate {
    /// Whether the certificate has expired, or expires within [`FEW_DAYS`].
    pub fn ends_soon(&self) -> bool {
        self.days_left < FEW_DAYS
    }
}

/// The short name of a certificate's file. A kubeconfig has the name of its directory; `server.crt` and `client.crt` have the
/// directory as a prefix.
fn short_name(path: &str) -> String {
    let mut parts = path.rsplit('/').filter(|part| !part.is_empty() && *part != "secrets");
    let (file, folder) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match (file.strip_suffix(".crt").unwrap_or(file), folder) {
        (file, "") => file.to_owned(),
        ("kubeconfig", folder) => folder.to_owned(),
        (file @ ("server" | "client"), folder) => format!("{folder}/{file}"),
        (file, _) => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATHS: [(&str, &str); 6] = [
        ("/var/lib/kubelet/kubeconfig", "kubelet"),
        ("/srv/kubernetes/kubelet-server.crt", "kubelet-server"),
        ("/srv/kubernetes/kube-scheduler/server.crt", "kube-scheduler/server"),
        (
            "/etc/kubernetes/kube-apiserver-healthcheck/secrets/client.crt",
            "kube-apiserver-healthcheck/client",
        ),
        ("/srv/kubernetes/kube-apiserver/etcd-client.crt", "etcd-client"),
        ("/kubeconfig", "kubeconfig"),
    ];

    #[test]
    fn a_first_certificate_names_its_owner_and_its_expiry() {
        for (path, name) in PATHS {
            let certificate = FirstCertificate::from_expiry(path, 1_798_081_445).unwrap();
            assert_eq!(certificate.value(), format!("2026-12-24T03:04:05Z {name}"));
            assert_eq!(FirstCertificate::read(&certificate.value()), Some(certificate));
        }
        assert_eq!(FirstCertificate::from_expiry("/x.crt", i64::MAX), None);
    }

    #[test]
    fn the_last_week_is_soon() {
        const NOW: i64 = 1_700_000_000;
        let seen = |left: i64| {
            let now = OffsetDateTime::from_unix_timestamp(NOW).unwrap();
            FirstCertificate::from_expiry("/a.crt", NOW + left).unwrap().seen(now)
        };
        for (left, days, soon) in [(-1, -1, true), (0, 0, true), (604_799, 6, true), (604_800, 7, false)] {
            assert_eq!((seen(left).days_left, seen(left).ends_soon()), (days, soon), "{left}");
        }
    }

    #[test]
    fn values_of_another_form_are_no_certificate() {
        for value in
            ["", "kubelet", "2026-12-24 kubelet", "2026-12-24T03:04:05Z ", "2026-12-24T03:04:05Z a\u{1b}[2J"]
        {
            assert_eq!(FirstCertificate::read(value), None, "{value:?}");
        }
        assert_eq!(FirstCertificate::read(&format!("2026-12-24T03:04:05Z {}", "x".repeat(101))), None);
    }

    proptest! {
        #[test]
        fn anything_is_read(value in any::<String>(), expires in any::<i64>(), now in any::<i64>()) {
            let _ = FirstCertificate::read(&value);
            let certificate = FirstCertificate::from_expiry("/a.crt", expires);
            let now = OffsetDateTime::from_unix_timestamp(now).unwrap_or(OffsetDateTime::UNIX_EPOCH);
            let _ = certificate.map(|certificate| certificate.seen(now));
        }
    }
}
