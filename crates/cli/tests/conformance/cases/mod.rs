//! The cases by topic.

pub(crate) mod ip;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod states;
pub(crate) mod timers;
pub(crate) mod urgent;
pub(crate) mod windows;
