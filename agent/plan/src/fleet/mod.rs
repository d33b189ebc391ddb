//! Reports of a cluster's nodes about their configurations. A node writes a condition and annotations into its own Node,
//! including the certificate that expires first. `rows` summarizes the Nodes of a cluster.

mod certificate;
mod condition;
mod message;
mod rows;

pub use certificate::{FEW_DAYS, FIRST_CERTIFICATE, FirstCertificate, SeenCertificate};
pub use condition::{AGENT_VERSION, CONDITION, Known, NodeReport, Statement, Trouble};
pub use message::{Configuration, Told};
pub use rows::{Row, SeenCondition, SeenNode, rows};
