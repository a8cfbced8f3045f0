//! `TCP_INFO` from what the stack tells of a connection.

use outboard::raw::Socket;

/// `struct tcp_info` up to and including `tcpi_total_retrans`, the part that every Linux has.
const LENGTH: usize = 104;

/// The bytes of `struct tcp_info`; fields that the stack does not tell are zero.
pub(crate) fn tcp_info(socket: &Socket) -> [u8; LENGTH] {
    let info = socket.info();
    let mut bytes = [0u8; LENGTH];
    let mut put = |offset: usize, value: u32| {
        bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    };
    put(8, info.rto_us);
    put(16, info.segment_size);
    put(20, info.segment_size);
    put(24, info.in_flight_segments);
    put(32, info.lost_segments);
    put(36, info.retransmitting_segments);
    put(60, info.path_mtu);
    put(68, info.srtt_us);
    put(72, info.rttvar_us);
    put(76, info.slow_start_threshold_segments);
    put(80, info.congestion_window_segments);
    put(84, info.segment_size);
    put(100, info.total_retransmissions);
    bytes[0] = info.state;
    bytes
}
