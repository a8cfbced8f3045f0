//! What a case works with: it injects segments, calls the subject's sockets, and everything that the subject answers is
//! written down in a form that is the same for every implementation of the same rules.
//!
//! No clock decides what an answer is. After an injection the subject is asked for an echo, twice: a host handles
//! frames in order, so what it has to say at once has been said by then. What comes later is waited for.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use outboard::raw::SocketOption;
use rustix::net::SocketType;
use wire::ethernet::{EtherType, EthernetAddress};
use wire::frame::Medium;
use wire::icmpv4::Message;
use wire::ip::Protocol;
use wire::tcp::Flags;
use wire::view::{Network, Transport, View};
use wire::{arp, tcp};

use crate::packet::{Ip, Seg, frame, ping, seg};
use crate::subject::{HOST, PEER, PEER_MAC, Sock, Subject};

/// No answer of a live subject takes longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Marks the echo requests that are asked for their order only.
const FENCE: u16 = 0x7e57;
/// The peer's first sequence number: the numbers wrap soon.
const ISS: u32 = 0xffff_fff0;

/// The peer's end of a connection.
#[derive(Clone)]
pub(crate) struct Conn {
    pub(crate) own_port: u16,
    pub(crate) port: u16,
    iss: u32,
    /// The subject's first number, once known.
    irs: Option<u32>,
    /// That number is the test's invention, until a SYN comes.
    pretended: bool,
    /// The next own number, relative.
    pub(crate) nxt: i64,
    /// The next number expected of the subject, relative.
    pub(crate) rcv: i64,
    /// With timestamps: the next own value.
    pub(crate) stamp: Option<u32>,
    /// The last value of the subject's, to be echoed.
    pub(crate) echo: u32,
    /// The shift of the subject's window.
    scale: u8,
    offered_scale: bool,
    /// The right edge that the subject has offered, relative to the own numbers.
    pub(crate) edge: i64,
    /// The length of the subject's last data.
    pub(crate) last_len: usize,
    /// The peer's window, if it is not the largest.
    pub(crate) window: Option<u16>,
    /// Whether PSH is written down.
    pub(crate) shows_push: bool,
}

/// One run of one case.
pub(crate) struct Script<'a> {
    pub(crate) subject: &'a mut Subject,
    pub(crate) lines: Vec<String>,
    next_port: u16,
    next_fence: u16,
    pub(crate) subject_mac: EthernetAddress,
    /// Whether ARP packets of the subject are written down.
    pub(crate) shows_arp: bool,
    /// Whether requests for the test's addresses are answered.
    pub(crate) answers_arp: bool,
}

impl<'a> Script<'a> {
    pub(crate) fn new(subject: &'a mut Subject, number: u16) -> Result<Self> {
        let mut script = Self {
            subject,
            lines: Vec::new(),
            next_port: 1000 + number * 600,
            next_fence: number << 8,
            subject_mac: EthernetAddress::BROADCAST,
            shows_arp: false,
            answers_arp: true,
        };
        script.resolve()?;
        Ok(script)
    }

    pub(crate) fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    /// A connection between two fresh ports.
    pub(crate) fn conn(&mut self) -> Conn {
        self.next_port += 1;
        Conn {
            own_port: self.next_port + 20_000,
            port: self.next_port,
            iss: ISS,
            irs: None,
            pretended: false,
            nxt: 0,
            rcv: 0,
            stamp: None,
            echo: 0,
            scale: 0,
            offered_scale: false,
            edge: 0,
            last_len: 0,
            window: None,
            shows_push: false,
        }
    }

    /// Finds out the subject's hardware address.
    fn resolve(&mut self) -> Result<()> {
        let mut request = vec![0; arp::PACKET_LEN];
        arp::Packet {
            operation: arp::Operation::Request,
            sender_hardware: PEER_MAC,
            sender_protocol: PEER,
            target_hardware: EthernetAddress::UNSPECIFIED,
            target_protocol: HOST,
        }
        .emit(&mut request);
        self.subject.put(&frame(EthernetAddress::BROADCAST, PEER_MAC, EtherType::ARP, &request))?;
        let began = Instant::now();
        while self.subject_mac == EthernetAddress::BROADCAST {
            if let Some(bytes) = self.next_frame(began)?
                && let Ok(View { network: Network::Arp(packet), .. }) = View::parse(&bytes, Medium::Ethernet)
                && packet.operation == arp::Operation::Reply
                && packet.sender_protocol == HOST
            {
                self.subject_mac = packet.sender_hardware;
            }
        }
        Ok(())
    }

