//! Compares the content of a file with the desired content, and finds which part of the text is free text.

use kops_agent_plan::diff::{ObservedContent, Serves};
use kops_agent_plan::resource::{AssetContent, Content, File, FreeText, Resource, ResourceId, Unit};
use kops_agent_spec::digest::sha256_hex;

use super::Observer;
use crate::contents;
use crate::digests::{Depth, digest};
use crate::error::Result;
use crate::recognition;
use crate::root::{Dir, Metadata};
use crate::stamps::Stamp;

/// The maximum size of a text that is compared as text, in bytes. A larger text is compared by its hash, without a diff.
const LARGEST_TEXT: u64 = 1024 * 1024;

impl Observer<'_> {
    pub(super) fn content(
        &self,
        file: &File,
        dir: &Dir,
        name: &str,
        metadata: Metadata,
    ) -> Result<(String, ObservedContent, Option<Serves>)> {
        if file.create_only {
            // The content of a `create_only` file does not matter. It is not read, because it may be a large log.
            return Ok((String::new(), ObservedContent::Bytes, None));
        }
        if matches!(file.content, Content::Text(_)) && metadata.size <= LARGEST_TEXT {
            let bytes = dir.read(name)?;
            let sha256 = sha256_hex(&bytes);
            if let Content::Text(wanted) = &file.content
                && wanted.as_bytes() != bytes
                && recognition::is_as_good(file, &bytes, wanted.as_bytes())
            {
                let serves = Some(Serves { digest: sha256_hex(wanted.as_bytes()), due: None });
                let content = match self.is_edited(file, &sha256) {
                    true => String::from_utf8(bytes).map_or(ObservedContent::Bytes, ObservedContent::Text),
                    false => ObservedContent::Compared { as_desired: true },
                };
                return Ok((sha256, content, serves));
            }
            let text = String::from_utf8(bytes);
            return Ok((sha256, text.map_or(ObservedContent::Bytes, ObservedContent::Text), None));
        }
        let known = self.written.get(&file.path).map(String::as_str);
        let is_touched_enough = self.host.depth == Depth::Touched;
        let known =
            known.or_else(|| self.record.known_sha256(&file.path, &metadata).filter(|_| is_touched_enough));
        let sha256 = match (known, self.host.deep()) {
            (Some(known), _) => known.to_owned(),
            (None, Some(digests)) => digests.digest(&file.path, dir, name, &metadata)?,
            (None, None) => digest(dir, name)?,
        };
        let mut serves = None;
        let content = match &file.content {
            Content::Text(_) | Content::Base64(_) => ObservedContent::Bytes,
            Content::Asset(asset) if asset.member.is_none() => ObservedContent::Bytes,
            Content::Asset(asset) => self.member(&file.path, &sha256, asset)?,
            _ => {
                let as_desired = match contents::bytes(file, self.certificates, self.secrets)? {
                    Some(wanted) if sha256_hex(&wanted) == sha256 => {
                        serves = self.serves(file, &wanted, &wanted);
                        true
                    }
                    Some(wanted) if metadata.size <= LARGEST_TEXT => {
                        let found = dir.read(name)?;
                        serves = self.serves(file, &found, &wanted);
                        self.is_as_good(file, &sha256, &found, &wanted)
                    }
                    _ => false,
                };
                ObservedContent::Compared { as_desired }
            }
        };
        Ok((sha256, content, serves))
    }

    /// Checks whether programs can keep using the found content of a file that is not downloaded, instead of the wanted content. If so,
    /// describes the found content. `None` if programs must read the file again.
    fn serves(&self, file: &File, found: &[u8], wanted: &[u8]) -> Option<Serves> {
        match &file.content {
            Content::SecretText(_) => recognition::is_as_good(file, found, wanted)
                .then(|| Serves { digest: sha256_hex(wanted), due: None }),
            _ => self.certificates.serves(file, found, wanted),
        }
    }

    /// Whether a file can stay because its content is equivalent to the wanted content.
    fn is_as_good(&self, file: &File, sha256: &str, found: &[u8], wanted: &[u8]) -> bool {
        !self.is_edited(file, sha256) && recognition::is_as_good(file, found, wanted)
    }

    /// Whether someone has changed the file since the agent recorded it. An edited file is rewritten, even if its content is equivalent to
    /// the wanted content. `false` for a certificate's file, because another program may have issued the certificate again.
    fn is_edited(&self, file: &File, sha256: &str) -> bool {
        let is_of_certificate = matches!(
            file.content,
            Content::Certificate(_) | Content::PrivateKey(_) | Content::Ca(_) | Content::Kubeconfig(_)
        );
        !is_of_certificate && self.record.is_edited(&contents::id(file), sha256)
    }

    fn member(&self, path: &str, sha256: &str, asset: &AssetContent) -> Result<ObservedContent> {
        let noted = Stamp::Member.read(&self.host.root, path)?;
        if let Some(origin) = noted.as_deref().and_then(|noted| recognition::parse_origin(noted, sha256)) {
            return Ok(origin);
        }
        let (Some(archive), Some(member)) = (&asset.sha256, &asset.member) else {
            return Ok(ObservedContent::Bytes);
        };
        let mut known = self.members.borrow_mut();
        if !known.contains_key(archive) {
            let wanted = recognition::members_by_archive(self.resources.iter().copied());
            let members = wanted.get(archive.as_str()).cloned().unwrap_or_default();
            known.insert(archive.clone(), recognition::known_members(&self.host.root, archive, &members)?);
        }
        let is_it = known.get(archive).and_then(|members| members.get(member)).is_some_and(|is| is == sha256);
        Ok(match is_it {
            true => ObservedContent::Member { archive: archive.clone(), member: member.clone() },
            false => ObservedContent::Bytes,
        })
    }

    /// The part of the text `found` that is free text ([`FreeText`]), according to the last applied state.
    pub(super) fn free_text_of(&self, id: &ResourceId, found: &str) -> Option<FreeText> {
        // Ignore errors, because the result only decides which text is shown to users. Without the last applied state, the caller uses the
        // free text of the desired file.
        let read = || self.host.applied().ok().flatten().map(|applied| applied.desired());
        let (text, free_text) = match self.applied.get_or_init(read).as_ref()?.get(id)? {
            Resource::File(File { content: Content::Text(text), free_text, .. }) => (text, free_text),
            Resource::Unit(Unit { text: Some(text), free_text, .. }) => (text, free_text),
            _ => return None,
        };
        match free_text {
            // Line numbers are only valid if the found text is identical to the last applied text.
            Some(FreeText::Lines(_)) if text != found => None,
            free_text => free_text.clone(),
        }
    }
}
