//! A picture of a terminal with the agent's output on the example control plane, as nodeup leaves it, for README.
//!
//! The agent prints all of it. Values that differ between runs (times, the hash of a configuration with new keys) are
//! replaced by values of the same form. So the same program always makes the same bytes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::example_cluster::{ExampleCluster, leave_as_nodeup};
use crate::example_keys::make_keysets;
use crate::example_store::{CONFIG_BASE, CONTROL_PLANE};

/// The time that replaces each timestamp in the picture.
const TIME: &str = "2026-11-22T03:00:00Z";
/// The picture shows this hash instead of the configuration hash, because the configuration hash differs in each run.
const CONFIG_HASH: &str = "LTITxt0yV2Lb+4t2qpZVruhy5uGTg1bj6p9DbnJwe8w=";
/// The text that a screen reader reads instead of the picture.
pub const TITLE: &str = "A terminal: kops-agent plan shows what a takeover from nodeup changes, kops-agent converge \
                         carries it out, kops-agent status shows the node converged.";
const CONF: &str = "--conf /opt/kops/conf/kube_env.yaml";

/// The output of `plan`, `converge` and `status` on a control plane that nodeup has made, with a terminal's colours.
pub fn session(agent: &Path, folder: &Path) -> anyhow::Result<String> {
    let cluster = ExampleCluster::start(&folder.join("cluster"), &make_keysets()?)?;
    let root = folder.join("root");
    fs::create_dir(&root)?;
    let run = |verb: &str, flags: &[&str]| {
        let mut command = match verb {
            "status" => {
                let mut command = std::process::Command::new(agent);
                command.env_clear().arg(verb);
                command
            }
            _ => cluster.agent(agent, verb, CONTROL_PLANE, CONFIG_BASE),
        };
        // This proxy does not exist, so no HTTPS request succeeds. The agent needs none, because the stand-ins use
        // plain HTTP.
        command.env("HTTPS_PROXY", "http://127.0.0.1:1").arg("--root").arg(&root).args(flags);
        let output = command.output().with_context(|| format!("running {}", agent.display()))?;
        ensure!(output.status.success(), "{verb} failed: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    };

    run("converge", &[])?;
    leave_as_nodeup(&root)?;
    let mut session = "\u{1b}[2m# on a control plane that nodeup made\u{1b}[0m\n".to_owned();
    for (verb, arguments, flags) in [
        ("plan", CONF, &["--color", "always"][..]),
        ("converge", CONF, &["--color", "always"]),
        ("status", "", &[]),
    ] {
        let printed = run(verb, flags)?;
        let command = format!("kops-agent {verb} {arguments}");
        write!(session, "\u{1b}[1m$ {}\u{1b}[0m\n{printed}\n", command.trim_end())?;
    }
    Ok(session.trim_end().lines().map(|line| repeatable(line) + "\n").collect())
}

/// Replaces the configuration hash and the timestamps in a line, because they differ in each run.
fn repeatable(line: &str) -> String {
    if line.starts_with("config hash") {
        return format!("config hash  {CONFIG_HASH}");
    }
    let is_time = |word: &str| {
        word.len() == TIME.len()
            && word.bytes().zip(TIME.bytes()).all(|(found, form)| match form {
                b'0'..=b'9' => found.is_ascii_digit(),
                _ => found == form,
            })
    };
    line.split(' ').map(|word| if is_time(word) { TIME } else { word }).collect::<Vec<_>>().join(" ")
}

const CHARACTER_WIDTH: f64 = 8.4;
const LINE_HEIGHT: usize = 19;
const PADDING: usize = 16;

/// Draws a session as SVG. The session's `SGR` sequences set the colours. A screen reader reads `title`.
pub fn svg(session: &str, title: &str) -> Result<String, std::fmt::Error> {
    let lines: Vec<Vec<Run>> = session.lines().map(runs).collect();
    let length = |line: &Vec<Run>| line.iter().map(|run| run.text.chars().count()).sum::<usize>();
    let columns = lines.iter().map(length).max().unwrap_or_default();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let width = (columns as f64 * CHARACTER_WIDTH).ceil() as usize + 2 * PADDING;
    let height = lines.len() * LINE_HEIGHT + 2 * PADDING;

    let mut svg = String::new();
    writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<!-- Made by packaging/terminal-picture from what kops-agent prints; do not edit. -->
<title>{}</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d0d7de; white-space: pre; }}
.b {{ font-weight: bold; fill: #ffffff; }} .d {{ fill: #8b949e; }} .r {{ fill: #ff7b72; }} .g {{ fill: #7ee787; }} .y {{ fill: #e3b341; }} .c {{ fill: #76e3ea; }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>"##,
        escaped(title)
    )?;
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = PADDING + (number + 1) * LINE_HEIGHT - 5;
        write!(svg, r#"<text x="{PADDING}" y="{y}" xml:space="preserve">"#)?;
        for Run { class, text } in line {
            match class {
                None => write!(svg, "{}", escaped(text))?,
                Some(class) => write!(svg, r#"<tspan class="{class}">{}</tspan>"#, escaped(text))?,
            }
        }
        svg.push_str("</text>\n");
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// A part of a line that has one colour.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    class: Option<&'static str>,
    text: String,
}

fn runs(line: &str) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut class = None;
    let mut parts = line.split("\u{1b}[");
    let mut push = |class, text: &str| {
        if !text.is_empty() {
            runs.push(Run { class, text: text.to_owned() });
        }
    };
    push(None, parts.next().unwrap_or_default());
    for part in parts {
        let (code, text) = part.split_once('m').unwrap_or((part, ""));
        class = match code {
            "1" => Some("b"),
            "2" => Some("d"),
            "31" => Some("r"),
            "32" => Some("g"),
            "33" => Some("y"),
            "36" => Some("c"),
            "0" | "" => None,
            _ => class,
        };
        push(class, text);
    }
    runs
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept_and_markup_is_escaped() -> Result<(), std::fmt::Error> {
        let drawn = svg("\u{1b}[32m+a <b>\u{1b}[0m & c\n", "<t>")?;
        assert!(drawn.contains(r#"<tspan class="g">+a &lt;b&gt;</tspan> &amp; c</text>"#), "{drawn}");
        assert!(drawn.contains("<title>&lt;t&gt;</title>"), "{drawn}");
        Ok(())
    }

    #[test]
    fn values_that_differ_between_runs_are_replaced() {
        assert_eq!(
            repeatable("converged    since 2031-01-02T13:14:15Z"),
            format!("converged    since {TIME}")
        );
        assert_eq!(repeatable("config hash  abc="), format!("config hash  {CONFIG_HASH}"));
        assert_eq!(repeatable("  ~ file /etc/x"), "  ~ file /etc/x");
    }
}
