//! The control bits of a TCP header.

use core::fmt;

bitflags::bitflags! {
    /// The control bits (RFC 9293 §3.1; AE: RFC 9768).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u16 {
        /// No more data from the sender.
        const FIN = 0x001;
        /// Synchronise sequence numbers.
        const SYN = 0x002;
        /// Reset the connection.
        const RST = 0x004;
        /// Push: hand the data to the application now.
        const PSH = 0x008;
        /// The acknowledgement number means something.
        const ACK = 0x010;
        /// The urgent pointer means something.
        const URG = 0x020;
        /// Echo of a congestion mark (RFC 3168 §6.1).
        const ECE = 0x040;
        /// The sender reduced its congestion window (RFC 3168 §6.1).
        const CWR = 0x080;
        /// Accurate ECN (RFC 9768), once NS.
        const AE = 0x100;
    }
}

impl fmt::Display for Flags {
    /// As tcpdump prints them: letters, and `.` for ACK.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let letters = [
            (Self::FIN, 'F'),
            (Self::SYN, 'S'),
            (Self::RST, 'R'),
            (Self::PSH, 'P'),
            (Self::URG, 'U'),
            (Self::ECE, 'E'),
            (Self::CWR, 'W'),
            (Self::AE, 'e'),
            (Self::ACK, '.'),
        ];
        for (flag, letter) in letters {
            if self.contains(flag) {
                fmt::Write::write_char(f, letter)?;
            }
        }
        Ok(())
    }
}
