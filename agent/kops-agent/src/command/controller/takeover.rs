//! `kops-agent controller takeover --check`: prints whether kops-agent can take over from kOps' kops-controller, or, with `--back`, whether
//! its service can leave.

use std::fmt::Write as _;

use anyhow::Result;

use kops_agent_controller::takeover::{Finding, State, check, check_back};
use kops_agent_process::exit;

use crate::cli::{Output, TakeoverArgs};
use crate::output;

pub(super) async fn run(args: &TakeoverArgs) -> Result<u8> {
    let findings = match args.back {
        true => check_back(&args.options()).await?,
        false => check(&args.options()).await?,
    };
    match args.output {
        Output::Json => output::print_json(&findings)?,
        Output::Text => output::print_text(&text(&findings)?)?,
    };
    Ok(code(&findings))
}

fn code(findings: &[Finding]) -> u8 {
    let any = |state| findings.iter().any(|finding| finding.state == state);
    match (any(State::NotReady), any(State::Unknown)) {
        (true, _) => exit::DIFFERENT,
        (false, true) => exit::FAILED,
        (false, false) => exit::CONVERGED,
    }
}

fn text(findings: &[Finding]) -> Result<String> {
    let mut text = String::new();
    for Finding { what, state, why } in findings {
        let state = match state {
            State::Ready => "ready",
            State::NotReady => "NOT READY",
            State::Unknown => "unknown",
        };
        writeln!(text, "{what:<8} {state:<10} {why}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_that_is_not_ready_outweighs_an_unknown_one() {
        let finding = |state| Finding { what: "x", state, why: String::new() };
        let code_of =
            |states: &[State]| code(&states.iter().map(|state| finding(*state)).collect::<Vec<_>>());
        assert_eq!(code_of(&[State::Ready, State::Ready]), exit::CONVERGED);
        assert_eq!(code_of(&[State::Ready, State::Unknown]), exit::FAILED);
        assert_eq!(code_of(&[State::Unknown, State::NotReady]), exit::DIFFERENT);
    }
}
