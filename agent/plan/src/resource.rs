//! The vocabulary in which a node is described: every kind of thing the agent manages on a machine,
//! as plain data.
//!
//! [`crate::desired`] writes these down, `agent/host` observes and makes them. Private keys and
//! secrets never appear here as text: a [`Content`] refers to them, and whoever applies a plan
//! resolves the reference against the state store.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Unix permission bits, written as four octal digits (`"0644"`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mode(pub u32);

impl Mode {
    /// Readable by all, writable by the owner.
    pub const FILE: Mode = Mode(0o644);
    /// A directory that all may enter, or a program.
    pub const EXECUTABLE: Mode = Mode(0o755);
    /// For the owner's eyes only.
    pub const PRIVATE: Mode = Mode(0o600);

    /// Reads permission bits as kOps and users write them: octal digits, with or without a leading zero.
    pub fn parse(text: &str) -> Option<Mode> {
        let bits = u32::from_str_radix(text, 8).ok()?;
        (bits <= 0o7777).then_some(Mode(bits))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Mode::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not an octal file mode such as 0644"))
        })
    }
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Content {
    /// Text that may be shown to anyone.
    Text(String),
    /// Bytes that may be shown to anyone, in standard base64.
    Base64(String),
    /// A downloaded file, or a member of a downloaded archive.
    Asset(AssetContent),
    /// The PEM certificate of the named [`Certificate`].
    Certificate(String),
    /// The PEM private key of the named [`Certificate`].
    PrivateKey(String),
    /// The PEM certificates of the authority that signs the named [`Certificate`].
    Ca(String),
    /// A kubeconfig that authenticates with the named [`Certificate`].
    Kubeconfig(Kubeconfig),
    /// Text with secrets in it: the pieces one after another.
    SecretText(Vec<SecretPiece>),
}

/// Where a file's bytes come from when they are downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssetContent {
    /// The publisher's URL, or the mirror's where the cluster names one.
    pub url: String,
    /// Lower-case hexadecimal SHA-256 of what the URL serves; `None` as long as only the publisher knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Path inside the archive that the URL serves; `None` where the download is the file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// What a kubeconfig must say; the certificate authority is the certificate's signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kubeconfig {
    /// Name of the client [`Certificate`].
    pub certificate: String,
    /// URL of the API server.
    pub server: String,
}

/// A part of a [`Content::SecretText`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SecretPiece {
    /// Text that is no secret by itself.
    Text(String),
    /// The decoded bytes of `secrets/<name>` in the state store.
    Secret(String),
    /// What kOps put into the agent's environment under the first of these names that is set and not
    /// empty; nothing where none is.
    Environment(Vec<String>),
    /// The PEM private key of one item of a keyset in the state store.
    KeysetPrivateKey {
        /// The keyset's name, as in `pki/private/<keyset>/keyset.yaml`.
        keyset: String,
        /// The item's id.
        id: String,
    },
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// Absolute path on the node.
    pub path: String,
    /// Permission bits.
    pub mode: Mode,
    /// Owning user.
    pub owner: String,
    /// Owning group.
    pub group: String,
    /// Written only where there is no such file yet; what is there stays.
    #[serde(default, skip_serializing_if = "is_false")]
    pub create_only: bool,
    /// Commands to run, in order, after the file has changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_change: Vec<Vec<String>>,
    /// What is in it.
    pub content: Content,
}

impl File {
    /// A file of root's that all may read.
    pub fn new(path: impl Into<String>, content: Content) -> File {
        File {
            path: path.into(),
            mode: Mode::FILE,
            owner: "root".into(),
            group: "root".into(),
            create_only: false,
            on_change: Vec::new(),
            content,
        }
    }

    /// A file of root's that all may read, with this text.
    pub fn text(path: impl Into<String>, text: impl Into<String>) -> File {
        File::new(path, Content::Text(text.into()))
    }

