//! Instances of Compute Engine. Their TPM signs tokens.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use kops_agent_tests::gce::tpm::{Claim, Tpm};
use kops_agent_tests::gce::{Gce, Instance, PROJECT, ZONE, metadata};
use kops_agent_tests::swtpm::{Swtpm, Template};
use kops_agent_tests::tpm_device::{NAME, TpmDevice};
use serde_json::{Value, json};

use super::{Ground, Lot, METADATA, Running, serve};
use crate::boot_to_label::upstream::{claims, now};
use crate::cluster::{CLUSTER, Cluster};

/// Compute Engine, the managed group of workers, and the TPMs of an instance and of a liar.
pub struct GoogleCloud {
    gce: Gce,
    group: String,
    tpms: OnceLock<[Arc<Swtpm>; 2]>,
    /// The signing key of an instance that runs upstream's nodeup. The test itself makes the tokens of this instance.
    upstreams: OnceLock<Tpm>,
}

impl GoogleCloud {
    fn tpm(&self, is_liar: bool) -> Arc<Swtpm> {
        let start =
            || Swtpm::start_with(Template::Restricted).unwrap().expect("swtpm, which is not installed");
        let tpms = self.tpms.get_or_init(|| [(); 2].map(|()| Arc::new(start())));
        tpms[usize::from(is_liar)].clone()
    }
}

impl Ground for GoogleCloud {
    const NAME: &'static str = "gce";

    fn start() -> GoogleCloud {
        let gce = Gce::start().unwrap();
        let group = gce.put_group(CLUSTER, "nodes");
        GoogleCloud { gce, group, tpms: OnceLock::new(), upstreams: OnceLock::new() }
    }

    fn cluster(&self) -> Cluster {
        Cluster::start_on_gce(&self.gce)
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        let instance = self.gce.create_instance(&self.group, &lot.name());
        let network_ip = lot.address.to_string();
        self.gce.put_instance(&lot.name(), Instance { network_ip, ..instance });
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("gce://{PROJECT}/{ZONE}/{}", lot.name())
    }

    fn calls(&self, _cluster: &Cluster) -> usize {
        self.gce.calls().len()
    }

    /// One request for each page of the group's list, and three single requests: for the region's zones, for the groups
    /// of the only zone, and for the group's template.
    fn fewest_calls(nodes: usize) -> usize {
        nodes.div_ceil(500) + 3
    }

    /// The key of the liar's TPM is not the instance's key.
    const REFUSED_FOR: &'static str = "WrongSignature";
    const DOWNLOADS: &'static [&'static str] = &[
        "/binaries/cloud-provider-gcp/v35.0.0/auth-provider-gcp/linux/amd64/auth-provider-gcp",
        "/binaries/cloud-provider-gcp/v35.0.0/auth-provider-gcp/linux/arm64/auth-provider-gcp",
    ];

    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String {
        let tpm = self.upstreams.get_or_init(|| Tpm::generate().unwrap());
        let signing_key = tpm.public_pem();
        self.gce.change_instance(&lot.name(), |instance| Instance { signing_key, ..instance });
        tpm.token(&Claim::new(&lot.name(), body, now())).unwrap()
    }

    fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]) {
        let claims = claims(token, "x-gce-tpm ", &["gcpProjectID", "zone"], body);
        assert_eq!(
            [&claims["gcpProjectID"], &claims["zone"], &claims["instance"]],
            [PROJECT, ZONE, &lot.name()]
        );
    }

    fn server(&self) -> Value {
        json!({"provider": {"gce": {"projectID": PROJECT, "region": "us-test1", "clusterName": CLUSTER,
                                    "MaxTimeSkew": 300}}})
    }

    fn serve_metadata(&self, lot: Lot, _liar: Option<Ipv4Addr>) -> Running {
        let signing_key = self.tpm(false).public_key(Template::Restricted).unwrap();
        self.gce.change_instance(&lot.name(), |instance| Instance { signing_key, ..instance });
        serve(metadata(&lot.name()), METADATA[0])
    }

    fn equip(&self, root: &Path, is_liar: bool) -> Option<Running> {
        let folder = root.with_extension("tpm");
        fs::create_dir_all(&folder).unwrap();
        let device = TpmDevice::mount(self.tpm(is_liar), &folder).unwrap();
        crate::boot_to_label::machine::bind_as_device(&folder.join(NAME), NAME);
        Some(Box::new(device))
    }
}
