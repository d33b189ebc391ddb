//! systemd, asked by `systemctl`.

mod manager;
mod state;
mod systemctl;
mod this_run;
mod unit;

pub use manager::Systemd;
pub use systemctl::Systemctl;
pub use unit::{Act, Job, Rest, UnitState};
