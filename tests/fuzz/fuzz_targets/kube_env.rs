//! Reading anything as a BootConfig ends in a value or in an error that names its field, never in a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = kops_agent_plan::spec::BootConfig::from_user_data(bytes, "fuzz") {
        assert!(!error.to_string().is_empty());
    }
});
