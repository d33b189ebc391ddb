//! A keyset.yaml: keys in base64, certificates in PEM and DER.

#![no_main]

use kops_agent_spec::Keyset;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(keyset) = Keyset::parse(text, "keyset.yaml") else { return };
    let _ = keyset.primary();
    let _ = keyset.trusted_certificates_pem();
    let _ = keyset.public_keys_pem();
    for item in keyset.items() {
        assert!(keyset.item(&item.id).is_some());
        // Debug output must not panic. This output never contains the key.
        let _ = format!("{item:?}");
    }
});
