//! Recognizes what upstream's nodeup left on a machine, so that the agent does not repeat correct work.

use std::collections::{BTreeMap, BTreeSet};

use kops_agent_plan::diff::{ObservedContent, meaning};
use kops_agent_plan::resource::{Content, DesiredState, File, Resource};

use crate::assets::{Downloads, Progress, Request, Want, member_digests};
use crate::digests::digest;
use crate::error::Result;
use crate::host::Host;
use crate::root::{Entry, Root};
use crate::stamps::Stamp;

/// The cache in which nodeup keeps its downloads forever (upup/pkg/fi/assetstore.go).
const CACHE: &str = "/var/cache/nodeup";

/// Whether a found text is equivalent to the wanted text.
pub(crate) fn is_as_good(file: &File, found: &[u8], wanted: &[u8]) -> bool {
    let (Ok(found), Ok(wanted)) = (std::str::from_utf8(found), std::str::from_utf8(wanted)) else {
        return false;
    };
    match &file.content {
        Content::Text(_) | Content::SecretText(_) => meaning::is_same_file(&file.path, found, wanted),
        Content::Certificate(_) | Content::PrivateKey(_) => meaning::is_same_pem(found, wanted),
        Content::Ca(_) => meaning::are_same_authorities(found, wanted),
        Content::Kubeconfig(_) => meaning::is_same_kubeconfig(found, wanted),
        Content::Asset(_) | Content::Base64(_) => found == wanted,
    }
}

/// The SHA-256 of archive members, by name. They are read from an archive that the agent or nodeup downloaded earlier. Empty if the archive
/// is missing or corrupt.
pub(crate) fn known_members(
    root: &Root,
    archive: &str,
    members: &BTreeSet<&str>,
) -> Result<BTreeMap<String, String>> {
    let Some(dir) = root.dir(CACHE)? else { return Ok(BTreeMap::new()) };
    let prefixes = [format!("{archive}_"), format!("sha256:{archive}_")];
    for name in dir.names()? {
        let is_whole = !name.ends_with(".part") && !name.ends_with(".part.validator");
        if is_whole
            && prefixes.iter().any(|prefix| name.starts_with(prefix))
            && matches!(dir.entry(&name)?, Some(Entry::File(_)))
        {
            let found = member_digests(dir.open(&name)?, archive, members);
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
    Ok(BTreeMap::new())
}

/// The wanted members of each archive, by the SHA-256 of the archive.
pub(crate) fn members_by_archive<'a>(
    resources: impl Iterator<Item = &'a Resource>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut by_archive: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for resource in resources {
        if let Resource::File(File { content: Content::Asset(asset), .. }) = resource
            && let (Some(sha256), Some(member)) = (&asset.sha256, &asset.member)
        {
            by_archive.entry(sha256).or_default().insert(member);
        }
    }
    by_archive
}

/// The text that the agent stores about an unpacked file (the file's stamp).
pub(crate) fn origin(sha256: &str, archive: &str, member: &str) -> String {
    format!("{sha256} {archive} {member}")
}

/// Parses the stamp of an unpacked file. Returns the archive and the member, if the stamp is about a file with this SHA-256.
pub(crate) fn parse_origin(noted: &str, sha256: &str) -> Option<ObservedContent> {
    let (archive, member) = noted.strip_prefix(sha256)?.strip_prefix(' ')?.split_once(' ')?;
    Some(ObservedContent::Member { archive: archive.into(), member: member.into() })
}

/// A program file, its current SHA-256, and the expected archive and member.
type Program<'a> = (&'a File, String, &'a str, &'a str);

impl Host {
    /// Downloads the archives of installed programs of unknown origin. Records the archive member from which each program comes, so that a
    /// plan recognizes correct programs. Does this only on a machine where no run has recorded a resource yet. Units that were started
    /// before the node's other resources were known do not count as recorded.
    pub async fn recognize_programs(
        &self,
        desired: &DesiredState,
        downloads: &Downloads,
        progress: &dyn Progress,
    ) -> Result<()> {
        if !self.record()?.is_first_sight() {
            return Ok(());
        }
        let present = unknown_programs(&self.root, desired)?;
        let mut requests: BTreeMap<&str, Request> = BTreeMap::new();
        for (file, _, archive, member) in &present {
            let Content::Asset(asset) = &file.content else { continue };
            let request = requests.entry(archive).or_insert_with(|| Request {
                sha256: (*archive).to_owned(),
                urls: std::iter::once(&asset.url).chain(&asset.mirrors).cloned().collect(),
                wants: vec![],
            });
            let (path, member) = (file.path.clone(), Some((*member).to_owned()));
            request.wants.push(Want { path, member, mode: file.mode.0, owner: None });
        }
        if requests.is_empty() {
            return Ok(());
        }
        let cache = downloads.open_cache(&self.root)?;
        let ready = downloads.fetch(&self.root, &cache, requests.into_values().collect(), progress).await;
        self.note_archives(cache.take_seen())?;
        self.refuse_other_files(desired)?;
        for made in &ready? {
            let is_it = |(file, found, ..): &&Program<'_>| file.path == made.path && *found == made.content;
            if let Some((file, found, archive, member)) = present.iter().find(is_it) {
                Stamp::Member.write(&self.root, &file.path, &origin(found, archive, member))?;
            }
        }
        Ok(())
    }
}

/// The installed programs that should come from an archive, and whose origin only a download of the archive can show. Leaves out programs
/// with a recorded origin, and programs whose archive is in the cache.
fn unknown_programs<'a>(root: &Root, desired: &'a DesiredState) -> Result<Vec<Program<'a>>> {
    let by_archive = members_by_archive(desired.iter().map(|(_, resource)| resource));
    let mut known: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for (_, resource) in desired.iter() {
        let Resource::File(file @ File { content: Content::Asset(asset), .. }) = resource else {
            continue;
        };
        let (Some(archive), Some(member)) = (&asset.sha256, &asset.member) else { continue };
        let Some((dir, name)) = root.parent(&file.path)? else { continue };
        if !matches!(dir.entry(&name)?, Some(Entry::File(_)))
            || Stamp::Member.read(root, &file.path)?.is_some()
        {
            continue;
        }
        if !known.contains_key(archive.as_str()) {
            let members = by_archive.get(archive.as_str()).cloned().unwrap_or_default();
            known.insert(archive, known_members(root, archive, &members)?);
        }
        if !known.get(archive.as_str()).is_some_and(|members| members.contains_key(member)) {
            unknown.push((file, digest(&dir, &name)?, archive.as_str(), member.as_str()));
        }
    }
    Ok(unknown)
}
