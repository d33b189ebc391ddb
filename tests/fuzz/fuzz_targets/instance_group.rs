//! Reading anything as a InstanceGroup ends in a value or in an error that names its field, never in a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = kops_agent_plan::spec::InstanceGroup::parse(bytes, "fuzz") {
        assert!(!error.to_string().is_empty());
    }
});
