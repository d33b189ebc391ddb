//! The identity of a resource.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Package,
    PackageSource,
    Group,
    User,
    Mount,
    BindMount,
    Certificate,
    Directory,
    File,
    Symlink,
    HostsEntry,
    KernelModule,
    Ipv6Prefix,
    Image,
    DiscoveryRegistration,
    Unit,
}

impl Kind {
    pub(super) const NAMES: [(Kind, &'static str); 16] = [
        (Kind::Package, "package"),
        (Kind::PackageSource, "package-source"),
        (Kind::Group, "group"),
        (Kind::User, "user"),
        (Kind::Mount, "mount"),
        (Kind::BindMount, "bind-mount"),
        (Kind::Certificate, "certificate"),
        (Kind::Directory, "directory"),
        (Kind::File, "file"),
        (Kind::Symlink, "symlink"),
        (Kind::HostsEntry, "host"),
        (Kind::KernelModule, "kernel-module"),
        (Kind::Ipv6Prefix, "ipv6-prefix"),
        (Kind::Image, "image"),
        (Kind::DiscoveryRegistration, "discovery-registration"),
        (Kind::Unit, "unit"),
    ];

    pub fn is_mount(self) -> bool {
        matches!(self, Kind::Mount | Kind::BindMount)
    }

    /// The name of the kind in plans and messages.
    pub fn name(self) -> &'static str {
        Kind::NAMES.iter().find_map(|(kind, name)| (*kind == self).then_some(*name)).unwrap_or("resource")
    }

    fn from_name(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find_map(|(kind, word)| (*word == name).then_some(*kind))
    }
}

/// The id of a resource: its kind and its name or path, written as `file /etc/hosts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId {
    pub kind: Kind,
    /// The path of a file, directory, link or mount. For all other kinds, the name.
    pub name: String,
}

impl ResourceId {
    pub fn new(kind: Kind, name: impl Into<String>) -> ResourceId {
        ResourceId { kind, name: name.into() }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.name)
    }
}

impl Serialize for ResourceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.split_once(' ')
            .and_then(|(kind, name)| Some(ResourceId::new(Kind::from_name(kind)?, name)))
            .ok_or_else(|| {
                serde::de::Error::custom(format!("{text:?} is not a resource id such as `file /etc/hosts`"))
            })
    }
}
