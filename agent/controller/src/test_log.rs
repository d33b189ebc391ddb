//! What the log is told, for tests of that. There is one log for all tests of a process, so look for what only yours says.

#![allow(clippy::unwrap_used)]

use std::sync::Once;

use log::kv::{Error, Key, Value, VisitSource};
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::{Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    /// Its fields, each as `name=value`.
    pub fields: Vec<String>,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

/// Remembers from now on what the bootstrap server says.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        log::set_logger(&Remembering).unwrap();
        log::set_max_level(LevelFilter::Info);
    });
}

/// The messages so far that have this in them.
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
