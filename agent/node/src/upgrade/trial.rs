//! Tries another version of the program before that version replaces the present program. The other version must print its version, follow
//! rollouts, and leave this node unchanged.

use std::io;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use kops_agent_plan::desired::{ADDONS_UNIT, CONTROLLER_UNIT, FOLLOW_UNIT, own_resources};
use kops_agent_plan::resource::{Kind, ResourceId};
use kops_agent_process::program::PATH_TO_BE;
use kops_agent_process::{exit, service_manager};
use kops_agent_spec::failure::{self, Failure};
use kops_agent_spec::terminal::one_line;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use super::not_replaced;

/// How long the program may take to print its version.
const PRINTED_WITHIN: Duration = Duration::from_secs(30);
/// How long the program may take to read this machine's Node. If the API server does not answer, the program ends after 45 s: several
/// requests of 10 s each, and the pauses between them.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(90);
/// How long the program may take to plan. It reads the state store, and asks the cloud.
const PLANNED_WITHIN: Duration = Duration::from_secs(300);
/// How long the program may take to write its own resources. The program may wait for another run, which may download and restart
/// components.
const WRITTEN_WITHIN: Duration = Duration::from_secs(900);
/// The services of this program. An upgrade must not add or remove one of them, because this would change the mode of the node, and not
/// only the version.
const SERVICES_OF_MODES: [&str; 3] = [CONTROLLER_UNIT, ADDONS_UNIT, FOLLOW_UNIT];
/// The maximum number of bytes that are read from each output of the program.
const LARGEST_OUTPUT: u64 = 1 << 20;
/// Maximum number of changes that an error names.
const NAMED: usize = 5;
/// Maximum length of quoted output, in characters.
const LONGEST_QUOTE: usize = 300;

pub(super) struct Trial<'a> {
    pub(super) program: &'a str,
    /// The path at which the program will be installed.
    pub(super) path_to_be: &'a str,
    pub(super) conf: &'a Path,
    pub(super) root: &'a Path,
}

impl Trial<'_> {
    pub(super) async fn prints_version(&self, version: &str) -> Result<(), Failure> {
        let output = self.run(self.command().arg("--version"), PRINTED_WITHIN).await?;
        if !output.status.success() {
            return Err(not_replaced(format!("the new program does not start: {}", ended(&output))));
        }
        let printed = String::from_utf8_lossy(&output.stdout);
        match printed.split_whitespace().nth(1) == Some(version) {
            true => Ok(()),
            false => Err(not_replaced(format!(
                "the new program does not have the version of the program file, {version:?}: `--version` prints {:?}",
                one_line(printed.trim(), LONGEST_QUOTE)
            ))),
        }
    }

    /// Runs the program as the service that follows rollouts does, but with `--check`. The program then reads this machine's
    /// Node once, and ends.
    pub(super) async fn follows(&self) -> Result<(), Failure> {
        let mut follow = self.command();
        // The new program gets the arguments of this process, which come from the service's unit.
        follow.args(std::env::args_os().skip(1)).arg("--check");
        let output = self.run(&mut follow, FOLLOWED_WITHIN).await?;
        match output.status.code() {
            Some(code) if code == i32::from(exit::CONVERGED) => Ok(()),
            Some(code) if code == i32::from(exit::USAGE) => Err(not_replaced(format!(
                "the new program has no `fleet follow --check` ({}), so no rollout could upgrade this node \
                 again. To use this version anyway, install it by hand",
                ended(&output)
            ))),
            _ if last_line(&output).ends_with(&format!("[{}]", failure::Kind::ApiServerUnanswered)) => {
                Err(not_replaced(format!(
                    "the new program cannot read this machine's Node now, because the API server does not answer ({}); \
                     `kops-agent fleet rollout resume` tries again",
                    ended(&output)
                )))
            }
            _ => Err(not_replaced(format!("`fleet follow` of the new program fails: {}", ended(&output)))),
        }
    }

    /// Compares this node with its wanted configuration. If this configuration is only for new machines or was rolled back, compares with
    /// the last applied configuration. The resources in `noted` count as the agent's own, even if this program does not know them.
    pub(super) async fn changes(&self, noted: &[String]) -> Result<Changes, Failure> {
        // Without --repair and --renew, `verify` changes nothing and reports nothing to the cluster. This process has the lock, so `verify`
        // cannot write the record either.
        let output = self.run(self.verify().args(["--output", "json"]), PLANNED_WITHIN).await?;
        match output.status.code() {
            Some(code) if code == i32::from(exit::CONVERGED) => Ok(Changes::default()),
            Some(code) if code == i32::from(exit::DIFFERENT) => {
                Changes::read(&output.stdout, noted).map_err(|why| {
                    not_replaced(format!("the output of the new program's `verify` cannot be read: {why}"))
                })
            }
            _ => Err(not_replaced(format!("`verify` of the new program fails: {}", ended(&output)))),
        }
    }

    /// Runs the program's `verify --repair`, which writes only `resources`. Fails if a resource that is not in `resources` differs. The
    /// caller must not hold the lock of this machine.
    ///
    /// The program continues after the end of this process, because the units that it writes may restart the service of this process.
    pub(super) async fn write(&self, resources: &[String]) -> Result<(), Unwritten> {
        let mut verify = self.verify();
        verify.arg("--repair").stdout(Stdio::null());
        verify.args(resources.iter().flat_map(|resource| ["--only", resource]));
        written(&mut verify, WRITTEN_WITHIN).await
    }

    fn verify(&self) -> Command {
        let mut verify = self.command();
        verify.arg("verify").arg("--conf").arg(self.conf).arg("--root").arg(self.root);
        verify
    }

    /// A command of the program. The program plans as if it were already installed at `path_to_be`.
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.env(PATH_TO_BE, self.path_to_be).stdin(Stdio::null());
        service_manager::keep_from_reporting(command.as_std_mut());
        command
    }

    async fn run(&self, command: &mut Command, within: Duration) -> Result<Output, Failure> {
        let starting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child =
            starting.map_err(|error| not_replaced(format!("the new program does not start: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = async { tokio::join!(beginning(stdout), beginning(stderr), child.wait()) };
        match timeout(within, ended).await {
            Ok((Ok(stdout), Ok(stderr), Ok(status))) => Ok(Output { status, stdout, stderr }),
            Ok((Err(error), ..) | (_, Err(error), _) | (_, _, Err(error))) => {
                Err(not_replaced(format!("the new program cannot be tried: {error}")))
            }
            Err(_) => Err(not_replaced(format!(
                "the new program has not ended within {} s, and was killed",
                within.as_secs()
            ))),
        }
    }
}

/// Why the program has not written its own resources.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwritten {
    Failed(String),
    /// The program has not ended. It continues, and may have the lock of this machine.
    AtWork(String),
}

/// Waits for a command that writes. After the timeout, the command still continues, because a killed command would make only a part of its
/// changes.
async fn written(command: &mut Command, within: Duration) -> Result<(), Unwritten> {
    let why = format!("`journalctl -u {FOLLOW_UNIT}` on the node shows why");
    match timeout(within, command.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Unwritten::Failed(format!("`verify --repair` has ended with {status}; {why}"))),
        Ok(Err(error)) => Err(Unwritten::Failed(format!("`verify --repair` does not start: {error}"))),
        Err(_) => Err(Unwritten::AtWork(format!(
            "`verify --repair` has not ended within {} s, and continues; {why}",
            within.as_secs()
        ))),
    }
}

