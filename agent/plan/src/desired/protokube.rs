//! protokube: a service that spreads a gossip cluster's names to all its nodes. Up to kOps 1.35, it also applies add-ons and labels
//! the control plane. If kops-agent's own service applies add-ons, protokube only runs gossip. In that case, a control plane without
//! gossip has no protokube. protokube has no other task: etcd-manager mounts etcd's volumes.
//!
//! Source: nodeup/pkg/model/protokube.go, protokube/cmd/protokube/main.go and protokube/pkg/protokube/kube_boot.go at v1.34.3, v1.35.2
//! and v1.36.2.

use crate::resolve::{Asset, NodeConfig, Project};
use crate::resource::{Content, DesiredState, File, Kind, Mode, SecretPiece, Unit};
use kops_agent_spec::CloudProvider;

use super::flags::Flags;
use super::kops_channels::{self, AppliedBy};
use super::openstack_cloud_config;
use super::paths::KOPS_CHANNELS_KUBECONFIG;
use super::unit_file::{UnitFile, command_line};

pub const UNIT: &str = "protokube.service";
const PROGRAM: &str = "/opt/kops/bin/protokube";
const CHANNELS: &str = "/opt/kops/bin/channels";
const ENVIRONMENT: &str = "/etc/sysconfig/protokube";

/// The resources that protokube consists of.
pub(super) const PARTS: [(Kind, &str); 4] =
    [(Kind::Unit, UNIT), (Kind::File, PROGRAM), (Kind::File, CHANNELS), (Kind::File, ENVIRONMENT)];

pub(super) fn add(node: &NodeConfig, by: AppliedBy, state: &mut DesiredState) {
    let Some(protokube) = &node.protokube else { return };
    let channels = protokube.channels.as_ref().filter(|_| by == AppliedBy::Kops);
    if channels.is_none() && !node.uses_gossip() {
        return;
    }
    state.add(File::new(PROGRAM, protokube.program.content()).mode(Mode::EXECUTABLE));
    let mut read_at_start = vec![PROGRAM.to_owned(), ENVIRONMENT.to_owned()];
    if let Some(channels) = channels {
        state.add(File::new(CHANNELS, channels.content()).mode(Mode::EXECUTABLE));
        if node.is_control_plane() {
            kops_channels::add_kubeconfig(node, "root", state);
            read_at_start.push(KOPS_CHANNELS_KUBECONFIG.to_owned());
        }
    }
    // The file can contain credentials. Only systemd reads it, as root.
    state.add(File::new(ENVIRONMENT, Content::SecretText(environment(node, channels))).mode(Mode::PRIVATE));
    let unit = UnitFile::default()
        .set("Unit", "Description", "Kubernetes Protokube Service")
        .set("Unit", "Documentation", "https://kops.sigs.k8s.io")
        .set("Service", "ExecStart", format!("{PROGRAM} {}", command_line(&flags(node, channels))))
        .set("Service", "EnvironmentFile", ENVIRONMENT)
        .set("Service", "Restart", "always")
        .set("Service", "RestartSec", "3s")
        .set("Service", "StartLimitInterval", "0")
        .set("Install", "WantedBy", "multi-user.target");
    state.add(Unit::new(UNIT, unit.render()).restarted_by_files(read_at_start));
}

/// protokube's flags. `channels` is the program that applies add-ons. `None` if protokube applies no add-ons.
fn flags(node: &NodeConfig, channels: Option<&Asset>) -> Vec<String> {
    let config = &node.config;
    let mut flags = Flags::default();
    flags.set("cloud", node.cloud_provider().id());
    flags.set("containerized", &false);
    flags.set("v", &4);
    if node.uses_gossip() {
        flags.set("gossip", &true);
        if let Some(gossip) = &config.gossip_config {
            flags.set("gossip-protocol", &gossip.protocol);
            flags.set("gossip-listen", &gossip.listen);
            flags.set("gossip-secret", &gossip.secret);
            if let Some(secondary) = &gossip.secondary {
                flags.set_even_if_empty("gossip-protocol-secondary", secondary.protocol.as_deref());
                flags.set("gossip-listen-secondary", &secondary.listen);
                flags.set("gossip-secret-secondary", &secondary.secret);
            }
        }
    }
    if node.release().protokube_applies_addons() {
        add_dns_flags(node, &mut flags);
    }
    if channels.is_some() {
        flags.set("bootstrap-master-node-labels", &true);
        flags.set("channels", &config.channels);
        // With `--master`, protokube waits for the API server, then applies add-ons and sets labels.
        flags.set("master", &node.is_control_plane());
        flags.set("node-name", &node.node_name);
    }
    flags.into_sorted()
}

