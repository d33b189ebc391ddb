//! The vocabulary for describing a node: every kind of object that the agent manages on a machine, as plain
//! data.
//!
//! [`crate::desired`] builds these descriptions; `agent/host` observes and applies them. Private
//! keys and secrets never appear here as text: a [`Content`] refers to them. Applying a plan
//! resolves the reference against the state store.

mod archive;
mod file;
mod id;
mod mode;
mod state;
mod system;
mod unit;

use serde::{Deserialize, Serialize};

pub use archive::{ArchiveFiles, ArchiveKind};
pub use file::{AssetContent, Content, Directory, File, FreeText, Kubeconfig, SecretPiece, Symlink};
pub use id::{Kind, ResourceId};
pub use kops_agent_spec::certificate::{Certificate, CertificateType, Issuer, Subject};
pub use mode::Mode;
pub use state::{Conflict, DesiredState};
pub use system::{
    BindMount, DiscoveryRegistration, Group, HostsEntry, Image, Ipv6Prefix, KernelModule, Mount, Package,
    PackageSource, User,
};
pub use unit::Unit;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Resource {
    Package(Package),
    PackageSource(PackageSource),
    Group(Group),
    User(User),
    Mount(Mount),
    BindMount(BindMount),
    Certificate(Certificate),
    Directory(Directory),
    File(File),
    Symlink(Symlink),
    HostsEntry(HostsEntry),
    KernelModule(KernelModule),
    #[serde(rename = "IPv6Prefix")]
    Ipv6Prefix(Ipv6Prefix),
    Image(Image),
    DiscoveryRegistration(DiscoveryRegistration),
    Unit(Unit),
}

impl Resource {
    /// A copy of the resource without the marks of free text, so that outputs show the whole text.
    #[must_use]
    pub fn without_free_text(self) -> Resource {
        match self {
            Resource::File(file) => File { free_text: None, ..file }.into(),
            Resource::Unit(unit) => Unit { free_text: None, ..unit }.into(),
            other => other,
        }
    }
}

macro_rules! resources {
    ($($kind:ident.$name:ident),+) => {
        impl Resource {
            pub fn id(&self) -> ResourceId {
                match self {
                    $(Resource::$kind(resource) => ResourceId::new(Kind::$kind, &resource.$name),)+
                }
            }
        }

        $(impl From<$kind> for Resource {
            fn from(value: $kind) -> Resource {
                Resource::$kind(value)
            }
        })+
    };
}

// Each kind of resource, with the field that names a resource of that kind.
resources!(
    Package.name,
    PackageSource.name,
    Group.name,
    User.name,
    Mount.path,
    BindMount.path,
    Certificate.name,
    Directory.path,
    File.path,
    Symlink.path,
    HostsEntry.hostname,
    KernelModule.name,
    Ipv6Prefix.name,
    Image.name,
    DiscoveryRegistration.name,
    Unit.name
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_has_the_json_of_the_conformance_check() {
        let file = File::text("/etc/x", "hello")
            .mode(Mode::PRIVATE)
            .owned_by("u")
            .on_change(&["sysctl", "--system"]);
        assert_eq!(
            serde_json::to_value(Resource::from(file)).unwrap(),
            serde_json::json!({
                "kind": "File", "path": "/etc/x", "mode": "0600", "owner": "u",
                "onChange": [["sysctl", "--system"]], "content": {"text": "hello"},
            })
        );
    }

    #[test]
    fn only_different_resources_of_one_id_conflict() {
        let mut state = DesiredState::default();
        state.add(Directory::new("/a"));
        state.add(Directory::new("/a"));
        assert!(state.clone().checked().is_ok());
        state.add(Directory::new("/a").mode(Mode::PRIVATE));
        assert_eq!(state.checked().unwrap_err(), [Conflict { id: ResourceId::new(Kind::Directory, "/a") }]);
    }

    #[test]
    fn ids_survive_formatting_and_parsing() {
        for (kind, _) in Kind::NAMES {
            let id = ResourceId::new(kind, "/a b");
            let text = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<ResourceId>(&text).unwrap(), id);
        }
    }

    #[test]
    fn modes_outside_the_permission_bits_are_rejected() {
        assert_eq!(Mode::parse("644"), Some(Mode(0o644)));
        assert_eq!(Mode::parse("0644"), Some(Mode(0o644)));
        assert_eq!(Mode::parse("rw-r--r--"), None);
        assert_eq!(Mode::parse("100644"), None);
    }
}
