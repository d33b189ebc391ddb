//! An InstanceGroup of any version.

#![no_main]

use kops_agent_plan::derive;
use kops_agent_spec::{Cluster, InstanceGroup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let _ = InstanceGroup::ignored_fields(text, "group");
    let Ok(group) = InstanceGroup::parse(text, "group") else { return };
    let _ = derive::needed_files(&Cluster::default(), &group);
});
