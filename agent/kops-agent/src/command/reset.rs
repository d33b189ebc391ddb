//! `kops-agent reset`: lists what it removes, asks, and turns the node back into the machine that it was.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Context, Result};

use crate::cli::ResetArgs;
use crate::output;
use kops_agent_node::reset::ResetPlan;
use kops_agent_node::{last_server, machine};
use kops_agent_process::exit;
use kops_agent_spec::failure::{Failure, Kind};

pub(super) async fn run(args: &ResetArgs) -> Result<u8> {
    if !args.root.is_dir() {
        let problem = format!("{} is not a directory: there is nothing to reset", args.root.display());
        return Err(Failure::new(Kind::NoMachine, problem).into());
    }
    machine::must_exist(&args.root)?;
    let host = machine::open(&args.root)?;
    let plan = ResetPlan::new(&host, args.purge)?;
    output::print_text(&plan.text(&args.root))?;
    if !args.allow_no_server {
        Box::pin(last_server::stays_after_reset(&args.root, &plan.reset.units)).await?;
    }
    if !args.yes && !is_confirmed()? {
        return Err(Failure::new(Kind::Stopped, "nothing was reset").into());
    }
    let _lock = plan.carry_out(&host, &args.root).await?;
    output::print_text("This machine is no longer a node.\n")?;
    Ok(exit::CONVERGED)
}

fn is_confirmed() -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(
            Failure::new(Kind::WrongUsage, "there is no terminal to confirm it on; give --yes").into()
        );
    }
    output::print_text("Type \"reset\" to do it: ")?;
    std::io::stdout().flush().context("asking")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
    Ok(answer.trim() == "reset")
}
