//! Finds the field of a user's manifest behind a field of a node's configuration.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use kops_agent_spec::{
    Cluster, FileAssetSpec, HookSpec, InstanceGroup, InstanceGroupRole, KubeletConfigSpec,
};

use crate::resolve::{Problem, repeated_taint, taint_problem};

/// A field of a manifest that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Cluster(String),
    Group(String),
}

use Place::{Cluster as InCluster, Group as InGroup};

/// For a problem of a group's node, finds the field of the cluster's or the group's manifest that causes the problem.
pub struct Places<'a> {
    cluster: &'a Cluster,
    group: &'a InstanceGroup,
    is_there: &'a dyn Fn(&Place) -> bool,
    taints: OnceCell<Taints>,
    lists: OnceCell<ListsOfRole>,
}

impl<'a> Places<'a> {
    /// `is_there` returns whether the cluster's or the group's manifest has a field.
    pub fn new(
        cluster: &'a Cluster,
        group: &'a InstanceGroup,
        is_there: &'a dyn Fn(&Place) -> bool,
    ) -> Places<'a> {
        Places { cluster, group, is_there, taints: OnceCell::new(), lists: OnceCell::new() }
    }

    /// The field that has most probably caused this problem. `None` if no field of the manifests can have caused the problem, such as a
    /// problem of a hash or a keyset.
    pub fn find(&self, Problem { field, problem }: &Problem) -> Option<Place> {
        if field.starts_with("KubeletConfig.taints[") {
            let taints = self.taints.get_or_init(|| Taints::new(self.cluster, self.group, self.is_there));
            return taints.place(problem).cloned();
        }
        let lists = || self.lists.get_or_init(|| ListsOfRole::new(self.cluster, self.group));
        possible(field, self.cluster, self.group, lists).into_iter().find(self.is_there)
    }
}

/// The hooks and files of a role. A node's configuration has only the items for its role. So the index of an item may be lower in the
/// configuration than in the manifest.
struct ListsOfRole {
    /// The indices of the group's hooks in the group's manifest, and of the cluster's hooks in the cluster's manifest.
    hooks: [Vec<usize>; 2],
    /// One entry for each file: whether the file is in the group's manifest, and the file's index in that manifest. Files of the group come
    /// before files of the cluster.
    files: Vec<(bool, usize)>,
}

impl ListsOfRole {
    fn new(cluster: &Cluster, group: &InstanceGroup) -> ListsOfRole {
        let role = group.spec.role;
        let hooks = |hooks: &[HookSpec]| {
            let is_of_role = |hook: &HookSpec| hook.roles.is_empty() || hook.roles.contains(&role);
            hooks.iter().enumerate().filter(|(_, hook)| is_of_role(hook)).map(|(index, _)| index).collect()
        };
        let files = |files: &[FileAssetSpec], is_groups: bool| -> Vec<(bool, usize)> {
            let is_of_role = |file: &FileAssetSpec| {
                file.roles.is_empty() || file.roles.iter().any(|name| name == role.name())
            };
            let of_role = files.iter().enumerate().filter(|(_, file)| is_of_role(file));
            of_role.map(|(index, _)| (is_groups, index)).collect()
        };
        ListsOfRole {
            hooks: [hooks(&group.spec.hooks), hooks(&cluster.spec.hooks)],
            files: [files(&group.spec.file_assets, true), files(&cluster.spec.file_assets, false)].concat(),
        }
    }
}

