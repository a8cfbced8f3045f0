//! Opening: from LISTEN or a SYN of ours to ESTABLISHED (RFC 9293 §3.5).

pub mod closed;
pub mod fast_open;
pub mod isn;
pub mod listen;
pub(crate) mod negotiate;
pub mod opening;
pub mod syn_cookie;
mod syn_received;
mod syn_sent;
