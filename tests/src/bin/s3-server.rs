//! Serves the subfolders of a folder as S3 buckets on loopback, until standard input closes.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Parser;
use kops_agent_tests::example_store::REGION;
use kops_agent_tests::s3::S3Server;

#[derive(Parser)]
struct Arguments {
    /// Folder whose subfolders are the buckets.
    buckets: PathBuf,
}

/// Prints the variables that S3 clients need, in shell syntax.
fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let server = S3Server::start(&arguments.buckets)?;
    let mut output = io::stdout().lock();
    for (name, value) in server.environment(REGION) {
        writeln!(output, "{name}={value}")?;
    }
    output.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
