//! Asks the systemd of the machine on which it runs for what its arguments say, by the agent's own code, and prints
//! what came of each. Tests on machines compare what its ways of asking print.
//!
//! `systemd-drivers bus|systemctl|machine VERB UNIT [VERB UNIT]...`

#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anyhow::{Context, bail};
use kops_agent_host::system::systemd::{Bus, Machine, Systemctl, Systemd};
use log::{LevelFilter, Log, Metadata, Record};

struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("kops_agent")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            eprintln!("{}", record.args());
        }
    }

    fn flush(&self) {}
}

fn main() -> ExitCode {
    let outcome = log::set_logger(&Lines).map_err(anyhow::Error::from).and_then(|()| {
        log::set_max_level(LevelFilter::Debug);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        // As in the agent, each call is in a runtime of its own.
        runtime.block_on(async { run() })
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("systemd-drivers: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((driver, requests)) = arguments.split_first() else { bail!("no way of asking is named") };
    let systemd: Box<dyn Systemd> = match driver.as_str() {
        "bus" => Box::new(Bus::connect().map_err(anyhow::Error::msg)?),
        "systemctl" => Box::new(Systemctl),
        "machine" => Box::new(Machine::default()),
        other => bail!("there is no way of asking called {other}"),
    };
    for request in requests.chunks(2) {
        let [verb, unit] = request else { bail!("{request:?} is not a verb and a unit") };
        let outcome = match verb.as_str() {
            "state" => Ok(()),
            "start" => systemd.start(unit),
            "stop" => systemd.stop(unit),
            "restart" => systemd.restart(unit),
            // Of both systemd knows once it has read its files again, as every caller has it do.
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
