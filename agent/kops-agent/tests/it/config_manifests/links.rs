//! In CI, a pull request may have links to any file of the machine. Links out of the working directory are not followed.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::{CLUSTER, GROUP, WRONG, command, expect, folder};
use crate::example::Ended;

/// Makes the working directory `repository`, and the folder `outside` next to it. Both have a group with an error.
fn places() -> TempDir {
    let wrong = format!("{GROUP}  kubelet: {{maxPods: -5}}\n");
    folder(&[
        ("repository/clusters/c.yaml", CLUSTER),
        ("repository/shared/g.yaml", &wrong.replace("name: nodes", "name: inside")),
        ("outside/g.yaml", &wrong.replace("name: nodes", "name: outside")),
    ])
}

fn check(places: &TempDir, paths: &[&str]) -> Ended {
    let repository = places.path().join("repository");
    Ended::from_command(command(&repository, &["--kops", "1.36", "--manifests"]).args(paths))
}

fn link(places: &TempDir, target: &str, name: &str) {
    symlink(target, places.path().join("repository").join(name)).unwrap();
}

#[test]
fn a_link_in_a_folder_is_followed_only_within_the_working_directory() {
    let places = places();
    link(&places, "../../outside/g.yaml", "clusters/out.yaml");
    link(&places, "../../outside", "clusters/folder");
    link(&places, "../../outside/g.yaml", "clusters/readme");
    link(&places, "/etc/passwd", "clusters/absolute.json");
    let told = "is a link that leads out of the working directory, so it is not followed; ";
    let ended = check(&places, &["clusters"]);
    expect(
        &ended,
        0,
        &[
            &format!("not checked: clusters/absolute.json: {told}"),
            &format!("not checked: clusters/folder: {told}"),
            &format!("not checked: clusters/out.yaml: {told}"),
            "1 files, 1 clusters, 0 instance groups\n",
            "0 errors",
        ],
    );
    assert!(!ended.stdout.contains("readme"), "{ended:#?}");
    link(&places, "../shared/g.yaml", "clusters/in.yaml");
    expect(&check(&places, &["clusters"]), WRONG, &["error: clusters/in.yaml:11: spec.kubelet.maxPods: -5"]);
    // If a link leads to another link, or goes through one, the last target counts.
    link(&places, "../clusters/out.yaml", "shared/chain.yaml");
    link(&places, "../clusters/folder/g.yaml", "shared/through.yaml");
    expect(
        &check(&places, &["shared"]),
        0,
        &[
            &format!("not checked: shared/chain.yaml: {told}"),
            &format!("not checked: shared/through.yaml: {told}"),
            "1 files, ",
        ],
    );
}

#[test]
fn only_links_out_of_the_working_directory_are_no_manifests() {
    let places = places();
    fs::create_dir(places.path().join("repository/links")).unwrap();
    link(&places, "../../outside/g.yaml", "links/g.yaml");
    expect(
        &check(&places, &["links"]),
        WRONG,
        &["not checked: links/g.yaml: is a link", "error: no file has a Cluster, an InstanceGroup"],
    );
}

#[test]
fn a_named_link_out_of_the_working_directory_is_refused() {
    let places = places();
    link(&places, "../outside/g.yaml", "out.yaml");
    link(&places, "../outside", "out");
    for path in ["out.yaml", "./out.yaml", "out", "out/", "out/g.yaml", "clusters/../out/g.yaml"] {
        check(&places, &[path]).with(
            2,
            &[
                &format!("--manifests {path}: a link in this path leads out of the working directory; name its target"),
                "KA1001",
            ],
        );
    }
    let absolute = places.path().join("repository/out.yaml").display().to_string();
    check(&places, &[&absolute]).with(2, &["leads out of the working directory"]);
    // A link outside the working directory leads to a link inside the working directory, and the second link leads out
    // again.
    symlink("repository/out.yaml", places.path().join("to-out.yaml")).unwrap();
    symlink("repository", places.path().join("to-repository")).unwrap();
    for path in ["../to-out.yaml", "../to-repository/out", "../to-repository/out/g.yaml"] {
        check(&places, &[path]).with(2, &["leads out of the working directory"]);
    }
}

#[test]
fn a_named_path_outside_and_a_named_link_inside_are_read() {
    let places = places();
    link(&places, "shared", "alias");
    for path in ["../outside/g.yaml", "../outside", "alias", "alias/g.yaml"] {
        let place = if path.ends_with(".yaml") { path.to_owned() } else { format!("{path}/g.yaml") };
        expect(
            &check(&places, &["clusters", path]),
            WRONG,
            &[&format!("error: {place}:11: spec.kubelet.maxPods: -5")],
        );
    }
    // A pull request cannot change a link outside the working directory, so the check follows this link.
    symlink("outside/g.yaml", places.path().join("linked.yaml")).unwrap();
    symlink("outside", places.path().join("linked")).unwrap();
    for (path, place) in [
        ("../linked.yaml", "../linked.yaml"),
        ("../linked", "../linked/g.yaml"),
        ("../linked/", "../linked/g.yaml"),
    ] {
        expect(
            &check(&places, &["clusters", path]),
            WRONG,
            &[&format!("error: {place}:11: spec.kubelet.maxPods")],
        );
    }
    // The link and its target are both in the folder that the user names.
    symlink("g.yaml", places.path().join("outside/alias.yaml")).unwrap();
    expect(&check(&places, &["clusters", "../outside"]), WRONG, &["is also in ../outside/alias.yaml:1"]);
}
