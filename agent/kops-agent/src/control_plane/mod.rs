//! Control-plane mode: what kops-controller does on upstream's control planes.
