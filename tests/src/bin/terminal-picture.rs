//! Draws what `plan`, `converge` and `status` print on the example control plane, as SVG on standard output.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Parser;
use kops_agent_tests::terminal_picture::{TITLE, session, svg};

#[derive(Parser)]
struct Arguments {
    /// The kops-agent program whose output is drawn.
    #[arg(long, value_name = "FILE")]
    agent: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let session = session(&arguments.agent, folder.path())?;
    std::io::stdout().lock().write_all(svg(&session, TITLE)?.as_bytes())?;
    Ok(())
}
