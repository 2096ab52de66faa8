//! Frames of a remote session: one byte for the kind, four for the length (big endian), the data.

use super::{RemoteEnd, TerminalSize};

/// Bytes before the data.
pub const HEADER_BYTES: usize = 5;
/// Maximum bytes of data. Every party has some frames in memory per session.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// Maximum bytes of input that the program has not taken. So every party can always read, and
/// notices at once that another one has left.
pub const INPUT_WINDOW_BYTES: usize = 256 << 10;

const INPUT: u8 = 1;
const INPUT_END: u8 = 2;
const OUTPUT: u8 = 3;
const ERRORS: u8 = 4;
const OUTPUT_END: u8 = 5;
const RESIZE: u8 = 6;
const STARTED: u8 = 7;
const ENDED: u8 = 8;
const ALIVE: u8 = 9;
const INPUT_TAKEN: u8 = 10;

/// One message of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteFrame {
    /// To the task: input of the command, or data for the port.
    Input(Vec<u8>),
    /// No more input follows.
    InputEnd,
    /// From the task: output of the command, or data of the port.
    Output(Vec<u8>),
    /// Output of the command to its standard error.
    Errors(Vec<u8>),
    /// No more output follows; only for ports.
    OutputEnd,
    /// To the task: the client's terminal has another size.
    Resize(TerminalSize),
    /// From the task: the command runs, or the port is connected.
    Started,
    /// From the task: the last frame.
    Ended(RemoteEnd),
    /// From the task: the program has taken this number of bytes of input.
    InputTaken(u32),
    /// Sent regularly between client and API server, so that a lost connection is noticed.
    Alive,
}

/// Bytes that are not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame has {found} bytes; expected at most {MAX_FRAME_BYTES}")]
    TooLarge { found: usize },
    #[error("frame has the kind {0}, which this release does not know")]
    Kind(u8),
    #[error("frame of kind {0} has invalid data")]
    Data(u8),
}

/// Returns the number of data bytes that follow a header.
///
/// # Errors
/// [`FrameError::TooLarge`].
pub fn frame_bytes(header: [u8; HEADER_BYTES]) -> Result<usize, FrameError> {
    let [_, length @ ..] = header;
    let found = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if found > MAX_FRAME_BYTES {
        return Err(FrameError::TooLarge { found });
    }
    Ok(found)
}

/// Returns the number of bytes for the program, and from it, in the bytes of a frame.
#[must_use]
pub fn payload(frame: &[u8]) -> (u64, u64) {
    let data = frame.len().saturating_sub(HEADER_BYTES) as u64;
    match frame.first() {
        Some(&INPUT) => (data, 0),
        Some(&(OUTPUT | ERRORS)) => (0, data),
        _ => (0, 0),
    }
}

/// Whether these are the bytes of [`RemoteFrame::Ended`].
#[must_use]
pub fn is_ended(frame: &[u8]) -> bool {
    frame.first() == Some(&ENDED)
}

