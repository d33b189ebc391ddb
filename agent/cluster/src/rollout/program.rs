//! Other versions of kops-agent instead of configurations. What a node runs comes from the state store, as a configuration does: the
//! order has only the hash of the program file there. So no one chooses a program who may only patch Nodes.

mod canaries;
mod choice;
mod download_url;

pub use canaries::{MOST_CANARIES, Observation};
pub use choice::UpgradeChoice;

use std::collections::BTreeMap;

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::digest::is_sha256_hex;
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::terminal::shortened;
use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::course::Course;
use super::decide::{Canary, Decision, Member, Seen, decide_course};
use super::order::Outcome;
use super::status::{FirstNodes, Status};

/// The program file, below the cluster's folder in the state store. Only operators write it.
pub const PROGRAM_FILE: &str = "kops-agent/program.yaml";
/// Maximum size of the program file, in bytes.
pub const LARGEST_PROGRAM_FILE: usize = 16 << 10;
/// Maximum length of a version, in bytes.
const LONGEST_VERSION: usize = 64;
/// Maximum length of the reason why no node begins, in characters. The reason may quote a message about the program file.
const LONGEST_HOLD: usize = 600;
/// The value of `Member::runs` for a node that is not done. For a done node, the value is the hash of the wanted program file.
const OTHER: &str = "another program";

/// A version of kops-agent, with the download of its program for each architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    /// The version that the program prints, without the commit.
    pub version: String,
    /// The SHA-256 of the program file in base64, like the hash of a configuration.
    pub hash: String,
    programs: Programs,
}

/// The program file as the operator writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: String,
    programs: Programs,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    amd64: Option<Download>,
    arm64: Option<Download>,
}

/// The program of one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Download {
    pub url: String,
    /// SHA-256 of the program: 64 lower-case hexadecimal digits.
    pub sha256: String,
}

/// The version of kops-agent that a rollout brings to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedProgram {
    pub version: String,
    /// The hash of the program file.
    pub hash: String,
    /// The SHA-256 of each program in the program file, by architecture. A node that runs one of these programs is done.
    pub sha256: BTreeMap<String, String>,
}

impl WantedProgram {
    pub fn has(&self, sha256: &str) -> bool {
        self.sha256.values().any(|wanted| wanted == sha256)
    }

    /// Whether the file has no program for an architecture. `false` if the architecture is not known (empty).
    pub fn lacks(&self, architecture: &str) -> bool {
        !architecture.is_empty() && !self.sha256.contains_key(architecture)
    }
}

impl ProgramFile {
    /// Reads the program file. `source` is the URL or path for errors.
    pub fn parse(text: &[u8], source: &str) -> Result<ProgramFile, Failure> {
        ProgramFile::read(text).map_err(|problem| {
            let form = "version: VERSION, and programs: {amd64: {url: …, sha256: …}, arm64: …}";
            let message = format!("the program file {source} is wrong: {problem}; it must have {form}");
            Failure::new(Kind::ProgramFileWrong, message)
        })
    }

    fn read(text: &[u8]) -> Result<ProgramFile, String> {
        if text.len() > LARGEST_PROGRAM_FILE {
            return Err(format!("it has more than {LARGEST_PROGRAM_FILE} bytes"));
        }
        let utf8 = std::str::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())?;
        let Written { version, programs } = yaml::from_str(utf8).map_err(|error| error.to_string())?;
        let is_of_version = |byte: u8| byte.is_ascii_alphanumeric() || b".-+~".contains(&byte);
        if !(1..=LONGEST_VERSION).contains(&version.len()) || !version.bytes().all(is_of_version) {
            return Err(format!("{version:?} is not a version such as 0.2.0"));
        }
        let file = ProgramFile { version, hash: NodeupConfig::hash(text), programs };
        if file.downloads().next().is_none() {
            return Err("programs names no architecture".to_owned());
        }
        file.downloads().try_for_each(|(_, download)| download.check())?;
        Ok(file)
    }

    /// The programs, each with Go's name for its architecture.
    fn downloads(&self) -> impl Iterator<Item = (&str, &Download)> {
        let Programs { amd64, arm64 } = &self.programs;
        [("amd64", amd64), ("arm64", arm64)]
            .into_iter()
            .filter_map(|(architecture, download)| Some((architecture, download.as_ref()?)))
    }

    /// The program of an architecture; `None` if the file has none.
    pub fn download(&self, architecture: Architecture) -> Option<&Download> {
        match architecture {
            Architecture::Amd64 => self.programs.amd64.as_ref(),
            Architecture::Arm64 => self.programs.arm64.as_ref(),
        }
    }

    pub fn wanted(&self) -> WantedProgram {
        WantedProgram {
            version: self.version.clone(),
            hash: self.hash.clone(),
            sha256: self
                .downloads()
                .map(|(architecture, download)| (architecture.to_owned(), download.sha256.clone()))
                .collect(),
        }
    }
}

