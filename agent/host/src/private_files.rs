//! Files whose contents are secret, found without any store: those that the record claims and not all may read, and those in
//! places that kOps, kubelet, containerd and docker keep secrets in, also in files that all users may read.
//!
//! Source: nodeup/pkg/model (paths); kubernetes' `cmd/kubelet/app/options/options.go` (`config.json`).

use std::collections::BTreeSet;

use kops_agent_plan::health::is_manifest;
use kops_agent_plan::redaction::is_nothing_but_secret;
use kops_agent_plan::resource::{Kind, Mode};
use kops_agent_plan::shown::is_private;

use crate::error::Result;
use crate::reader::Reader;
use crate::record::Record;
use crate::root::Entry;

/// No file with a secret is longer, in bytes.
const LONGEST: u64 = 1 << 20;
/// Folders whose files with secrets have any names.
const FOLDERS: [&str; 3] = ["/etc/kubernetes", "/srv/kubernetes", "/etc/containerd"];
/// How names of files end that may have logins of registries among what is none.
const CONTAINERDS_END: &str = ".toml";
/// How deep below these is looked, and at how many files.
const DEPTH: usize = 6;
const MOST: usize = 4096;
/// How names of files end of which all is secret: keys, tokens of the API server, logins to clouds.
const SECRET_ENDS: [&str; 4] = [".key", ".csv", "cloud.config", "encryptionconfig.yaml"];
/// Files that are secret wherever there is one.
const DOCKER_CONFIGS: [&str; 2] = ["/root/.docker/config.json", "/var/lib/kubelet/config.json"];
/// Variables of the whole machine, of which a proxy's may have a password.
const VARIABLES: [&str; 2] = ["/etc/environment", "/etc/systemd/system.conf.d/kops-agent-proxy.conf"];
/// Files that have secrets among what is none.
const KUBECONFIGS: [&str; 8] = [
    "/root/.kube/config",
    "/var/lib/kubelet/kubeconfig",
    "/var/lib/kubelet/bootstrap-kubeconfig",
    "/var/lib/kubectl/kubeconfig",
    "/var/lib/kube-proxy/kubeconfig",
    "/var/lib/kube-scheduler/kubeconfig",
    "/var/lib/kube-controller-manager/kubeconfig",
    "/var/lib/kube-router/kubeconfig",
];

/// A file with secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateFile {
    /// Where it is.
    pub path: String,
    /// What is in it.
    pub text: String,
    /// What of that is secret.
    pub holds: Holds,
}

/// What of a file is secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// All of it: nothing in it is meant for others, as in a kubeconfig the server's name is.
    All,
    /// Values whose names say it.
    Named,
    /// The variables of a static pod, whose file has them in clear.
    OfPod,
}

/// What was found.
#[derive(Clone, Default)]
pub struct PrivateFiles {
    /// The files.
    pub files: Vec<PrivateFile>,
    /// Whether there is any that is made for secrets, and does not merely happen to have one.
    pub tells: bool,
    /// Those that are there and cannot be read, and why.
    pub unread: Vec<String>,
    /// Whether a run of the agent has left anything here, or what it has left is not known.
    pub has_claims: bool,
}

impl Reader {
    /// The files with secrets of this machine.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn private_files(&self) -> Result<PrivateFiles> {
        let record = Record::read(&self.root)?;
        let has_claims = record.claims().next().is_some() || record.unknown().next().is_some();
        let has_claims = has_claims || record.was_lost;
        let mut found = PrivateFiles { has_claims, ..PrivateFiles::default() };
        let mut paths: BTreeSet<String> =
            DOCKER_CONFIGS.into_iter().chain(KUBECONFIGS).chain(VARIABLES).map(str::to_owned).collect();
        // Files that not all may read. Some of them are a user's, with anything in them.
        let mut private = BTreeSet::new();
        let mut left = MOST;
        for folder in FOLDERS {
            if let Err(error) = self.collect(folder, DEPTH, &mut left, &mut paths) {
                found.unread.push(error.to_string());
            }
        }
        if left == 0 {
            found.unread.push(format!("{} have more than {MOST} files", FOLDERS.join(" and ")));
        }
        let claimed = record.claims().filter(|(id, _)| id.kind == Kind::File).map(|(id, _)| id.name.as_str());
        // As another version of the agent writes them.
        let unknown = record.unknown().filter_map(|id| id.strip_prefix("file "));
        for path in claimed.chain(unknown).filter(|path| path.starts_with('/')) {
            let is_private = self.is_private(path);
            if is_private {
                private.insert(path.to_owned());
            }
            if is_private || may_have_secrets(path) {
                paths.insert(path.to_owned());
            }
        }
        for path in paths {
            match self.text(&path, LONGEST) {
                Ok(Some(text)) => {
                    let holds = match is_secret(&path) {
                        true => Holds::All,
                        false if is_manifest(&path) => Holds::OfPod,
                        false if private.contains(&path) && is_nothing_but_secret(&path, &text) => Holds::All,
                        false => Holds::Named,
                    };
                    let may_have_none = may_have_secrets(&path) || VARIABLES.contains(&path.as_str());
                    found.tells |= is_secret(&path) || !may_have_none || self.is_private(&path);
                    found.files.push(PrivateFile { path, text, holds });
                }
                Ok(None) => {}
                Err(error) => found.unread.push(error.to_string()),
            }
        }
        Ok(found)
    }

    /// Adds the files below a folder that have secrets, as far as names and modes tell.
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
                Some(Entry::File(metadata)) if may_have_secrets(&path) || is_private(Mode(metadata.mode)) => {
                    paths.insert(path);
                }
                Some(Entry::Symlink(_)) if may_have_secrets(&path) => {
                    paths.insert(path);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_private(&self, path: &str) -> bool {
        // One that cannot be looked at is tried, and told.
        self.root.metadata(path).map_or(true, |found| found.is_some_and(|found| is_private(Mode(found.mode))))
    }
}

