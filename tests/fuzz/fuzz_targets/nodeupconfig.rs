//! A nodeupconfig.yaml. Writing a parsed file and reading it again loses nothing.

#![no_main]

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::go_yaml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let Ok(config) = NodeupConfig::parse(text, "nodeupconfig.yaml") else { return };
    let written = go_yaml::to_string(&config);
    let again = NodeupConfig::parse(written.as_bytes(), "nodeupconfig.yaml");
    let again = again.unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(go_yaml::to_string(&again), written);
});