impl Download {
    fn check(&self) -> Result<(), String> {
        let Download { url, sha256 } = self;
        if !is_sha256_hex(sha256) {
            return Err(format!("{sha256:?} is not a SHA-256 of 64 lower-case hexadecimal digits"));
        }
        download_url::check(url).map_err(|problem| format!("a URL {problem}"))
    }
}

/// Decides which nodes upgrade kops-agent now, by the rules of [`decide_course`]. A node is done once it has carried out its order,
/// whatever a later run reports. A node without an order is done if it reports the SHA-256 of the wanted program, with two exceptions: its
/// last outcome is a failed upgrade, or it reports that the program is unchecked. In both cases, the node may have failed after the switch
/// to the program, even in an earlier rollout. The report is needed because the outcome of a later order replaces the outcome of the
/// upgrade, but not the report. A node that runs the program but is not done also gets an order. With this order, the node only repeats
/// the check of the program.
///
/// Two kinds of nodes get no order, and the status names them. The first kind has an old kops-agent that does not report its program, and
/// that may mistake the order for an order to take a configuration. The second kind has an architecture for which the file has no program.
pub(super) fn decide_programs(
    course: &Course,
    (wanted, observe): (&WantedProgram, u32),
    (members, seen): (&[Member], &Seen),
    before: &Status,
    now: OffsetDateTime,
) -> Decision {
    let order = |member: &Member| before.ordered.get(&member.node).filter(|_| before.rollout == course.id);
    let canaries = canaries::canaries(course, observe, (members, before), now);
    let canary = |member: &Member| {
        let observation = canaries.get(&member.node);
        observation.map_or(Canary::No, |observation| observation.canary_state(member, course, observe, now))
    };
    let as_configured = |member: &Member| {
        let has_part = !member.group.is_empty() && course.settings(&member.group).is_some();
        let order = order(member);
        let is_open = order.is_some_and(|order| !member.has_answered(order));
        let has_carried_out = member.has_carried_out(&course.id) && !is_open;
        let has_failed =
            || member.is_unchecked || member.outcome.as_ref().is_some_and(Outcome::is_failed_upgrade);
        // A node that the rollout does not cover is treated as done, so no other node waits for it. This is safe, because this
        // rollout changes no kubelet: no kubelet becomes newer than an API server.
        let is_outside = !has_part && order.is_none();
        let is_done = has_carried_out || runs(member, wanted) && !has_failed() && !is_open || is_outside;
        let is_left_out = has_part
            && order.is_none()
            && !is_done
            && (member.program.is_none() || wanted.lacks(&member.architecture));
        let runs = if is_done { &wanted.hash } else { OTHER };
        Member { runs: Some(runs.to_owned()), is_left_out, canary: canary(member), ..member.clone() }
    };
    let members: Vec<Member> = members.iter().map(as_configured).collect();
    let current = members.iter().map(|member| (member.group.clone(), Ok(wanted.hash.clone()))).collect();
    let hold = || Some(shortened(&hold(wanted, seen)?, LONGEST_HOLD));
    let course = Course { hold: course.hold.clone().or_else(hold), ..course.clone() };
    // An upgrade of kops-agent does not change which authorities a node trusts. So the orders name no authorities: a node with outdated
    // authorities would fail such an order.
    let seen = Seen { current, listed: seen.listed.clone(), is_stale: seen.is_stale, ..Seen::default() };
    let mut decision = decide_course(&course, &members, &seen, before, now);
    let left_out = members.iter().filter(|member| member.is_left_out).map(|member| member.node.as_str());
    decision.status.left_out = FirstNodes::from_nodes(left_out);
    decision.status.canaries = canaries;
    decision
}

fn runs(member: &Member, wanted: &WantedProgram) -> bool {
    member.program.as_ref().is_some_and(|sha256| wanted.has(sha256))
}

/// Why no node begins; `None` if the state store has the wanted program file.
fn hold(wanted: &WantedProgram, seen: &Seen) -> Option<String> {
    match &seen.program {
        Some(Ok(file)) if file.hash != wanted.hash => Some(format!(
            "the state store has another {PROGRAM_FILE}, for version {}. Copy the program file that was \
             given to `fleet upgrade` to the state store, or run `fleet rollout abort` and start `fleet \
             upgrade` with the file of the state store",
            file.version
        )),
        Some(Ok(file)) if file.wanted() != *wanted => Some(format!(
            "this rollout has the hash of {PROGRAM_FILE} in the state store, but names other programs: \
             someone changed the ConfigMap. Run `fleet rollout abort`, and start `fleet upgrade` again"
        )),
        Some(Ok(_)) => None,
        Some(Err(failure)) => Some(failure.to_string()),
        None => Some(format!("{PROGRAM_FILE} of the state store was not read")),
    }
}

#[cfg(test)]
mod tests;
