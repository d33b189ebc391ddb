//! One step of a plan: to what it is done, when, and what.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::{Kind, ResourceId};
use crate::static_pod::{is_manifest, name_by_file};

/// The unit that runs containers: whatever else runs on a node needs it.
pub const CONTAINER_RUNTIME: &str = "containerd.service";
/// The unit that starts pods; everything that pods rely on comes before it.
pub const KUBELET: &str = "kubelet.service";

/// One of the parts into which applying a plan falls, in the order in which they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    Packages,
    /// Groups and users; the files that they own come later.
    Users,
    /// File systems; the files on them come later.
    Mounts,
    /// Kernel modules; the parameters that they bring are set with the files that come later.
    Kernel,
    /// Directories, certificates, files, links and `/etc/hosts`.
    Files,
    /// The container runtime, and the units that come before it.
    Runtime,
    Images,
    /// The files of static pods, one after another: etcd's, the API server's, then the others'. Before kubelet, which
    /// may not be newer than the API server (Kubernetes' version skew policy), and which runs them as it is.
    Pods,
    /// All other units, those first that come before others, kubelet last.
    Services,
    /// What the agent left at an earlier time and is no longer wanted, but for drop-ins of units, which go with the files.
    Removals,
}

impl Stage {
    /// Every stage, in order.
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

    /// The word by which people see the stage.
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

    /// The stage in which a resource is dealt with, unless it is a unit that comes before the container runtime.
    pub fn of(id: &ResourceId) -> Stage {
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

/// Whether a step makes something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// It is not there yet.
    Create,
    /// It is there and differs.
    Change,
    /// It is there as it should be; only what it has read is out of date.
    Restart,
    /// It is there and no longer wanted.
    Remove,
}

/// One thing that a step does to its resource.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Change {
    Set {
        /// The property, by its name in the resource.
        field: String,
        /// Its present value; `None` where the resource is not there yet.
        from: Option<String>,
        to: String,
    },
    Write {
        /// The unified diff from what is there.
        diff: String,
    },
    /// Write bytes that are not shown.
    WriteBytes {
        /// SHA-256 of what is there; `None` where nothing is, or where it is not comparable.
        from: Option<String>,
        /// What is written: `sha256 …`, or a member of an archive.
        to: String,
        /// The URL from which it is downloaded.
        url: Option<String>,
    },
    /// Write content that may not be shown, or that is only made while applying.
    WriteHidden {
        /// What it is: `secret`, or the certificate that it follows.
        what: String,
    },
    /// Issue a certificate with a new key.
    Issue {
        /// Why what is there, if anything, cannot be kept.
        why: String,
        /// Whether that is its age alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        renewal: bool,
    },
    /// Put it in the place of something of another type.
    Replace {
        /// What stands there (`a symbolic link`).
        what: String,
    },
    /// Run a command, because the file has changed since it last ran.
    Run {
        /// The command and its arguments.
        command: Vec<String>,
    },
    /// Let it start at boot.
    Enable,
    /// Keep it from starting at boot.
    Disable,
    Remove,
    /// Take the directory away if nothing is left in it.
    RemoveIfEmpty,
    Start,
    Stop,
    Restart {
        /// The resources whose change it has not seen; empty where an earlier run was interrupted
        /// before it could restart it.
        because: Vec<ResourceId>,
    },
}

impl Change {
    pub(super) fn writes(&self) -> bool {
        matches!(self, Change::Write { .. } | Change::WriteBytes { .. } | Change::WriteHidden { .. })
    }

    /// The unit that `systemctl restart UNIT` restarts once the file has changed.
    pub(crate) fn unit_restarted_by_command(&self) -> Option<&str> {
        let Change::Run { command } = self else { return None };
        match command.as_slice() {
            [program, verb, unit] if program == "systemctl" && verb == "restart" => Some(unit),
            _ => None,
        }
    }
}

/// What is done to one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub stage: Stage,
    pub resource: ResourceId,
    pub action: Action,
    /// What, in order. May be empty where making it says it all (`package chrony`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
}

impl Step {
    /// Whether the resource's content is another afterwards, as opposed to its owner or mode.
    pub fn changes_content(&self) -> bool {
        self.action == Action::Create || self.writes() || self.changes.iter().any(is_remade)
    }

    pub fn writes(&self) -> bool {
        self.changes.iter().any(Change::writes)
    }

    /// Whether a static pod is started, anew or for the first time: by kubelet when its file is written, else by us.
    pub fn starts_pod(&self) -> bool {
        self.stage == Stage::Pods
            && self.action != Action::Remove
            && (self.changes_content() || self.restarts())
    }

    /// Whether a static pod that runs is started anew. A pod whose file is missing does not run.
    pub(crate) fn restarts_pod(&self) -> bool {
        self.action != Action::Create && self.starts_pod()
    }

    /// Whatever this step restarts, for people: `kubelet.service`, `static pod kube-apiserver`.
    pub(super) fn restarted(&self) -> Vec<String> {
        let name = &self.resource.name;
        if self.restarts_pod() {
            return vec![format!("static pod {}", name_by_file(name))];
        }
        let by_command = self.changes.iter().filter_map(Change::unit_restarted_by_command);
        self.restarts().then_some(name.as_str()).into_iter().chain(by_command).map(str::to_owned).collect()
    }

    /// Whether the agent itself restarts a unit or a static pod.
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
