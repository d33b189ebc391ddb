//! The GitHub Action and the pre-commit hook that check manifests: their script with this program, and with a release that is downloaded.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use kops_agent_tests::digest::sha256_hex;
use serde_json::Value;
use tempfile::TempDir;

use crate::example::{Ended, agent};
use crate::pages::checkout;

const CLUSTER: &str =
    "{kind: Cluster, metadata: {name: c}, spec: {cloudProvider: aws, kubernetesVersion: 1.34.2}}\n";
const WRONG: &str = "{kind: InstanceGroup, metadata: {name: g, labels: {kops.k8s.io/cluster: c}}, spec: {role: Node, kubelet: {maxPods: -5}}}\n";
const TOLD: &str = "wrong.yaml:1: spec.kubelet.maxPods: -5 is refused by kubelet";

fn yaml(path: &str) -> Value {
    serde_yaml::from_str(&fs::read_to_string(checkout().join(path)).unwrap()).unwrap()
}

/// A repository of manifests. One of the manifests is wrong.
fn manifests() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("clusters")).unwrap();
    fs::write(folder.path().join("clusters/c.yaml"), CLUSTER).unwrap();
    fs::write(folder.path().join("clusters/wrong.yaml"), WRONG).unwrap();
    folder
}

fn bash(folder: &Path, script: &str, variables: &BTreeMap<String, String>) -> Ended {
    let mut shell = Command::new("bash");
    shell.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", folder).envs(variables);
    Ended::from_command(shell.current_dir(folder).args(["-eo", "pipefail", "-c", script]))
}

#[track_caller]
fn expect(ended: &Ended, code: i32, part: &str) {
    assert_eq!(ended.code, code, "{ended:#?}");
    assert!(ended.stdout.contains(part) || ended.stderr.contains(part), "{part:?} is not in {ended:#?}");
}

/// Runs the step of the Action with `inputs`, as a runner of GitHub does.
fn action(folder: &Path, inputs: &[(&str, &str)], more: &[(&str, &str)]) -> Ended {
    let action = yaml("packaging/check-action/action.yml");
    let step = &action["runs"]["steps"][0];
    assert_eq!((&action["runs"]["using"], &step["shell"]), (&"composite".into(), &"bash".into()));
    let value = |expression: &str| -> String {
        let known = expression.trim_start_matches("${{ ").split_once(" }}");
        let Some((name, rest)) = known else { panic!("{expression} is no expression") };
        let value = match name.strip_prefix("inputs.") {
            Some(input) => {
                let given =
                    inputs.iter().find(|(name, _)| *name == input).map(|(_, value)| (*value).to_owned());
                // For a missing input, a GitHub Actions runner sets an empty text, even if the input is required.
                given.unwrap_or_else(|| {
                    action["inputs"][input]["default"].as_str().unwrap_or_default().to_owned()
                })
            }
            None if name == "github.action_path" => {
                checkout().join("packaging/check-action").display().to_string()
            }
            None => panic!("{name} is unknown"),
        };
        value + rest
    };
    let env = step["env"].as_object().unwrap().iter();
    let mut variables: BTreeMap<String, String> =
        env.map(|(name, text)| (name.clone(), value(text.as_str().unwrap()))).collect();
    variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    bash(folder, step["run"].as_str().unwrap(), &variables)
}

#[test]
fn the_action_annotates_with_a_program_of_the_runner() {
    let folder = manifests();
    let program = agent().display().to_string();
    let of = |manifests: &str| {
        action(folder.path(), &[("kops", "1.36"), ("program", &program), ("manifests", manifests)], &[])
    };
    expect(&of("clusters"), 3, "::error file=clusters/wrong.yaml,line=1,title=spec.kubelet.maxPods::");
    expect(&of("clusters/c.yaml\n\nclusters/wrong.yaml\n"), 3, "checked for kOps 1.36: 2 files");
    expect(&of("clusters/c.yaml"), 0, "0 errors");
    // The text of an input is never executed.
    expect(&of("$(touch forged)"), 2, "--manifests $(touch forged): no such file or folder");
    assert!(!folder.path().join("forged").exists());
}