fn is_secret(path: &str) -> bool {
    DOCKER_CONFIGS.contains(&path) || SECRET_ENDS.iter().any(|end| path.ends_with(end))
}

/// Whether there are secrets in a file whichever users may read it: upstream lets all users read manifests.
fn may_have_secrets(path: &str) -> bool {
    let is_containerds = path.starts_with("/etc/containerd/") && path.ends_with(CONTAINERDS_END);
    is_secret(path) || is_manifest(path) || is_containerds
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str, mode: u32) {
        let file = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, path).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn they_are_found_by_the_record_and_by_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let reader = Reader::open(root).unwrap();
        assert!(!reader.private_files().unwrap().has_claims);
        write(root, "/etc/environment", 0o644);
        write(root, "/etc/kubernetes/manifests/y.manifest", 0o644);
        assert!(!reader.private_files().unwrap().tells, "every machine has such files");
        write(root, "/etc/kubernetes/pki/a.key", 0o600);
        write(root, "/etc/kubernetes/cloud.config", 0o644);
        write(root, "/etc/kubernetes/manifests/x.manifest", 0o400);
        write(root, "/etc/containerd/config.toml", 0o644);
        write(root, "/etc/containerd/certs.d/registry.internal/hosts.toml", 0o644);
        write(root, "/etc/containerd/cri-base.json", 0o644);
        write(root, "/srv/kubernetes/kube-apiserver/known_tokens.csv", 0o600);
        write(root, "/srv/kubernetes/ca.crt", 0o644);
        write(root, "/root/.docker/config.json", 0o600);
        write(root, "/var/lib/kubelet/kubeconfig", 0o400);
        write(root, "/opt/private", 0o640);
        write(root, "/opt/named", 0o400);
        fs::write(root.join("opt/named"), "user = robot\npassword = hunter2\n").unwrap();
        write(root, "/opt/lines", 0o400);
        fs::write(root.join("opt/lines"), "hunter2hunter2\ncorrecthorse\n").unwrap();
        write(root, "/var/log/kube-apiserver.log", 0o400);
        write(root, "/opt/public", 0o644);
        write(root, "/opt/not-ours", 0o600);
        let claims = r#"{"version":1,"resources":{"file /opt/private":{},"file /opt/named":{},"file /opt/lines":{},"file /var/log/kube-apiserver.log":{},"file /opt/public":{},"file /opt/gone":{}}}"#;
        let record = root.join(Record::PATH.trim_start_matches('/'));
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, claims).unwrap();
        let found = reader.private_files().unwrap();
        assert_eq!((found.has_claims, found.tells, found.unread.as_slice()), (true, true, &[][..]));
        let found: Vec<(&str, Holds)> =
            found.files.iter().map(|file| (file.path.as_str(), file.holds)).collect();
        let expected = [
            ("/etc/containerd/certs.d/registry.internal/hosts.toml", Holds::Named),
            ("/etc/containerd/config.toml", Holds::Named),
            ("/etc/environment", Holds::Named),
            ("/etc/kubernetes/cloud.config", Holds::All),
            ("/etc/kubernetes/manifests/x.manifest", Holds::OfPod),
            ("/etc/kubernetes/manifests/y.manifest", Holds::OfPod),
            ("/etc/kubernetes/pki/a.key", Holds::All),
            ("/opt/lines", Holds::All),
            ("/opt/named", Holds::Named),
            ("/opt/private", Holds::All),
            ("/root/.docker/config.json", Holds::All),
            ("/srv/kubernetes/kube-apiserver/known_tokens.csv", Holds::All),
            ("/var/lib/kubelet/kubeconfig", Holds::Named),
            ("/var/log/kube-apiserver.log", Holds::Named),
        ];
        assert_eq!(found, expected);

        fs::write(&record, "{").unwrap();
        assert!(reader.private_files().unwrap().has_claims, "what is claimed is not known");
    }
}
