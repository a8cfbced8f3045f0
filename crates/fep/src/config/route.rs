//! Routes, as they are written and as a stack is told them.

use std::net::IpAddr;
use std::str::FromStr;

use base::IpCidr;
use serde::{Deserialize, Serialize};

/// A route in a configuration file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteSetting {
    /// The destination, as in `10.1.0.0/16`.
    pub destination: String,
    /// The gateway; without it the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The largest packet to send there, if not what the device takes.
    pub mtu: Option<u32>,
}

impl FromStr for RouteSetting {
    type Err = String;

    /// `DESTINATION [via GATEWAY] [mtu BYTES]`, as `ip route add` has it.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let destination = words.next().ok_or("a destination is missing")?.to_owned();
        let mut route = Self { destination, gateway: None, mtu: None };
        while let Some(word) = words.next() {
            let argument = words.next().ok_or_else(|| format!("{word:?} lacks a value"))?;
            let wrong = || format!("{word} {argument:?} is not understood");
            match word {
                "via" => route.gateway = Some(argument.parse().map_err(|_| wrong())?),
                "mtu" => route.mtu = Some(argument.parse().map_err(|_| wrong())?),
                _ => return Err(format!("{word:?} is neither via nor mtu")),
            }
        }
        if route.destination == "default" {
            let is_v6 = matches!(route.gateway, Some(IpAddr::V6(_)));
            (if is_v6 { "::/0" } else { "0.0.0.0/0" }).clone_into(&mut route.destination);
        }
        Ok(route)
    }
}

/// A route of a stack with one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkRoute {
    /// Destinations in this prefix.
    pub destination: IpCidr,
    /// The gateway; none means on the link.
    pub gateway: Option<IpAddr>,
    /// The largest packet to send there; none means what the interface takes.
    pub mtu: Option<u16>,
}
