//! Sends the requests in its arguments to this machine's systemd, with the agent's own code, and prints the outcome of
//! each.
//!
//! `systemd-driver VERB UNIT [VERB UNIT]...`

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anyhow::{Context, bail};
use kops_agent_host::system::systemd::{Systemctl, Systemd};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("systemd-driver: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let systemd = Systemctl;
    for request in arguments.chunks(2) {
        let [verb, unit] = request else { bail!("{request:?} is not a verb and a unit") };
        let outcome = match verb.as_str() {
            "state" => Ok(()),
            "start" => systemd.start(unit),
            "stop" => systemd.stop(unit),
            "restart" => systemd.restart(unit),
            // systemd notices `enable` and `disable` only at a reload, which callers of these functions must request.
            "enable" => systemd.enable(unit).and_then(|()| systemd.reload()),
            "disable" => systemd.disable(unit).and_then(|()| systemd.reload()),
            "kill" => systemd.kill(unit),
            "run-apart" => systemd.run_apart(unit, &["/bin/sh", "-c", "echo >>/root/apart; sleep 600"]),
            "reload" => systemd.reload(),
            other => bail!("there is no verb {other}"),
        };
        let outcome = match outcome {
            Ok(()) => "ok",
            Err(error) => {
                eprintln!("{error}");
                "refused"
            }
        };
        let states = systemd.states(&[unit])?;
        let state = states.first().context("systemd told of no unit")?;
        println!(
            "{verb} {unit}: {outcome}, {}known, {:?}, {}running",
            if state.is_known { "" } else { "not " },
            state.enablement,
            if state.running { "" } else { "not " },
        );
    }
    Ok(())
}
