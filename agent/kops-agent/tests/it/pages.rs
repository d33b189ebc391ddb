//! Checks the pages against the program and the repository. Each command, flag, path, link, metric and message of a
//! page must exist. Each command that can run on the example node is run there. `walk` runs whole pages in order.

#![allow(clippy::unwrap_used, unreachable_pub)]

mod commands;
mod kops;
mod page;
mod releases;
mod repository;
mod walk;

use std::collections::BTreeSet;
use std::fs;

use crate::example::{Ended, Machine, agent};
use commands::{Call, calls};
use kops_agent_cluster::fleet::{EARLY_WARNINGS, WarningReason};
use kops_agent_kube::events::Reason;
use kops_agent_process::exit::MEANINGS;
use kops_agent_spec::failure::Kind;
use kops_agent_tests::example_store::NODES;
use kops_agent_tests::terminal_picture::{TITLE, session, svg};
use page::{Block, Page, pages};
use repository::Repository;
pub use repository::checkout;
use serde::Deserialize as _;

#[track_caller]
fn expect_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn every_command_is_one_that_the_program_takes() {
    let wrong: Vec<String> = pages()
        .iter()
        .flat_map(|page| calls(page).into_iter().filter_map(|call| call.refused_by(&agent(), page)))
        .collect();
    expect_none(&wrong);
}

#[test]
fn every_command_that_a_message_advises_is_one_that_the_program_takes() {
    let advised: Vec<(Page, Vec<Call>)> = Repository::of_this_checkout()
        .advice()
        .into_iter()
        .map(|page| {
            let calls = calls(&page);
            (page, calls)
        })
        .collect();
    let verbs: BTreeSet<&str> = advised.iter().flat_map(|(_, calls)| calls).map(Call::verb).collect();
    for verb in ["converge", "verify", "status", "doctor", "addons", "fleet", "config"] {
        assert!(verbs.contains(verb), "no message advises {verb}: {verbs:?}");
    }
    let refused = |(page, calls): &(Page, Vec<Call>)| -> Vec<String> {
        calls.iter().filter_map(|call| call.refused_by(&agent(), page)).collect()
    };
    expect_none(&advised.iter().flat_map(refused).collect::<Vec<_>>());
}

/// The example node has converged, so that `plan`, `verify` and `status` have something to show.
#[test]
fn every_command_that_can_be_is_run_on_the_example_node() {
    let node = Machine::new(NODES);
    node.run("converge", &[]).with(0, &[]);
    let mut all: Vec<(String, Call)> = Vec::new();
    for page in pages() {
        let of_page = calls(&page).into_iter().filter(Call::runs_on_a_node);
        all.extend(of_page.map(|call| (page.name.clone(), call)));
    }
    // The reset is last, because other commands cannot run after it.
    all.sort_by_key(|(_, call)| call.verb() == "reset");
    let mut run = BTreeSet::new();
    let mut wrong = Vec::new();
    for (page, call) in &all {
        let arguments = call.on(&node);
        if !run.insert(arguments.clone()) {
            continue;
        }
        let mut command = std::process::Command::new(agent());
        command.env_clear().envs(node.cluster.environment()).env("HTTPS_PROXY", "http://127.0.0.1:1");
        let ended = Ended::from_command(command.args(&arguments));
        if !matches!(ended.code, 0 | 4) {
            wrong.push(format!("{page}: `{}`: {ended:#?}", call.text));
        }
    }
    expect_none(&wrong);
    let verbs: BTreeSet<&str> = run.iter().map(|arguments| arguments[0].as_str()).collect();
    for verb in ["plan", "converge", "verify", "status", "render", "explain", "config", "reset"] {
        assert!(verbs.contains(verb), "no page shows {verb}: {verbs:?}");
    }
}

#[test]
fn every_flag_is_one_of_the_program_or_of_a_script_here() {
    let repository = Repository::of_this_checkout();
    let known = commands::flags(&agent());
    let is_known = |flag: &str| {
        known.contains(flag) || commands::FLAGS_OF_OTHERS.contains(&flag) || repository.scripts_have(flag)
    };
    let wrong: Vec<String> = pages()
        .iter()
        .flat_map(|page| {
            let flags = page.spans.iter().filter_map(|span| commands::flag(span));
            flags.filter(|flag| !is_known(flag)).map(|flag| format!("{}: there is no {flag}", page.name))
        })
        .collect();
    expect_none(&wrong);
}

