//! What a person sees while a node converges: bars on a terminal, lines elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kops_agent_host::Progress;
use kops_agent_plan::diff::Step;

/// Watches a run and shows it.
pub struct Watch {
    bars: MultiProgress,
    downloads: Mutex<BTreeMap<String, ProgressBar>>,
    on_terminal: bool,
}

impl Watch {
    /// Shows bars if standard error is a terminal, and writes lines if it is not.
    pub fn new() -> Watch {
        let on_terminal = std::io::stderr().is_terminal();
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Watch { bars: MultiProgress::with_draw_target(target), downloads: Mutex::default(), on_terminal }
    }

    fn downloads(&self) -> MutexGuard<'_, BTreeMap<String, ProgressBar>> {
        self.downloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn style(template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}

impl Progress for Watch {
    fn download_started(&self, name: &str, total: Option<u64>, present: u64) {
        if !self.on_terminal {
            log::info!("downloading {name}");
            return;
        }
        let bar = match total {
            Some(total) => ProgressBar::new(total)
                .with_style(Watch::style("{prefix:36} {wide_bar} {bytes:>10}/{total_bytes:10} {eta:>4}")),
            None => ProgressBar::no_length().with_style(Watch::style("{prefix:36} {spinner} {bytes:>10}")),
        };
        let bar = self.bars.add(bar);
        bar.set_prefix(name.rsplit('/').next().unwrap_or(name).to_owned());
        bar.set_position(present);
        self.downloads().insert(name.to_owned(), bar);
    }

    fn download_advanced(&self, name: &str, bytes: u64) {
        if let Some(bar) = self.downloads().get(name) {
            bar.inc(bytes);
        }
    }

    fn download_finished(&self, name: &str) {
        match self.downloads().remove(name) {
            Some(bar) => bar.finish_and_clear(),
            None => log::debug!("downloaded and verified {name}"),
        }
    }

    fn download_retried(&self, name: &str, why: &str) {
        self.bars.suspend(|| log::warn!("downloading {name} again: {why}"));
    }

    fn warned(&self, about: &str) {
        self.bars.suspend(|| log::warn!("{about}"));
    }

    fn waiting(&self, what: &str) {
        self.bars.suspend(|| log::info!("{what}"));
    }

    fn applying(&self, step: &Step) {
        self.bars.suspend(|| log::debug!("applying {}", step.resource));
    }
}
