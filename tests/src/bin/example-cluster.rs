//! The example cluster, served: its store over S3 and stand-ins for its downloads, both on loopback,
//! until its standard input closes.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES, REGION, releases};
use kops_agent_tests::s3::S3Server;

#[derive(Parser)]
struct Arguments {
    /// Folder to write the store and the machines' boot configs and facts to; made if it is not there.
    folder: PathBuf,
    /// Have the machines download Kubernetes from its publishers, not the stand-ins from here.
    #[arg(long)]
    real_downloads: bool,
}

/// Prints what the demo needs to know, as a shell would set it, and an empty line once all is ready.
fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let downloads = match arguments.real_downloads {
        true => None,
        false => Some(Downloads::start(&releases())?),
    };
    let mirror = downloads.as_ref().map(Downloads::url);
    let example = ExampleStore::write(&arguments.folder, mirror.as_deref())?;
    let s3 = S3Server::start(&example.buckets())?;

    let mut output = io::stdout().lock();
    for (name, value) in s3.environment(REGION) {
        writeln!(output, "{name}={value}")?;
    }
    writeln!(output, "CONFIG_BASE={CONFIG_BASE}")?;
    writeln!(output, "DOWNLOADS={}", mirror.as_deref().unwrap_or("https://dl.k8s.io"))?;
    writeln!(output, "CONTROL_PLANE={CONTROL_PLANE}\nNODES={NODES}\n")?;
    output.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