#[test]
fn the_action_refuses_missing_inputs_and_flags_in_inputs() {
    let folder = manifests();
    let program = agent().display().to_string();
    // Without the input `sha256`, nothing pins the checksum of a program in PATH. So the action does not use such a
    // program.
    let of = |inputs: &[(&str, &str)]| action(folder.path(), inputs, &[("PATH", "/usr/bin:/bin")]);
    let [kops, manifests, program] =
        [("kops", "1.36"), ("manifests", "clusters"), ("program", program.as_str())];
    expect(
        &of(&[kops, manifests]),
        2,
        "::error title=Check kOps manifests::no program: set the inputs version and sha256, or the input program",
    );
    expect(&of(&[kops, program]), 2, "::no manifests: set the input manifests to files and folders");
    for flag in ["--output=json", "-h", "clusters\n--config-base"] {
        expect(
            &of(&[kops, ("manifests", flag), program]),
            2,
            "::an input begins with -, which would be a flag: -",
        );
    }
    expect(
        &of(&[("kops", "-h"), manifests, program]),
        2,
        "::an input begins with -, which would be a flag: -h",
    );
}

#[test]
fn the_action_downloads_only_the_program_with_the_pinned_sum() {
    let folder = manifests();
    let releases = folder.path().join("releases/v0.1.0");
    fs::create_dir_all(&releases).unwrap();
    let bytes = format!("#!/bin/sh\nexec {} \"$@\"\n", agent().display());
    for machine in ["amd64", "arm64"] {
        fs::write(releases.join(format!("kops-agent-linux-{machine}")), &bytes).unwrap();
    }
    let address = format!("file://{}", folder.path().join("releases").display());
    let of = |version: &str, sum: &str| {
        let inputs = [("kops", "1.36"), ("manifests", "clusters"), ("version", version), ("sha256", sum)];
        action(folder.path(), &inputs, &[("KOPS_AGENT_RELEASES", &address)])
    };
    let sum = sha256_hex(bytes.as_bytes());
    expect(&of("0.1.0", ""), 2, "needs KOPS_AGENT_SHA256: the sum of kops-agent-linux-");
    expect(&of("0.1.0", &"0".repeat(64)), 2, "does not have the sum KOPS_AGENT_SHA256");
    expect(&of("0.2.0", &sum), 2, "/v0.2.0/kops-agent-linux-");
    expect(&of("0.1.0", &sum), 3, "::error file=clusters/wrong.yaml");
    // The program stays in the cache, so the next check needs no network.
    fs::remove_dir_all(&releases).unwrap();
    expect(&of("0.1.0", &sum), 3, "::error file=clusters/wrong.yaml");
    // A changed program in the cache is not started.
    let cached = folder.path().join(".cache/kops-agent").join(&sum);
    fs::write(&cached, "#!/bin/sh\necho forged\n").unwrap();
    expect(&of("0.1.0", &sum), 2, "cannot download");
}

#[test]
fn the_hook_checks_all_manifests_with_the_program_in_path() {
    let hooks = yaml(".pre-commit-hooks.yaml");
    let hook = &hooks[0];
    assert_eq!((&hook["language"], &hook["pass_filenames"]), (&"script".into(), &false.into()));
    let folder = manifests();
    fs::create_dir(folder.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(agent(), folder.path().join("bin/kops-agent")).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
    // pre-commit takes the script from the hook's repository, and runs it in the folder of the manifests.
    let entry = checkout().join(hook["entry"].as_str().unwrap());
    let of = |path: &str| {
        let mut command = Command::new(&entry);
        command.env_clear().env("PATH", path).current_dir(folder.path());
        Ended::from_command(command.args(["--kops", "1.36", "--manifests", "clusters"]))
    };
    expect(&of(&path), 3, TOLD);
    expect(
        &of("/usr/bin:/bin"),
        2,
        "kops-agent is not in PATH; install it, or set KOPS_AGENT_VERSION and KOPS_AGENT_SHA256",
    );
}
