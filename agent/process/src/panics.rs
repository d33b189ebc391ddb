//! The report of a panic before the process aborts, in the journal or on standard error: the message, its place in the
//! source, and a backtrace.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;
use std::thread;

use crate::logging;
use crate::output::one_line;
use crate::version::VERSION;

/// Maximum length of a panic message, in characters. The message may contain untrusted text.
const LONGEST: usize = 2000;

/// Installs the panic hook, which calls [`logging::last_words_of_panic`].
pub fn start() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        logging::last_words_of_panic(&report(panic, thread.name().unwrap_or("unnamed")));
        // The backtrace comes after the message, because walking a broken stack may crash the process.
        logging::last_words_of_panic(&format!(
            "backtrace (the program is loaded at {}):\n{:#}",
            load_address(),
            Backtrace::force_capture()
        ));
    }));
}

/// The address at which the program is loaded. Address space layout randomization changes this address at each start.
fn load_address() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // A statically linked program maps no other file.
    let of_file = maps.lines().find(|line| line.contains('/'));
    let address = of_file.and_then(|line| line.split_once('-'));
    address.map_or_else(|| "an unknown address".to_owned(), |(address, _)| format!("0x{address}"))
}

fn report(panic: &PanicHookInfo<'_>, thread: &str) -> String {
    let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
    let message = one_line(panic.payload_as_str().unwrap_or("without a message"), LONGEST);
    format!(
        "kops-agent {VERSION} panicked at {place}, in the thread {thread}: {message}; this is a defect of kops-agent, please report it"
    )
}
