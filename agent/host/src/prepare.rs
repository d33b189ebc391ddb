//! Does everything that can fail before the first write. It refuses impossible plans and resolves secrets. Then it
//! issues certificates, fetches and verifies all downloads, and tries the programs among them.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_pki::CertificateError;
use kops_agent_plan::diff::{Action, Change, Plan, Step};
use kops_agent_plan::overlap::Machine;
use kops_agent_plan::resource::{
    AssetContent, Content, DesiredState, File, Image, Kind, Resource, ResourceId,
};
use kops_agent_plan::timeline::Work;
use kops_agent_spec::digest::{is_sha256_hex, sha256_hex};
use kops_agent_spec::urls::shown_url;

use crate::assets::{Cache, Downloads, Progress, Ready, Request, Want};
use crate::certs::Certificates;
use crate::contents;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::secrets::Secrets;
use crate::system::commands::Commands;
use crate::trial;

pub(crate) struct Inputs<'a> {
    pub(crate) certificates: Certificates<'a>,
    /// The content of each file to write, except downloads, by path.
    pub(crate) contents: BTreeMap<&'a str, Vec<u8>>,
    /// The keys of package repositories, by URL.
    keys: BTreeMap<&'a str, Vec<u8>>,
    cache: Option<Cache>,
    /// The requests for downloads, by hash.
    downloads: BTreeMap<String, Request>,
    /// The files that were made from downloads, by path.
    ready: BTreeMap<String, Ready>,
    /// The paths of programs that lack a library. A package that the run installs may have the library.
    put_off: BTreeSet<String>,
    /// Why archives of images could not be downloaded, by hash. No files are made from these archives.
    pub(crate) undelivered: BTreeMap<String, Error>,
}

impl Inputs<'_> {
    pub(crate) fn key(&self, url: &str) -> Result<&[u8]> {
        self.keys.get(url).map(Vec::as_slice).ok_or_else(|| gone(url))
    }

    pub(crate) fn open(&self, sha256: &str) -> Result<(std::fs::File, &str)> {
        let request = self.downloads.get(sha256);
        let name = request.map_or("", Request::name);
        let file = match &self.cache {
            Some(cache) => cache.get(sha256, name)?,
            None => None,
        };
        file.map(|(file, _)| (file, name)).ok_or_else(|| gone(name))
    }

    /// The SHA-256 of all files that the run writes, by path. With these values, the run need not read the written files.
    pub(crate) fn written(&self) -> BTreeMap<String, String> {
        let contents = self.contents.iter();
        let mut written: BTreeMap<String, String> =
            contents.map(|(path, bytes)| ((*path).to_owned(), sha256_hex(bytes))).collect();
        written.extend(self.downloaded());
        written
    }

    /// The SHA-256 of the files that were made from downloads, by path.
    pub(crate) fn downloaded(&self) -> impl Iterator<Item = (String, String)> {
        self.ready.iter().map(|(path, ready)| (path.clone(), ready.content.clone()))
    }

    /// Tries again to start the programs that lacked a library. The run has now installed its packages, which may contain the library.
    pub(crate) fn refuse_what_still_does_not_start(&self, commands: &dyn Commands) -> Result<()> {
        let put_off = self.ready.iter().filter(|(path, _)| self.put_off.contains(*path));
        trial::refuse_what_does_not_start(put_off, false, commands).map(drop)
    }

    /// The file for this path, which was made from a download.
    pub(crate) fn ready(&self, path: &str) -> Result<&Ready> {
        self.ready.get(path).ok_or_else(|| gone(path))
    }
}

fn gone(what: &str) -> Error {
    Error::Path {
        doing: "open",
        path: format!("the download of {what}"),
        reason: "it was verified, but is no longer in the cache; run again".into(),
    }
}

/// The inputs of an apply that need no network. [`Preparation::begin`] rejects plans that cannot be applied.
pub(crate) struct Preparation<'a> {
    host: &'a Host,
    desired: &'a DesiredState,
    secrets: &'a dyn Secrets,
    steps: Vec<(&'a Step, &'a Resource)>,
    requests: BTreeMap<String, Request>,
    pub(crate) certificates: Certificates<'a>,
    contents: BTreeMap<&'a str, Vec<u8>>,
}