#[test]
fn every_script_accepts_its_arguments_on_the_pages() {
    let repository = Repository::of_this_checkout();
    let wrong: Vec<String> =
        pages().iter().flat_map(|page| commands::wrong_scripts(page, &repository)).collect();
    expect_none(&wrong);
}

#[test]
fn blocks_of_shell_are_shell() {
    let mut wrong = Vec::new();
    for page in pages() {
        for block in page.blocks.iter().filter(|block| block.language == "sh") {
            let checked =
                std::process::Command::new("bash").args(["-n", "-c", &block.text]).output().unwrap();
            if !checked.status.success() {
                wrong.push(format!("{}: {}", page.name, String::from_utf8_lossy(&checked.stderr)));
            }
        }
    }
    expect_none(&wrong);
}

#[test]
fn blocks_of_yaml_and_json_can_be_read() {
    let problem = |block: &Block| -> Option<String> {
        match block.language.as_str() {
            "yaml" => serde_yaml::Deserializer::from_str(&block.text)
                .find_map(|document| serde_yaml::Value::deserialize(document).err())
                .map(|error| error.to_string()),
            "json" => {
                serde_json::from_str::<serde_json::Value>(&block.text).err().map(|error| error.to_string())
            }
            _ => None,
        }
    };
    let of_page = |page: &Page| -> Vec<String> {
        let problems = page.blocks.iter().filter_map(problem);
        problems.map(|problem| format!("{}: {problem}", page.name)).collect()
    };
    expect_none(&pages().iter().flat_map(of_page).collect::<Vec<_>>());
    let broken =
        Page::parse("docs/x.md", "```yaml\na: 1\n---\nb: [\n```\n\n```json\n{\n```\n\n```yaml\na: 1\n```\n");
    assert_eq!(of_page(&broken).len(), 2);
}

#[test]
fn every_path_and_link_leads_somewhere() {
    let repository = Repository::of_this_checkout();
    let all = pages();
    let wrong: Vec<String> = all
        .iter()
        .flat_map(|page| {
            let mut wrong = repository.missing_paths(page);
            wrong.extend(repository.broken_links(page, &all));
            wrong
        })
        .collect();
    expect_none(&wrong);
}

#[test]
fn every_page_is_found_from_the_readme() {
    let all = pages();
    let mut found = BTreeSet::from(["README.md".to_owned()]);
    loop {
        let more: BTreeSet<String> =
            all.iter().filter(|page| found.contains(&page.name)).flat_map(Page::linked_pages).collect();
        if !more.iter().any(|page| found.insert(page.clone())) {
            break;
        }
    }
    let lost: Vec<&String> =
        all.iter().map(|page| &page.name).filter(|name| !found.contains(*name)).collect();
    assert!(lost.is_empty(), "no page leads to {lost:?}");
}

#[test]
fn every_command_of_kops_is_one_that_kops_has() {
    let all = pages();
    let shown = all.iter().flat_map(commands::commands).filter(|command| command.starts_with("kops "));
    assert!(shown.count() > 30);
    expect_none(&all.iter().flat_map(kops::unknown).collect::<Vec<_>>());
}

#[test]
fn every_download_is_a_file_of_a_release() {
    expect_none(&pages().iter().flat_map(Repository::unknown_downloads).collect::<Vec<_>>());
}

#[test]
fn metrics_alerts_variables_and_units_are_the_programs() {
    let repository = Repository::of_this_checkout();
    let wrong: Vec<String> = pages().iter().flat_map(|page| repository.unknown_names(page)).collect();
    expect_none(&wrong);
}

#[test]
fn exit_codes_are_in_one_table() {
    let rows = |page: &Page| -> Vec<(String, String)> {
        let rows = page.text.lines().filter_map(|line| line.strip_prefix("| "));
        let cells = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
        let codes =
            cells.filter(|cells| cells[0].len() == 1 && cells[0].starts_with(|c: char| c.is_ascii_digit()));
        codes.map(|cells| (cells[0].to_owned(), cells[1].to_owned())).collect()
    };
    let expected = MEANINGS.map(|(code, meaning)| (code.to_string(), meaning.to_owned()));
    assert_eq!(rows(&Page::read("docs/nodes.md")), expected);
    for page in pages().iter().filter(|page| page.name != "docs/nodes.md") {
        assert!(rows(page).is_empty(), "{} has a table of its own", page.name);
    }
    let help = Ended::from_command(std::process::Command::new(agent()).arg("--help")).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for (code, meaning) in MEANINGS {
        assert!(help.contains(&format!("{code} {meaning}")), "{code} {meaning} is not in {help}");
    }
}

