//! A log for tests. All tests of a process share it, so search for text that only your test logs.

#![allow(clippy::unwrap_used)]

use std::sync::Once;

use log::kv::{Error, Key, Value, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::{Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    /// The fields, each as `name=value`.
    pub fields: Vec<String>,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Starts to record the log of the bootstrap server.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        log::set_logger(&Remembering).unwrap();
        log::set_max_level(LevelFilter::Info);
    });
}

/// The recorded messages that contain this text.
pub fn lines_with(part: &str) -> Vec<Line> {
    lines().iter().filter(|line| line.text.contains(part)).cloned().collect()
}

fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock()
}

struct Remembering;

impl Log for Remembering {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().contains("kops_agent_controller::bootstrap")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let mut fields = Fields(Vec::new());
            record.key_values().visit(&mut fields).unwrap();
            lines().push(Line { text: record.args().to_string(), fields: fields.0 });
        }
    }

    fn flush(&self) {}
}

struct Fields(Vec<String>);

impl<'kvs> VisitSource<'kvs> for Fields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        self.0.push(format!("{key}={value}"));
        Ok(())
    }
}
