//! Proves that this machine is the node of its name. A Ready Node of that name is no proof, because a cloud may reuse
//! the name. A kubeconfig alone is no proof either, because an image may be made of a node's disk.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kops_agent_cluster::bootstrap::renewal::{Holder, RenewalRefusal, holder};
use kops_agent_pki::{BACKDATED, PemPair, first_der, kubeconfig};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

/// The kubeconfig with kubelet's certificate, as nodeup and the agent write it (upstream: `nodeup/pkg/model/kubelet.go`).
pub(super) const KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";
/// The file that cloud-init writes once for each instance, before the instance's user-data runs. Its text is `PID: SECONDS`
/// (cloud-init: `consume_data` in `cloudinit/cmd/main.py`, `FileSemaphores` in `cloudinit/helpers.py`).
const FIRST_BOOT: &str = "var/lib/cloud/instance/sem/consume_data";
/// The largest expected difference between this machine's clock and the clock of the machine that signed kubelet's certificate.
const MOST_SKEW: Duration = Duration::hours(1);

/// Why this machine cannot prove that the Node with the machine's name is its own Node.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum NoProof {
    #[error("the files of earlier runs are from another machine")]
    FilesOfAnother,
    #[error("there is no /{KUBECONFIG}")]
    NoKubeconfig,
    #[error("/{KUBECONFIG} cannot be read ({0})")]
    Unreadable(String),
    #[error("/{KUBECONFIG} has no certificate with a matching key")]
    NoCertificate,
    #[error("in /{KUBECONFIG}, {0}")]
    OfNoNode(RenewalRefusal),
    #[error(
        "the certificate of {0} in /{KUBECONFIG} has expired or is not valid yet (check this machine's clock)"
    )]
    NotValid(String),
    #[error("the certificate in /{KUBECONFIG} is of the node {certificate}, and this machine is {machine}")]
    OtherNode {
        certificate: String,
        /// The possible names of this machine's Node.
        machine: String,
    },
    #[error(
        "the certificate in /{KUBECONFIG} is older than this instance, as if the image were made from a \
         node's disk"
    )]
    Older,
}

/// The machine that wrote the files below a root, according to the record of earlier runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftBy {
    /// There is no record, so the machine is unknown.
    #[default]
    Unknown,
    ThisMachine,
    /// This disk is a copy of another node's disk.
    AnotherMachine,
}

/// Where this machine stores kubelet's certificate, and the Node names that the certificate may contain. The certificate proves that this
/// machine is already a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    /// The root of the node's files.
    pub root: PathBuf,
    /// The possible names of this machine's Node.
    pub names: Vec<String>,
    pub left_by: LeftBy,
}

impl Identity {
    /// kubelet's current certificate and key. They prove that the Node with this machine's name belongs to this machine.
    pub(super) fn proof(&self, now: OffsetDateTime) -> Result<PemPair, NoProof> {
        if self.left_by == LeftBy::AnotherMachine {
            return Err(NoProof::FilesOfAnother);
        }
        let Present { pair, holder, begins } = present(&self.root, now)?;
        if !self.names.contains(&holder.node_name) {
            return Err(NoProof::OtherNode {
                certificate: holder.node_name,
                machine: self.names.join(" or "),
            });
        }
        // cloud-init's file with the time of the first boot may be wrong, because cloud-init writes it again after `cloud-init clean`, or
        // while the metadata service is unreachable. So the file is not used if the agent's own record (`left_by`) says that this machine
        // wrote the certificate.
        let is_older = self.left_by != LeftBy::ThisMachine
            && first_boot(&self.root).is_some_and(|first_boot| begins + BACKDATED + MOST_SKEW < first_boot);
        if is_older { Err(NoProof::Older) } else { Ok(pair) }
    }
}

pub(super) struct Present {
    pub pair: PemPair,
    holder: Holder,
    begins: OffsetDateTime,
}

/// Reads kubelet's current certificate. Fails if it is not the certificate of a node, if it is not valid now, or if the kubeconfig lacks
/// the certificate's key.
pub(super) fn present(root: &Path, now: OffsetDateTime) -> Result<Present, NoProof> {
    let text = std::fs::read_to_string(root.join(KUBECONFIG)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => NoProof::NoKubeconfig,
        _ => NoProof::Unreadable(error.to_string()),
    })?;
    let pair = kubeconfig::read(&text).filter(PemPair::has_its_key).ok_or(NoProof::NoCertificate)?;
    let der = first_der(&pair.certificate);
    let holder = holder(der.as_deref()).map_err(NoProof::OfNoNode)?;
    match pair.validity() {
        Some([begins, ends]) if begins <= now && now < ends => Ok(Present { pair, holder, begins }),
        _ => Err(NoProof::NotValid(holder.node_name)),
    }
}

/// The time at which cloud-init first ran on this instance. `None` if unknown.
fn first_boot(root: &Path) -> Option<OffsetDateTime> {
    let text = std::fs::read_to_string(root.join(FIRST_BOOT)).ok()?;
    let (_pid, seconds) = text.split_once(':')?;
    let whole = seconds.trim().split('.').next()?;
    OffsetDateTime::from_unix_timestamp(whole.parse().ok()?).ok()
}