    /// The same file with other permission bits.
    pub fn mode(self, mode: Mode) -> File {
        File { mode, ..self }
    }

    /// The same file owned by `user` and the group of that name.
    pub fn owned_by(self, user: &str) -> File {
        File { owner: user.into(), group: user.into(), ..self }
    }

    /// The same file, written only where none exists.
    pub fn create_only(self) -> File {
        File { create_only: true, ..self }
    }

    /// The same file, with a command to run after it has changed.
    pub fn on_change(mut self, command: &[&str]) -> File {
        self.on_change.push(command.iter().map(|word| (*word).to_owned()).collect());
        self
    }
}

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// Absolute path on the node.
    pub path: String,
    /// Permission bits.
    pub mode: Mode,
    /// Owning user.
    pub owner: String,
    /// Owning group.
    pub group: String,
}

impl Directory {
    /// A directory of root's that all may enter.
    pub fn new(path: impl Into<String>) -> Directory {
        Directory { path: path.into(), mode: Mode::EXECUTABLE, owner: "root".into(), group: "root".into() }
    }

    /// The same directory with other permission bits.
    pub fn mode(self, mode: Mode) -> Directory {
        Directory { mode, ..self }
    }
}

/// A symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symlink {
    /// Absolute path on the node.
    pub path: String,
    /// What it points to.
    pub target: String,
}

/// A systemd unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// The unit's name with its suffix (`kubelet.service`).
    pub name: String,
    /// The unit file; `None` where the distribution brings it and only its state is managed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether it starts at boot.
    pub enabled: bool,
    /// Whether it runs now.
    pub running: bool,
    /// The resources whose change restarts it; the unit's own text is always one of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarted_by: Vec<ResourceId>,
}

impl Unit {
    /// A unit with this text, enabled and running.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Unit {
        Unit { text: Some(text.into()), ..Unit::existing(name) }
    }

    /// A unit that the distribution brings, enabled and running.
    pub fn existing(name: impl Into<String>) -> Unit {
        Unit { name: name.into(), text: None, enabled: true, running: true, restarted_by: Vec::new() }
    }

    /// The same unit, restarted when any of these files changes.
    pub fn restarted_by_files<I: IntoIterator<Item = S>, S: Into<String>>(mut self, paths: I) -> Unit {
        self.restarted_by.extend(paths.into_iter().map(|path| ResourceId::new(Kind::File, path)));
        self
    }
}

/// A package of the distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    /// The package's name, as the distribution's package manager knows it.
    pub name: String,
}

/// A repository from which the package manager installs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageSource {
    /// Name of the source; also of its files under `/etc/apt`.
    pub name: String,
    /// URL of the signing key.
    pub keyring: String,
    /// Lines of the sources list.
    pub sources: Vec<String>,
}

/// A system user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Login name.
    pub name: String,
    /// Numeric id.
    pub uid: u32,
    /// Home directory; empty for none.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// A system group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Numeric id.
    pub gid: u32,
}

/// Who signs a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Issuer {
    /// This machine, with the authority's key from the state store.
    Local,
    /// A control plane's bootstrap server.
    Bootstrap,
}

/// What a certificate may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateType {
    /// To authenticate as a client.
    Client,
    /// To serve.
    Server,
    /// Both.
    ClientServer,
}

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// The user or host the certificate speaks for.
    pub common_name: String,
    /// The groups of that user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub organization: Vec<String>,
}

/// A certificate with its private key. It is no file by itself: files refer to it by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// The name that files use, and, for [`Issuer::Bootstrap`], the name in the bootstrap protocol.
    pub name: String,
    /// The keyset that signs it (`kubernetes-ca`).
    pub signer: String,
    /// The id of the signing item in that keyset; empty where the bootstrap server chooses.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keypair_id: String,
    /// What it may be used for.
    #[serde(rename = "type")]
    pub certificate_type: CertificateType,
    /// Whom it speaks for.
    pub subject: Subject,
    /// Names and addresses it is valid for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sans: Vec<String>,
    /// Who signs it.
    pub issuer: Issuer,
    /// Whether the authority's own certificate follows it in the same file.
    #[serde(default, skip_serializing_if = "is_false")]
    pub include_root: bool,
}

