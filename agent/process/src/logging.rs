//! Where messages go: to the journal under systemd, else to standard error as plain lines.
//!
//! In the journal, a message about a step of the plan has searchable fields: `KOPS_AGENT_RESOURCE` (`file:/etc/hosts`),
//! `KOPS_AGENT_STAGE` and `KOPS_AGENT_ACTION`.

use std::io::Write;
use std::os::unix::fs::MetadataExt;

use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;
use systemd_journal_logger::JournalLog;

use crate::output::plain_lines;

/// From this verbosity on, libraries log too. They log thousands of lines per run, with requests and their headers.
/// The limit is above 8, because kOps' boot script sets `--v=8` on each machine.
const LIBRARIES: u8 = 10;

/// Starts logging. `verbosity` has the levels of klog, and the default is 1. From 2 on, each step is logged. From
/// `LIBRARIES` on, libraries log too. `mask` hides the secrets in a message.
pub fn start(verbosity: u8, mask: fn(String) -> String) {
    let (level, libraries) = heard(verbosity);
    let started = if stderr_is_the_journal() {
        JournalLog::new()
            .and_then(|journal| {
                let journal = journal.with_syslog_identifier("kops-agent".into());
                log::set_boxed_logger(Box::new(OursOnly { inner: journal, libraries, mask }))
                    .map_err(std::io::Error::other)
            })
            .is_ok()
    } else {
        false
    };
    if !started {
        // The call fails only if a logger is already set. Then the existing logger is used.
        let _ = log::set_boxed_logger(Box::new(OursOnly { inner: Lines, libraries, mask }));
    }
    log::set_max_level(level);
}

/// The lowest level that is logged, and whether libraries log too.
fn heard(verbosity: u8) -> (LevelFilter, bool) {
    match verbosity {
        0 => (LevelFilter::Warn, false),
        1 => (LevelFilter::Info, false),
        2..LIBRARIES => (LevelFilter::Debug, false),
        LIBRARIES.. => (LevelFilter::Trace, true),
    }
}

/// A step of the plan, with the texts for the journal's fields.
pub struct Step<'a> {
    /// The kind of the resource that the step changes.
    pub kind: &'a str,
    /// The name of the resource that the step changes.
    pub name: &'a str,
    pub stage: &'a str,
    pub action: &'a str,
}

