//! User-data of any kind: a script, a MIME message, gzip, or nonsense.

#![no_main]

use kops_agent_spec::BootConfig;
use kops_agent_spec::go_yaml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|user_data: &[u8]| {
    let Ok(boot) = BootConfig::from_user_data(user_data) else { return };
    let written = go_yaml::to_string(&boot);
    assert_eq!(BootConfig::parse(written.as_bytes(), "kube_env.yaml").as_ref(), Ok(&boot), "{written}");
});
