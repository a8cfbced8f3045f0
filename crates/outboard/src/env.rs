//! What the environment says about the stack to use.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use base::IpCidr;
use device::tap::{Tap, TapOptions};
use wire::ethernet::EthernetAddress;
use wire::frame::Medium;

use crate::scheduling::{SLICE_VARIABLE, set_slice};
use crate::{CongestionAlgorithm, HostConfig};

/// The stack to use.
pub(crate) enum Environment {
    /// A FEP, by its control socket.
    Fep(PathBuf),
    /// One in this process.
    Host(HostSettings),
}

impl Environment {
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        if let Some(text) = variable(SLICE_VARIABLE).filter(|text| !text.is_empty()) {
            let micros = text.to_str().and_then(|text| text.parse().ok());
            let slice =
                micros.ok_or_else(|| invalid(&format!("{SLICE_VARIABLE}: {text:?} cannot be read")))?;
            set_slice((slice > 0).then(|| Duration::from_micros(slice)))?;
        }
        match variable("OUTBOARD_ARCH").as_deref().and_then(std::ffi::OsStr::to_str) {
            None | Some("" | "fep") => Ok(Self::Fep(fep::names::find_socket(None, None))),
            Some("host") => HostSettings::read(variable).map(Self::Host),
            Some(other) => Err(invalid(&format!("OUTBOARD_ARCH={other}: neither fep nor host"))),
        }
    }
}

/// A stack in this process over a TAP device, as the environment describes it.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The TAP device.
    pub tap: String,
    /// The largest IP packet, if it is not the device's own.
    pub mtu: Option<u16>,
    /// Addresses and gateway.
    pub config: HostConfig,
}

impl HostSettings {
    /// From variables: `OUTBOARD_TAP`, `OUTBOARD_ADDRESS` (with a prefix length; several with commas between),
    /// `OUTBOARD_GATEWAY`, `OUTBOARD_MTU`, `OUTBOARD_CONGESTION_CONTROL`.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<Self> {
        let text = |name: &str| match variable(name) {
            None => Ok(None),
            Some(value) if value.is_empty() => Ok(None),
            Some(value) => {
                value.into_string().map(Some).map_err(|_| invalid(&format!("{name} is not a text")))
            }
        };
        let needed = |name: &str| text(name)?.ok_or_else(|| invalid(&format!("{name} is not set")));
        let addresses = needed("OUTBOARD_ADDRESS")?
            .split(',')
            .map(|part| parse::<IpCidr>("OUTBOARD_ADDRESS", part))
            .collect::<io::Result<Vec<_>>>()?;
        let gateway =
            text("OUTBOARD_GATEWAY")?.map(|value| parse::<IpAddr>("OUTBOARD_GATEWAY", &value)).transpose()?;
        let mtu = text("OUTBOARD_MTU")?.map(|value| parse::<u16>("OUTBOARD_MTU", &value)).transpose()?;
        let congestion_control = match text("OUTBOARD_CONGESTION_CONTROL")? {
            None => CongestionAlgorithm::default(),
            Some(name) => CongestionAlgorithm::from_name(&name)
                .ok_or_else(|| invalid(&format!("OUTBOARD_CONGESTION_CONTROL: {name:?} is not known")))?,
        };
        let config = HostConfig { addresses, gateway, congestion_control };
        Ok(Self { tap: needed("OUTBOARD_TAP")?, mtu, config })
    }

    /// Opens the device.
    pub fn open_device(&self) -> io::Result<Tap> {
        Tap::open(&TapOptions {
            name: self.tap.clone(),
            medium: Medium::Ethernet,
            mtu: self.mtu,
            offload: true,
            bring_up: true,
            kernel_address: None,
            hardware_address: self.hardware_address(),
        })
        .map_err(io::Error::other)
    }

    /// Locally administered, and another wherever the IP address is another.
    fn hardware_address(&self) -> EthernetAddress {
        let seed = match self.config.addresses.first().map(IpCidr::address) {
            Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => address.to_bits() as u64,
            None => 0,
        };
        EthernetAddress::locally_administered(seed)
    }
}

fn parse<T: FromStr>(name: &str, text: &str) -> io::Result<T> {
    text.trim().parse().map_err(|_| invalid(&format!("{name}: {text:?} cannot be read")))
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> io::Result<HostSettings> {
        HostSettings::read(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_host_is_read_from_variables() {
        let settings = read(&[
            ("OUTBOARD_TAP", "tap7"),
            ("OUTBOARD_ADDRESS", "10.0.0.2/24, 10.1.0.2/16"),
            ("OUTBOARD_MTU", ""),
        ])
        .unwrap();
        assert_eq!(settings.tap, "tap7");
        assert_eq!(settings.config.addresses.len(), 2);
        assert_eq!((settings.mtu, settings.config.gateway), (None, None));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let missing = read(&[("OUTBOARD_TAP", "tap7")]).unwrap_err();
        assert_eq!(missing.to_string(), "OUTBOARD_ADDRESS is not set");
        let wrong = read(&[("OUTBOARD_TAP", "tap7"), ("OUTBOARD_ADDRESS", "10.0.0.2")]).unwrap_err();
        assert!(wrong.to_string().starts_with("OUTBOARD_ADDRESS: "), "{wrong}");
    }
}
