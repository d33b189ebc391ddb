use super::*;

#[test]
fn links_lead_nowhere_but_into_the_root() {
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
    assert!(root.open_directory_without_links("real").is_ok());
    assert_eq!(root.open_directory_without_links("within").err(), Some(Errno::ELOOP));
    assert!(root.open_directory_without_links("../..").is_err());
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
