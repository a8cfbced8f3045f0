//! The quantities that people are shown: how they are called, what they mean, how their values are written.

use crate::units;

/// A metric as it is shown.
pub(super) struct Quantity {
    /// The metric's key in the document.
    pub(super) metric: &'static str,
    /// What people call it.
    pub(super) label: &'static str,
    /// What it is, in a sentence.
    pub(super) meaning: &'static str,
    /// Writes a value.
    pub(super) show: fn(f64) -> String,
}

const BANDWIDTH: Quantity = Quantity {
    metric: "bits_per_second",
    label: "bandwidth",
    meaning: "The application's bits, all parts and both directions together, divided by the time they took, connecting \
              and closing included.",
    show: units::bit_rate,
};
const ELAPSED: Quantity = Quantity {
    metric: "elapsed_seconds",
    label: "elapsed time",
    meaning: "The time from the client's start to its end, summed over the parts of a trial.",
    show: |value| format!("{} s", units::digits(value)),
};
const UTILISATION: Quantity = Quantity {
    metric: "host_cpu_utilisation",
    label: "host CPU",
    meaning: "The share of one processor that the application and the kernel on its behalf used while bytes were moving.",
    show: percent,
};
const HOST_PER_GIGABYTE: Quantity = Quantity {
    metric: "host_cpu_seconds_per_gigabyte",
    label: "host CPU per GByte",
    meaning: "Processor seconds of the application and of the kernel on its behalf for 10⁹ bytes, softirqs that ran in its \
              context included.",
    show: |value| format!("{} s", units::digits(value)),
};
const NETWORK_PER_GIGABYTE: Quantity = Quantity {
    metric: "host_network_cpu_seconds_per_gigabyte",
    label: "of it, not the program's own work",
    meaning: "The same without the time in which the program made or checked the bytes themselves: what the network costs \
              the host.",
    show: |value| format!("{} s", units::digits(value)),
};
const EFFICIENCY: Quantity = Quantity {
    metric: "efficiency_bits_per_host_cpu_second",
    label: "efficiency",
    meaning: "Bandwidth divided by host CPU: how many bits move for each second of the host's processor.",
    show: |value| format!("{} per CPU second", units::scaled(value, "bit")),
};
const TOTAL_PER_GIGABYTE: Quantity = Quantity {
    metric: "total_cpu_seconds_per_gigabyte",
    label: "host and FEP CPU per GByte",
    meaning: "Host CPU plus the FEP's work and what the kernel did for it (the peer's receiving in the same softirq \
              included). The FEP's polling is apart.",
    show: |value| format!("{} s", units::digits(value)),
};
const BUSY_PER_GIGABYTE: Quantity = Quantity {
    metric: "machine_busy_seconds_per_gigabyte",
    label: "whole machine per GByte",
    meaning: "All processors' busy seconds for 10⁹ bytes: the subject, the FEP with its polling, the peer, and whatever else \
              the machine did.",
    show: |value| format!("{} s", units::digits(value)),
};
const RATE: Quantity = Quantity {
    metric: "operations_per_second",
    label: "round trips",
    meaning: "Messages answered per second, one at a time.",
    show: |value| units::scaled(value, "/s"),
};
const MEDIAN: Quantity = Quantity {
    metric: "latency_p50_ns",
    label: "median round trip",
    meaning: "Half of the round trips took at most so long, as the peer's program saw them.",
    show: microseconds,
};
const TAIL: Quantity = Quantity {
    metric: "latency_p99_ns",
    label: "99 % of round trips within",
    meaning: "99 in 100 round trips took at most so long.",
    show: microseconds,
};
const HOST_PER_OPERATION: Quantity = Quantity {
    metric: "host_cpu_seconds_per_operation",
    label: "host CPU per round trip",
    meaning: "Processor time of the application and of the kernel on its behalf for one round trip. An application that looks \
              for work instead of sleeping uses more of it and answers sooner.",
    show: |value| format!("{} µs", units::digits(value * 1e6)),
};
const IDLE_HOST: Quantity = Quantity {
    label: "application",
    meaning: "The share of one processor that the idle application used.",
    ..UTILISATION
};
const IDLE_FEP: Quantity = Quantity {
    metric: "fep_cpu_utilisation",
    label: "idle FEP",
    meaning: "The share of one processor that the FEP used, polling included.",
    show: percent,
};

const TRANSACTIONS: Quantity = Quantity {
    label: "transactions",
    meaning: "Connections per second that were opened, asked, answered and closed.",
    ..RATE
};
const MESSAGES: Quantity =
    Quantity { label: "messages", meaning: "Messages per second that arrived.", ..RATE };