/// A file system on a device of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The block device.
    pub device: String,
    /// Where it is mounted.
    pub path: String,
    /// File system to make on a blank device, and to mount.
    pub filesystem: String,
    /// Options for making the file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub format_options: Vec<String>,
    /// Options for mounting it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mount_options: Vec<String>,
}

/// A directory shown at a second place, with options of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindMount {
    /// The directory shown.
    pub source: String,
    /// Where it is shown.
    pub path: String,
    /// Mount options (`exec`, `nosuid`, `nodev`).
    pub options: Vec<String>,
    /// Whether mounts below come along.
    pub recursive: bool,
}

/// A container image to have on the node before anything needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The reference to pull, or the file name of the archive to load.
    pub name: String,
    /// URLs of an archive to load; empty where the image is pulled from its registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Lower-case hexadecimal SHA-256 of the archive; empty for a pulled image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
}

/// A name that `/etc/hosts` must resolve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostsEntry {
    /// The name.
    pub hostname: String,
    /// Its addresses; none if the name must not be there.
    pub addresses: Vec<String>,
}

/// A kernel module to load now and at every boot. One that the kernel has built in, or lacks, is no failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelModule {
    /// The module's name.
    pub name: String,
    /// The package to install where the kernel lacks the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
}

/// The IPv6 prefix from which this node's pods get their addresses, asked of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ipv6Prefix {
    /// The resource's name; there is one on a node.
    pub name: String,
}

/// A registration of this node's service-account issuer with a discovery service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveryRegistration {
    /// The resource's name.
    pub name: String,
    /// URL of the service.
    pub url: String,
    /// Name of the client [`Certificate`] that registers.
    pub certificate: String,
    /// The object to register, as JSON.
    pub object: String,
}

/// Anything the agent manages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
#[allow(missing_docs)] // Each variant is documented by the type it holds.
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

/// The kinds of [`Resource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Each variant is documented by the type of the same name.
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
    const NAMES: [(Kind, &'static str); 16] = [
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

    /// The word by which people see the kind in plans and messages.
    pub fn name(self) -> &'static str {
        Kind::NAMES.iter().find_map(|(kind, name)| (*kind == self).then_some(*name)).unwrap_or("resource")
    }

    fn from_name(name: &str) -> Option<Kind> {
        Kind::NAMES.iter().find_map(|(kind, word)| (*word == name).then_some(*kind))
    }
}

/// What names a resource: its kind and its name or path; written `file /etc/hosts`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceId {
    /// The kind.
    pub kind: Kind,
    /// The path of a file, directory, link or mount; the name of anything else.
    pub name: String,
}

impl ResourceId {
    /// The id of a resource of this kind and name.
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

impl Resource {
    /// What names this resource.
    pub fn id(&self) -> ResourceId {
        let (kind, name) = match self {
            Resource::Package(x) => (Kind::Package, &x.name),
            Resource::PackageSource(x) => (Kind::PackageSource, &x.name),
            Resource::Group(x) => (Kind::Group, &x.name),
            Resource::User(x) => (Kind::User, &x.name),
            Resource::Mount(x) => (Kind::Mount, &x.path),
            Resource::BindMount(x) => (Kind::BindMount, &x.path),
            Resource::Certificate(x) => (Kind::Certificate, &x.name),
            Resource::Directory(x) => (Kind::Directory, &x.path),
            Resource::File(x) => (Kind::File, &x.path),
            Resource::Symlink(x) => (Kind::Symlink, &x.path),
            Resource::HostsEntry(x) => (Kind::HostsEntry, &x.hostname),
            Resource::KernelModule(x) => (Kind::KernelModule, &x.name),
            Resource::Ipv6Prefix(x) => (Kind::Ipv6Prefix, &x.name),
            Resource::Image(x) => (Kind::Image, &x.name),
            Resource::DiscoveryRegistration(x) => (Kind::DiscoveryRegistration, &x.name),
            Resource::Unit(x) => (Kind::Unit, &x.name),
        };
        ResourceId::new(kind, name)
    }
}

macro_rules! resource_from {
    ($($variant:ident),+) => {
        $(impl From<$variant> for Resource {
            fn from(value: $variant) -> Resource {
                Resource::$variant(value)
            }
        })+
    };
}
resource_from!(
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
    Unit
);

/// Two different descriptions of the same resource: which of them a node would get is chance, so neither is taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{id} is described twice, and differently; a fileAsset or hook may name what kOps itself manages: rename or remove it"
)]
pub struct Conflict {
    /// The resource.
    pub id: ResourceId,
}

