//! One step of a plan: its resource, its stage, and its changes.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, ResourceId};
use crate::static_pod::{is_manifest, name_by_file};

/// The unit of the container runtime. All other parts of a node need the container runtime.
pub const CONTAINER_RUNTIME: &str = "containerd.service";
/// The unit that starts pods. Everything that pods need comes before this unit.
pub const KUBELET: &str = "kubelet.service";

/// A stage of applying a plan, in execution order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    Packages,
    /// Groups and users. The files that they own come in a later stage.
    Users,
    /// File systems. The files on them come in a later stage.
    Mounts,
    /// Kernel modules. The files in a later stage set the modules' parameters.
    Kernel,
    /// Directories, certificates, files, links and `/etc/hosts`.
    Files,
    /// The container runtime, and the units that must start before it.
    Runtime,
    Images,
    /// The files of static pods, one after another: etcd, the API server, then the others. This stage comes before kubelet's stage,
    /// because kubelet must not be newer than the API server (Kubernetes' version skew policy). The present kubelet runs the changed
    /// pods.
    Pods,
    /// All other units, in start order. kubelet is the last unit.
    Services,
    /// Removals of resources that the agent made earlier and that are no longer desired. Drop-ins of units are removed in the files stage.
    Removals,
}

impl Stage {
    pub const ALL: [Stage; 10] = [
        Stage::Packages,
        Stage::Users,
        Stage::Mounts,
        Stage::Kernel,
        Stage::Files,
        Stage::Runtime,
        Stage::Images,
        Stage::Pods,
        Stage::Services,
        Stage::Removals,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Stage::Packages => "packages",
            Stage::Users => "users",
            Stage::Mounts => "mounts",
            Stage::Files => "files",
            Stage::Kernel => "kernel",
            Stage::Runtime => "runtime",
            Stage::Images => "images",
            Stage::Pods => "pods",
            Stage::Services => "services",
            Stage::Removals => "removals",
        }
    }

    /// The stage of a resource by its kind and name. A unit that must start before the container runtime is moved to [`Stage::Runtime`].
    pub fn from_resource(id: &ResourceId) -> Stage {
        match id.kind {
            Kind::PackageSource | Kind::Package => Stage::Packages,
            Kind::Group | Kind::User => Stage::Users,
            Kind::Mount | Kind::BindMount => Stage::Mounts,
            Kind::File if is_manifest(&id.name) => Stage::Pods,
            Kind::Certificate
            | Kind::Directory
            | Kind::File
            | Kind::Symlink
            | Kind::HostsEntry
            | Kind::Ipv6Prefix => Stage::Files,
            Kind::KernelModule => Stage::Kernel,
            Kind::Image => Stage::Images,
            Kind::Unit if id.name == CONTAINER_RUNTIME => Stage::Runtime,
            Kind::DiscoveryRegistration | Kind::Unit => Stage::Services,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Create the resource, because it is missing.
    Create,
    /// Change the resource, because it exists but differs.
    Change,
    /// Restart the unit or static pod. It exists as desired, but has read stale files.
    Restart,
    /// Remove the resource, because it exists and is no longer desired.
    Remove,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    Set {
        /// The name of the property to set.
        field: String,
        /// The present value. `None` if the resource is missing.
        from: Option<String>,
        to: String,
    },
    Write {
        /// The unified diff from the present text.
        diff: String,
    },
    /// Write bytes that a plan does not show.
    WriteBytes {
        /// SHA-256 of the present content. `None` if no content exists, or if the content is not comparable.
        from: Option<String>,
        /// The new content, described as `sha256 …` or as a member of an archive.
        to: String,
        /// The URL of the download. `None` if the content is not a download.
        url: Option<String>,
    },
    /// Write content that must not be shown, or that exists only while the plan is applied.
    WriteHidden {
        /// The kind of content: `secret`, the user's own text, or the certificate to which the content belongs.
        what: String,
    },
    /// Issue a certificate with a new key.
    Issue {
        /// The reason for issuing the certificate, such as a problem of the present certificate.
        why: String,
        /// Whether the present certificate must be replaced only because of its age.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        renewal: bool,
    },
    /// Replace an object of another type by the resource.
    Replace {
        /// The type of the present object (`a symbolic link`).
        what: String,
    },
    /// Run a command, because the file has changed since the command last ran.
    Run {
        command: Vec<String>,
    },
    /// Make the unit start at boot.
    Enable,
    /// Make the unit not start at boot.
    Disable,
    Remove,
    /// Remove the directory if it is empty.
    RemoveIfEmpty,
    Start,
    Stop,
    Restart {
        /// The resources whose present state the unit or pod has not read. Empty if an earlier run was interrupted before the restart.
        because: Vec<ResourceId>,
    },
}

impl Change {
    pub(super) fn writes(&self) -> bool {
        matches!(self, Change::Write { .. } | Change::WriteBytes { .. } | Change::WriteHidden { .. })
    }

    /// The unit that this change restarts with the command `systemctl restart UNIT`.
    pub(crate) fn unit_restarted_by_command(&self) -> Option<&str> {
        let Change::Run { command } = self else { return None };
        match command.as_slice() {
            [program, verb, unit] if program == "systemctl" && verb == "restart" => Some(unit),
            _ => None,
        }
    }
}

/// A step of a plan: the changes of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub stage: Stage,
    pub resource: ResourceId,
    pub action: Action,
    /// The changes in order. May be empty if creating the resource is enough (`package chrony`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Step {
    /// Whether the step changes the resource's content, not only its owner or mode.
    pub fn changes_content(&self) -> bool {
        self.action == Action::Create || self.writes() || self.changes.iter().any(is_remade)
    }

    pub fn writes(&self) -> bool {
        self.changes.iter().any(Change::writes)
    }

    /// Whether the step starts or restarts a static pod. If the step writes the pod's file, kubelet starts or restarts the pod. Otherwise
    /// the agent restarts it.
    pub fn starts_pod(&self) -> bool {
        self.stage == Stage::Pods
            && self.action != Action::Remove
            && (self.changes_content() || self.restarts())
    }

    /// Whether the step restarts a running static pod. If the step creates the pod's file, the pod does not run yet.
    pub(crate) fn restarts_pod(&self) -> bool {
        self.action != Action::Create && self.starts_pod()
    }

    /// The units and static pods that this step restarts, for display: `kubelet.service`, `static pod kube-apiserver`.
    pub(super) fn restarted(&self) -> Vec<String> {
        let name = &self.resource.name;
        if self.restarts_pod() {
            return vec![format!("static pod {}", name_by_file(name))];
        }
        let by_command = self.changes.iter().filter_map(Change::unit_restarted_by_command);
        self.restarts().then_some(name.as_str()).into_iter().chain(by_command).map(str::to_owned).collect()
    }

    /// Whether the agent itself restarts the unit or the static pod in this step.
    pub fn restarts(&self) -> bool {
        self.changes.iter().any(|change| matches!(change, Change::Restart { .. }))
    }
}

fn is_remade(change: &Change) -> bool {
    match change {
        Change::Issue { .. } | Change::Replace { .. } => true,
        Change::Set { field, .. } => field == "target",
        _ => false,
    }
}
