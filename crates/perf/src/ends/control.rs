//! The control connection: lines of JSON, one at a time.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::connection::Connection;
use super::{Outcome, Plan};

/// The longest line: an outcome with its histogram.
const MAX_LINE: usize = 4 << 20;

/// What a client says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// What is to be done.
    Plan(Box<Plan>),
    /// From now on everything counts.
    Counting,
    /// It is done.
    End,
}

/// What a server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The port for the data.
    Ready(u16),
    /// It will not be done.
    Refused(String),
    /// What came of it.
    Outcome(Box<Outcome>),
}

/// Says a line.
pub(super) fn say(connection: &Connection, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    (&mut &*connection).write_all(line.as_bytes())
}

/// Hears a line; `None`: the other end has nothing more to say.
pub(super) fn hear<T: DeserializeOwned>(connection: &Connection) -> io::Result<Option<T>> {
    let mut reader = connection;
    let mut line = Vec::new();
    let mut byte = [0];
    while reader.read(&mut byte)? > 0 {
        if byte[0] == b'\n' {
            return Ok(Some(serde_json::from_slice(&line)?));
        }
        line.push(byte[0]);
        if line.len() > MAX_LINE {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a control line without an end"));
        }
    }
    if line.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