    /// The next frame, or none at this moment.
    fn next_frame(&mut self, began: Instant) -> Result<Option<Vec<u8>>> {
        let taken = self.subject.take()?;
        if taken.is_none() {
            if began.elapsed() > PATIENCE {
                bail!("the subject does not answer; so far:\n{}", self.lines.join("\n"));
            }
            std::thread::yield_now();
        }
        Ok(taken)
    }

    // ---- Injecting.

    pub(crate) fn put_frame(&mut self, bytes: &[u8]) -> Result<()> {
        self.subject.put(bytes)
    }

    pub(crate) fn put_ip(&mut self, packet: &Ip) -> Result<()> {
        let bytes = frame(self.subject_mac, PEER_MAC, EtherType::IPV4, &packet.emit());
        self.subject.put(&bytes)
    }

    /// Injects a segment of the connection. One whose sequence number is not given stands at the end of the peer's stream
    /// and moves it on.
    pub(crate) fn put(&mut self, conn: &mut Conn, mut segment: Seg) -> Result<()> {
        segment.window = segment.window.or(conn.window);
        segment.seq = segment.seq.or(segment.offset.map(|offset| conn.nxt + offset));
        let seq = segment.seq.unwrap_or(conn.nxt);
        let ack = segment.ack.unwrap_or(conn.rcv);
        if segment.seq.is_none() {
            let phantom =
                segment.flags.contains(Flags::SYN) as i64 + segment.flags.contains(Flags::FIN) as i64;
            conn.nxt += segment.data.len() as i64 + phantom;
        }
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::RST) {
            conn.offered_scale = segment.options.window_scale.is_some();
            if !conn.offered_scale && segment.seq.is_none() {
                (conn.scale, conn.edge) = (0, 0);
            }
        }
        if segment.options.timestamps.is_none()
            && !segment.without_timestamps
            && segment.raw_options.is_none()
            && let Some(stamp) = &mut conn.stamp
        {
            *stamp += 1;
            let echo = if segment.flags.contains(Flags::ACK) { conn.echo } else { 0 };
            segment = segment.stamps(*stamp, echo);
        }
        let base = conn.irs.unwrap_or(0);
        let absolute_ack = if segment.flags.contains(Flags::ACK) { base.wrapping_add(ack as u32) } else { 0 };
        let absolute_seq = conn.iss.wrapping_add(seq as u32);
        let bytes = segment.emit((conn.own_port, conn.port), absolute_seq, absolute_ack, base);
        // The windows of the two need not be the same.
        let place = if conn.edge > 0 && seq >= conn.edge {
            format!("edge+{}", seq - conn.edge)
        } else {
            seq.to_string()
        };
        self.say(format!("  < {} {place}+{}{}", segment.flags, segment.data.len(), note(&segment, ack)));
        let packet = Ip::new(Protocol::TCP.0, bytes);
        self.put_ip(&packet)
    }

    /// Injects a segment and writes down what comes back at once.
    pub(crate) fn ask(&mut self, conn: &mut Conn, segment: Seg) -> Result<usize> {
        self.put(conn, segment)?;
        self.settle(conn)
    }

    // ---- What the subject says.

    /// Writes down what the subject has said on the connection by now; how many segments.
    pub(crate) fn settle(&mut self, conn: &mut Conn) -> Result<usize> {
        let frames = self.fence()?;
        let before = self.lines.len();
        for bytes in frames {
            self.note_frame(&bytes, Some(conn));
        }
        let count = self.lines.len() - before;
        if count == 0 {
            self.say("  > nothing");
        }
        Ok(count)
    }

    /// Follows what the subject has said by now without writing it down.
    pub(crate) fn settle_unseen(&mut self, conn: &mut Conn) -> Result<()> {
        let before = self.lines.len();
        self.settle(conn)?;
        self.lines.truncate(before);
        Ok(())
    }

    /// Writes down everything that the subject has said by now.
    pub(crate) fn settle_all(&mut self) -> Result<()> {
        let frames = self.fence()?;
        let before = self.lines.len();
        for bytes in frames {
            self.note_frame(&bytes, None);
        }
        if self.lines.len() == before {
            self.say("  > nothing");
        }
        Ok(())
    }

    /// Waits until the subject says something on the connection, writes it down with all that comes at once, and when it
    /// came: before so many milliseconds, of those given, or later.
    pub(crate) fn wait(&mut self, conn: &mut Conn, classes: &[u64]) -> Result<()> {
        let began = Instant::now();
        let limit = Duration::from_millis(classes.last().copied().context("a class")?);
        loop {
            if let Some(bytes) = self.subject.take()? {
                let before = self.lines.len();
                self.answer_arp(&bytes)?;
                self.note_frame(&bytes, Some(conn));
                if self.lines.len() > before {
                    let passed = began.elapsed().as_millis() as u64;
                    let class = classes.iter().find(|class| passed <= **class).unwrap_or(&0);
                    self.say(format!("  that within {class} ms"));
                    return Ok(());
                }
            } else if began.elapsed() > limit {
                self.say(format!("  > nothing within {} ms", limit.as_millis()));
                return Ok(());
            }
            std::thread::yield_now();
        }
    }

    /// All frames up to the answer to an echo request that is sent now, twice: in one batch of frames a stack may answer
    /// the echo before the segment.
    pub(crate) fn fence(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        for _ in 0..2 {
            self.next_fence = self.next_fence.wrapping_add(1);
            let sequence = self.next_fence;
            self.put_ip(&Ip::new(Protocol::ICMP.0, ping(FENCE, sequence, b"")))?;
            let began = Instant::now();
            loop {
                let Some(bytes) = self.next_frame(began)? else { continue };
                let reply = Transport::Icmpv4(Message::EchoReply { identifier: FENCE, sequence });
                if View::parse(&bytes, Medium::Ethernet).is_ok_and(|view| view.transport == reply) {
                    break;
                }
                self.answer_arp(&bytes)?;
                frames.push(bytes);
            }
        }
        Ok(frames)
    }

    fn answer_arp(&mut self, bytes: &[u8]) -> Result<()> {
        let Ok(View { network: Network::Arp(request), .. }) = View::parse(bytes, Medium::Ethernet) else {
            return Ok(());
        };
        if !self.answers_arp
            || request.operation != arp::Operation::Request
            || request.target_protocol == HOST
        {
            return Ok(());
        }
        let mut reply = vec![0; arp::PACKET_LEN];
        arp::Packet {
            operation: arp::Operation::Reply,
            sender_hardware: PEER_MAC,
            sender_protocol: request.target_protocol,
            target_hardware: request.sender_hardware,
            target_protocol: request.sender_protocol,
        }
        .emit(&mut reply);
        self.put_frame(&frame(request.sender_hardware, PEER_MAC, EtherType::ARP, &reply))
    }

    /// Writes a frame down: if it belongs to the connection, or, without one, in any case.
    fn note_frame(&mut self, bytes: &[u8], conn: Option<&mut Conn>) {
        let Ok(view) = View::parse(bytes, Medium::Ethernet) else {
            self.say(format!("  > MALFORMED {bytes:02x?}"));
            return;
        };
        match (&view.transport, view.network) {
            (Transport::Tcp(header), Network::Ipv4(_)) => {
                if let Some(conn) = conn {
                    if header.dst_port == conn.own_port && header.src_port == conn.port {
                        let line = conn.note(header, view.payload);
                        self.say(line);
                    }
                } else {
                    self.say(format!("  > TCP {} to {}", header.flags, header.dst_port));
                }
            }
            (_, Network::Arp(packet)) if self.shows_arp => {
                self.say(format!(
                    "  > ARP {:?} {} asks for {} to {}",
                    packet.operation,
                    packet.sender_protocol,
                    packet.target_protocol,
                    if packet.target_hardware == PEER_MAC { "us" } else { "all" }
                ));
            }
            (transport, Network::Ipv4(header)) if conn.is_none() => {
                let what = match transport {
                    Transport::Icmpv4(message) => format!("{message:?}"),
                    Transport::Udp(header) => format!("UDP to {} of {}", header.dst_port, header.len),
                    Transport::Fragment => format!("fragment at {}", header.fragment_offset),
                    other => format!("{other:?}"),
                };
                let more = if header.more_fragments { " and more" } else { "" };
                self.say(format!("  > {} {what} with {}{more}", header.destination, view.payload.len()));
            }
            _ => {}
        }
    }
}

