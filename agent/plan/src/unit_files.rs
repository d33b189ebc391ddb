//! The files that systemd reads, for code that changes them: it has to be told, and a unit is only what its files say once
//! it is started anew.

use crate::resource::{Kind, ResourceId};

/// Where systemd looks for units and what belongs to them (systemd.unit(5), "Unit File Load Path").
const FOLDERS: [&str; 5] = [
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
];

/// Whether systemd has to be told (`daemon-reload`) once this is written or gone.
pub fn is_read_by_systemd(id: &ResourceId) -> bool {
    match id.kind {
        Kind::Unit => true,
        Kind::File | Kind::Symlink => within(&id.name).is_some(),
        _ => false,
    }
}

/// The unit to which a file is a drop-in: `kubelet.service` for `…/kubelet.service.d/10-x.conf`.
pub fn drop_in_of(id: &ResourceId) -> Option<&str> {
    if matches!(id.kind, Kind::File | Kind::Symlink) { drop_in_of_path(&id.name) } else { None }
}

/// The unit to which the file at this path is a drop-in.
pub(crate) fn drop_in_of_path(path: &str) -> Option<&str> {
    if !path.ends_with(".conf") {
        return None;
    }
    let (folder, file) = within(path)?.split_once('/')?;
    folder.strip_suffix(".d").filter(|_| !file.contains('/'))
}

/// Whether a path is in one of the folders of systemd's units.
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
    fn drop_ins_are_told_from_other_files() {
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
