//! Numbers, texts and addresses in messages: little-endian, lengths before contents, everything bounded.

use core::net::IpAddr;

use base::IpCidr;

/// Appends to a message.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new(kind: [u8; 8]) -> Self {
        Self(kind.to_vec())
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn token(&mut self, token: &[u8; 16]) {
        self.0.extend_from_slice(token);
    }

    /// The text, cut to at most `limit` bytes.
    pub(super) fn text(&mut self, text: &str, limit: usize) {
        let end = text.floor_char_boundary(limit);
        self.u32(end as u32);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
    }

    /// Family 4 or 6 and the octets; family 0 for none.
    pub(super) fn address(&mut self, address: Option<IpAddr>) {
        match address {
            None => self.0.push(0),
            Some(IpAddr::V4(v4)) => {
                self.0.push(4);
                self.0.extend_from_slice(&v4.octets());
            }
            Some(IpAddr::V6(v6)) => {
                self.0.push(6);
                self.0.extend_from_slice(&v6.octets());
            }
        }
    }

    pub(super) fn cidr(&mut self, cidr: &IpCidr) {
        self.address(Some(cidr.address()));
        self.0.push(cidr.prefix_len());
    }
}

/// Takes from a message; `None` when it is too short or wrong.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    pub(super) fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn kind(&mut self) -> Option<[u8; 8]> {
        self.array()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn token(&mut self) -> Option<[u8; 16]> {
        self.array()
    }

    /// The length of a list that has at most `limit` members.
    pub(super) fn count(&mut self, limit: usize) -> Option<usize> {
        self.u32().map(|count| count as usize).filter(|&count| count <= limit)
    }

    pub(super) fn text(&mut self, limit: usize) -> Option<String> {
        let length = self.count(limit)?;
        let bytes = self.bytes(length)?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    /// `Some(None)` for the address that is none.
    pub(super) fn address(&mut self) -> Option<Option<IpAddr>> {
        Some(match self.array::<1>()? {
            [0] => None,
            [4] => Some(IpAddr::from(self.array::<4>()?)),
            [6] => Some(IpAddr::from(self.array::<16>()?)),
            _ => return None,
        })
    }

    pub(super) fn cidr(&mut self) -> Option<IpCidr> {
        let address = self.address()??;
        let [prefix] = self.array()?;
        IpCidr::new(address, prefix)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }
}
