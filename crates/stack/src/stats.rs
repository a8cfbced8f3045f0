//! What a stack counts. Every drop has a name; a counter only grows.

/// Declares counters together with the names under which status output prints them.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of a stack.
        #[derive(Clone, Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// What became of each segment that was given to a connection.
            pub verdicts: tcp::VerdictCounters,
        }

        impl Stats {
            /// All counters but the verdicts, with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Connections whose two ends are both here, joined without segments.
    tcp_cut_through,
    /// Payload bytes that went from one end of such a connection to the other.
    cut_through_bytes,
    /// Datagrams that went from one socket here to another without a packet.
    udp_cut_through,
    /// Frames received.
    frames_in,
    /// Bytes of frames received.
    bytes_in,
    /// Frames given to devices.
    frames_out,
    /// Bytes of frames given to devices.
    bytes_out,
    /// Frames that a device refused although it had said that it was ready; lost.
    transmit_refused,
    /// Frames for an interface that does not exist.
    drop_no_interface,
    /// Frames too short for their Ethernet header.
    drop_ethernet_short,
    /// Frames to somebody else's hardware address.
    drop_other_host,
    /// Frames of a protocol that is not spoken.
    drop_ether_type,
    /// IPv6 packets, which are not handled yet.
    drop_ipv6,
    /// IPv4 packets with a malformed header, a wrong length or version.
    drop_ip_header,
    /// IPv4 packets with a wrong header checksum.
    drop_ip_checksum,
    /// IPv4 packets with source routing, which is refused.
    drop_source_route,
    /// IPv4 packets from an address that nobody can have.
    drop_martian_source,
    /// IPv4 packets that claim to come from one of our own addresses.
    drop_own_source,
    /// IPv4 packets to an address that is not ours.
    drop_not_ours,
    /// IPv4 packets to a group that nobody has joined.
    drop_multicast,
    /// IPv4 packets to a unicast address in a frame to all (RFC 1122 §3.3.6).
    drop_unicast_in_group_frame,
    /// IPv4 packets of a protocol that is not spoken.
    drop_ip_protocol,
    /// Fragments received.
    fragments_in,
    /// Datagrams put together from fragments.
    reassembled,
    /// Fragments that had come already.
    fragment_duplicates,
    /// Datagrams dropped since fragments overlapped.
    drop_fragment_overlap,
    /// Fragments with impossible lengths or positions.
    drop_fragment_malformed,
    /// Fragments over a limit of memory or number, or datagrams dropped to make room.
    drop_fragment_limit,
    /// Datagrams of which some fragment did not come in time.
    drop_fragment_timeout,
    /// Datagrams cut into fragments to be sent.
    fragmented,
    /// Fragments made.
    fragments_out,
    /// Packets that could not be sent: no route.
    drop_no_route,
    /// Packets that could not be sent: the next hop does not answer.
    drop_neighbour_failed,
    /// Packets dropped since too many waited for a next hop.
    drop_neighbour_queue,
    /// Packets that could not be sent: the neighbour table is full of entries in use.
    drop_neighbour_table,
    /// Replies and errors dropped since too many frames waited for the device.
    drop_control_queue,
    /// Packets between own sockets dropped since the queue was full.
    drop_loopback_queue,
    /// ARP packets received.
    arp_in,
    /// ARP packets that were malformed or of another protocol.
    drop_arp_malformed,
    /// ARP packets about other hosts.
    arp_others,
    /// ARP replies that nobody asked for, about hosts that we do not know.
    drop_arp_unsolicited,
    /// ARP packets sent.
    arp_out,
    /// Others that use one of our addresses.
    address_conflicts,
    /// Announcements in defence of an address.
    address_defences,
    /// Next hops that did not answer.
    neighbour_failures,
    /// ICMP packets received.
    icmp_in,
    /// ICMP packets with a wrong checksum.
    drop_icmp_checksum,
    /// ICMP packets that were malformed.
    drop_icmp_malformed,
    /// Echo requests to all, which are not answered.
    drop_echo_broadcast,
    /// Echo replies sent.
    echo_replies,
    /// ICMP packets of a kind that means nothing here.
    drop_icmp_kind,
    /// ICMP errors about packets that no socket of ours has sent.
    drop_icmp_unmatched,
    /// Errors and times for queues of errors that their owner was too slow to take.
    drop_told,
    /// ICMP errors handed to sockets.
    icmp_errors_in,
    /// Of the words of routers that a packet was too big, those not believed before a timeout (RFC 5927 §7.2).
    icmp_too_big_deferred,
    /// ICMP errors sent.
    icmp_errors_out,
    /// ICMP errors not sent since too many had been.
    icmp_rate_limited,
    /// UDP datagrams received.
    udp_in,
    /// UDP datagrams sent.
    udp_out,
    /// UDP datagrams with a wrong checksum.
    drop_udp_checksum,
    /// UDP datagrams that were malformed.
    drop_udp_malformed,
    /// UDP datagrams to a port that nobody has.
    drop_udp_no_socket,
    /// UDP datagrams for which the socket had no room.
    drop_udp_queue_full,
    /// UDP datagrams that could not be sent: not permitted, too long, no destination.
    drop_udp_refused,
    /// TCP segments received, super-segments as one.
    tcp_in,
    /// TCP segments sent, super-segments as one.
    tcp_out,
    /// TCP segments with a wrong checksum.
    drop_tcp_checksum,
    /// TCP segments that were malformed.
    drop_tcp_malformed,
    /// TCP segments to broadcast or multicast addresses.
    drop_tcp_broadcast,
    /// Segments that belong to no connection and no listener.
    tcp_no_socket,
    /// Resets sent for them.
    resets_out,
    /// Connections opened by us.
    tcp_active_opens,
    /// Connections that peers opened, from their SYN on.
    tcp_passive_opens,
    /// Connections that became established.
    tcp_established,
    /// SYNs dropped since the accept queue was full.
    drop_listen_overflow,
    /// Last acknowledgements of a handshake dropped since the accept queue was full.
    drop_accept_overflow,
    /// Half-open connections dropped to make room for newer ones.
    drop_half_open,
    /// SYNs dropped since too many connections were half-open, or the table of sockets was full.
    drop_syn_queue,
    /// SYNs answered with a cookie.
    syn_cookies_sent,
    /// Connections made of an acknowledged cookie.
    syn_cookies_received,
    /// Acknowledgements to a listener that were no cookie of ours, or too late.
    syn_cookies_failed,
    /// Active opens whose SYN carried data that the peer took.
    fast_open_active,
    /// Active opens whose SYN carried data in vain.
    fast_open_active_fail,
    /// Active opens without fast open although it was asked for, since SYNs with it to that peer were lost.
    fast_open_avoided,
    /// Connections that began with data in the SYN, or with a cookie that allows it.
    fast_open_passive,
    /// SYNs with a fast-open cookie that is not ours.
    fast_open_passive_fail,
    /// SYNs that asked for a fast-open cookie.
    fast_open_cookies_asked,
    /// SYNs with data not taken since too many connections had begun so.
    fast_open_overflow,
    /// Segments that a listener has no use for.
    drop_listen_segment,
    /// Segments received in TIME-WAIT.
    time_wait_in,
    /// Connections that entered TIME-WAIT.
    time_waits,
    /// Connections that skipped TIME-WAIT since there were too many records.
    time_wait_overflow,
    /// Orphans reset since there were too many or they took too long.
    orphans_reset,
}

/// Work done since the start, as operations: for tests that cost does not grow with the number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Lookups in the tables of connections.
    pub flow_lookups: u64,
    /// Connections compared for them.
    pub flow_comparisons: u64,
    /// Operations on lists of the timer wheel.
    pub timer_operations: u64,
    /// Sockets looked at for output.
    pub sockets_polled: u64,
}