/// The manifest fields that may have caused a problem in `field` of a node's configuration, the most probable field first. The manifests
/// may lack some of these fields.
fn possible<'a>(
    field: &str,
    cluster: &Cluster,
    group: &InstanceGroup,
    lists: impl FnOnce() -> &'a ListsOfRole,
) -> Vec<Place> {
    // In a problem of containerd's configuration file, the field is followed by `: ` and a key of containerd's file.
    let field = field.split(": ").next().unwrap_or_default();
    let end = field.find(['.', '[']).unwrap_or(field.len());
    let (name, rest) = field.split_at(end);
    let role = group.spec.role;
    match name {
        "spec" => vec![InGroup(field.to_owned()), InCluster(field.to_owned())],
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
        "Hooks" => of_hook(rest, lists()).into_iter().collect(),
        "FileAssets" => of_file_asset(rest, lists()).into_iter().collect(),
        "packages" => of_package(rest, cluster).into_iter().collect(),
        "SysctlParameters" => of_sysctl(rest, cluster, group).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn of_both(field: &str) -> Vec<Place> {
    vec![InGroup(field.to_owned()), InCluster(field.to_owned())]
}

/// The places where a kubelet setting can be written. kOps merges the kubelet settings of a group with the cluster's kubelet settings for
/// the group's role.
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

/// The taints in one field of a manifest: the constructor for places in this manifest, the path of the field, and the taints.
type List<'a> = (fn(String) -> Place, &'static str, &'a [String]);

/// Finds the manifest field of each taint. kOps merges and sorts the taints of all manifests, so a taint has different indices in the
/// configuration and in its manifest.
struct Taints {
    /// For the text of each problem, the place of the first taint with this problem.
    of_problem: BTreeMap<String, Place>,
    /// The place of the first wrong taint, or of the first taint if no taint is wrong. `of_problem` lacks a problem if the problem's text
    /// hides the taint. Such a problem gets this place.
    other: Option<Place>,
}

impl Taints {
    fn new(cluster: &Cluster, group: &InstanceGroup, is_there: &dyn Fn(&Place) -> bool) -> Taints {
        let mut of_problem = BTreeMap::new();
        let (mut wrong, mut valid) = (None, None);
        for (in_manifest, field, taints) in lists(cluster, group) {
            for (index, taint) in taints.iter().enumerate() {
                let place = in_manifest(format!("{field}[{index}]"));
                if !is_there(&place) {
                    continue;
                }
                let own = taint_problem(taint);
                let other = if own.is_some() { &mut wrong } else { &mut valid };
                other.get_or_insert_with(|| place.clone());
                for problem in own.into_iter().chain([repeated_taint(taint)]) {
                    let Problem { problem, .. } = Problem::new("", problem);
                    of_problem.entry(problem).or_insert_with(|| place.clone());
                }
            }
        }
        Taints { of_problem, other: wrong.or(valid) }
    }

    fn place(&self, problem: &str) -> Option<&Place> {
        self.of_problem.get(problem).or(self.other.as_ref())
    }
}

fn lists<'a>(cluster: &'a Cluster, group: &'a InstanceGroup) -> [List<'a>; 5] {
    fn taints(kubelet: Option<&KubeletConfigSpec>) -> &[String] {
        kubelet.map_or(&[], |kubelet| kubelet.taints.as_slice())
    }
    let is_control_plane = group.spec.role == InstanceGroupRole::ControlPlane;
    let control_plane = cluster.spec.control_plane_kubelet.as_ref().filter(|_| is_control_plane);
    [
        (InGroup, "spec.taints", &group.spec.taints),
        (InGroup, "spec.kubelet.taints", taints(group.spec.kubelet.as_ref())),
        (InCluster, "spec.masterKubelet.taints", taints(control_plane)),
        (InCluster, "spec.controlPlaneKubelet.taints", taints(control_plane)),
        (InCluster, "spec.kubelet.taints", taints(cluster.spec.kubelet.as_ref())),
    ]
}

fn of_api_server(rest: &str) -> Vec<Place> {
    let rest = rest.trim_start_matches('.');
    if let Some(rest) = rest.strip_prefix("KubeAPIServer") {
        return vec![InCluster(format!("spec.kubeAPIServer{rest}"))];
    }
    if let Some(rest) = rest.strip_prefix("Authentication") {
        // In v1alpha2, the settings of OpenID Connect are fields of `spec.kubeAPIServer` and not of `spec.authentication`.
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

fn index(rest: &str) -> Option<(usize, &str)> {
    let (index, rest) = rest.strip_prefix('[')?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

/// The manifest field of a package in a node's configuration, where the cluster's packages come before the group's packages.
fn of_package(rest: &str, cluster: &Cluster) -> Option<Place> {
    let (index, rest) = index(rest)?;
    Some(match index.checked_sub(cluster.spec.packages.len()) {
        None => InCluster(format!("spec.packages[{index}]{rest}")),
        Some(index) => InGroup(format!("spec.packages[{index}]{rest}")),
    })
}

fn of_hook(rest: &str, lists: &ListsOfRole) -> Option<Place> {
    let (side, rest) = index(rest)?;
    let (nth, rest) = index(rest)?;
    let index = lists.hooks.get(side)?.get(nth)?;
    let field = format!("spec.hooks[{index}]{rest}");
    Some(if side == 0 { InGroup(field) } else { InCluster(field) })
}

fn of_file_asset(rest: &str, lists: &ListsOfRole) -> Option<Place> {
    let (nth, rest) = index(rest)?;
    let (is_groups, index) = lists.files.get(nth)?;
    let field = format!("spec.fileAssets[{index}]{rest}");
    Some(if *is_groups { InGroup(field) } else { InCluster(field) })
}

/// The place of a kernel parameter. A node's configuration has first the group's list of parameters, then the cluster's. kOps writes two
/// lines of its own before each list that is not empty.
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
    use std::cell::Cell;

    use super::*;

    fn first(field: &str, cluster: &str, group: &str) -> Option<Place> {
        let cluster = format!("{{metadata: {{name: c}}, spec: {{cloudProvider: aws, {cluster}}}}}");
        let group = format!("{{metadata: {{name: g}}, spec: {{{group}}}}}");
        let cluster = Cluster::parse(cluster.as_bytes(), "cluster").unwrap();
        let group = InstanceGroup::parse(group.as_bytes(), "group").unwrap();
        place_of(field, "", &cluster, &group)
    }

    /// The place of a problem, if the manifests have all possible fields.
    fn place_of(field: &str, problem: &str, cluster: &Cluster, group: &InstanceGroup) -> Option<Place> {
        Places::new(cluster, group, &|_| true).find(&Problem::new(field, problem))
    }

    fn in_group(field: &str) -> Option<Place> {
        Some(InGroup(field.to_owned()))
    }

    fn in_cluster(field: &str) -> Option<Place> {
        Some(InCluster(field.to_owned()))
    }

    #[test]
    fn problems_in_lists_that_kops_joins_or_shortens_get_their_own_places() {
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

    fn with_taints(role: &str) -> (Cluster, InstanceGroup) {
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
    }

    #[test]
    fn a_wrong_taint_gets_its_own_place() {
        let (cluster, group) = with_taints("Node");
        let place = |problem: &str| place_of("KubeletConfig.taints[0]", problem, &cluster, &group);
        for (taint, first) in [
            ("a=b c:NoSchedule", in_group("spec.taints[1]")),
            ("d=:No", in_group("spec.kubelet.taints[0]")),
            ("e=:No", in_cluster("spec.kubelet.taints[0]")),
        ] {
            assert_eq!(place(&taint_problem(taint).unwrap()), first, "{taint}");
        }
        assert_eq!(place(&repeated_taint("f=:NoSchedule")), in_cluster("spec.kubelet.taints[1]"));
        assert_eq!(place("[***] is no taint"), in_group("spec.taints[1]"));
        // The text of this problem is so long that it is cut.
        let mut long = group.clone();
        long.spec.taints = vec!["a=:No".to_owned(), "x".repeat(5000), "y".repeat(5000)];
        let problem = taint_problem(&"y".repeat(5000)).unwrap();
        assert_eq!(
            place_of("KubeletConfig.taints[0]", &problem, &cluster, &long),
            in_group("spec.taints[2]")
        );
    }

    #[test]
    fn a_taint_has_a_place_only_where_the_manifests_have_it() {
        let found = |role: &str, problem: &str, field: &str| {
            let (cluster, group) = with_taints(role);
            let is_there = |place: &Place| *place == InCluster(field.to_owned());
            Places::new(&cluster, &group, &is_there).find(&Problem::new("KubeletConfig.taints[0]", problem))
        };
        // The version of the API decides which of two fields has the taints of a control plane.
        for field in ["spec.masterKubelet.taints[0]", "spec.controlPlaneKubelet.taints[0]"] {
            for problem in [repeated_taint("m=:NoSchedule"), "[***] is no taint".to_owned()] {
                assert_eq!(found("Master", &problem, field), in_cluster(field));
                assert_eq!(found("Node", &problem, field), None);
            }
        }
    }

    /// A search through all 20,000 taints for each of 20,000 problems would compare 400 million texts.
    #[test]
    fn the_places_of_many_taints_are_found_once() {
        let taints: Vec<String> = (0..20_000).map(|number| format!("{number}=:No")).collect();
        let mut group = InstanceGroup::default();
        group.spec.taints.clone_from(&taints);
        let (cluster, asked) = (Cluster::default(), Cell::new(0));
        let is_there = |_: &Place| {
            asked.set(asked.get() + 1);
            true
        };
        let places = Places::new(&cluster, &group, &is_there);
        for (index, taint) in taints.iter().enumerate() {
            let problem = Problem::new("KubeletConfig.taints[0]", taint_problem(taint).unwrap());
            assert_eq!(places.find(&problem), in_group(&format!("spec.taints[{index}]")));
        }
        assert_eq!(asked.get(), taints.len());
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
        let only = |field: &str, place: &str, role: &str| {
            let is_there = |there: &Place| *there == InCluster(place.to_owned());
            let group = InstanceGroup::parse(format!("{{spec: {{role: {role}}}}}").as_bytes(), "").unwrap();
            Places::new(&Cluster::default(), &group, &is_there).find(&Problem::new(field, ""))
        };
        for (field, place) in [
            ("APIServerConfig.Authentication.oidc.issuerURL", "spec.kubeAPIServer.oidcIssuerURL"),
            ("KubeletConfig.maxPods", "spec.masterKubelet.maxPods"),
        ] {
            assert_eq!(only(field, place, "Master"), in_cluster(place));
        }
        assert_eq!(only("KubeletConfig.maxPods", "spec.masterKubelet.maxPods", "Node"), None);
    }
}
