//! Other versions of kops-agent instead of configurations. What a node runs comes from the state store, as a configuration does: the
//! order has only the hash of the program file there. So no one chooses a program who may only patch Nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kops_agent_spec::NodeupConfig;
use kops_agent_spec::digest::is_sha256_hex;
use kops_agent_spec::facts::Architecture;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::yaml;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::course::Course;
use super::decide::{Decision, Member, Seen, decide_course};
use super::status::{FirstNodes, Status};

/// The program file, below the cluster's folder in the state store. Only operators write it.
pub const PROGRAM_FILE: &str = "kops-agent/program.yaml";
/// Maximum size of the program file, in bytes.
pub const LARGEST_PROGRAM_FILE: usize = 16 << 10;
/// Maximum length of a version, in bytes.
const LONGEST_VERSION: usize = 64;
/// Maximum length of a URL, in bytes.
const LONGEST_URL: usize = 2048;
/// Stands for the program of nodes that do not run the wanted one.
const OTHER: &str = "another program";

/// A version of kops-agent, and where each architecture gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFile {
    /// The version that the program prints, without the commit.
    pub version: String,
    /// The hash of the file, in the form of a configuration's hash.
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

/// The version of kops-agent that the nodes of a rollout run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WantedProgram {
    pub version: String,
    /// The hash of the program file.
    pub hash: String,
    /// SHA-256 of the program of each architecture. A node that runs one of them is done.
    pub sha256: BTreeSet<String>,
}

impl ProgramFile {
    /// Reads the program file. `source` is the URL or path for errors.
    ///
    /// # Errors
    /// The file is too large, is not YAML of this form, or has a value that is not valid.
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
            return Err(format!("the version {version:?} is not one such as 0.2.0"));
        }
        let file = ProgramFile { version, hash: NodeupConfig::hash(text), programs };
        let downloads: Vec<&Download> = file.downloads().collect();
        if downloads.is_empty() {
            return Err("programs names no architecture".to_owned());
        }
        downloads.into_iter().try_for_each(Download::check)?;
        Ok(file)
    }

    fn downloads(&self) -> impl Iterator<Item = &Download> {
        [&self.programs.amd64, &self.programs.arm64].into_iter().flatten()
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
            sha256: self.downloads().map(|download| download.sha256.clone()).collect(),
        }
    }
}

impl Download {
    fn check(&self) -> Result<(), String> {
        let Download { url, sha256 } = self;
        if !is_sha256_hex(sha256) {
            return Err(format!("{sha256:?} is not a SHA-256 of 64 lower-case hexadecimal digits"));
        }
        check_url(url).map_err(|problem| format!("a URL {problem}"))
    }
}

/// Refuses a URL with credentials, and one that leads to the machine's own files or to its cloud's metadata service. The messages do
/// not repeat the URL, because it may have a password.
fn check_url(url: &str) -> Result<(), String> {
    if url.len() > LONGEST_URL || !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(format!(
            "has more than {LONGEST_URL} bytes, or a character that is not allowed; escape it with %"
        ));
    }
    let (scheme, rest) = url.split_once("://").ok_or("has no scheme such as https://")?;
    if !scheme.starts_with(|c: char| c.is_ascii_lowercase()) || scheme == "file" {
        return Err("is not one of a server or a bucket; use https:// or the scheme of a bucket".to_owned());
    }
    if rest.contains(['?', '#']) {
        return Err("has a query or a fragment, which may be a credential; leave it out".to_owned());
    }
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err("has credentials; leave them out".to_owned());
    }
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if host.is_empty() || path.is_empty() {
        return Err("names no host or no file".to_owned());
    }
    match is_metadata_service(host) {
        true => Err("leads to a cloud's metadata service, or has an address in an unusual form".to_owned()),
        false => Ok(()),
    }
}

/// Whether a host is a link-local address, Amazon's IPv6 address of its metadata service, or a number. Clients read a number as an
/// address.
fn is_metadata_service(host: &str) -> bool {
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_link_local(),
        Ok(IpAddr::V6(address)) => {
            address.is_unicast_link_local()
                || address.to_ipv4_mapped().is_some()
                || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
        Err(_) => {
            let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
            let is_number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
            is_number || host.trim_end_matches('.').eq_ignore_ascii_case("metadata.google.internal")
        }
    }
}

/// Decides which nodes run another version of kops-agent now, by the rules of [`decide_course`]. A node is done once it reports the
/// SHA-256 of the wanted program, and has answered its order if it had one. A node that does not report its program may be of a
/// version that takes the order for one of a configuration. It gets no order, and the status names it.
pub(super) fn decide_programs(
    course: &Course,
    wanted: &WantedProgram,
    (members, seen): (&[Member], &Seen),
    before: &Status,
    now: OffsetDateTime,
) -> Decision {
    let order = |member: &Member| before.ordered.get(&member.node).filter(|_| before.rollout == course.id);
    let has_part = |member: &Member| !member.group.is_empty() && course.settings(&member.group).is_some();
    let is_left_out =
        |member: &&Member| has_part(member) && member.program.is_none() && order(member).is_none();
    let as_configured = |member: &Member| {
        let is_open = order(member).is_some_and(|order| !member.has_answered(order));
        let runs_it = member.program.as_ref().is_some_and(|sha256| wanted.sha256.contains(sha256));
        // No other node waits for nodes that get no order: no kubelet gets newer.
        let is_outside = !has_part(member) && order(member).is_none();
        let is_done = runs_it && !is_open || is_left_out(&member) || is_outside;
        let runs = if is_done { &wanted.hash } else { OTHER };
        Member { runs: Some(runs.to_owned()), ..member.clone() }
    };
    let as_configured: Vec<Member> = members.iter().map(as_configured).collect();
    let current = members.iter().map(|member| (member.group.clone(), Ok(wanted.hash.clone()))).collect();
    let course = Course { hold: course.hold.clone().or_else(|| hold(wanted, seen)), ..course.clone() };
    let seen = Seen { current, ..seen.clone() };
    let mut decision = decide_course(&course, &as_configured, &seen, before, now);
    let left_out = members.iter().filter(is_left_out).map(|member| member.node.as_str());
    decision.status.left_out = FirstNodes::from_nodes(left_out);
    decision
}

/// Why no node begins; `None` if the state store has the wanted program file.
fn hold(wanted: &WantedProgram, seen: &Seen) -> Option<String> {
    match &seen.program {
        Some(Ok(file)) if file.hash == wanted.hash => None,
        Some(Ok(file)) => Some(format!(
            "the state store has another {PROGRAM_FILE}, of version {}; copy the file that you gave `fleet upgrade` there",
            file.version
        )),
        Some(Err(problem)) => Some(problem.clone()),
        None => Some(format!("{PROGRAM_FILE} of the state store was not read")),
    }
}

#[cfg(test)]
mod tests;
