//! A Cluster of any version, and the functions that use it before the agent reads other files.

#![no_main]

use kops_agent_plan::derive;
use kops_agent_spec::{Cluster, InstanceGroup};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let _ = Cluster::ignored_fields(text, "cluster");
    let Ok(cluster) = Cluster::parse(text, "cluster") else { return };
    let _ = cluster.cloud_provider();
    for role in ["ControlPlane", "Node"] {
        let group = format!("{{kind: InstanceGroup, metadata: {{name: g}}, spec: {{role: {role}}}}}");
        let Ok(group) = InstanceGroup::parse(group.as_bytes(), "group") else { return };
        let _ = derive::needed_files(&cluster, &group);
    }
});