impl RemoteFrame {
    /// Returns the bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Input(data) => framed(INPUT, data),
            Self::InputEnd => framed(INPUT_END, &[]),
            Self::Output(data) => framed(OUTPUT, data),
            Self::Errors(data) => framed(ERRORS, data),
            Self::OutputEnd => framed(OUTPUT_END, &[]),
            Self::Resize(TerminalSize { rows, columns }) => {
                let [a, b] = rows.to_be_bytes();
                let [c, d] = columns.to_be_bytes();
                framed(RESIZE, &[a, b, c, d])
            }
            Self::Started => framed(STARTED, &[]),
            Self::Ended(end) => framed(ENDED, &serde_json::to_vec(end).expect("an end is JSON")),
            Self::InputTaken(bytes) => framed(INPUT_TAKEN, &bytes.to_be_bytes()),
            Self::Alive => framed(ALIVE, &[]),
        }
    }

    /// Reads one whole frame.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(frame: &[u8]) -> Result<Self, FrameError> {
        let kind = frame.first().copied().unwrap_or_default();
        let header = frame.first_chunk().ok_or(FrameError::Data(kind))?;
        let data = &frame[HEADER_BYTES..];
        if frame_bytes(*header)? != data.len() {
            return Err(FrameError::Data(kind));
        }
        match (kind, data) {
            (INPUT, data) => Ok(Self::Input(data.to_vec())),
            (INPUT_END, []) => Ok(Self::InputEnd),
            (OUTPUT, data) => Ok(Self::Output(data.to_vec())),
            (ERRORS, data) => Ok(Self::Errors(data.to_vec())),
            (OUTPUT_END, []) => Ok(Self::OutputEnd),
            (RESIZE, &[a, b, c, d]) => Ok(Self::Resize(TerminalSize {
                rows: u16::from_be_bytes([a, b]),
                columns: u16::from_be_bytes([c, d]),
            })),
            (STARTED, []) => Ok(Self::Started),
            (ENDED, data) => serde_json::from_slice(data)
                .map(Self::Ended)
                .map_err(|_| FrameError::Data(kind)),
            (INPUT_TAKEN, &[a, b, c, d]) => Ok(Self::InputTaken(u32::from_be_bytes([a, b, c, d]))),
            (ALIVE, []) => Ok(Self::Alive),
            (INPUT_END | OUTPUT_END | RESIZE | STARTED | INPUT_TAKEN | ALIVE, _) => {
                Err(FrameError::Data(kind))
            }
            (kind, _) => Err(FrameError::Kind(kind)),
        }
    }

    /// Whether clients send it, and not nodes.
    #[must_use]
    pub fn is_from_client(&self) -> bool {
        matches!(
            self,
            Self::Input(_) | Self::InputEnd | Self::Resize(_) | Self::Alive
        )
    }
}

fn framed(kind: u8, data: &[u8]) -> Vec<u8> {
    debug_assert!(data.len() <= MAX_FRAME_BYTES, "the sender cuts data");
    let length = u32::try_from(data.len()).expect("frames are small");
    let mut frame = Vec::with_capacity(HEADER_BYTES + data.len());
    frame.push(kind);
    frame.extend(length.to_be_bytes());
    frame.extend(data);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_a_round_trip() {
        let size = TerminalSize {
            rows: 300,
            columns: 7,
        };
        for frame in [
            RemoteFrame::Input(vec![0, 255]),
            RemoteFrame::Input(Vec::new()),
            RemoteFrame::InputEnd,
            RemoteFrame::Output(b"out".to_vec()),
            RemoteFrame::Errors(vec![7; MAX_FRAME_BYTES]),
            RemoteFrame::OutputEnd,
            RemoteFrame::Resize(size),
            RemoteFrame::Started,
            RemoteFrame::Ended(RemoteEnd::Exited { code: -1 }),
            RemoteFrame::InputTaken(70_000),
            RemoteFrame::Alive,
        ] {
            let bytes = frame.encode();
            assert_eq!(RemoteFrame::decode(&bytes), Ok(frame.clone()));
            let is_end = matches!(frame, RemoteFrame::Ended(_));
            assert_eq!(is_ended(&bytes), is_end);
            let expected = match &frame {
                RemoteFrame::Input(data) => (data.len() as u64, 0),
                RemoteFrame::Output(data) | RemoteFrame::Errors(data) => (0, data.len() as u64),
                _ => (0, 0),
            };
            assert_eq!(payload(&bytes), expected);
        }
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let huge = [INPUT, 0xff, 0xff, 0xff, 0xff];
        assert!(matches!(
            frame_bytes(huge),
            Err(FrameError::TooLarge { .. })
        ));
        for wrong in [
            &[][..],
            &[INPUT],
            &huge,
            &[INPUT, 0, 0, 0, 2, 1],
            &[INPUT, 0, 0, 0, 0, 1],
            &[STARTED, 0, 0, 0, 1, 1],
            &[RESIZE, 0, 0, 0, 1, 1],
            &[ENDED, 0, 0, 0, 1, b'x'],
            &[200, 0, 0, 0, 0],
        ] {
            RemoteFrame::decode(wrong).expect_err("not a frame");
        }
    }
}