/// The beginning of an output, up to `LARGEST_OUTPUT` bytes. A program that writes more gets an error.
async fn beginning(output: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(output) = output {
        output.take(LARGEST_OUTPUT).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// How a program ended, with the last line that it printed on standard error.
fn ended(output: &Output) -> String {
    match last_line(output).as_str() {
        "" => output.status.to_string(),
        last => format!("{}: {}", output.status, one_line(last, LONGEST_QUOTE)),
    }
}

/// The last line on standard error that is not empty; empty if there is none.
fn last_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// The resources on this node that a program would change, according to its `verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Resources that serve only kops-agent itself, such as its timers.
    pub(super) own: Vec<String>,
    /// All other resources. They include services of kops-agent that the program would add or remove, and resources that the program would
    /// adopt or cannot repair.
    pub(super) others: Vec<String>,
}

impl Changes {
    /// Reads the JSON of `verify`. Resources in `noted` count as the agent's own. Fails if the JSON has a different form, because the
    /// program may be of a different version.
    fn read(verification: &[u8], noted: &[String]) -> Result<Changes, &'static str> {
        let read: Value = serde_json::from_slice(verification).map_err(|_| "it is not JSON, or too long")?;
        let plan = &read["plan"];
        let steps = plan["steps"].as_array().ok_or("it has no plan")?;
        let own: Vec<String> = own_resources().iter().map(ToString::to_string).collect();
        let services = SERVICES_OF_MODES.map(|unit| ResourceId::new(Kind::Unit, unit).to_string());
        let mut changes = Changes::default();
        for step in steps {
            let resource = step["resource"].as_str().ok_or("a step names no resource")?.to_owned();
            let is_own = own.contains(&resource) || noted.contains(&resource);
            let comes_or_goes = ["create", "remove"].iter().any(|action| step["action"] == *action);
            match is_own && !(comes_or_goes && services.contains(&resource)) {
                true => changes.own.push(resource),
                false => changes.others.push(resource),
            }
        }
        let adopted = plan["adopted"].as_array().into_iter().flatten().filter_map(Value::as_str);
        changes
            .others
            .extend(adopted.map(|resource| format!("{resource}, which the new program would manage")));
        let kept = plan["kept"].as_array().into_iter().flatten();
        let kept = kept.filter(|kept| kept["keeping"] == "unmended");
        let kept = kept.filter_map(|kept| kept["resource"].as_str());
        changes
            .others
            .extend(kept.map(|resource| format!("{resource}, which the new program cannot repair")));
        Ok(changes)
    }
}