impl<'a> Preparation<'a> {
    /// Collects the inputs of a plan, and rejects a plan that cannot be applied.
    pub(crate) fn begin(
        host: &'a Host,
        plan: &'a Plan,
        desired: &'a DesiredState,
        secrets: &'a dyn Secrets,
    ) -> Result<Preparation<'a>> {
        let steps: Vec<(&Step, &Resource)> = plan
            .steps
            .iter()
            // A removal needs no input.
            .filter(|step| step.action != Action::Remove)
            .map(|step| Ok((step, find(desired, &step.resource)?)))
            .collect::<Result<_>>()?;
        let mut requests = BTreeMap::new();
        for (step, resource) in &steps {
            refuse_directory_in_the_way(step)?;
            refuse_foreign_number(host, resource)?;
            request_downloads(host, step, resource, &mut requests)?;
        }
        let certificates = Certificates::observe(&host.root, desired, secrets, host.now(), host.extra_hours)?;
        let mut begun =
            Preparation { host, desired, secrets, steps, requests, certificates, contents: BTreeMap::new() };
        // Content that needs a certificate is created after the certificate is issued.
        for file in begun.written_files() {
            if let Some(bytes) = contents::bytes(file, &begun.certificates, secrets)? {
                begun.contents.insert(&file.path, bytes);
            }
        }
        Ok(begun)
    }

    /// The files to write, except downloads.
    fn written_files(&self) -> Vec<&'a File> {
        let written = self.steps.iter().filter_map(|(step, resource)| match resource {
            Resource::File(file) if step.changes_content() && !matches!(file.content, Content::Asset(_)) => {
                Some(file)
            }
            _ => None,
        });
        written.collect()
    }

    /// Issues certificates during the downloads. Calls `tried` when all files are verified and the downloaded programs have started
    /// successfully. Then downloads the images. If the certificates or the downloads fail, the function still waits for the other task, so
    /// that nothing runs in the background.
    pub(crate) async fn finish(
        mut self,
        downloads: &Downloads,
        machine: Machine,
        tried: impl FnOnce(),
        progress: &dyn Progress,
    ) -> Result<Inputs<'a>> {
        let Preparation { host, desired, steps, requests, certificates, .. } = &mut self;
        let fetching = async {
            let files = fetch_files(host, steps, requests, downloads, progress).await;
            host.refuse_other_files(desired)?;
            let files = files?;
            // A working node is only changed after all new programs have started successfully.
            let brings_packages = machine == Machine::NotYetANode
                && steps.iter().any(|(step, _)| step.resource.kind == Kind::Package);
            let put_off = trial::refuse_what_does_not_start(&files.ready, brings_packages, &*host.commands)?;
            tried();
            let undelivered = files.fetch_images(host, requests, downloads, progress).await;
            Ok::<_, Error>((files, put_off, undelivered))
        };
        let (issued, fetched) = tokio::join!(issue(host, steps, certificates), fetching);
        issued?;
        let (Files { keys, cache, ready }, put_off, undelivered) = fetched?;
        for file in self.written_files() {
            if !self.contents.contains_key(file.path.as_str()) {
                self.contents.insert(&file.path, resolve(file, &self.certificates, self.secrets)?);
            }
        }
        let Preparation { certificates, contents, requests, .. } = self;
        Ok(Inputs { certificates, contents, keys, cache, downloads: requests, ready, put_off, undelivered })
    }
}

/// Issues the certificates that steps need. Generating a key is slow, so the function yields to the downloads after each certificate.
async fn issue(host: &Host, steps: &[(&Step, &Resource)], certificates: &mut Certificates<'_>) -> Result<()> {
    let made: Vec<&Step> = steps
        .iter()
        .filter(|(step, _)| step.resource.kind == Kind::Certificate)
        .map(|(step, _)| *step)
        .collect();
    if made.is_empty() {
        return Ok(());
    }
    let _step = host.measure(Work::Other, "certificates");
    for step in made {
        certificates.issue(&step.resource.name)?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

struct Files<'a> {
    keys: BTreeMap<&'a str, Vec<u8>>,
    cache: Option<Cache>,
    ready: BTreeMap<String, Ready>,
}

/// Downloads the files that `steps` need, and the keys of their package repositories.
async fn fetch_files<'a>(
    host: &Host,
    steps: &[(&Step, &'a Resource)],
    requests: &BTreeMap<String, Request>,
    downloads: &Downloads,
    progress: &dyn Progress,
) -> Result<Files<'a>> {
    let mut keys = BTreeMap::new();
    for (_, resource) in steps {
        if let Resource::PackageSource(source) = resource {
            keys.insert(source.keyring.as_str(), downloads.document(&source.keyring, progress).await?);
        }
    }
    if requests.is_empty() {
        return Ok(Files { keys, cache: None, ready: BTreeMap::new() });
    }
    let _step = host.measure(Work::Downloads, "downloads");
    let cache = downloads.open_cache(&host.root)?;
    let for_files = requests.values().filter(|request| !request.wants.is_empty()).cloned().collect();
    let ready = downloads.fetch(&host.root, &cache, for_files, progress).await;
    host.note_archives(cache.take_seen())?;
    let ready = ready?.into_iter().map(|ready| (ready.path.clone(), ready)).collect();
    Ok(Files { keys, cache: Some(cache), ready })
}

impl Files<'_> {
    /// Downloads the archives of images. Returns why downloads failed, by hash.
    async fn fetch_images(
        &self,
        host: &Host,
        requests: &BTreeMap<String, Request>,
        downloads: &Downloads,
        progress: &dyn Progress,
    ) -> BTreeMap<String, Error> {
        let for_images: Vec<Request> =
            requests.values().filter(|request| request.wants.is_empty()).cloned().collect();
        let Some(cache) = self.cache.as_ref().filter(|_| !for_images.is_empty()) else {
            return BTreeMap::new();
        };
        let _step = host.measure(Work::Downloads, "downloads of images");
        downloads.fetch_each(&host.root, cache, for_images, progress).await
    }
}

