//! Serves a folder as a mirror, with a chosen delay. It also writes the stand-ins for the example's downloads, to fill that folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_store::releases;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the stand-ins for the example's downloads to a folder, at the paths of their URLs.
    StandIns { folder: PathBuf },
    /// Serve a folder, with a `.sha256` beside each file, until standard input closes. Prints an empty line when ready.
    Serve {
        folder: PathBuf,
        /// Address and port to listen on.
        #[arg(long)]
        listen: SocketAddr,
        /// Delay of each response, in milliseconds.
        #[arg(long, default_value_t = 0)]
        late: u64,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::StandIns { folder } => {
            for (path, content) in releases().stand_ins()? {
                let file = folder.join(path.trim_start_matches('/'));
                fs::create_dir_all(file.parent().unwrap_or(&folder))?;
                fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
            }
            Ok(())
        }
        Command::Serve { folder, listen, late } => {
            let mut files = BTreeMap::new();
            collect(&folder, &folder, &mut files)?;
            let mirror = Downloads::start_at(listen, files, Duration::from_millis(late))?;
            let mut output = io::stdout().lock();
            writeln!(output, "{}\n", mirror.url())?;
            output.flush()?;
            io::copy(&mut io::stdin(), &mut io::sink())?;
            Ok(())
        }
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            let content = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            files.insert(format!("/{}", path.strip_prefix(root)?.display()), content);
        }
    }
    Ok(())
}