/// What a line about an injected segment adds.
fn note(segment: &Seg, ack: i64) -> String {
    let mut text = String::new();
    if segment.flags.contains(Flags::ACK) {
        text += &format!(" ack {ack}");
    }
    if let Some(window) = segment.window {
        text += &format!(" win {window}");
    }
    text
}

impl Conn {
    /// The line about a segment of the subject's; keeps what it says.
    fn note(&mut self, header: &tcp::Header, payload: &[u8]) -> String {
        let flags = header.flags;
        if flags.contains(Flags::SYN) && (self.irs.is_none() || self.pretended) {
            self.pretended = false;
            self.irs = Some(header.seq.0);
            self.scale = if self.offered_scale { header.options.window_scale.unwrap_or(0) } else { 0 };
        }
        let relative = |number: u32, base: u32| i64::from(number.wrapping_sub(base) as i32);
        let seq = match self.irs {
            _ if header.seq.0 == 0 => "ZERO".to_owned(),
            Some(irs) => relative(header.seq.0, irs).to_string(),
            None => header.seq.0.to_string(),
        };
        self.last_len = payload.len();
        let length = payload.len() as i64 + i64::from(flags.intersects(Flags::SYN | Flags::FIN));
        if let Some(irs) = self.irs
            && !flags.contains(Flags::RST)
            && relative(header.seq.0, irs) == self.rcv
        {
            self.rcv += length;
        }
        // Where in a long write the data is pushed is everybody's own choice.
        let shown = if self.shows_push { flags } else { flags.difference(Flags::PSH) };
        let mut text = format!("  > {shown} {seq}+{}", payload.len());
        if flags.contains(Flags::ACK) {
            let ack = relative(header.ack.0, self.iss);
            text += &format!(" ack {ack}");
            if !flags.contains(Flags::RST) {
                text += &self.note_window(header, ack);
            }
        }
        if header.urgent != 0 {
            text += &format!(" urgent {}", header.urgent);
        }
        text + &self.note_options(header)
    }