/// The desired resource of a step.
pub(crate) fn find<'a>(desired: &'a DesiredState, id: &ResourceId) -> Result<&'a Resource> {
    desired.get(id).ok_or_else(|| Error::Invalid {
        id: id.clone(),
        reason: "the plan has it, but the desired state does not: they are not of the same run".into(),
    })
}

fn refuse_directory_in_the_way(step: &Step) -> Result<()> {
    let is_in_the_way = |change: &Change| matches!(change, Change::Replace { what } if what == "a directory");
    match step.changes.iter().find(|change| is_in_the_way(change)) {
        Some(_) => Err(Error::Invalid {
            id: step.resource.clone(),
            reason: "a directory is in its place; move it away".into(),
        }),
        None => Ok(()),
    }
}

/// Rejects a UID or GID that already belongs to another user or group, because both would share files.
fn refuse_foreign_number(host: &Host, resource: &Resource) -> Result<()> {
    let (name, number, owner, kind, program) = match resource {
        Resource::User(user) => {
            (&user.name, user.uid, host.users.user_of_id(user.uid)?, "uid", "usermod --uid")
        }
        Resource::Group(group) => {
            (&group.name, group.gid, host.users.group_of_id(group.gid)?, "gid", "groupmod --gid")
        }
        _ => return Ok(()),
    };
    match owner.filter(|owner| owner != name) {
        Some(owner) => Err(Error::Invalid {
            id: resource.id(),
            reason: format!(
                "its {kind} {number} belongs to {owner} on this machine; give {owner} another {kind} with \
                 `{program}`, or remove {owner}"
            ),
        }),
        None => Ok(()),
    }
}

fn resolve(file: &File, certificates: &Certificates<'_>, secrets: &dyn Secrets) -> Result<Vec<u8>> {
    contents::bytes(file, certificates, secrets)?.ok_or_else(|| {
        let name = match &file.content {
            Content::Certificate(name) | Content::PrivateKey(name) | Content::Ca(name) => name.clone(),
            Content::Kubeconfig(kubeconfig) => kubeconfig.certificate.clone(),
            _ => file.path.clone(),
        };
        CertificateError::Changed { name }.into()
    })
}

/// Adds the downloads of a step to `requests`. If several resources need one download, it is requested once.
fn request_downloads(
    host: &Host,
    step: &Step,
    resource: &Resource,
    requests: &mut BTreeMap<String, Request>,
) -> Result<()> {
    match resource {
        Resource::File(file @ File { content: Content::Asset(asset), .. }) if step.changes_content() => {
            let sha256 = known_hash(step, asset)?;
            let urls: Vec<String> = std::iter::once(&asset.url).chain(&asset.mirrors).cloned().collect();
            let request = add(requests, &step.resource, sha256, &urls)?;
            request.wants.push(Want {
                path: file.path.clone(),
                member: asset.member.clone(),
                mode: file.mode.0,
                // A user that does not exist yet has no UID.
                owner: host.owner_ids(file).unwrap_or_default(),
            });
            Ok(())
        }
        Resource::Image(Image { sources, sha256, .. }) if !sources.is_empty() => {
            if sha256.is_empty() {
                return Err(unknown_hash(step, &sources[0]));
            }
            add(requests, &step.resource, sha256, sources).map(drop)
        }
        _ => Ok(()),
    }
}

fn add<'r>(
    requests: &'r mut BTreeMap<String, Request>,
    id: &ResourceId,
    sha256: &str,
    urls: &[String],
) -> Result<&'r mut Request> {
    if !is_sha256_hex(sha256) {
        let reason = format!("{sha256:?} is not a SHA-256 of 64 lower-case hexadecimal digits");
        return Err(Error::Invalid { id: id.clone(), reason });
    }
    let request = requests.entry(sha256.to_owned()).or_insert_with(|| Request {
        sha256: sha256.to_owned(),
        urls: vec![],
        wants: vec![],
    });
    for url in urls {
        if !request.urls.contains(url) {
            request.urls.push(url.clone());
        }
    }
    Ok(request)
}

/// The hashes of all downloads that this state may need.
pub(crate) fn hashes_of(desired: &DesiredState) -> BTreeSet<&str> {
    let resources = desired.iter().map(|(_, resource)| resource);
    resources
        .filter_map(|resource| match resource {
            Resource::File(File { content: Content::Asset(asset), .. }) => asset.sha256.as_deref(),
            Resource::Image(Image { sha256, .. }) => Some(sha256.as_str()).filter(|hash| !hash.is_empty()),
            _ => None,
        })
        .collect()
}

/// The hash of an asset. Fails if the hash is unknown, because the asset could not be verified.
pub(crate) fn known_hash<'a>(step: &Step, asset: &'a AssetContent) -> Result<&'a str> {
    asset.sha256.as_deref().ok_or_else(|| unknown_hash(step, &asset.url))
}

fn unknown_hash(step: &Step, url: &str) -> Error {
    Error::Invalid {
        id: step.resource.clone(),
        reason: format!(
            "the hash of {} is unknown, and kops-agent installs nothing unverified",
            shown_url(url)
        ),
    }
}
