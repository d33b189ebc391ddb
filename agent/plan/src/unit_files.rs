//! The files that systemd reads. If such a file changes, systemd needs a `daemon-reload`, and the unit needs a restart to use the new text.

use crate::resource::{Kind, ResourceId};

/// The folders in which systemd looks for units and drop-ins (systemd.unit(5), "Unit File Load Path").
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
];

/// Whether systemd needs a `daemon-reload` after this resource is written or removed.
pub fn is_read_by_systemd(id: &ResourceId) -> bool {
    match id.kind {
        Kind::Unit => true,
        Kind::File | Kind::Symlink => within(&id.name).is_some(),
        _ => false,
    }
}

/// The unit that a drop-in file belongs to: `kubelet.service` for `…/kubelet.service.d/10-x.conf`.
pub fn drop_in_of(id: &ResourceId) -> Option<&str> {
    if matches!(id.kind, Kind::File | Kind::Symlink) { drop_in_of_path(&id.name) } else { None }
}

pub(crate) fn drop_in_of_path(path: &str) -> Option<&str> {
    if !path.ends_with(".conf") {
        return None;
    }
    let (folder, file) = within(path)?.split_once('/')?;
    folder.strip_suffix(".d").filter(|_| !file.contains('/'))
}

/// Whether a path is in one of systemd's unit folders.
pub fn is_of_systemd(path: &str) -> bool {
    within(path).is_some()
}

fn within(path: &str) -> Option<&str> {
    FOLDERS.iter().find_map(|folder| path.strip_prefix(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_are_recognized_by_path() {
        let file = |path: &str| ResourceId::new(Kind::File, path);
        let drop_in = |path: &str| drop_in_of(&file(path)).map(str::to_owned);
        assert_eq!(drop_in("/etc/systemd/system/a.service.d/b.conf").as_deref(), Some("a.service"));
        assert_eq!(drop_in("/usr/lib/systemd/system/a.slice.d/b.conf").as_deref(), Some("a.slice"));
        for other in [
            "/etc/systemd/system/a.service",
            "/etc/systemd/system/a.service.d/README",
            "/etc/systemd/system/a.service.wants/b.conf",
            "/etc/systemd/system/a.service.d/b/c.conf",
            "/etc/systemd/system.conf.d/b.conf",
        ] {
            assert_eq!(drop_in(other), None, "{other}");
        }
        assert!(is_read_by_systemd(&file("/etc/systemd/system/a.service")));
        assert!(is_read_by_systemd(&ResourceId::new(Kind::Unit, "a.service")));
        assert!(!is_read_by_systemd(&file("/etc/systemd/journald.conf")));
    }
}