/// Everything a node must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredState {
    resources: BTreeMap<ResourceId, Resource>,
    conflicts: Vec<Conflict>,
}

impl DesiredState {
    /// Adds a resource. The same resource twice is fine as long as both say the same; otherwise the
    /// first stays and [`DesiredState::checked`] reports the conflict.
    pub fn add(&mut self, resource: impl Into<Resource>) {
        let resource = resource.into();
        let id = resource.id();
        match self.resources.get(&id) {
            Some(present) if *present != resource => self.conflicts.push(Conflict { id }),
            Some(_) => {}
            None => {
                self.resources.insert(id, resource);
            }
        }
    }

    /// The state, if nothing in it was described twice.
    ///
    /// # Errors
    /// Every conflict, in the order in which it arose.
    pub fn checked(self) -> Result<DesiredState, Vec<Conflict>> {
        if self.conflicts.is_empty() { Ok(self) } else { Err(self.conflicts) }
    }

    /// The resource of this id.
    pub fn get(&self, id: &ResourceId) -> Option<&Resource> {
        self.resources.get(id)
    }

    /// Every resource, ordered by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceId, &Resource)> {
        self.resources.iter()
    }

    /// How many resources there are.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_is_written_as_the_conformance_check_reads_it() {
        let file = File::text("/etc/x", "hello")
            .mode(Mode::PRIVATE)
            .owned_by("u")
            .on_change(&["sysctl", "--system"]);
        assert_eq!(
            serde_json::to_value(Resource::from(file)).unwrap(),
            serde_json::json!({
                "kind": "File", "path": "/etc/x", "mode": "0600", "owner": "u", "group": "u",
                "onChange": [["sysctl", "--system"]], "content": {"text": "hello"},
            })
        );
    }

    #[test]
    fn the_same_resource_twice_is_no_conflict_and_another_of_its_id_is() {
        let mut state = DesiredState::default();
        state.add(Directory::new("/a"));
        state.add(Directory::new("/a"));
        assert!(state.clone().checked().is_ok());
        state.add(Directory::new("/a").mode(Mode::PRIVATE));
        assert_eq!(state.checked().unwrap_err(), [Conflict { id: ResourceId::new(Kind::Directory, "/a") }]);
    }

    #[test]
    fn ids_survive_being_written_and_read() {
        for (kind, _) in Kind::NAMES {
            let id = ResourceId::new(kind, "/a b");
            let text = serde_json::to_string(&id).unwrap();
            assert_eq!(serde_json::from_str::<ResourceId>(&text).unwrap(), id);
        }
    }

    #[test]
    fn modes_outside_the_permission_bits_are_refused() {
        assert_eq!(Mode::parse("644"), Some(Mode(0o644)));
        assert_eq!(Mode::parse("0644"), Some(Mode(0o644)));
        assert_eq!(Mode::parse("rw-r--r--"), None);
        assert_eq!(Mode::parse("100644"), None);
    }
}
