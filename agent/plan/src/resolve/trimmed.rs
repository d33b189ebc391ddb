//! Trims whitespace around values that upstream trims when it uses them. Users write such a value as a YAML block, which ends
//! with a line break.
//!
//! Sources: `isValidExecContainerAction` in nodeup/pkg/model/hooks.go, `parseKeyValueList` in nodeup/pkg/model/kubelet.go, `IssueCert` in
//! pkg/pki/issue.go. For kOps before 1.36, the trimming does not change kubelet's flags, because systemd splits the flags at whitespace.

use kops_agent_spec::NodeupConfig;

pub(super) fn trim(config: &mut NodeupConfig) {
    for container in config.hooks.iter_mut().flatten().filter_map(|hook| hook.exec_container.as_mut()) {
        trim_each([&mut container.image]);
    }
    let kubelet = &mut config.kubelet_config;
    let lists = [
        &mut kubelet.eviction_soft,
        &mut kubelet.eviction_soft_grace_period,
        &mut kubelet.eviction_minimum_reclaim,
    ];
    for list in lists.into_iter().chain(kubelet.eviction_hard.as_mut()) {
        *list = list.split(',').map(str::trim).collect::<Vec<_>>().join(",");
    }
    if let Some(api_server) = &mut config.api_server_config {
        trim_each(&mut api_server.api.additional_sans);
    }
    trim_each(&mut config.apiserver_additional_ips);
}

fn trim_each<'a>(texts: impl IntoIterator<Item = &'a mut String>) {
    for text in texts {
        *text = text.trim().to_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_yaml_blocks_are_trimmed_as_upstream_trims_them() {
        let text = "KubeletConfig:\n  evictionHard: |\n    memory.available<100Mi,\n    nodefs.available<10%\n\
                    Hooks:\n- - execContainer:\n      image: |\n        busybox:1\n\
                    APIServerConfig:\n  API:\n    additionalSANs:\n    - |\n      api.example.com\n";
        let mut config = NodeupConfig::parse(text.as_bytes(), "nodeupconfig.yaml").unwrap();
        trim(&mut config);
        let hook = config.hooks[0][0].exec_container.as_ref().unwrap();
        assert_eq!(hook.image, "busybox:1");
        let hard = config.kubelet_config.eviction_hard.as_deref();
        assert_eq!(hard, Some("memory.available<100Mi,nodefs.available<10%"));
        assert_eq!(config.api_server_config.unwrap().api.additional_sans, ["api.example.com"]);
    }
}
