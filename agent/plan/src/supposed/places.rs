//! Finds the field of a user's manifest behind a field of a node's configuration.

use kops_agent_spec::{
    Cluster, FileAssetSpec, HookSpec, InstanceGroup, InstanceGroupRole, KubeletConfigSpec,
};

use crate::resolve::{Problem, taint_problem};

/// A field of a manifest that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Cluster(String),
    Group(String),
}

use Place::{Cluster as InCluster, Group as InGroup};

/// The manifest fields that may have caused a problem of a node's configuration, the most probable field first. The manifests may lack some
/// of these fields. Empty if no manifest can have caused the problem, such as a problem of a hash or a keyset.
pub fn places(Problem { field, problem }: &Problem, cluster: &Cluster, group: &InstanceGroup) -> Vec<Place> {
    // In a problem of containerd's configuration file, the field is followed by `: ` and a key of containerd's file.
    let field = field.split(": ").next().unwrap_or_default();
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (name, rest) = field.split_at(end);
    let role = group.spec.role;
    match name {
        "spec" => vec![InGroup(field.to_owned()), InCluster(field.to_owned())],
        "KubeletConfig" if rest.starts_with(".taints[") => of_taint(problem, cluster, group),
        "KubeletConfig" => of_kubelet(rest, role),
        "KubeProxy" => vec![InCluster(format!("spec.kubeProxy{rest}"))],
        "APIServerConfig" => of_api_server(rest),
        "ControlPlaneConfig" => {
            [("KubeControllerManager", "spec.kubeControllerManager"), ("KubeScheduler", "spec.kubeScheduler")]
                .into_iter()
                .filter_map(|(name, field)| {
                    Some(InCluster(format!("{field}{}", rest.strip_prefix('.')?.strip_prefix(name)?)))
                })
                .collect()
        }
        "containerdConfig" => of_both(&format!("spec.containerd{rest}")),
        "NvidiaGPU" => of_both(&format!("spec.containerd.nvidiaGPU{rest}")),
        "GVisor" => vec![InGroup(format!("spec.containerd.gvisor{rest}"))],
        "VolumeMounts" => vec![InGroup(format!("spec.volumeMounts{rest}"))],
        "UpdatePolicy" => of_both("spec.updatePolicy"),
        "KubernetesVersion" => vec![InCluster("spec.kubernetesVersion".to_owned())],
        "ServiceNodePortRange" => vec![InCluster("spec.kubeAPIServer.serviceNodePortRange".to_owned())],
        "ClusterName" => vec![InCluster("metadata.name".to_owned())],
        "Networking" => vec![InCluster(format!("spec.networking{rest}")), InCluster(format!("spec{rest}"))],
        "Openstack" => {
            vec![
                InCluster(format!("spec.cloudConfig.openstack{rest}")),
                InCluster(format!("spec.cloudProvider.openstack{rest}")),
            ]
        }
        "Hooks" => of_hook(rest, cluster, group).into_iter().collect(),
        "FileAssets" => of_file_asset(rest, cluster, group).into_iter().collect(),
        "packages" => of_package(rest, cluster).into_iter().collect(),
        "SysctlParameters" => of_sysctl(rest, cluster, group).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn of_both(field: &str) -> Vec<Place> {
    vec![InGroup(field.to_owned()), InCluster(field.to_owned())]
}

/// kOps merges the kubelet settings of a group with the cluster's kubelet settings for the group's role.
fn of_kubelet(rest: &str, role: InstanceGroupRole) -> Vec<Place> {
    let mut places = vec![InGroup(format!("spec.kubelet{rest}"))];
    if rest.starts_with(".nodeLabels") {
        places.push(InGroup(format!("spec{rest}")));
    }
    if role == InstanceGroupRole::ControlPlane {
        places.extend(
            ["spec.masterKubelet", "spec.controlPlaneKubelet"]
                .map(|kubelet| InCluster(format!("{kubelet}{rest}"))),
        );
    }
    if role != InstanceGroupRole::ControlPlane {
        places.push(InCluster(format!("spec.kubelet{rest}")));
    }
    places
}

/// A list of taints: its manifest, its field, and the taints.
type Taints<'a> = (fn(String) -> Place, &'static str, &'a [String]);

/// kOps merges and sorts the taints of all manifests, so the index of a taint differs from its index in a manifest. The result lists the
/// taint with this problem first, then all other wrong taints, because the problem may hide the taint's text. Valid taints come last.
fn of_taint(problem: &str, cluster: &Cluster, group: &InstanceGroup) -> Vec<Place> {
    fn taints(kubelet: Option<&KubeletConfigSpec>) -> &[String] {
        kubelet.map_or(&[], |kubelet| kubelet.taints.as_slice())
    }
    let is_control_plane = group.spec.role == InstanceGroupRole::ControlPlane;
    let control_plane = cluster.spec.control_plane_kubelet.as_ref().filter(|_| is_control_plane);
    let lists: [Taints<'_>; 5] = [
        (InGroup, "spec.taints", &group.spec.taints),
        (InGroup, "spec.kubelet.taints", taints(group.spec.kubelet.as_ref())),
        (InCluster, "spec.masterKubelet.taints", taints(control_plane)),
        (InCluster, "spec.controlPlaneKubelet.taints", taints(control_plane)),
        (InCluster, "spec.kubelet.taints", taints(cluster.spec.kubelet.as_ref())),
    ];
    let mut found = Vec::new();
    for (place, field, taints) in lists {
        for (index, taint) in taints.iter().enumerate() {
            let own = taint_problem(taint);
            let is_told = own.as_deref() == Some(problem) || problem.starts_with(&format!("{taint:?} has "));
            found.push(((!is_told, own.is_none()), place(format!("{field}[{index}]"))));
        }
    }
    found.sort_by_key(|(is_unlikely, _)| *is_unlikely);
    found.into_iter().map(|(_, place)| place).collect()
}

fn of_api_server(rest: &str) -> Vec<Place> {
    let rest = rest.trim_start_matches('.');
    if let Some(rest) = rest.strip_prefix("KubeAPIServer") {
        return vec![InCluster(format!("spec.kubeAPIServer{rest}"))];
    }
    if let Some(rest) = rest.strip_prefix("Authentication") {
        // In v1alpha2, the settings of OpenID Connect are fields of `spec.kubeAPIServer` instead.
        let flat = rest.strip_prefix(".oidc.").and_then(flat_setting_of_oidc);
        return std::iter::once(InCluster(format!("spec.authentication{rest}"))).chain(flat).collect();
    }
    match rest.strip_prefix("API.") {
        Some("publicName") => {
            vec![InCluster("spec.masterPublicName".to_owned()), InCluster("spec.api.publicName".to_owned())]
        }
        Some(rest) => vec![InCluster(format!("spec.{rest}")), InCluster(format!("spec.api.{rest}"))],
        None => match rest {
            "ClusterDNSDomain" => vec![InCluster("spec.clusterDNSDomain".to_owned())],
            _ => Vec::new(),
        },
    }
}

/// The field of v1alpha2 for a setting of OpenID Connect.
fn flat_setting_of_oidc(setting: &str) -> Option<Place> {
    let end = setting.find(['.', '[']).unwrap_or(setting.len());
    let field = match &setting[..end] {
        "clientID" => "ClientID",
        "groupsClaims" => "GroupsClaim",
        "groupsPrefix" => "GroupsPrefix",
        "issuerURL" => "IssuerURL",
        "requiredClaims" => "RequiredClaim",
        "usernameClaim" => "UsernameClaim",
        "usernamePrefix" => "UsernamePrefix",
        _ => return None,
    };
    Some(InCluster(format!("spec.kubeAPIServer.oidc{field}")))
}

/// The index at the beginning of a path, and the rest.
fn index(rest: &str) -> Option<(usize, &str)> {
    let (index, rest) = rest.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

/// The cluster's packages come before the group's.
fn of_package(rest: &str, cluster: &Cluster) -> Option<Place> {
    let (index, rest) = index(rest)?;
    Some(match index.checked_sub(cluster.spec.packages.len()) {
        None => InCluster(format!("spec.packages[{index}]{rest}")),
        Some(index) => InGroup(format!("spec.packages[{index}]{rest}")),
    })
}

/// Upstream leaves out the hooks of other roles. So a hook may have a lower index in a node's configuration than in its manifest.
fn of_hook(rest: &str, cluster: &Cluster, group: &InstanceGroup) -> Option<Place> {
    let role = group.spec.role;
    let (side, rest) = index(rest)?;
    let (nth, rest) = index(rest)?;
    let is_of_role = |hook: &HookSpec| hook.roles.is_empty() || hook.roles.contains(&role);
    let hooks = if side == 0 { &group.spec.hooks } else { &cluster.spec.hooks };
    let (index, _) = hooks.iter().enumerate().filter(|(_, hook)| is_of_role(hook)).nth(nth)?;
    let field = format!("spec.hooks[{index}]{rest}");
    Some(if side == 0 { InGroup(field) } else { InCluster(field) })
}

/// The group's files come before the cluster's. Files of other roles are left out.
fn of_file_asset(rest: &str, cluster: &Cluster, group: &InstanceGroup) -> Option<Place> {
    let role = group.spec.role.name();
    let (nth, rest) = index(rest)?;
    let is_of_role =
        |file: &FileAssetSpec| file.roles.is_empty() || file.roles.iter().any(|name| name == role);
    let of_group = group.spec.file_assets.iter().enumerate().map(|(index, file)| (true, index, file));
    let of_cluster = cluster.spec.file_assets.iter().enumerate().map(|(index, file)| (false, index, file));
    let (is_groups, index, _) =
        of_group.chain(of_cluster).filter(|(_, _, file)| is_of_role(file)).nth(nth)?;
    let field = format!("spec.fileAssets[{index}]{rest}");
    Some(if is_groups { InGroup(field) } else { InCluster(field) })
}

/// kOps writes two lines before the parameters of the group, and before the parameters of the cluster.
fn of_sysctl(rest: &str, cluster: &Cluster, group: &InstanceGroup) -> Option<Place> {
    const LINES_BEFORE: usize = 2;
    let (mut index, rest) = index(rest)?;
    for (parameters, is_groups) in
        [(&group.spec.sysctl_parameters, true), (&cluster.spec.sysctl_parameters, false)]
    {
        if parameters.is_empty() {
            continue;
        }
        index = index.checked_sub(LINES_BEFORE)?;
        if index < parameters.len() {
            let field = format!("spec.sysctlParameters[{index}]{rest}");
            return Some(if is_groups { InGroup(field) } else { InCluster(field) });
        }
        index -= parameters.len();
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn first(field: &str, cluster: &str, group: &str) -> Option<Place> {
        let cluster = format!("{{metadata: {{name: c}}, spec: {{cloudProvider: aws, {cluster}}}}}");
        let group = format!("{{metadata: {{name: g}}, spec: {{{group}}}}}");
        let cluster = Cluster::parse(cluster.as_bytes(), "cluster").unwrap();
        let group = InstanceGroup::parse(group.as_bytes(), "group").unwrap();
        places(&of(field, ""), &cluster, &group).into_iter().next()
    }

    fn of(field: &str, problem: &str) -> Problem {
        Problem { field: field.to_owned(), problem: problem.to_owned() }
    }

    fn in_group(field: &str) -> Option<Place> {
        Some(InGroup(field.to_owned()))
    }

    fn in_cluster(field: &str) -> Option<Place> {
        Some(InCluster(field.to_owned()))
    }

    #[test]
    fn lists_that_kops_joins_or_shortens_are_told_apart() {
        let cluster = "hooks: [{name: a, roles: [Master]}, {name: b}], packages: [x], sysctlParameters: [c=1], \
                       fileAssets: [{name: c}]";
        let group = "role: Node, hooks: [{name: g}], packages: [y], sysctlParameters: [a=1, b=1], \
                     fileAssets: [{name: a, roles: [Bastion]}, {name: b}]";
        for (field, place) in [
            ("Hooks[0][0].name", in_group("spec.hooks[0].name")),
            ("Hooks[1][0]", in_cluster("spec.hooks[1]")),
            ("packages[0]", in_cluster("spec.packages[0]")),
            ("packages[1]", in_group("spec.packages[0]")),
            ("SysctlParameters[3]", in_group("spec.sysctlParameters[1]")),
            ("SysctlParameters[6]", in_cluster("spec.sysctlParameters[0]")),
            ("FileAssets[0].mode", in_group("spec.fileAssets[1].mode")),
            ("FileAssets[1].path", in_cluster("spec.fileAssets[0].path")),
        ] {
            assert_eq!(first(field, cluster, group), place, "{field}");
        }
    }

    #[test]
    fn a_wrong_taint_is_told_at_its_own_place() {
        let parse = |role: &str| {
            let cluster = "{metadata: {name: c}, spec: {cloudProvider: aws, masterKubelet: {taints: ['m=:NoSchedule']}, \
                           kubelet: {taints: ['e=:No', 'f=:NoSchedule']}}}";
            let group = format!(
                "{{metadata: {{name: g}}, spec: {{role: {role}, taints: ['a=b:NoSchedule', 'a=b c:NoSchedule'], kubelet: \
                 {{taints: ['d=:No']}}}}}}"
            );
            (
                Cluster::parse(cluster.as_bytes(), "c").unwrap(),
                InstanceGroup::parse(group.as_bytes(), "g").unwrap(),
            )
        };
        let (cluster, group) = parse("Node");
        let place = |problem: &str| places(&of("KubeletConfig.taints[0]", problem), &cluster, &group);
        for (taint, first) in [
            ("a=b c:NoSchedule", in_group("spec.taints[1]")),
            ("d=:No", in_group("spec.kubelet.taints[0]")),
            ("e=:No", in_cluster("spec.kubelet.taints[0]")),
        ] {
            assert_eq!(place(&taint_problem(taint).unwrap()).into_iter().next(), first, "{taint}");
        }
        let twice = "\"f=:NoSchedule\" has the same key and effect as another taint; remove one of them";
        assert_eq!(place(twice).into_iter().next(), in_cluster("spec.kubelet.taints[1]"));
        assert_eq!(place("[***] is no taint").into_iter().next(), in_group("spec.taints[1]"));
        assert!(!place("").contains(&InCluster("spec.masterKubelet.taints[0]".to_owned())));
        let (cluster, group) = parse("Master");
        let all = places(&of("KubeletConfig.taints[0]", ""), &cluster, &group);
        assert!(all.contains(&InCluster("spec.masterKubelet.taints[0]".to_owned())), "{all:?}");
    }

    #[test]
    fn a_field_of_a_component_comes_from_its_settings() {
        for (field, place) in [
            ("KubeletConfig.maxPods", in_group("spec.kubelet.maxPods")),
            ("containerdConfig.configAdditions: plugins.x", in_group("spec.containerd.configAdditions")),
            ("APIServerConfig.KubeAPIServer.logFormat", in_cluster("spec.kubeAPIServer.logFormat")),
            ("ControlPlaneConfig.KubeScheduler.qps", in_cluster("spec.kubeScheduler.qps")),
            ("KeypairIDs.kubernetes-ca", None),
            ("os-release", None),
        ] {
            assert_eq!(first(field, "", "role: Node"), place, "{field}");
        }
        let of_oidc = places(
            &of("APIServerConfig.Authentication.oidc.issuerURL", ""),
            &Cluster::default(),
            &InstanceGroup::default(),
        );
        assert!(of_oidc.contains(&InCluster("spec.kubeAPIServer.oidcIssuerURL".to_owned())), "{of_oidc:?}");
        let of_master = places(
            &of("KubeletConfig.maxPods", ""),
            &Cluster::default(),
            &InstanceGroup::parse(b"{spec: {role: Master}}", "").unwrap(),
        );
        assert!(of_master.contains(&InCluster("spec.masterKubelet.maxPods".to_owned())), "{of_master:?}");
    }
}
