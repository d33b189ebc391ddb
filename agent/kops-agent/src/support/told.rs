//! The result of collecting from one place of the machine.

use super::known::Known;
use super::part::Part;

/// The parts from one place, and what is known of their secrets.
pub(super) type Told = (Vec<Part>, Vec<Known>);
