//! Observes the current state of resources.

mod content;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::thread::{self, ScopedJoinHandle};

use kops_agent_plan::diff::{
    Access, Observed, ObservedContent, ObservedFile, ObservedState, ObservedUnit, OwnedNow, OwnedState,
    Reading,
};
use kops_agent_plan::health;
use kops_agent_plan::resource::{
    DesiredState, Directory, File, HostsEntry, Image, KernelModule, Kind, Mode, Mount, Resource, ResourceId,
    Symlink, Unit,
};
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::failure;

use crate::certs::Certificates;
use crate::contents;
use crate::digests::digest;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::hosts_file;
use crate::places::{boot_text, unit_path, upstreams_unit_path};
use crate::record::{Failure, Record};
use crate::registration;
use crate::root::Entry;
use crate::secrets::Secrets;
use crate::stamps::Stamp;
use crate::system::kernel::boot_file;
use crate::system::systemd::{Rest, UnitState};
use crate::unit_overrides;

impl Host {
    /// The current state of all resources that the last converged run recorded. Changes nothing.
    pub fn owned(&self) -> Result<OwnedState> {
        self.owned_of(&self.record()?)
    }

    /// The current state of all resources in a record.
    pub(crate) fn owned_of(&self, record: &Record) -> Result<OwnedState> {
        let mut owned = record.owned(&self.root, self.deep())?;
        let mounts = record.claims().map(|(id, _)| id).filter(|id| id.kind.is_mount());
        let mounted = self.mounted_among(&mounts.map(|id| id.name.as_str()).collect::<Vec<_>>())?;
        for (id, owned) in owned.iter_mut().filter(|(id, _)| id.kind.is_mount()) {
            if !mounted.contains(&id.name) {
                owned.now = OwnedNow::Gone;
            }
        }
        Ok(owned)
    }

    /// The paths among `paths` on which something is mounted, the innermost first.
    pub(crate) fn mounted_among(&self, paths: &[&str]) -> Result<Vec<String>> {
        let mut mounted = if paths.is_empty() { vec![] } else { self.mounts.below(paths)? };
        mounted.retain(|path| paths.contains(&path.as_str()));
        Ok(mounted)
    }

    /// The record of earlier runs. If the record is unreadable, the result says that the last run failed for this reason.
    pub fn record(&self) -> Result<Record> {
        let mut record = Record::read(&self.root)?;
        if let Some(why) = &record.unreadable {
            record.failure = Some(Failure::new(self.timestamp(), failure::Kind::RecordUnreadable, why));
        }
        Ok(record)
    }

    /// Observes all desired resources. Changes nothing.
    pub fn observe(&self, desired: &DesiredState, secrets: &dyn Secrets) -> Result<ObservedState> {
        let certificates = Certificates::observe(&self.root, desired, secrets, self.now(), self.extra_hours)?;
        let resources = desired.iter().map(|(_, resource)| resource);
        let mut observed = Observer::new(self, &certificates, secrets, resources)?.all()?;
        self.baseline(desired, &mut observed)?;
        Ok(observed)
    }
}