    fn note_window(&mut self, header: &tcp::Header, ack: i64) -> String {
        let scale = if header.flags.contains(Flags::SYN) { 0 } else { self.scale };
        let edge = ack + (i64::from(header.window) << scale);
        // A scaled window cannot name every edge (RFC 7323 §2.4).
        let shrank = edge + (1 << scale) <= self.edge && edge < self.edge;
        self.edge = self.edge.max(edge);
        let zero = if header.window == 0 { " win 0" } else { "" };
        format!("{zero}{}", if shrank { " THE WINDOW SHRANK" } else { "" })
    }

    fn note_options(&mut self, header: &tcp::Header) -> String {
        let options = &header.options;
        let mut items = Vec::new();
        if let Some(mss) = options.mss {
            items.push(format!("mss {mss}"));
        }
        if options.sack_permitted {
            items.push("sackOK".to_owned());
        }
        if let Some(stamps) = options.timestamps {
            self.echo = stamps.value;
            items.push(format!("ecr {}", stamps.echo));
        }
        if options.window_scale.is_some() {
            items.push("wscale".to_owned());
        }
        for block in &options.sack {
            let at = |number: u32| i64::from(number.wrapping_sub(self.iss) as i32);
            items.push(format!("sack {}:{}", at(block.start.0), at(block.end.0)));
        }
        if items.is_empty() { String::new() } else { format!(" <{}>", items.join(",")) }
    }

    /// Pretends to know the subject's numbers, where there is no connection.
    pub(crate) fn pretend(&mut self) {
        (self.irs, self.pretended) = (Some(0x2000_0000), true);
    }
}

/// The outcome of a call as it is written down.
pub(crate) fn outcome<T: std::fmt::Debug>(result: &io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => match error.raw_os_error() {
            Some(number) => rustix::io::Errno::from_raw_os_error(number).to_string(),
            None => error.to_string(),
        },
    }
}

