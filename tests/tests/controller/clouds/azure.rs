//! Machines of Azure's scale sets. The metadata service signs their documents, and the bootstrap server calls them back.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::azure::metadata::{Document, MetadataService, metadata};
use kops_agent_tests::azure::{Azure, Machine, resource_id};
use kops_agent_tests::digest::sha256_hex;
use tempfile::NamedTempFile;

use super::{Ground, Lot, METADATA, Running, of_cluster, serve};
use crate::boot_to_label::upstream::now;
use crate::cluster::{CLUSTER, Cluster};

/// The maximum number of machines in a scale set (Azure, "Virtual Machine Scale Sets limits").
const LARGEST_SCALE_SET: u32 = 1000;
/// The number of machines on a page of Azure's lists.
const PAGE: usize = 120;

/// Azure Resource Manager, the metadata services that sign for machines and for liars, and the CAs that hosts trust.
pub struct AzureCloud {
    azure: Azure,
    signing: OnceLock<[Arc<MetadataService>; 2]>,
    authorities: NamedTempFile,
}

impl AzureCloud {
    fn machine(&self, lot: Lot) -> Machine {
        Machine::of_group(CLUSTER, &self.group(lot), &lot.name(), lot.ip())
    }

    fn place(&self, lot: Lot) -> (String, u32) {
        (of_cluster(&self.group(lot)), lot.number % LARGEST_SCALE_SET)
    }

    /// The metadata service that signs for machines, or for liars. The keys are generated only at the first call, because this takes
    /// some time.
    fn signing(&self, for_liar: bool) -> Arc<MetadataService> {
        let make = || [(); 2].map(|()| Arc::new(MetadataService::generate().unwrap()));
        self.signing.get_or_init(make)[usize::from(for_liar)].clone()
    }
}

impl Ground for AzureCloud {
    const NAME: &'static str = "azure";

    fn start() -> AzureCloud {
        let azure = Azure::start().unwrap();
        azure.set_page(PAGE);
        AzureCloud { azure, signing: OnceLock::new(), authorities: NamedTempFile::new().unwrap() }
    }

    fn cluster(&self) -> Cluster {
        fs::write(self.authorities.path(), &self.signing(false).root_pem).unwrap();
        let variables = vec![
            ("AZURE_RESOURCE_MANAGER_ENDPOINT", self.azure.url()),
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", self.azure.url()),
            ("SSL_CERT_FILE", self.authorities.path().display().to_string()),
        ];
        Cluster::start_on(Self::NAME, variables)
    }

    fn create(&self, _cluster: &Cluster, lot: Lot) {
        let (scale_set, number) = self.place(lot);
        self.azure.put(&scale_set, number, self.machine(lot));
    }

    /// A group is a scale set, which is too small for all machines. So machines are spread over several groups.
    fn group(&self, lot: Lot) -> String {
        match lot.number / LARGEST_SCALE_SET {
            0 => "nodes".to_owned(),
            set => format!("nodes-{set}"),
        }
    }

    fn provider_id(&self, lot: Lot) -> String {
        let (scale_set, number) = self.place(lot);
        format!("azure://{}", resource_id(&scale_set, number))
    }

    fn calls(&self, _cluster: &Cluster) -> usize {
        self.azure.calls().len()
    }

    /// One request for the names of scale sets, and one for each page of each scale set.
    fn fewest_calls(nodes: usize) -> usize {
        let (full, rest) = (nodes / LARGEST_SCALE_SET as usize, nodes % LARGEST_SCALE_SET as usize);
        1 + full * (LARGEST_SCALE_SET as usize).div_ceil(PAGE) + rest.div_ceil(PAGE)
    }

    /// No host trusts the metadata service that signs documents for the liar.
    const REFUSED_FOR: &'static str = "WrongSignature";

    const IS_CALLED_BACK: bool = true;

    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String {
        let (scale_set, number) = self.place(lot);
        let vm_id = self.machine(lot).vm_id;
        self.signing(false).token(&scale_set, number, &Document::new(&vm_id, body, now())).unwrap()
    }

    /// Since kOps 1.37, upstream expects a PKCS #7 document as the last word of the token. In kOps 1.35 and 1.36, the last
    /// word is the machine's id. In kOps 1.34, the token has a different format.
    fn check_as_upstream(&self, lot: Lot, token: &str, body: &[u8]) {
        let (scale_set, number) = self.place(lot);
        let vm_id = self.machine(lot).vm_id;
        let words: Vec<&str> = token.split(' ').collect();
        if words == ["x-azure-id", &vm_id, &scale_set, &number.to_string()] {
            return;
        }
        assert_eq!(words[..2], ["x-azure-id", &resource_id(&scale_set, number)]);
        let [_, _, proof] = words[..] else { panic!("{token}") };
        if proof != vm_id {
            let document = STANDARD.decode(proof).unwrap();
            let nonce = &sha256_hex(body)[..32];
            for part in [nonce.as_bytes(), vm_id.as_bytes()] {
                assert!(document.windows(part.len()).any(|window| window == part), "{token}");
            }
        }
    }

    fn serve_metadata(&self, lot: Lot, liar: Option<Ipv4Addr>) -> Running {
        let (scale_set, number) = self.place(lot);
        let signing = self.signing(liar.is_some());
        serve(metadata(signing, &scale_set, number, &self.machine(lot).vm_id), METADATA[0])
    }
}