/// protokube's flags for DNS. protokube no longer publishes names in DNS. But up to kOps 1.35, protokube exits if both `cluster-id` and
/// `dns-internal-suffix` are missing.
fn add_dns_flags(node: &NodeConfig, flags: &mut Flags) {
    let dot = if node.uses_gossip() { "" } else { "." };
    flags.set("cluster-id", node.cluster_name());
    flags.set("dns-internal-suffix", &format!("{dot}internal.{}", node.cluster_name()));
    match node.config.dns_zone.as_str() {
        name if name.contains('.') => flags.set("zone", name),
        "" => {}
        id => flags.set("zone", &format!("*/{id}")),
    }
}

fn environment(node: &NodeConfig, channels: Option<&Asset>) -> Vec<SecretPiece> {
    let mut text = String::new();
    if channels.is_some() {
        text.push_str(&format!("KUBECONFIG={KOPS_CHANNELS_KUBECONFIG}\n"));
    }
    for (name, value) in node.proxy_environment() {
        text.push_str(&format!("{name}={value}\n"));
    }
    if node.distribution.project == Project::Flatcar {
        text.push_str("PATH=/opt/kops/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
    }
    let line =
        |name: &str, given: &str| SecretPiece::EnvironmentLine { name: name.into(), given: given.into() };
    let mut pieces = vec![SecretPiece::Text(text)];
    let account = node.release().passes_on_azures_account().then_some("AZURE_STORAGE_ACCOUNT");
    for name in
        ["AWS_REGION", "GOSSIP_DNS_CONN_LIMIT", "HCLOUD_TOKEN", "OSS_REGION"].into_iter().chain(account)
    {
        pieces.push(line(name, name));
    }
    for name in ["S3_ENDPOINT", "S3_REGION", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"] {
        pieces.push(line(name, "S3_ENDPOINT"));
    }
    match node.cloud_provider() {
        CloudProvider::DigitalOcean => {
            pieces.push(line("DIGITALOCEAN_ACCESS_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN"));
        }
        CloudProvider::Scaleway => {
            for name in ["SCW_ACCESS_KEY", "SCW_SECRET_KEY", "SCW_DEFAULT_PROJECT_ID"] {
                pieces.push(line(name, "SCW_SECRET_KEY"));
            }
        }
        CloudProvider::Openstack => {
            let insecure =
                node.release().knows_insecure_openstack().then_some("KOPS_OS_TLS_INSECURE_SKIP_VERIFY");
            for name in OPENSTACK.into_iter().chain(insecure) {
                pieces.push(line(name, openstack_cloud_config::LOGIN_VARIABLE));
            }
        }
        _ => {}
    }
    pieces
}

/// Environment variables of a login to OpenStack.
const OPENSTACK: [&str; 14] = [
    "OS_TENANT_ID",
    "OS_TENANT_NAME",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_PROJECT_DOMAIN_NAME",
    "OS_PROJECT_DOMAIN_ID",
    "OS_DOMAIN_NAME",
    "OS_DOMAIN_ID",
    "OS_USERNAME",
    "OS_PASSWORD",
    "OS_AUTH_URL",
    "OS_REGION_NAME",
    "OS_APPLICATION_CREDENTIAL_ID",
    "OS_APPLICATION_CREDENTIAL_SECRET",
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use crate::desired::{AddonsService, Services, desired_with};
    use crate::resolve::testing::control_plane;
    use crate::resource::ResourceId;
    use kops_agent_cluster::addons::AddonSettings;

    use super::*;

    const BOOTSTRAP: &str = "s3://clusters/c.example.com/addons/bootstrap-channel.yaml";
    const UNIT: (Kind, &str) = (Kind::Unit, "protokube.service");
    const POD: (Kind, &str) = (Kind::File, "/etc/kubernetes/manifests/kops-channels.manifest");

    /// A control plane that kOps of this version configures.
    fn of_kops(version: &str, uses_gossip: bool) -> NodeConfig {
        control_plane(|inputs| {
            inputs.config.uses_legacy_gossip = Some(uses_gossip);
            let url = |name| format!("https://artifacts.k8s.io/binaries/kops/{version}/linux/amd64/{name}");
            let assets = inputs.config.assets.values_mut().next().unwrap();
            assets.push(url("protokube"));
            if version < "1.36" {
                assets.push(url("channels"));
                inputs.config.channels = vec![BOOTSTRAP.into(), "s3://b/mine.yaml".into()];
                inputs.config.channels_manifest.clear();
            }
        })
    }

    fn state(node: &NodeConfig, has_service: bool) -> DesiredState {
        let settings = AddonSettings::of_protokube(&[BOOTSTRAP.into()], &node.node_name).unwrap();
        let service = AddonsService { settings, program: "/opt/agent".into() };
        let addons = has_service.then_some(&service);
        desired_with(node, Services { addons, ..Services::default() }).unwrap()
    }

    fn get(state: &DesiredState, (kind, name): (Kind, &str)) -> Option<Value> {
        state.get(&ResourceId::new(kind, name)).map(|found| serde_json::to_value(found).unwrap())
    }

    fn flags(state: &DesiredState) -> Vec<String> {
        let unit = get(state, UNIT).unwrap();
        let line = unit["text"].as_str().unwrap().lines().find_map(|line| line.strip_prefix("ExecStart="));
        line.unwrap().split(' ').skip(1).map(str::to_owned).collect()
    }

    fn has_variable(state: &DesiredState, name: &str) -> bool {
        get(state, (Kind::File, ENVIRONMENT)).unwrap().to_string().contains(name)
    }

    #[test]
    fn with_the_add_ons_service_protokube_only_runs_gossip() {
        for version in ["1.34.3", "1.35.2"] {
            let node = of_kops(version, true);
            let before = state(&node, false);
            let channels = format!("--channels={BOOTSTRAP},s3://b/mine.yaml");
            for flag in [channels.as_str(), "--bootstrap-master-node-labels=true", "--master=true"] {
                assert!(flags(&before).iter().any(|found| found == flag), "{flag}: {:?}", flags(&before));
            }
            assert!(has_variable(&before, "KUBECONFIG"));

            let after = state(&node, true);
            let kept = [
                "--cloud=metal",
                "--cluster-id=c.example.com",
                "--containerized=false",
                "--dns-internal-suffix=internal.c.example.com",
                "--gossip=true",
                "--v=4",
            ];
            assert_eq!(flags(&after), kept, "{version}");
            assert!(!has_variable(&after, "KUBECONFIG"));
            assert_eq!(get(&after, (Kind::File, CHANNELS)), None);
            assert_eq!(get(&after, (Kind::File, PROGRAM)), get(&before, (Kind::File, PROGRAM)));
        }
    }

    #[test]
    fn with_the_add_ons_service_a_control_plane_without_gossip_has_no_protokube() {
        for version in ["1.34.3", "1.35.2"] {
            let node = of_kops(version, false);
            let (before, after) = (state(&node, false), state(&node, true));
            for id in PARTS {
                assert!(get(&before, id).is_some() && get(&after, id).is_none(), "{version}: {id:?}");
            }
            let owner = |state: &DesiredState| {
                get(state, (Kind::File, KOPS_CHANNELS_KUBECONFIG)).unwrap()["owner"].clone()
            };
            assert_eq!([owner(&before), owner(&after)], [json!("root"), json!("kops-channels")]);
            let user = (Kind::User, "kops-channels");
            assert!(get(&before, user).is_none() && get(&after, user).is_some());
            let unit = (Kind::Unit, crate::desired::ADDONS_UNIT);
            assert!(get(&before, unit).is_none() && get(&after, unit).is_some());
        }
    }

    #[test]
    fn only_protokube_of_1_34_gets_azures_storage_account() {
        for (version, is_told) in [("1.34.3", true), ("1.35.2", false), ("1.36.2", false)] {
            let state = state(&of_kops(version, true), false);
            assert_eq!(has_variable(&state, "AZURE_STORAGE_ACCOUNT"), is_told, "{version}");
        }
    }

    #[test]
    fn the_add_ons_service_does_not_change_protokube_of_1_36() {
        let node = of_kops("1.36.2", true);
        let (before, after) = (state(&node, false), state(&node, true));
        for id in PARTS {
            assert_eq!(get(&before, id), get(&after, id));
        }
        assert_eq!(flags(&after), ["--cloud=metal", "--containerized=false", "--gossip=true", "--v=4"]);
        assert!(get(&before, POD).is_some() && get(&after, POD).is_none());
    }
}
