use super::way::{Blocked, Links};
use super::*;

#[test]
fn links_stay_within_the_root() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    let inside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), inside.path().join("absolute")).unwrap();
    std::os::unix::fs::symlink("../../../../../../tmp", inside.path().join("relative")).unwrap();
    std::os::unix::fs::symlink("/real", inside.path().join("within")).unwrap();
    std::fs::create_dir(inside.path().join("real")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret"), inside.path().join("file")).unwrap();

    let root = Root::open(inside.path()).unwrap();
    assert!(root.dir("/absolute").unwrap().is_none());
    assert!(root.dir("/relative").unwrap().is_none());
    assert!(root.dir("/../../tmp").unwrap().is_none());
    assert!(root.dir("/within").unwrap().is_some());
    assert!(root.read("/file").unwrap().is_none());
    assert!(root.dir("/").unwrap().unwrap().open("file").is_err());
    let beyond = root.walk("../..", Links::None).unwrap();
    assert_eq!(fstat(&beyond).unwrap().st_ino, fstat(&*root.fd).unwrap().st_ino);
}

#[test]
fn links_resolve_in_the_same_way_without_openat2() {
    let temp = tempfile::tempdir().unwrap();
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, temp.path().join(name)).unwrap();
    std::fs::create_dir_all(temp.path().join("real/below")).unwrap();
    std::fs::write(temp.path().join("file"), "").unwrap();
    link("/real", "absolute");
    link("../../absolute/./below/", "relative");
    link("round", "round");
    link("file", "to-file");
    link("nothing", "to-nothing");
    let root = Root::open(temp.path()).unwrap();
    let number = |fd: &OwnedFd| fstat(fd).unwrap().st_ino;
    let below = number(&root.walk("real/below", Links::None).unwrap());
    for way in ["absolute/below", "relative", "relative/../below", "./relative/."] {
        assert_eq!(number(&root.walk(way, Links::Roots).unwrap()), below, "{way}");
        assert!(matches!(root.walk(way, Links::None), Err(Blocked::Link { .. })), "{way}");
    }
    let refused = |way: &str| root.walk(way, Links::Roots).err();
    assert_eq!(refused("round"), Some(Blocked::Errno(Errno::ELOOP)));
    assert_eq!(refused("file"), Some(Blocked::Errno(Errno::ENOTDIR)));
    assert_eq!(refused("to-file"), Some(Blocked::Errno(Errno::ENOTDIR)));
    assert_eq!(refused("to-nothing"), Some(Blocked::Errno(Errno::ENOENT)));
}

#[test]
fn a_link_of_another_user_is_never_followed() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("etc/kept")).unwrap();
    std::fs::write(temp.path().join("etc/kept/file"), "kept").unwrap();
    std::fs::create_dir_all(temp.path().join("home/admin")).unwrap();
    std::os::unix::fs::symlink("/etc", temp.path().join("home/admin/.kube")).unwrap();
    let of_root = Root::open(temp.path()).unwrap();
    assert!(of_root.dir("/home/admin/.kube/kept").unwrap().is_some());

    let root = of_root.following_none();
    assert!(root.dir("/home/admin").unwrap().is_some());
    assert!(root.dir("/home/admin/.kube").unwrap().is_none());
    assert!(root.parent("/home/admin/.kube/kept/file").unwrap().is_none());
    assert!(root.read("/home/admin/.kube/kept/file").unwrap().is_none());
    for path in ["/home/admin/.kube", "/home/admin/.kube/kept", "/home/admin/.kube/new"] {
        let error = root.make_dirs(path).err().unwrap().to_string();
        assert!(error.contains("/home/admin/.kube is a link to /etc that a user other than root"), "{error}");
        assert!(error.contains("Put a folder in the place of the link"), "{error}");
    }
    root.remove_tree("/home/admin/.kube").unwrap();
    let (home, name) = root.parent("/home/admin/.kube").unwrap().unwrap();
    home.remove_dir_if_empty(&name).unwrap();
    assert!(matches!(home.entry(&name).unwrap(), Some(Entry::Symlink(_))));
    assert_eq!(std::fs::read_dir(temp.path().join("etc")).unwrap().count(), 1);
    assert!(temp.path().join("etc/kept/file").exists());
}

#[test]
fn a_link_in_another_users_folder_belongs_to_that_user() {
    use std::os::unix::fs::{chown, lchown, symlink};
    if !geteuid().is_root() {
        // Only root can change owners, so skip the test for other users.
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let (folder, link) = (temp.path().join("folder"), temp.path().join("folder/link"));
    std::fs::create_dir_all(temp.path().join("real")).unwrap();
    std::fs::create_dir(&folder).unwrap();
    symlink("../real", &link).unwrap();
    let root = Root::open(temp.path()).unwrap();
    let is_followed = || root.dir("/folder/link").unwrap().is_some();
    assert!(is_followed());
    lchown(&link, Some(4711), Some(4711)).unwrap();
    assert!(!is_followed());
    lchown(&link, Some(0), Some(0)).unwrap();
    assert!(is_followed());
    chown(&folder, Some(4711), Some(4711)).unwrap();
    assert!(!is_followed());
}

#[test]
fn directories_are_made_with_everything_above_them() {
    let temp = tempfile::tempdir().unwrap();
    let root = Root::open(&temp.path().join("new")).unwrap();
    root.make_dirs("/a/b/c/").unwrap();
    assert!(temp.path().join("new/a/b/c").is_dir());
    std::fs::write(temp.path().join("new/a/file"), "").unwrap();
    let error = root.make_dirs("/a/file/x").err().unwrap().to_string();
    assert!(error.contains("/a/file") && error.contains("Not a directory"), "{error}");
}

#[test]
fn only_absolute_paths_with_a_name_are_split() {
    assert_eq!(split("/a/b/").unwrap(), ("/a", "b"));
    assert_eq!(split("/a").unwrap(), ("", "a"));
    for path in ["", "/", "a/b", "/a/..", "/a/."] {
        assert!(split(path).is_err(), "{path}");
    }
}