#[test]
fn every_code_of_a_failure_has_one_entry() {
    let page = Page::read("docs/errors.md");
    let entries: Vec<&str> = page.text.split("\n## ").skip(1).collect();
    let codes: Vec<&str> = entries.iter().map(|entry| entry.split(' ').next().unwrap()).collect();
    assert_eq!(codes, Kind::ALL.iter().map(|kind| kind.code()).collect::<Vec<_>>());
    let is_whole = |entry: &&str| {
        let lines: Vec<&str> = entry.lines().skip(1).filter(|line| line.starts_with("* ")).collect();
        let begins = ["* Meaning: ", "* Cause: ", "* To do: "];
        lines.len() == begins.len() && lines.iter().zip(begins).all(|(line, begin)| line.starts_with(begin))
    };
    let unfinished: Vec<&str> = entries.iter().copied().filter(|entry| !is_whole(entry)).collect();
    assert!(unfinished.is_empty(), "{unfinished:#?}");
}

#[test]
fn every_alert_leads_to_a_heading_that_is_there() {
    const SOURCES: &str = "https://github.com/kops-agent/kops-agent/blob/main/";
    let rules = Repository::of_this_checkout().script("packaging/prometheus/rules.yaml").unwrap();
    let rules: serde_yaml::Value = serde_yaml::from_str(&rules).unwrap();
    let groups = rules["groups"].as_sequence().unwrap();
    let alerts: Vec<_> = groups.iter().flat_map(|group| group["rules"].as_sequence().unwrap()).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    let all = pages();
    let leads_somewhere = |url: &str| {
        let (page, anchor) = url.strip_prefix(SOURCES)?.split_once('#')?;
        all.iter().find(|found| found.name == page)?.anchors.iter().find(|found| *found == anchor)
    };
    let wrong: Vec<String> = alerts
        .iter()
        .filter(|alert| alert["annotations"]["runbook_url"].as_str().and_then(leads_somewhere).is_none())
        .map(|alert| format!("{:?}: runbook_url leads to no heading", alert["alert"]))
        .collect();
    expect_none(&wrong);
}

#[test]
fn troubleshooting_has_the_programs_messages_and_misses_no_family_or_reason() {
    let repository = Repository::of_this_checkout();
    let page = Page::read("docs/troubleshooting.md");
    let mut wrong = repository.unknown_messages(&page);
    wrong.extend(repository.families_without_message(&page));
    wrong.extend(repository.reasons_without_explanation(&page));
    expect_none(&wrong);
}

#[test]
fn troubleshooting_explains_the_reason_of_every_event() {
    let page = Page::read("docs/troubleshooting.md");
    let rows: Vec<&str> = page.text.lines().filter(|line| line.starts_with("| ")).collect();
    let is_explained = |reason: &Reason| {
        let cell = format!("| `{}` |", reason.name());
        rows.iter().any(|row| row.contains(&cell))
    };
    let lost: Vec<&Reason> = Reason::ALL.iter().filter(|reason| !is_explained(reason)).collect();
    assert!(lost.is_empty(), "{} has no {lost:?}", page.name);
}

#[test]
fn the_page_of_the_fleet_has_each_early_warning_with_its_reasons() {
    let page = Page::read("docs/fleet.md");
    let rows: Vec<&str> = page.text.lines().filter(|line| line.starts_with("| ")).collect();
    let is_explained = |reason: &WarningReason| {
        let cells = format!("| {} | `{}` |", reason.status(), reason.name());
        rows.iter().any(|row| row.contains(&cells))
    };
    let lost: Vec<&WarningReason> =
        WarningReason::ALL.iter().filter(|reason| !is_explained(reason)).collect();
    assert!(lost.is_empty(), "{} has no {lost:?}", page.name);
    for warning in EARLY_WARNINGS {
        assert!(rows.iter().any(|row| row.starts_with(&format!("| `{warning}` |"))), "no row of {warning}");
    }
}

#[test]
fn an_alert_reads_each_early_warning() {
    let rules = Repository::of_this_checkout().script("packaging/prometheus/rules.yaml").unwrap();
    let (_, alert) = rules.split_once("- alert: KopsAgentEarlyWarning\n").unwrap();
    let expression = alert.lines().next().unwrap();
    let names = EARLY_WARNINGS.join("|");
    assert!(expression.contains(&format!("condition=~\"{names}\"")), "{expression}");
}

