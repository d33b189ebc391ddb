//! What the tests and the demo share: an example store and the servers that stand in for clouds and mirrors.
