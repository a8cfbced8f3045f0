//! What the results say about the machine and the program.

use std::fs;

use crate::results::{Machine, Tool};

/// Describes this machine.
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let field = |text: &str, key: &str| {
        text.lines()
            .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key))
            .map(|(_, value)| value.trim().to_owned())
    };
    let memory = read("/proc/meminfo");
    let kibibytes: u64 = field(&memory, "MemTotal")
        .and_then(|value| value.split_whitespace().next()?.parse().ok())
        .unwrap_or_default();
    Machine {
        cpu_model: field(&processors, "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: lab::cpu::processors(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        memory_bytes: kibibytes * 1024,
        virtualised: field(&processors, "flags")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
    }
}

/// Describes this program.
pub fn tool() -> Tool {
    Tool {
        name: "outboard".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("OUTBOARD_COMMIT").unwrap_or_default().to_owned(),
    }
}
