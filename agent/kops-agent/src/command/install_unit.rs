//! `--install-systemd-unit`, as in nodeup: installs the unit that runs this binary at boot with the same flags.

use std::path::Path;

use anyhow::Result;
use kops_agent_node::install_unit::{self, UNIT};
use kops_agent_node::progress::Watch;
use kops_agent_node::run::PAUSES;
use kops_agent_process::output::error_text;

use crate::cli::Output;
use crate::output;

/// Installs and starts the unit on this machine. A failure is retried `retries` times. -1 means without limit.
pub(super) async fn install(conf: &Path, mut retries: i64) -> Result<u8> {
    let mut next_pause = PAUSES.jittered();
    loop {
        let error = match install_once(conf).await {
            Err(error) if retries != 0 => error,
            result => return result,
        };
        let pause = next_pause();
        log::error!("{}", error_text(&error));
        log::info!("trying again in {} seconds to install {UNIT}", pause.as_secs());
        tokio::time::sleep(pause).await;
        retries -= i64::from(retries > 0);
    }
}

async fn install_once(conf: &Path) -> Result<u8> {
    let report = install_unit::install(conf, std::env::args().skip(1), Watch::start).await?;
    output::print_report(&report, Output::Text)
}
