//! Serves the example cluster on loopback until standard input closes: its store over S3, and stand-ins for
//! its downloads.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use kops_agent_tests::example_cluster::ExampleCluster;
use kops_agent_tests::example_keys::make_keysets;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};

#[derive(Parser)]
struct Arguments {
    /// Output folder for the store, the boot configs and the facts; created if missing.
    folder: PathBuf,
    /// Let the machines download Kubernetes from its publishers instead of the stand-ins.
    #[arg(long)]
    real_downloads: bool,
}

/// Prints the variables for `packaging/demo` in shell syntax, and an empty line once all servers are ready.
fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let cluster = match arguments.real_downloads {
        true => ExampleCluster::start_without_mirror(&arguments.folder, &make_keysets()?)?,
        false => ExampleCluster::start(&arguments.folder, &make_keysets()?)?,
    };
    let downloads =
        cluster.downloads.as_ref().map_or_else(|| "https://dl.k8s.io".to_owned(), |mirror| mirror.url());

    let mut output = io::stdout().lock();
    for (name, value) in cluster.environment() {
        writeln!(output, "{name}={value}")?;
    }
    writeln!(output, "CONFIG_BASE={CONFIG_BASE}")?;
    writeln!(output, "DOWNLOADS={downloads}")?;
    writeln!(output, "CONTROL_PLANE={CONTROL_PLANE}\nNODES={NODES}\n")?;
    output.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
