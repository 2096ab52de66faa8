//! Relay whose connections a test can interrupt while both ends continue to run.
#![allow(dead_code, reason = "each test file uses its part of it")]
#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

const OPEN: u8 = 0;
/// Answers are dropped.
const MUTE: u8 = 1;
/// No bytes pass, and no connection is accepted.
const CUT: u8 = 2;

/// Longer than every handshake, and shorter than every push of these tests.
const LONG: usize = 16 << 10;

#[derive(Debug, Default)]
struct RelayWire {
    mode: AtomicU8,
    /// Dropped bytes of answers.
    swallowed: AtomicU64,
    /// Forwarded bytes of answers.
    answered: AtomicU64,
    /// Whether requests are delayed.
    delays_requests: AtomicBool,
    /// Number of accepted connections, and their client ends.
    visits: AtomicU64,
    guests: Mutex<Vec<TcpStream>>,
    /// Whether the last byte of long messages of the next connection is delayed.
    slows_next: AtomicBool,
    holds_back: AtomicBool,
}

/// Listens, and forwards all bytes to one address.
#[derive(Debug)]
pub struct TcpRelay {
    address: String,
    wire: Arc<RelayWire>,
}

impl TcpRelay {
    pub fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let wire = Arc::<RelayWire>::default();
        let (inside, target) = (Arc::clone(&wire), target.to_owned());
        thread::spawn(move || {
            for guest in listener.incoming() {
                if inside.mode.load(Ordering::SeqCst) == CUT {
                    return;
                }
                inside.join(guest.unwrap(), TcpStream::connect(&target).unwrap());
            }
        });
        Self { address, wire }
    }

    pub fn address(&self) -> String {
        self.address.clone()
    }

    /// Drops all further answers.
    pub fn mute(&self) {
        self.wire.mode.store(MUTE, Ordering::SeqCst);
    }

    /// Delays all requests from now on, or forwards them again.
    pub fn delay_requests(&self, delays: bool) {
        self.wire.delays_requests.store(delays, Ordering::SeqCst);
    }

    /// Waits until answers of at least `bytes` were forwarded.
    pub fn wait_for_answers(&self, bytes: u64) {
        let began = Instant::now();
        while self.wire.answered.load(Ordering::SeqCst) < bytes {
            assert!(began.elapsed() < PATIENCE, "the answers are too short");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Number of accepted connections.
    pub fn visits(&self) -> u64 {
        self.wire.visits.load(Ordering::SeqCst)
    }

    /// Waits until an answer has been dropped.
    pub fn wait_for_an_answer(&self) {
        let began = Instant::now();
        while self.wire.swallowed.load(Ordering::SeqCst) == 0 {
            assert!(began.elapsed() < PATIENCE, "nothing was answered");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Delays the last byte of long messages of the next connection until [`Self::let_through`].
    pub fn slow_down_next(&self) {
        self.wire.slows_next.store(true, Ordering::SeqCst);
    }

    /// Waits until a message is delayed.
    pub fn wait_for_a_hold(&self) {
        let began = Instant::now();
        while !self.wire.holds_back.load(Ordering::SeqCst) {
            assert!(began.elapsed() < PATIENCE, "nothing long came");
            thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn let_through(&self) {
        self.wire.holds_back.store(false, Ordering::SeqCst);
    }

    /// Closes all connections on the client side and accepts no more. The other ends are not
    /// notified.
    pub fn cut(&self) {
        self.wire.mode.store(CUT, Ordering::SeqCst);
        for guest in self.wire.guests.lock().unwrap().drain(..) {
            let _ = guest.shutdown(Shutdown::Both);
        }
        // The listener ends with the accepting thread.
        let _ = TcpStream::connect(&self.address);
    }
}

impl RelayWire {
    fn join(self: &Arc<Self>, guest: TcpStream, host: TcpStream) {
        self.visits.fetch_add(1, Ordering::SeqCst);
        guest.set_nodelay(true).unwrap();
        host.set_nodelay(true).unwrap();
        self.guests.lock().unwrap().push(guest.try_clone().unwrap());
        let there = (guest.try_clone().unwrap(), host.try_clone().unwrap());
        let back = (host, guest);
        let (wire, wire_back) = (Arc::clone(self), Arc::clone(self));
        let is_slow = self.slows_next.swap(false, Ordering::SeqCst);
        thread::spawn(move || wire.pass(there, false, is_slow));
        thread::spawn(move || wire_back.pass(back, true, false));
    }

    /// Forwards all bytes except the last one, which follows when the test allows it.
    fn hold_back(&self, to: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
        let (last, others) = bytes.split_last().unwrap();
        to.write_all(others)?;
        self.holds_back.store(true, Ordering::SeqCst);
        while self.holds_back.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        to.write_all(&[*last])
    }

    fn pass(&self, (mut from, mut to): (TcpStream, TcpStream), answers: bool, mut is_slow: bool) {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut bytes).unwrap_or(0);
            while !answers && count > 0 && self.delays_requests.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            let mode = self.mode.load(Ordering::SeqCst);
            if count == 0 {
                // A client that was cut off leaves the other end open.
                if mode != CUT {
                    let _ = to.shutdown(Shutdown::Both);
                }
                return;
            }
            match (mode, answers) {
                (OPEN, _) | (MUTE, false) if is_slow && count > LONG => {
                    is_slow = false;
                    if self.hold_back(&mut to, &bytes[..count]).is_err() {
                        return;
                    }
                }
                (OPEN, _) | (MUTE, false) => {
                    if to.write_all(&bytes[..count]).is_err() {
                        return;
                    }
                    if answers {
                        self.answered.fetch_add(count as u64, Ordering::SeqCst);
                    }
                }
                _ => {
                    self.swallowed.fetch_add(count as u64, Ordering::SeqCst);
                }
            }
        }
    }
}
