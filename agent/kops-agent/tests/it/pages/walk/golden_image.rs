//! The page about golden images. No image is made: `vm-tests/golden-image` runs the script that makes one.

use std::collections::BTreeSet;
use std::fs;

use kops_agent_tests::digest::sha256_hex;

use super::{Walk, checkout, converged};

const FOLDER: &str = "packaging/golden-image";
const PACKAGE: &str = concat!("kops-agent_", env!("CARGO_PKG_VERSION"), "-1_amd64.deb");
/// The repository in the blueprint, which operators replace by their own.
const REPOSITORY: &str = "https://packages.example.com/rpm";

/// Packer's template declares the variables of the page. After the reset on the page, the machine is no longer a node.
/// The page enables the same units as the script `provision`.
#[test]
fn golden_image_md_works_as_printed() {
    let node = converged();
    let mut walk = Walk::on("docs/install/golden-image.md", &node);
    let folder = checkout().join(FOLDER);
    walk.stand_in("provision", "");
    let script = walk.path("bin/provision");
    // The longer path comes first, because it begins with the other one.
    walk.places.push(("packaging/golden-image/provision", script));
    walk.places.push((FOLDER, folder.clone()));
    fs::write(walk.path("released").join(PACKAGE), "a package").unwrap();
    let sums = format!("{}  {PACKAGE}\n", sha256_hex(b"a package"));
    fs::write(walk.path("released/SHA256SUMS"), sums).unwrap();
    assert_eq!(walk.run("curl").stdout, format!("{PACKAGE}: OK\n"));

    let template = folder.join("kops-agent.pkr.hcl");
    walk.run("packer build");
    let calls = ["validate", "build"]
        .map(|verb| format!("packer {verb} -var package={PACKAGE} {}\n", template.display()));
    assert_eq!(walk.asked("packer"), calls.concat());
    let template = fs::read_to_string(template).unwrap();
    let shown = walk.page.text.split("-var ").skip(1).map(|rest| rest.split('=').next().unwrap());
    for variable in shown {
        assert!(template.contains(&format!("\nvariable \"{variable}\" {{\n")), "no variable {variable}");
    }

    let blueprint = folder.join("blueprint.toml");
    walk.run("image-builder");
    let flags = format!("--blueprint {} --extra-repo {REPOSITORY}", blueprint.display());
    let call = format!("image-builder build ami --distro rhel-9.6 {flags}\n");
    assert_eq!(walk.asked("image-builder"), call);
    let blueprint = fs::read_to_string(blueprint).unwrap();
    assert!(blueprint.contains(&format!("\nbaseurls = [\"{REPOSITORY}\"]\n")), "{blueprint}");
    let (_, services) = blueprint.split_once("\n[customizations.services]\n").unwrap();
    let in_blueprint = |key: &str| -> BTreeSet<String> {
        let list = services.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        serde_json::from_str(list).unwrap()
    };
    let script = fs::read_to_string(folder.join("provision")).unwrap();
    let enabled = units(&script, "systemctl enable ");
    assert_eq!(in_blueprint("enabled = "), enabled);
    assert_eq!(in_blueprint("# masked = "), units(&script, "systemctl mask "));

    let booted = walk.run("journalctl");
    assert!(booted.stdout.starts_with("converged"), "{booted:#?}");
    let record = node.root().join("var/lib/kops-agent/record.json");
    assert!(record.is_file());
    let given =
        ["opt/kops/conf/kube_env.yaml", "etc/kops-agent/environment"].map(|file| node.root().join(file));
    for file in &given {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "x").unwrap();
    }
    walk.run("kops-agent reset");
    for file in given.iter().chain([&record]) {
        assert!(!file.exists(), "{} stays", file.display());
    }
    assert_eq!(units(&walk.asked("systemctl"), "systemctl enable "), enabled);
    assert_eq!(walk.asked("cloud-init"), "cloud-init clean --logs\n");

    walk.run_the_rest();
    assert_eq!(walk.asked("provision"), format!("provision {PACKAGE}\n"));
    let calls = [
        "kops edit instancegroup canary --set spec.image=ami-0123456789abcdef0",
        "kops update cluster --instance-group canary --yes",
        "kops rolling-update cluster --instance-group canary --yes",
    ];
    assert_eq!(walk.asked("kops").lines().collect::<Vec<_>>(), calls);
}

/// The units in all lines of the script that begin with `command`.
fn units(script: &str, command: &str) -> BTreeSet<String> {
    let calls = script.lines().filter_map(|line| line.trim().strip_prefix(command));
    calls.flat_map(str::split_whitespace).map(str::to_owned).collect()
}