const CONNECTIONS: Quantity = Quantity {
    label: "connections opened",
    meaning: "Connections opened per second, over the whole trial: those that are held at first, and their successors.",
    ..RATE
};
const ANSWERS: Quantity =
    Quantity { label: "answers", meaning: "Requests answered per second, all connections together.", ..RATE };
const OPERATION_MEDIAN: Quantity = Quantity {
    label: "median time",
    meaning: "Half of the operations took at most so long, as the client saw them; at a rate, from when they were due.",
    ..MEDIAN
};
const OPERATION_TAIL: Quantity =
    Quantity { label: "99 % within", meaning: "99 in 100 operations took at most so long.", ..TAIL };
const HOST_PER_ONE: Quantity = Quantity {
    label: "host CPU per operation",
    meaning: "Processor time of the application and of the kernel on its behalf for one operation.",
    ..HOST_PER_OPERATION
};
const TOTAL_PER_OPERATION: Quantity = Quantity {
    metric: "total_cpu_seconds_per_operation",
    label: "host and FEP CPU per operation",
    meaning: "Host CPU plus the FEP's work and what the kernel did for it. The FEP's polling is apart.",
    ..HOST_PER_OPERATION
};
const POLLING_PER_OPERATION: Quantity = Quantity {
    metric: "fep_polling_seconds_per_operation",
    label: "FEP polling per operation",
    meaning: "Processor time in which the FEP looked for something to do.",
    ..HOST_PER_OPERATION
};

/// What is shown of a workload, the most important first.
pub(super) fn quantities(workload: &str) -> Vec<Quantity> {
    match workload {
        "rr" => vec![RATE, MEDIAN, TAIL, HOST_PER_OPERATION, TOTAL_PER_OPERATION, POLLING_PER_OPERATION],
        "crr" => operations(TRANSACTIONS),
        "connections" => operations(CONNECTIONS),
        "messages" => {
            vec![
                BANDWIDTH,
                MESSAGES,
                ELAPSED,
                UTILISATION,
                HOST_PER_ONE,
                TOTAL_PER_OPERATION,
                HOST_PER_GIGABYTE,
            ]
        }
        "stream" => vec![
            BANDWIDTH,
            UTILISATION,
            EFFICIENCY,
            ELAPSED,
            ANSWERS,
            HOST_PER_GIGABYTE,
            NETWORK_PER_GIGABYTE,
            TOTAL_PER_GIGABYTE,
            BUSY_PER_GIGABYTE,
        ],
        "idle" => vec![IDLE_HOST, IDLE_FEP],
        _ => vec![
            BANDWIDTH,
            UTILISATION,
            EFFICIENCY,
            ELAPSED,
            HOST_PER_GIGABYTE,
            NETWORK_PER_GIGABYTE,
            TOTAL_PER_GIGABYTE,
            BUSY_PER_GIGABYTE,
        ],
    }
}

fn operations(rate: Quantity) -> Vec<Quantity> {
    vec![
        rate,
        OPERATION_MEDIAN,
        OPERATION_TAIL,
        UTILISATION,
        HOST_PER_ONE,
        TOTAL_PER_OPERATION,
        POLLING_PER_OPERATION,
    ]
}

/// Which of them are drawn, by metric, with the caption of the picture.
pub(super) fn figures(workload: &str) -> Vec<(&'static str, &'static str)> {
    match workload {
        "rr" => {
            vec![("operations_per_second", "Round trips per second"), ("latency_p50_ns", "Median round trip")]
        }
        "crr" | "connections" => vec![
            ("operations_per_second", "Connections per second"),
            ("latency_p50_ns", "Median time"),
            ("host_cpu_seconds_per_operation", "Host CPU per operation"),
        ],
        "messages" => {
            vec![("bits_per_second", "Bandwidth"), ("host_cpu_seconds_per_operation", "Host CPU per message")]
        }
        "idle" => vec![("host_cpu_utilisation", "Application"), ("fep_cpu_utilisation", "FEP")],
        "stream" => vec![
            ("bits_per_second", "Bandwidth"),
            ("host_cpu_utilisation", "Host CPU"),
            ("efficiency_bits_per_host_cpu_second", "Efficiency: bandwidth ÷ host CPU"),
            ("host_cpu_seconds_per_gigabyte", "Host CPU per GByte"),
        ],
        _ => vec![
            ("bits_per_second", "Figure 7 · Bandwidth"),
            ("host_cpu_utilisation", "Figure 8 · Host CPU"),
            ("efficiency_bits_per_host_cpu_second", "Figure 9 · Efficiency: bandwidth ÷ host CPU"),
            ("elapsed_seconds", "Figure 11 · Elapsed time"),
        ],
    }
}

fn percent(value: f64) -> String {
    format!("{} %", units::digits(value * 100.0))
}

fn microseconds(nanoseconds: f64) -> String {
    format!("{} µs", units::digits(nanoseconds / 1e3))
}