// ---- The program's side.
impl Script<'_> {
    pub(crate) fn socket(&mut self) -> Result<Sock> {
        self.subject.socket(SocketType::STREAM)
    }

    pub(crate) fn listen(&mut self, conn: &Conn) -> Result<Sock> {
        let socket = self.socket()?;
        socket.bind(conn.port)?;
        socket.listen(8)?;
        Ok(socket)
    }

    pub(crate) fn accept(&mut self, listener: &Sock) -> Result<Option<Sock>> {
        let accepted = listener.accept();
        self.say(format!("  accept {}", if accepted.is_ok() { "one" } else { "none" }));
        Ok(accepted.ok())
    }

    pub(crate) fn recv(&mut self, socket: &Sock, room: usize) -> Result<usize> {
        let mut bytes = vec![0; room];
        let result = socket.recv(&mut bytes);
        self.say(format!("  recv {}", outcome(&result)));
        Ok(result.unwrap_or(0))
    }

    pub(crate) fn send(&mut self, socket: &Sock, length: usize) {
        let result = socket.send(&vec![b'y'; length]);
        self.say(format!("  send {}", outcome(&result)));
    }

    pub(crate) fn send_urgent(&mut self, socket: &Sock, length: usize) {
        let result = socket.send_urgent(&vec![b'y'; length]);
        self.say(format!("  send {} urgently", outcome(&result)));
    }

    pub(crate) fn recv_urgent(&mut self, socket: &Sock) {
        self.say(format!("  recv urgent {}", outcome(&socket.recv_urgent())));
    }

    pub(crate) fn at_mark(&mut self, socket: &Sock) -> Result<()> {
        let text = if socket.is_at_mark()? { "at the mark" } else { "not at the mark" };
        self.say(format!("  {text}"));
        Ok(())
    }

    pub(crate) fn poll(&mut self, socket: &Sock) -> Result<()> {
        let bits = socket.poll()?;
        self.say(format!("  poll {bits}"));
        Ok(())
    }

    pub(crate) fn error(&mut self, socket: &Sock) -> Result<()> {
        let error = match socket.error()? {
            Some(error) => outcome::<()>(&Err(error)),
            None => "none".to_owned(),
        };
        self.say(format!("  error {error}"));
        Ok(())
    }

    pub(crate) fn shutdown(&mut self, socket: &Sock, how: std::net::Shutdown) {
        let result = socket.shutdown(how);
        self.say(format!("  shutdown {how:?} {}", outcome(&result)));
    }

    pub(crate) fn set(&mut self, socket: &Sock, option: SocketOption) -> Result<()> {
        socket.set(option)
    }

    /// A connection that the subject's program accepts, opened with this SYN.
    pub(crate) fn passive(&mut self, syn: Seg) -> Result<(Conn, Sock)> {
        self.passive_with(syn, &[])
    }

    /// The same, with options of the listener.
    pub(crate) fn passive_with(&mut self, syn: Seg, options: &[SocketOption]) -> Result<(Conn, Sock)> {
        let mut conn = self.conn();
        conn.window = syn.window;
        let listener = self.socket()?;
        for option in options {
            self.set(&listener, *option)?;
        }
        listener.bind(conn.port)?;
        listener.listen(8)?;
        if let Some(stamps) = syn.options.timestamps {
            conn.stamp = Some(stamps.value);
        }
        self.ask(&mut conn, syn)?;
        self.ask(&mut conn, seg("."))?;
        let socket = self.accept(&listener)?.context("the connection was not accepted")?;
        // No more connections come to this port; the listener's end is no part of the case.
        drop(listener);
        Ok((conn, socket))
    }

    /// A connection that the subject's program makes, answered with this SYN-ACK.
    pub(crate) fn active(&mut self, answer: Seg) -> Result<(Conn, Sock)> {
        let (mut conn, socket) = self.syn_sent()?;
        if let Some(stamps) = answer.options.timestamps {
            conn.stamp = Some(stamps.value);
        }
        self.ask(&mut conn, answer)?;
        Ok((conn, socket))
    }

    /// A connection attempt whose SYN was seen.
    pub(crate) fn syn_sent(&mut self) -> Result<(Conn, Sock)> {
        let mut conn = self.conn();
        let socket = self.socket()?;
        let result = socket.connect(conn.own_port);
        self.say(format!("  connect {}", outcome(&result)));
        // The subject picks the port: take it from the SYN.
        for bytes in self.fence()? {
            if let Ok(view) = View::parse(&bytes, Medium::Ethernet)
                && let Transport::Tcp(header) = &view.transport
                && header.dst_port == conn.own_port
            {
                conn.port = header.src_port;
                conn.offered_scale = true;
                let line = conn.note(header, view.payload);
                self.say(line);
            }
        }
        Ok((conn, socket))
    }
}

/// A SYN with the options that everybody sends.
pub(crate) fn full_syn() -> Seg {
    seg("S").mss(1460).sack_permitted().stamps(1000, 0).scale(7)
}

impl Conn {
    /// The same ports anew, the first number so much later.
    pub(crate) fn reborn(&self, later: u32) -> Self {
        let iss = self.iss.wrapping_add(later);
        Self { iss, irs: None, nxt: 0, rcv: 0, edge: 0, stamp: None, ..self.clone() }
    }
}