/// The result of a thread. If the thread has panicked, raises its panic.
fn answer<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Observes resources. Queries systemd, the package manager and the container runtime only once each, for all resources.
pub(crate) struct Observer<'a> {
    host: &'a Host,
    certificates: &'a Certificates<'a>,
    secrets: &'a dyn Secrets,
    resources: Vec<&'a Resource>,
    packages: BTreeSet<String>,
    images: BTreeSet<String>,
    units: BTreeMap<&'a str, UnitState>,
    hosts: String,
    record: Record,
    /// The SHA-256 of files that this run has written, by path.
    written: BTreeMap<String, String>,
    /// The last applied state, read on first use.
    applied: OnceCell<Option<DesiredState>>,
    /// The SHA-256 of members of locally available archives, by the archive's SHA-256. Read on first use.
    members: RefCell<BTreeMap<String, BTreeMap<String, String>>>,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(
        host: &'a Host,
        certificates: &'a Certificates<'a>,
        secrets: &'a dyn Secrets,
        resources: impl Iterator<Item = &'a Resource>,
    ) -> Result<Observer<'a>> {
        let resources: Vec<&Resource> = resources.collect();
        let (mut packages, mut units, mut has_images, mut has_hosts) = (vec![], vec![], false, false);
        for resource in &resources {
            match resource {
                Resource::Package(package) => packages.push(package.name.as_str()),
                Resource::Unit(unit) => units.push(unit.name.as_str()),
                Resource::Image(_) => has_images = true,
                Resource::HostsEntry(_) => has_hosts = true,
                _ => {}
            }
        }
        // Run the queries in parallel, because each waits for another program.
        let (states, packages, images) = thread::scope(|scope| {
            let packages = scope.spawn(|| host.packages.installed(&packages));
            let images = has_images.then(|| scope.spawn(|| host.images.references()));
            let states = host.unit_states(&units);
            (states, answer(packages), images.map_or_else(|| Ok(BTreeSet::new()), answer))
        });
        let (states, packages, images) = (states?, packages?, images?);
        let hosts = if has_hosts { host.root.read(hosts_file::PATH)?.unwrap_or_default() } else { vec![] };
        Ok(Observer {
            packages,
            images,
            units: units.into_iter().zip(states).collect(),
            hosts: String::from_utf8_lossy(&hosts).into_owned(),
            record: Record::read(&host.root)?,
            written: BTreeMap::new(),
            applied: OnceCell::new(),
            members: RefCell::default(),
            host,
            certificates,
            secrets,
            resources,
        })
    }

    /// Sets the SHA-256 of files that this run has just written, by path. These files are not read again.
    pub(crate) fn having_written(self, written: BTreeMap<String, String>) -> Observer<'a> {
        Observer { written, ..self }
    }

    pub(crate) fn all(&self) -> Result<ObservedState> {
        let mut state = ObservedState::new();
        for resource in &self.resources {
            if let Some(observed) = self.one(resource)? {
                state.insert(resource.id(), observed);
            }
        }
        Ok(state)
    }

    fn one(&self, resource: &Resource) -> Result<Option<Observed>> {
        let host = self.host;
        let same = |is_there: bool| is_there.then(|| Observed::Resource(resource.clone()));
        let found = |found: Option<Resource>| found.map(Observed::Resource);
        Ok(match resource {
            Resource::Package(package) => same(self.packages.contains(&package.name)),
            Resource::Group(group) => found(host.users.group(&group.name)?.map(Into::into)),
            Resource::User(user) => found(host.users.user(&user.name)?.map(Into::into)),
            Resource::Mount(mount) => found(self.mount(mount)?),
            Resource::BindMount(bind) => found(host.mounts.bound(bind)?.map(Into::into)),
            Resource::Certificate(certificate) => self.certificates.observed(&certificate.name),
            Resource::Directory(directory) => self.directory(directory)?,
            Resource::File(file) => self.file(file)?,
            Resource::Symlink(link) => self.symlink(link)?,
            Resource::HostsEntry(HostsEntry { hostname, .. }) => {
                found(hosts_file::find(&self.hosts, hostname).map(Into::into))
            }
            Resource::KernelModule(module) => same(self.has_module(module)?),
            Resource::Image(image) => same(self.has_image(image)?),
            Resource::Unit(unit) => self.unit(unit)?,
            Resource::PackageSource(source) => found(host.packages.source(source)?.map(Into::into)),
            Resource::Ipv6Prefix(_) => same(host.remote.has_assigned_ipv6_prefix()),
            Resource::DiscoveryRegistration(registration) => {
                let known = Stamp::Remote.read(&host.root, &registration.name)?;
                same(known == Some(registration::digest(registration)))
            }
        })
    }

    fn mount(&self, mount: &Mount) -> Result<Option<Resource>> {
        let Some(found) = self.host.mounts.mounted(mount)? else { return Ok(None) };
        let at_boot = self.host.is_mounted_at_boot(mount)?;
        Ok(Some(Mount { at_boot, ..found }.into()))
    }

    fn directory(&self, directory: &Directory) -> Result<Option<Observed>> {
        let path = &directory.path;
        let Some((above, name)) = self.host.root.parent(path)? else { return Ok(None) };
        let metadata = match above.entry(&name)? {
            None => return Ok(None),
            Some(Entry::Directory(metadata)) => metadata,
            // A link that belongs to root and leads to a directory counts as a directory. If the link belongs to another user, the agent
            // does not manage the link's target.
            Some(entry @ Entry::Symlink(_)) => match self.host.root.reach(path) {
                Ok(Some(dir)) => dir.metadata()?,
                Ok(None) => return Ok(Some(Observed::Other(entry.describe()))),
                Err(Error::ForeignLink { .. }) => {
                    let what = format!(
                        "{} that a user other than root can change; kops-agent does not follow this link: \
                         remove the link by hand",
                        entry.describe()
                    );
                    return Ok(Some(Observed::Other(what)));
                }
                Err(error) => return Err(error),
            },
            Some(entry) => return Ok(Some(Observed::Other(entry.describe()))),
        };
        let (owner, group) = self.host.users.owner_names(path, metadata.uid, metadata.gid)?;
        let found = Directory { path: path.clone(), mode: Mode(metadata.mode), owner, group };
        Ok(Some(Observed::Resource(found.into())))
    }

    fn symlink(&self, link: &Symlink) -> Result<Option<Observed>> {
        let Some((dir, name)) = self.host.root.parent(&link.path)? else { return Ok(None) };
        Ok(dir.entry(&name)?.map(|entry| match entry {
            Entry::Symlink(target) => Observed::Resource(Symlink { target, ..link.clone() }.into()),
            other => Observed::Other(other.describe()),
        }))
    }

    fn file(&self, file: &File) -> Result<Option<Observed>> {
        let unknown = contents::why_unknown(file, self.certificates, self.secrets)?;
        // The programs that read the file need its credentials to start. If these credentials are unknown, a run that would create the file
        // must fail before it writes anything.
        let is_first = self.record.left_sha256(&file.path).is_none();
        let is_missing = is_first && contents::lacks_environment(file, self.secrets);
        let assumed_present = || match is_missing {
            true => None,
            false => unknown.clone().map(|why| self.assumed_present(file, why)),
        };
        let Some((dir, name)) = self.host.root.parent(&file.path)? else { return Ok(assumed_present()) };
        let metadata = match dir.entry(&name)? {
            None => return Ok(assumed_present()),
            Some(Entry::File(metadata)) => metadata,
            Some(other) => return Ok(Some(Observed::Other(other.describe()))),
        };
        let (owner, group) = self.host.users.owner_names(&file.path, metadata.uid, metadata.gid)?;
        let (sha256, content, serves) = match unknown {
            Some(why) if !file.create_only => {
                let found = digest(&dir, &name)?;
                // Use the recorded digest even if someone has edited the file, so that the edit alone causes no restart.
                let is_begun = self.record.begun_sha256(&file.path) == Some(&found);
                let left = self.record.left_sha256(&file.path).filter(|_| !is_begun);
                let left = left.unwrap_or(&found).to_owned();
                let differs = left != found;
                let how = if differs { "its content was changed and cannot be restored now: " } else { "" };
                (left, ObservedContent::Unknown { why: format!("{how}{why}"), differs }, None)
            }
            _ => self.content(file, &dir, &name, metadata)?,
        };
        let commands_ran_for = match file.on_change.as_slice() {
            [] => None,
            // `None` makes the run execute the commands again, which restores their effect.
            commands if self.host.commands.is_undone(commands, &file.path)? => None,
            // On a machine where no run has recorded a resource yet, assume that the program that wrote the file also ran the commands, as
            // nodeup does. Assume it also if the only recorded resources are units that were started before the node's other resources
            // were known.
            _ => Stamp::Commands
                .read(&self.host.root, &file.path)?
                .or_else(|| self.record.is_first_sight().then(|| sha256.clone())),
        };
        let pod_mounted = match health::is_manifest(&file.path) {
            true => self.noted_reading(Stamp::Pod, &file.path)?,
            false => None,
        };
        let access = Access { mode: Mode(metadata.mode), owner, group };
        let free_text = match &content {
            ObservedContent::Text(found) => self.free_text_of(&contents::id(file), found),
            _ => None,
        };
        Ok(Some(Observed::File(ObservedFile {
            access,
            sha256,
            content,
            commands_ran_for,
            serves,
            pod_mounted,
            free_text,
        })))
    }

    /// The recorded digest of the files that a unit or static pod read at its start.
    fn noted_reading(&self, stamp: Stamp, name: &str) -> Result<Option<Reading>> {
        let noted = stamp.read(&self.host.root, name)?;
        Ok(noted.map(|noted| Reading::noted(&noted, self.host.now())))
    }

    /// The assumed state of a missing file that cannot be written now. The state looks as if the file existed, so that the missing file
    /// causes no other change.
    fn assumed_present(&self, file: &File, why: String) -> Observed {
        let sha256 = self.record.left_sha256(&file.path).unwrap_or_default().to_owned();
        let why = format!("it is missing and cannot be written now: {why}");
        Observed::File(ObservedFile {
            access: Access {
                mode: file.mode,
                owner: file.owner.clone(),
                group: file.group.clone().unwrap_or_default(),
            },
            commands_ran_for: Some(sha256.clone()),
            serves: None,
            pod_mounted: None,
            free_text: None,
            sha256,
            content: ObservedContent::Unknown { why, differs: true },
        })
    }

    fn has_module(&self, module: &KernelModule) -> Result<bool> {
        let at_boot = self.host.root.read(&boot_file(&module.name))?;
        let is_named = at_boot.is_some_and(|text| text == boot_text(&module.name).as_bytes())
            && self.host.root.is_for_all_to_read(&boot_file(&module.name))?;
        let kernel = &self.host.kernel;
        Ok(is_named && (kernel.is_loaded(&module.name)? || !kernel.has(&module.name)))
    }

    fn has_image(&self, image: &Image) -> Result<bool> {
        if image.sources.is_empty() {
            return Ok(self.images.contains(&image.name));
        }
        let loaded = Stamp::Image.read(&self.host.root, &image.name)?;
        Ok(loaded.as_deref() == Some(&image.sha256))
    }

    fn unit(&self, unit: &Unit) -> Result<Option<Observed>> {
        let path = unit_path(&self.host.root, &unit.name);
        let text = self.host.root.read(&path)?;
        let digest = text.as_deref().map(sha256_hex);
        let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let Some(state) = self.units.get(unit.name.as_str()) else { return Ok(None) };
        let overridden = unit_overrides::find(&self.host.root, &unit.name)?;
        if !state.is_known && text.is_none() && overridden.is_none() {
            return Ok(None);
        }
        let access = match self.host.root.metadata(&path)? {
            Some(metadata) => {
                let (owner, group) = self.host.users.owner_names(&path, metadata.uid, metadata.gid)?;
                Some(Access { mode: Mode(metadata.mode), owner, group })
            }
            None => None,
        };
        let id = ResourceId::new(Kind::Unit, &unit.name);
        let free_text = text.as_deref().and_then(|text| self.free_text_of(&id, text));
        let edited = digest.is_some_and(|sha256| self.record.is_edited(&id, &sha256));
        let belongs = match unit.text {
            // An unedited file of the agent belongs at upstream's path. A file that an operator has put into `/etc` stays there.
            Some(_) if text.is_some() && !edited && self.record.is_own(&id) => {
                upstreams_unit_path(&self.host.root, &unit.name)
            }
            _ => path.clone(),
        };
        Ok(Some(Observed::Unit(ObservedUnit {
            text,
            edited,
            path,
            belongs,
            access,
            enablement: state.enablement,
            // If a unit must not run and has ended without a failure, it counts as stopped.
            running: state.running && (unit.running || state.rests == Rest::No),
            starting: state.starting,
            stamp: self.noted_reading(Stamp::Unit, &unit.name)?,
            overridden,
            free_text,
        })))
    }
}
