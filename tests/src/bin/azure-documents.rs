//! Writes documents, as Azure's metadata service signs them for a machine, into a folder. The keys are new. `tests/fuzz/run` uses
//! the documents as its first inputs.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use kops_agent_tests::azure::metadata::{Document, MetadataService};

#[derive(Parser)]
struct Arguments {
    /// Output folder; created if missing.
    folder: PathBuf,
    #[arg(long)]
    vm_id: String,
    /// ID of the machine's subscription in Azure.
    #[arg(long)]
    subscription: String,
    /// Body of the bootstrap request that the documents are for.
    #[arg(long)]
    body: String,
    /// Creation time of the documents, in seconds since 1970.
    #[arg(long)]
    created: i64,
}

fn main() -> anyhow::Result<()> {
    let Arguments { folder, vm_id, subscription, body, created } = Arguments::parse();
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let service = MetadataService::generate()?;
    for (name, with_issuer, with_attributes) in [
        ("plain", false, false),
        ("with-attributes", false, true),
        ("with-issuer", true, false),
        ("with-issuer-and-attributes", true, true),
    ] {
        let document = Document {
            subscription: &subscription,
            with_issuer,
            with_attributes,
            ..Document::new(&vm_id, body.as_bytes(), created)
        };
        let file = folder.join(name);
        let der = STANDARD.decode(service.sign(&document)?)?;
        fs::write(&file, der).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}
