//! The progress of a run: bars on a terminal, lines elsewhere, and messages to systemd, which waits for the run.

use std::collections::BTreeMap;
use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kops_agent_host::Progress;
use kops_agent_plan::diff::{Action, Stage, Step};
use kops_agent_plan::resource::ResourceId;
use kops_agent_process::{logging, output, service_manager};
use kops_agent_spec::urls::shown_url;
use parking_lot::Mutex;

/// How long a run waits for another program that shows no sign of progress. Examples are a package manager that waits
/// for locks, containerd that pulls images, and an operator's hook, whose unit may have no timeout.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The start time of this process, which is time zero in the timeline of a run.
static STARTED: OnceLock<Instant> = OnceLock::new();

/// Records the start of the process. `main` calls it first.
pub fn note_start() {
    started();
}

pub fn started() -> Instant {
    *STARTED.get_or_init(Instant::now)
}

/// Shows the progress of a run.
pub struct Watch {
    bars: MultiProgress,
    downloads: Mutex<BTreeMap<String, Download>>,
    on_terminal: bool,
}

#[derive(Default)]
struct Download {
    bar: Option<ProgressBar>,
    present: u64,
    total: Option<u64>,
}

impl Watch {
    /// Shows progress bars if standard error is a terminal that can draw them. Otherwise writes lines.
    pub fn start() -> Box<dyn Progress> {
        // Progress bars move the cursor, and a dumb terminal cannot move it.
        let is_dumb = output::is_dumb(std::env::var_os("TERM").as_deref());
        let on_terminal = std::io::stderr().is_terminal() && !is_dumb;
        let target = if on_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        logging::no_step();
        let bars = MultiProgress::with_draw_target(target);
        Box::new(Watch { bars, downloads: Mutex::default(), on_terminal })
    }

    fn bar(&self, name: &str, total: Option<u64>, present: u64) -> ProgressBar {
        let bar = match total {
            Some(total) => ProgressBar::new(total)
                .with_style(Watch::style("{prefix:36} {wide_bar} {bytes:>10}/{total_bytes:10} {eta:>4}")),
            None => ProgressBar::no_length().with_style(Watch::style("{prefix:36} {spinner} {bytes:>10}")),
        };
        let bar = self.bars.add(bar);
        bar.set_prefix(file_name(name).to_owned());
        bar.set_position(present);
        bar
    }

    fn style(template: &str) -> ProgressStyle {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    }
}

impl Progress for Watch {
    fn download_started(&self, name: &str, total: Option<u64>, present: u64) {
        if !self.on_terminal {
            log::info!("downloading {}", shown_url(name));
        }
        let bar = self.on_terminal.then(|| self.bar(name, total, present));
        let mut downloads = self.downloads.lock();
        downloads.insert(name.to_owned(), Download { bar, present, total });
        service_manager::doing(Downloading(&downloads));
    }

    fn download_advanced(&self, name: &str, bytes: u64) {
        let mut downloads = self.downloads.lock();
        if let Some(download) = downloads.get_mut(name) {
            download.present += bytes;
            if let Some(bar) = &download.bar {
                bar.inc(bytes);
            }
        }
        service_manager::doing(Downloading(&downloads));
    }

    fn download_finished(&self, name: &str) {
        let mut downloads = self.downloads.lock();
        match downloads.remove(name).and_then(|download| download.bar) {
            Some(bar) => bar.finish_and_clear(),
            None => log::debug!("downloaded and verified {}", shown_url(name)),
        }
        service_manager::doing(Downloading(&downloads));
    }

    fn download_retried(&self, name: &str, why: &str) {
        self.bars.suspend(|| log::warn!("downloading {} again: {why}", shown_url(name)));
        service_manager::doing(format_args!("downloading {} again: {why}", file_name(name)));
    }

    fn waiting(&self, component: &ResourceId) {
        self.bars.suspend(|| log::info!("waiting for {component} to be healthy"));
        service_manager::doing(format_args!("waiting for {component} to be healthy"));
    }

    fn warned(&self, about: &str) {
        self.bars.suspend(|| log::warn!("{about}"));
    }

    fn serving(&self, what: &str) {
        self.bars.suspend(|| log::info!("{what}"));
        service_manager::serving(what);
    }

    fn waiting_for(&self, what: &str) {
        self.bars.suspend(|| log::info!("{what}"));
        service_manager::waiting(what, OTHERS_TIMEOUT);
    }

    fn applying(&self, step: &Step) {
        logging::about(in_words(step));
        self.bars.suspend(|| log::debug!("applying {}", step.resource));
        let timeout = match step.stage {
            Stage::Packages | Stage::Runtime | Stage::Images | Stage::Pods | Stage::Services => {
                OTHERS_TIMEOUT
            }
            Stage::Users | Stage::Mounts | Stage::Files | Stage::Kernel | Stage::Removals => {
                service_manager::TIMEOUT
            }
        };
        service_manager::waiting(format_args!("{}: {}", step.stage.name(), step.resource), timeout);
    }
}

/// A step of the plan, as values for the fields of a journal entry.
fn in_words(step: &Step) -> logging::Step<'_> {
    let action = match step.action {
        Action::Create => "create",
        Action::Change => "change",
        Action::Restart => "restart",
        Action::Remove => "remove",
    };
    let resource = &step.resource;
    logging::Step { kind: resource.kind.name(), name: &resource.name, stage: step.stage.name(), action }
}

/// A short text about the running downloads.
struct Downloading<'a>(&'a BTreeMap<String, Download>);

impl fmt::Display for Downloading<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.keys().next() else { return f.write_str("downloading") };
        write!(f, "downloading {}", file_name(first))?;
        if self.0.len() > 1 {
            write!(f, " and {} more", self.0.len() - 1)?;
        }
        let megabytes = |bytes: u64| bytes / 1_000_000;
        write!(f, ": {} ", megabytes(self.0.values().map(|download| download.present).sum()))?;
        match self.0.values().map(|download| download.total).sum::<Option<u64>>() {
            Some(total) => write!(f, "of {} MB", megabytes(total)),
            None => f.write_str("MB"),
        }
    }
}

/// The file name in a URL. The rest of the URL may contain credentials.
fn file_name(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use kops_agent_plan::resource::Kind;

    use super::*;

    #[test]
    fn the_journal_shows_a_step_in_words() {
        let resource = ResourceId::new(Kind::File, "/etc/x");
        let step = Step { stage: Stage::Files, resource, action: Action::Create, changes: vec![] };
        let logging::Step { kind, name, stage, action } = in_words(&step);
        assert_eq!([kind, name, stage, action], ["file", "/etc/x", "files", "create"]);
    }

    #[test]
    fn downloads_are_shown_in_a_few_words() {
        let download = |present, total| Download { bar: None, present, total };
        let mut downloads = BTreeMap::from([("https://u:p@x/a/kubelet?sig=s".to_owned(), download(0, None))]);
        assert_eq!(Downloading(&downloads).to_string(), "downloading kubelet: 0 MB");
        downloads.insert("https://x/z".into(), download(2_500_000, Some(4_000_000)));
        assert_eq!(Downloading(&downloads).to_string(), "downloading kubelet and 1 more: 2 MB");
        downloads.remove("https://u:p@x/a/kubelet?sig=s");
        assert_eq!(Downloading(&downloads).to_string(), "downloading z: 2 of 4 MB");
    }
}
