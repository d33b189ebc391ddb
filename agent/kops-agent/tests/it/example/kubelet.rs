//! The kubeconfig of a kubelet, as nodeup leaves it on a node.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair};
use time::{Duration, OffsetDateTime};

use super::worker::{NODE, kubernetes_ca};

/// The content of a kubelet's certificate, and the age of the instance.
pub struct Kubelet {
    pub organization: &'static str,
    pub user: String,
    /// Time since the certificate was issued. kOps backdates the start of its validity by two days (kops:
    /// `pkg/pki/csr.go`).
    pub age: Duration,
    /// Time from the issue of the certificate to its expiry.
    pub life: Duration,
    pub has_its_key: bool,
    /// Time since cloud-init first ran. `None` without cloud-init.
    pub first_boot: Option<Duration>,
}

impl Kubelet {
    /// The kubelet of the example cluster's worker. Its certificate is as old as the instance.
    pub fn of_worker() -> Kubelet {
        Kubelet {
            organization: "system:nodes",
            user: format!("system:node:{NODE}"),
            age: Duration::days(30),
            life: Duration::days(455),
            has_its_key: true,
            first_boot: Some(Duration::days(30)),
        }
    }

    pub fn write_below(&self, root: &Path) {
        let now = OffsetDateTime::now_utc();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, self.organization);
        params.distinguished_name.push(DnType::CommonName, self.user.as_str());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = now - self.age - Duration::days(2);
        params.not_after = now - self.age + self.life;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &kubernetes_ca().issuer().unwrap()).unwrap().pem();
        let key = if self.has_its_key { key } else { KeyPair::generate().unwrap() };
        let [certificate, key] = [certificate, key.serialize_pem()].map(|pem| STANDARD.encode(pem));
        let user = format!("client-certificate-data: {certificate}\n    client-key-data: {key}\n");
        fs::create_dir_all(root.join("var/lib/kubelet")).unwrap();
        let kubeconfig = format!("users:\n- name: kubelet\n  user:\n    {user}");
        fs::write(root.join("var/lib/kubelet/kubeconfig"), kubeconfig).unwrap();

        let of_instance = root.join("var/lib/cloud/instance/sem");
        if let Some(first_boot) = self.first_boot {
            fs::create_dir_all(&of_instance).unwrap();
            let seconds = (now - first_boot).unix_timestamp();
            fs::write(of_instance.join("consume_data"), format!("812: {seconds}.3141592\n")).unwrap();
        }
    }
}
