//! What a place of the machine tells.

use super::known::Known;
use super::part::Part;

/// What a place has told: its parts, and what of it is secret.
pub(super) type Told = (Vec<Part>, Vec<Known>);