/// The current step, as fields of the journal.
struct Fields {
    /// The name of the resource that the step changes.
    name: String,
    fields: [(&'static str, String); 3],
}

static STEP: Mutex<Option<Fields>> = Mutex::new(None);

/// Sets the current step. A message that names the resource of this step gets journal fields about the step.
pub fn about(Step { kind, name, stage, action }: Step<'_>) {
    let fields = [
        // The field has no space between kind and name, so that it is easy to type in a shell.
        ("KOPS_AGENT_RESOURCE", format!("{kind}:{name}")),
        ("KOPS_AGENT_STAGE", stage.to_owned()),
        ("KOPS_AGENT_ACTION", action.to_owned()),
    ];
    *STEP.lock() = Some(Fields { name: name.to_owned(), fields });
}

pub fn no_step() {
    *STEP.lock() = None;
}

/// The fields of the current step, if the message names the resource of this step. Other messages may be about an
/// earlier step: a run first writes several files, and then moves all of them into place.
fn fields_of(message: &str) -> Option<[(&'static str, String); 3]> {
    let step = STEP.lock();
    let step = step.as_ref().filter(|step| message.contains(&step.name))?;
    Some(step.fields.clone())
}

/// Logs why this process ends. If standard error is the journal, the message goes to standard error, because the
/// journal knows the unit of that stream. For other messages, the journal asks the kernel for the unit of the sender.
/// The kernel does not know the unit if this process has already ended.
pub fn last_words(why: &str) {
    if stderr_is_the_journal() && fields_of(why).is_none() {
        let lines: String = plain_lines(why).lines().map(|line| format!("<3>{line}\n")).collect();
        if std::io::stderr().write_all(lines.as_bytes()).is_ok() {
            return;
        }
    }
    log::error!("{why}");
}

/// Writes a panic to standard error. No logger is used, because the panic may come from a logger. No lock is taken,
/// because another thread may never release it.
pub fn last_words_of_panic(what: &str) {
    let prefix = if stderr_is_the_journal() { "<2>" } else { "error: " };
    let text: String = what.lines().map(|line| format!("{prefix}{line}\n")).collect();
    // If this fails, there is no other place for the message.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Whether standard error is the journal. systemd writes the device and inode of the journal's stream into
/// `JOURNAL_STREAM`. A redirected standard error has another device or inode.
fn stderr_is_the_journal() -> bool {
    let Some(stream) = std::env::var("JOURNAL_STREAM").ok() else { return false };
    let Ok(stderr) = std::fs::metadata("/proc/self/fd/2") else { return false };
    stream == format!("{}:{}", stderr.dev(), stderr.ino())
}

/// Lets only this project's messages through, unless the verbosity includes libraries.
struct OursOnly<L> {
    inner: L,
    libraries: bool,
    mask: fn(String) -> String,
}

impl<L: Log> Log for OursOnly<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.libraries || metadata.target().starts_with("kops_agent")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // A message may quote a server, and journalctl prints it to a terminal. So control characters are removed.
        let message = plain_lines(&(self.mask)(record.args().to_string()));
        let fields = fields_of(&message);
        let fields = fields.as_ref().map_or(&[][..], |fields| fields.as_slice());
        self.inner.log(&record.to_builder().args(format_args!("{message}")).key_values(&fields).build());
    }

    fn flush(&self) {
        self.inner.flush();
    }
}

/// Writes one line per message. Warnings and errors have a prefix.
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
        // A write to a closed standard error fails. The converge must continue nevertheless.
        let _ = writeln!(std::io::stderr().lock(), "{prefix}{}", record.args());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use std::convert::identity;

    use super::*;

    struct Kept<'a>(&'a Mutex<Vec<String>>);

    impl Log for Kept<'_> {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            self.0.lock().push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    #[test]
    fn libraries_are_silent_where_kops_sets_the_verbosity() {
        let messages = Mutex::new(Vec::new());
        let (level, libraries) = heard(8);
        let logger = OursOnly { inner: Kept(&messages), libraries, mask: identity };
        for target in ["hyper_util::client", "aws_smithy_runtime::client", "kops_agent_host::apply"] {
            logger.log(&Record::builder().target(target).args(format_args!("{target}")).build());
        }
        assert_eq!(*messages.lock(), ["kops_agent_host::apply"]);
        assert_eq!(level, LevelFilter::Debug);
        assert_eq!(heard(10), (LevelFilter::Trace, true));
    }

    #[test]
    fn a_log_line_has_no_secrets_and_no_control_characters_of_a_server() {
        let messages = Mutex::new(Vec::new());
        let mask = |text: String| text.replace("pwned", "***");
        let logger = OursOnly { inner: Kept(&messages), libraries: true, mask };
        let said = "it answers 400\n\u{1b}]0;pwned\u{7}\u{9b}2J\u{202e}";
        logger.log(&Record::builder().args(format_args!("{said}")).build());
        assert_eq!(*messages.lock(), ["it answers 400\n ]0;***  2J "]);
    }

    #[test]
    fn a_message_with_the_steps_resource_has_the_fields_of_the_step() {
        about(Step { kind: "file", name: "/etc/x", stage: "files", action: "create" });
        let fields = fields_of("cannot write /etc/x: no space").expect("it names the file");
        let fields = fields.map(|(name, value)| format!("{name}={value}"));
        assert_eq!(
            fields,
            ["KOPS_AGENT_RESOURCE=file:/etc/x", "KOPS_AGENT_STAGE=files", "KOPS_AGENT_ACTION=create"]
        );
        assert!(fields_of("trying again in 30 seconds").is_none());
        no_step();
        assert!(fields_of("cannot write /etc/x: no space").is_none());
    }
}
