//! systemd: its client, and the state of its units.

mod manager;
mod outside;
mod state;
mod systemctl;
mod this_run;
mod unit;

pub use manager::Systemd;
pub use outside::run_outside;
pub use systemctl::Systemctl;
pub use unit::{Act, Job, Rest, UnitState};