#[test]
fn the_readme_is_short() {
    let words = Page::read("README.md").text.split_whitespace().count();
    assert!(words < 900, "README.md has {words} words, and is to have fewer than 900");
}

#[test]
fn the_readme_leads_first_to_a_trial() {
    let linked = Page::read("README.md").linked_pages();
    assert_eq!(linked.iter().find(|page| page.ends_with(".md")).unwrap(), "docs/try.md");
}

#[test]
fn the_picture_shows_the_output_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let drawn = svg(&session(&agent(), folder.path()).unwrap(), TITLE).unwrap();
    let picture = repository::checkout().join("docs/terminal.svg");
    let kept = fs::read_to_string(&picture).unwrap();
    assert!(kept == drawn, "packaging/terminal-picture draws {} anew; now it is\n{drawn}", picture.display());
}

/// Wrong calls on a page are found. Without this test, the other tests would also pass if they found no calls at all.
#[test]
fn mistakes_are_found() {
    let page = |text: &str| Page::parse("docs/x.md", text);
    let refused = |text: &str| -> Vec<String> {
        let page = page(text);
        calls(&page).iter().filter_map(|call: &Call| call.refused_by(&agent(), &page)).collect()
    };
    for wrong in [
        "`kops-agent plam`",
        "`kops-agent plan --conf FILE --colour always`",
        "| `kops-agent verify --on-hash-mismatch warn\\|ignore` | x |",
        "```sh\nsudo /opt/kops/bin/kops-agent converge --conf a \\\n  --adapt\n```",
        "as root:\n\n    kops-agent controller takeover --chek\n",
        "`kops-agent --verison`",
    ] {
        assert_eq!(refused(wrong).len(), 1, "{wrong}");
    }
    for right in [
        "`kops-agent plan`, `kops-agent config check`",
        "| `kops-agent explain PATH\\|UNIT\\|FLAG --conf FILE` | x |",
        "```sh\nkops-agent status -o prometheus | head   # all of it\n```",
    ] {
        assert_eq!(refused(right), [""; 0], "{right}");
    }

    let text = "```\nkops-agent plan\n```\n\n```\nGROUP  NAME\n```\n\n    systemctl start x\n\n```sh\nkops version\n```\n";
    assert_eq!(walk::untyped(&page(text)), ["kops-agent plan\n", "systemctl start x\n"]);

    let advice =
        repository::advice("a.rs", "    // `kops-agent nothing`\n    \"run `kops-agent plan --{} {name}`\"");
    assert_eq!(advice.spans, ["kops-agent plan --a/b a/b"]);

    let repository = Repository::of_this_checkout();
    let text = "# Head\n`agent/plan/src/no_such.rs`, `packaging/demo --loud`, `kops_agent_no_such_metric`, \
                `KOPS_AGENT_NO_SUCH`, [a](no-such.md), [b](../README.md#no-such-heading), [c](#head)";
    let page = page(text);
    assert_eq!(repository.missing_paths(&page).len(), 1);
    assert_eq!(repository.unknown_names(&page).len(), 2);
    let text = "`systemctl status kops-agent-no-such.timer`\n```sh\ncurl 127.0.0.1:9100/metrics | grep '^kops_agent_no_such'\n\
                kubectl apply -f packaging/kubernetes/no-such.yaml\nkops update cluster --all-groups\n\
                sudo kops edit machines\nkops update cluster --yes\n```\n\
                https://github.com/kops-agent/kops-agent/releases/download/v0.0.0/SHA256SUMS";
    let in_blocks = Page::parse("docs/x.md", text);
    assert_eq!(repository.missing_paths(&in_blocks).len(), 1);
    assert_eq!(repository.unknown_names(&in_blocks).len(), 2);
    assert_eq!(kops::unknown(&in_blocks).len(), 2);
    assert_eq!(Repository::unknown_downloads(&in_blocks).len(), 1);
    assert_eq!(commands::wrong_scripts(&page, &repository).len(), 1);
    assert_eq!(repository.broken_links(&page, &pages()).len(), 2);

    let page = Page::parse("docs/x.md", "| `cannot unpack …` | x |\n| `cannot … without ado` | x |");
    assert_eq!(repository.unknown_messages(&page).len(), 1);
    let lost = repository.families_without_message(&page);
    assert!(lost.len() > 20 && !lost.iter().any(|family| family.contains("assets/error.rs")), "{lost:#?}");
}
