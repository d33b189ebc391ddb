//! `kops-agent facts`: prints the facts of this machine and those from its cloud.

use anyhow::Result;

use crate::cli::FactsArgs;
use crate::output;
use kops_agent_node::facts;
use kops_agent_source::{boot_config, default_conf};

pub(super) async fn run(args: &FactsArgs) -> Result<u8> {
    let conf = args.conf.clone().or_else(|| Some(default_conf()).filter(|conf| conf.exists()));
    let provider = match conf {
        Some(conf) => Some(boot_config(&conf, &args.store.options()).await?.cloud_provider),
        None => None,
    };
    output::print_facts(&facts::observe_to_show(&args.root, provider).await?, args.output)
}
