//! Writes the example cluster's store, with new keys, and its machines' boot configs and facts to a folder.

use std::path::PathBuf;

use clap::Parser;
use kops_agent_tests::example_store::ExampleStore;

#[derive(Parser)]
struct Arguments {
    /// Output folder; created if missing.
    folder: PathBuf,
    /// Mirror from which the machines download Kubernetes, instead of its publishers.
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    ExampleStore::write(&arguments.folder, arguments.mirror.as_deref())?;
    Ok(())
}