/// The first changes, and the number of the remaining changes.
pub(super) fn first(changes: &[String]) -> String {
    let mut named = changes.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if changes.len() > NAMED {
        named += &format!(", and {} more", changes.len() - NAMED);
    }
    one_line(&named, LONGEST_QUOTE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn changes_of(plan: &Value, noted: &[String]) -> Changes {
        Changes::read(json!({"changed": [], "plan": plan}).to_string().as_bytes(), noted).unwrap()
    }

    #[test]
    fn a_problem_names_the_first_changes() {
        let names = |number: usize| (0..number).map(|name| format!("file /{name}")).collect::<Vec<_>>();
        assert_eq!(first(&names(2)), "file /0, file /1");
        assert_eq!(first(&names(7)), "file /0, file /1, file /2, file /3, file /4, and 2 more");
    }

    #[test]
    fn only_the_agents_own_resources_may_change() {
        let step = |resource: &str, action: &str| json!({"resource": resource, "action": action});
        let names = |steps: &[Value]| {
            steps.iter().map(|step| step["resource"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let own = [
            step("unit kops-agent-verify.timer", "change"),
            step("unit kops-agent-metrics.timer", "remove"),
            step("file /etc/systemd/system/kops-agent-verify.service", "create"),
            step("unit kops-agent-controller.service", "restart"),
            step("unit kops-agent-follow.service", "change"),
            step("symlink /usr/local/bin/kops-agent", "change"),
        ];
        let others = [
            step("unit kubelet.service", "restart"),
            step("unit kops-agent-follow.service", "remove"),
            step("unit kops-agent-controller.service", "create"),
            step("unit kops-agent-of-another-version.timer", "remove"),
        ];
        let steps = [&own[..], &others].concat();
        let plan = json!({"steps": steps});
        let expected = Changes { own: names(&own), others: names(&others) };
        assert_eq!(changes_of(&plan, &[]), expected);
        // A newer program wrote its own timer, and then an older program replaced the newer program.
        let noted = ["unit kops-agent-of-another-version.timer", "unit kops-agent-follow.service"];
        let changes = changes_of(&plan, &noted.map(str::to_owned));
        assert_eq!(changes.own, [names(&own), vec![noted[0].to_owned()]].concat());
        assert_eq!(changes.others, names(&others[..3]));
    }

    #[test]
    fn adopted_and_unrepairable_resources_of_a_plan_count_as_changes() {
        let kept = [
            json!({"resource": "file /a", "why": "no longer wanted"}),
            json!({"resource": "file /b", "why": "read-only", "keeping": "unmended"}),
        ];
        let plan = json!({"steps": [], "adopted": ["file /c"], "kept": kept});
        assert_eq!(
            changes_of(&plan, &[]).others,
            ["file /c, which the new program would manage", "file /b, which the new program cannot repair"]
        );
    }

    #[test]
    fn another_form_of_the_output_is_not_read_as_no_change() {
        for text in ["", "no JSON", "{}", r#"{"plan": null}"#, r#"{"plan": {"steps": [{"id": "file /a"}]}}"#]
        {
            Changes::read(text.as_bytes(), &[]).unwrap_err();
        }
    }

    #[tokio::test]
    async fn a_program_that_prints_without_end_fails() {
        let here = Path::new("/");
        let trial = Trial { program: "sh", path_to_be: "/x", conf: here, root: here };
        let mut endless = trial.command();
        endless.args(["-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"]);
        let output = trial.run(&mut endless, PRINTED_WITHIN).await.unwrap();
        assert_eq!(u64::try_from(output.stdout.len()).unwrap(), LARGEST_OUTPUT);
        assert!(!output.status.success());
    }

    #[tokio::test]
    async fn a_program_that_writes_for_too_long_is_not_killed() {
        let folder = tempfile::tempdir().unwrap();
        let [go, done] = ["go", "done"].map(|name| folder.path().join(name));
        let mut writes = Command::new("sh");
        let script = "until [ -e \"$0\" ]; do sleep 0.01; done; echo written >\"$1\"";
        writes.args(["-c", script]).args([&go, &done]);
        let Err(Unwritten::AtWork(why)) = written(&mut writes, Duration::from_millis(10)).await else {
            panic!("it cannot end before it may go on");
        };
        assert!(why.contains("and continues"), "{why}");
        std::fs::write(go, "").unwrap();
        let begun = std::time::Instant::now();
        while std::fs::read_to_string(&done).unwrap_or_default() != "written\n" {
            assert!(begun.elapsed() < Duration::from_secs(60), "it was killed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let failed = written(Command::new("sh").args(["-c", "exit 4"]), WRITTEN_WITHIN).await;
        assert!(
            matches!(&failed, Err(Unwritten::Failed(why)) if why.contains("exit status: 4")),
            "{failed:?}"
        );
    }
}
