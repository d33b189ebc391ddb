//! Where messages go: to the journal under systemd, else to standard error as plain lines.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use log::{Level, LevelFilter, Log, Metadata, Record};
use systemd_journal_logger::JournalLog;

/// Starts logging. `verbosity` is klog's: 1 is usual, from 2 on each step is told, from 8 on libraries speak too.
pub fn start(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        2..=7 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let started = if stderr_is_the_journal() {
        JournalLog::new()
            .and_then(|journal| {
                let journal = journal.with_syslog_identifier("kops-agent".into());
                log::set_boxed_logger(Box::new(OursOnly { inner: journal, libraries: verbosity >= 8 }))
                    .map_err(std::io::Error::other)
            })
            .is_ok()
    } else {
        false
    };
    if !started {
        // A second logger in one process is the only way this fails, and then the first one serves.
        let _ = log::set_boxed_logger(Box::new(OursOnly { inner: Lines, libraries: verbosity >= 8 }));
    }
    log::set_max_level(level);
}

/// systemd tells by `JOURNAL_STREAM` which file its journal is at; a redirected stderr is another.
fn stderr_is_the_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

/// Lets only this project's messages through, unless libraries were asked for.
struct OursOnly<L> {
    inner: L,
    libraries: bool,
}

impl<L: Log> Log for OursOnly<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.libraries || metadata.target().starts_with("kops_agent")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.inner.log(record);
        }
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// One line a message; warnings and errors say what they are.
struct Lines;

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let prefix = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info | Level::Debug | Level::Trace => "",
        };
        // A closed standard error must not end a converge.
        let _ = writeln!(std::io::stderr().lock(), "{prefix}{}", record.args());
    }

    fn flush(&self) {}
}
