//! systemd, over the system bus or by `systemctl`.

mod bus;
mod machine;
mod manager;
mod state;
mod systemctl;
mod this_run;
mod unit;

pub use bus::Bus;
pub use machine::Machine;
pub use manager::Systemd;
pub use systemctl::Systemctl;
pub use unit::{Act, Job, Rest, UnitState};
