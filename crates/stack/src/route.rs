//! The routing table: the longest prefix that holds the destination decides (RFC 1812 §5.2.4.3).
//!
//! Routes are configuration, a handful: they stand in one list, longest prefix first, and the first that matches
//! wins. Sockets remember what they found and ask again only when [`RouteTable::epoch`] has moved.

use core::net::IpAddr;

use base::IpCidr;

use crate::InterfaceId;

/// Most routes that a table takes.
pub const MAX_ROUTES: usize = 1024;

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads: destinations in this prefix.
    pub destination: IpCidr,
    /// The router that takes the packets; `None`: the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub interface: InterfaceId,
    /// The largest packet to send there; `None`: what the interface takes. It bounds the segments that connections announce to
    /// take, too.
    pub mtu: Option<u16>,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct RouteTable {
    routes: Vec<Route>,
    epoch: u32,
    /// The least MTU that a route has of its own.
    least_mtu: Option<u16>,
}

impl RouteTable {
    /// Adds a route; one to the same prefix over the same interface is replaced. `false`: the table is full.
    pub(crate) fn add(&mut self, route: Route) -> bool {
        self.epoch = self.epoch.wrapping_add(1);
        let same = |other: &Route| {
            other.destination.network() == route.destination.network()
                && other.destination.prefix_len() == route.destination.prefix_len()
                && other.interface == route.interface
        };
        self.routes.retain(|other| !same(other));
        if self.routes.len() >= MAX_ROUTES {
            return false;
        }
        let at = self
            .routes
            .partition_point(|other| other.destination.prefix_len() >= route.destination.prefix_len());
        self.routes.insert(at, route);
        self.least_mtu = self.routes.iter().filter_map(|route| route.mtu).min();
        true
    }

    /// The least that any route allows.
    pub(crate) fn least_mtu(&self) -> u16 {
        self.least_mtu.unwrap_or(u16::MAX)
    }

    /// The MTU of the route to `destination`, if it has one of its own.
    pub(crate) fn mtu_to(&self, destination: IpAddr) -> Option<u16> {
        self.least_mtu.and_then(|_| self.lookup(destination)?.mtu)
    }

    /// The route to `destination`.
    pub(crate) fn lookup(&self, destination: IpAddr) -> Option<&Route> {
        self.routes.iter().find(|route| route.destination.contains(destination))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Changes whenever an answer of [`lookup`](Self::lookup) may have changed.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Something else changed that paths depend on: an address, a neighbour table.
    pub(crate) fn bump_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(destination: &str, gateway: Option<&str>, interface: u16) -> Route {
        Route {
            destination: destination.parse().unwrap(),
            gateway: gateway.map(|text| text.parse().unwrap()),
            interface: InterfaceId(interface),
            mtu: None,
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut table = RouteTable::default();
        table.add(route("0.0.0.0/0", Some("10.0.0.1"), 1));
        table.add(route("10.0.0.0/24", None, 1));
        table.add(route("10.0.0.128/25", None, 2));
        let find = |text: &str| table.lookup(text.parse().unwrap()).map(|r| (r.gateway, r.interface.0));
        assert_eq!(find("10.0.0.200"), Some((None, 2)));
        assert_eq!(find("10.0.0.20"), Some((None, 1)));
        assert_eq!(find("1.1.1.1"), Some(("10.0.0.1".parse().ok(), 1)));
        assert_eq!(find("::1"), None);
    }

    #[test]
    fn the_route_that_is_taken_tells_the_mtu() {
        let mut table = RouteTable::default();
        table.add(route("0.0.0.0/0", Some("10.0.0.1"), 1));
        table.add(Route { mtu: Some(1400), ..route("10.1.0.0/16", Some("10.0.0.1"), 1) });
        table.add(route("10.1.2.0/24", None, 1));
        let find = |text: &str| table.mtu_to(text.parse().unwrap());
        assert_eq!([find("10.1.1.1"), find("10.1.2.1"), find("1.1.1.1")], [Some(1400), None, None]);
        table.add(route("10.1.0.0/16", Some("10.0.0.1"), 1));
        assert_eq!(table.mtu_to("10.1.1.1".parse().unwrap()), None);
    }

    #[test]
    fn a_route_to_the_same_prefix_replaces() {
        let mut table = RouteTable::default();
        table.add(route("0.0.0.0/0", Some("10.0.0.1"), 1));
        let before = table.epoch();
        table.add(route("0.0.0.0/0", Some("10.0.0.2"), 1));
        assert_ne!(table.epoch(), before);
        assert_eq!(table.iter().count(), 1);
    }
}
