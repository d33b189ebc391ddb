//! Finds files that may hold a secret although the agent did not write them. Users put such files into the folders from which kOps,
//! kubelet, containerd and docker read logins and keys. The whole content of such a file counts as free text.
//!
//! Source: nodeup/pkg/model (paths); kubernetes' `cmd/kubelet/app/options/options.go` (`config.json`).

use std::collections::BTreeSet;

use kops_agent_plan::resource::Kind;

use crate::error::Result;
use crate::reader::Reader;
use crate::record::Record;
use crate::root::{Entry, Metadata};

/// The maximum size of a file that is read, in bytes. Files with secrets are smaller.
const LONGEST: u64 = 1 << 20;
const FOLDERS: [&str; 3] = ["/etc/kubernetes", "/srv/kubernetes", "/etc/containerd"];
const FILES: [&str; 4] = [
    "/root/.docker/config.json",
    "/root/.kube/config",
    "/var/lib/kubelet/config.json",
    "/var/lib/kubelet/kubeconfig",
];
/// The maximum depth of the search below each folder in `FOLDERS`.
const DEPTH: usize = 6;
/// The maximum number of files and folders that the search below `FOLDERS` visits in all.
const MOST: usize = 4096;

/// A file that may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateFile {
    /// The absolute path on the machine.
    pub path: String,
    pub text: String,
}

#[derive(Clone, Default)]
pub struct PrivateFiles {
    /// The files that could be read.
    pub files: Vec<PrivateFile>,
    /// Why files could not be read. Each text contains the file's path.
    pub unread: Vec<String>,
    /// Whether the record contains any resource. Also true if the record was lost.
    pub has_claims: bool,
}

impl Reader {
    /// The files that may be secret. These include files that the agent wrote.
    pub fn private_files(&self) -> Result<PrivateFiles> {
        let record = Record::read(&self.root)?;
        let has_claims = record.claims().next().is_some() || record.unknown().next().is_some();
        let mut found = PrivateFiles { has_claims: has_claims || record.was_lost, ..PrivateFiles::default() };
        let mut paths: BTreeSet<String> = FILES.map(str::to_owned).into();
        let mut left = MOST;
        for folder in FOLDERS {
            if let Err(error) = self.collect(folder, DEPTH, &mut left, &mut paths) {
                found.unread.push(error.to_string());
            }
        }
        if left == 0 {
            found.unread.push(format!("{} have more than {MOST} files", FOLDERS.join(" and ")));
        }
        // The record may name files that are neither in `FOLDERS` nor in the stored states.
        let claimed = record.claims().filter(|(id, _)| id.kind == Kind::File).map(|(id, _)| id.name.as_str());
        // The record may contain ids that only another version of the agent understands.
        let unknown = record.unknown().filter_map(|id| id.strip_prefix("file "));
        for path in claimed.chain(unknown).filter(|path| path.starts_with('/')) {
            // A file that is larger than `LONGEST` is a program or a log, so leave it out.
            let is_longer = |metadata: Metadata| metadata.size > LONGEST;
            if !self.root.metadata(path).is_ok_and(|found| found.is_some_and(is_longer)) {
                paths.insert(path.to_owned());
            }
        }
        for path in paths {
            match self.read(&path, LONGEST) {
                // A file that is not valid UTF-8 is a program, and is left out.
                Ok(bytes) => {
                    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    found.files.extend(text.map(|text| PrivateFile { path, text }));
                }
                Err(error) => found.unread.push(error.to_string()),
            }
        }
        Ok(found)
    }

    /// Adds the files and links below `folder` to `paths`, with at most `depth` levels of subfolders. `left` limits the number of
    /// names that are visited.
    fn collect(
        &self,
        folder: &str,
        depth: usize,
        left: &mut usize,
        paths: &mut BTreeSet<String>,
    ) -> Result<()> {
        let Some(dir) = self.root.dir(folder)? else { return Ok(()) };
        for name in dir.names()? {
            if *left == 0 {
                return Ok(());
            }
            *left -= 1;
            let path = format!("{folder}/{name}");
            match dir.entry(&name)? {
                Some(Entry::Directory(_)) if depth > 0 => self.collect(&path, depth - 1, left, paths)?,
                Some(Entry::File(_) | Entry::Symlink(_)) => {
                    paths.insert(path);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str) {
        let file = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, path).unwrap();
    }

    #[test]
    fn private_files_are_found_by_the_record_and_by_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let reader = Reader::open(root).unwrap();
        assert!(!reader.private_files().unwrap().has_claims);
        let expected = [
            "/etc/containerd/certs.d/registry.internal/hosts.toml",
            "/etc/kubernetes/manifests/x.manifest",
            "/opt/claimed",
            "/root/.docker/config.json",
            "/srv/kubernetes/kube-apiserver/known_tokens.csv",
        ];
        for path in expected.into_iter().chain(["/opt/not-ours"]) {
            write(root, path);
        }
        fs::write(root.join("etc/kubernetes/program"), [0xff, 0xfe]).unwrap();
        fs::File::create(root.join("opt/program")).unwrap().set_len(LONGEST + 1).unwrap();
        let claims = r#"{"version":1,"resources":{"file /opt/claimed":{},"file /opt/program":{},"file /opt/gone":{}}}"#;
        let record = root.join(Record::PATH.trim_start_matches('/'));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, claims).unwrap();
        let found = reader.private_files().unwrap();
        assert_eq!((found.has_claims, found.unread.as_slice()), (true, &[][..]));
        assert_eq!(found.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), expected);

        fs::write(&record, "{").unwrap();
        assert!(reader.private_files().unwrap().has_claims, "a lost record counts as claims");
    }
}
