//! What the Nodes of a cluster tell of the configurations that they run: how a node says it in a condition of its own Node, with
//! which of its certificates expires first, and what follows from the conditions of all of them.

mod certificate;
mod condition;
mod message;
mod rows;

pub use certificate::{FEW_DAYS, FIRST_CERTIFICATE, FirstCertificate, SeenCertificate};
pub use condition::{AGENT_VERSION, CONDITION, Known, NodeReport, Statement, Trouble};
pub use message::{Configuration, Told};
pub use rows::{Row, SeenCondition, SeenNode, rows};
