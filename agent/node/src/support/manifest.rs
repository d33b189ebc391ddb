//! The first file of a bundle: a list of its parts, and of the missing parts.

use std::fmt::Write as _;

use anyhow::Result;
use kops_agent_spec::timestamp;
use time::OffsetDateTime;

use super::part::Part;
use kops_agent_process::version::VERSION;

pub fn text(host: &str, now: OffsetDateTime, parts: &[Part]) -> Result<String> {
    let now = timestamp(now);
    let mut text = format!("A support bundle of {host}, made at {now} by kops-agent {VERSION}.\n\n");
    for part in parts {
        match (&part.content, part.bytes()) {
            (Err(why), _) => {
                writeln!(text, "{}: not in it: {}", part.name, why.to_string().replace('\n', "\n    "))?
            }
            (Ok(_), bytes) => writeln!(text, "{}: {} bytes", part.name, bytes.unwrap_or_default().len())?,
        }
    }
    text.push_str("\n[***] stands for a secret of this machine, or for text of your own in its place.\n");
    Ok(text)
}
