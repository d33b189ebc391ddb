//! A document that claims a signature (CMS) of Azure's metadata service. An attacker may have written all of it.

#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_cluster::bootstrap::azure_token::{AzureToken, Expected, token};
use kops_agent_cluster::identity::azure::AzureCluster;
use libfuzzer_sys::fuzz_target;

// The documents that `tests/fuzz/run` creates as seeds have these values.
const VM_ID: &str = "5c08b38e-4d57-4c23-ac45-aca61037f084";
const SUBSCRIPTION: &str = "0f3a7e62-0000-4000-8000-000000000001";
const BODY: &[u8] = b"test-body";
const CREATED: i64 = 1_700_000_000;

fuzz_target!(|document: &[u8]| {
    let cluster = AzureCluster {
        name: "c.example.com".into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: "kops-c".into(),
    };
    let resource = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/kops-c/providers/Microsoft.Compute/virtualMachineScaleSets/\
         nodes.c.example.com/virtualMachines/0"
    );
    let expected = Expected { cluster: &cluster, may_be_unsigned: false, now: CREATED };
    let token = token(&resource, &STANDARD.encode(document));
    let read = AzureToken::parse(&token, BODY, &expected).expect("it begins as Azure's");
    let Ok(read) = read else { return };
    let signed = read.signed.expect("an unsigned one is refused");
    assert!(signed.by.others.len() <= 2);
    // Only the owner of the signing key can sign documents with other values.
    if !signed.by.has_signed() {
        return;
    }
    assert_eq!((read.vm_id.as_str(), signed.at), (VM_ID, CREATED));
    assert!(!signed.by.certificate.is_empty());
});
