//! What an application can do wrong, by name.

macro_rules! offences {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// Something that no correct application does. It ends the application's channel and is counted by its name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Offence {
            $($(#[$doc])* $variant,)*
        }

        impl Offence {
            /// All of them, in the order of their discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name under which it is counted.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

offences! {
    /// The command ring's index is impossible.
    CommandIndex => "command_index",
    /// The event ring's index is impossible.
    EventIndex => "event_index",
    /// No such command.
    UnknownCommand => "unknown_command",
    /// A socket number outside of the table.
    BadSocket => "bad_socket",
    /// An argument outside of its range.
    BadArgument => "bad_argument",
    /// A send ring that does not lie in the send area.
    BadLocation => "bad_location",
    /// A send ring too small for what is not acknowledged yet.
    RingTooSmall => "ring_too_small",
    /// Bytes queued without a send ring.
    NoRing => "no_ring",
    /// More queued than the send ring holds.
    QueuedTooFar => "queued_too_far",
    /// The queued cursor went back, or does not lie between records.
    QueuedBackwards => "queued_backwards",
    /// The read cursor went back.
    ConsumedBackwards => "consumed_backwards",
    /// The read cursor passed what was received.
    ConsumedTooFar => "consumed_too_far",
    /// A datagram's record is impossible.
    BadDatagram => "bad_datagram",
    /// A waiter slot outside of the table.
    BadWaiter => "bad_waiter",
    /// A command for a socket that is not open.
    NotOpen => "not_open",
    /// Opening a socket that is open.
    AlreadyOpen => "already_open",
    /// Opening a socket whose number is the FEP's to give.
    NotYours => "not_yours",
    /// A command that this kind of socket does not have.
    WrongKind => "wrong_kind",
    /// A message on the control socket that makes no sense.
    BadMessage => "bad_message",
    /// A file that was not lent, or bytes of one where none can go.
    BadFile => "bad_file",
}

impl Offence {
    /// The code in F's `closed` word; never 0.
    pub(crate) fn code(self) -> u32 {
        self as u32 + 2
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get((code as usize).checked_sub(2)?).copied()
    }
}

/// The code in F's `closed` word of a channel that was closed without an offence.
pub(crate) const CLOSED_IN_ORDER: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_are_distinct() {
        for (index, &offence) in Offence::ALL.iter().enumerate() {
            assert_eq!(Offence::from_code(offence.code()), Some(offence));
            assert!(offence.code() > CLOSED_IN_ORDER);
            assert!(Offence::ALL[..index].iter().all(|other| other.name() != offence.name()));
        }
        assert_eq!(Offence::from_code(0), None);
        assert_eq!(Offence::from_code(CLOSED_IN_ORDER), None);
    }
}
