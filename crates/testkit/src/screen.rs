//! A terminal for programs under test: what they draw can be read while they draw it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How often the terminal is read.
const LOOK_MS: i32 = 10;

/// A terminal of 120 columns and 40 lines that records everything written to it. Once dropped it is gone, even for
/// programs that still have it open.
pub struct Terminal {
    inner: OwnedFd,
    drawn: Arc<Mutex<Vec<u8>>>,
    gone: Arc<AtomicBool>,
    reading: Option<JoinHandle<()>>,
}

impl Terminal {
    /// A terminal with nothing on it.
    pub fn open() -> Terminal {
        let (mut outer, mut inner) = (-1, -1);
        let size = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers and the size outlive the call; the name and the settings may be null.
        let opened =
            unsafe { libc::openpty(&mut outer, &mut inner, std::ptr::null_mut(), std::ptr::null(), &raw const size) };
        assert_eq!(opened, 0, "no terminal: {}", std::io::Error::last_os_error());
        // SAFETY: the call has opened both, and nobody else has them.
        let (mut outer, inner) = unsafe { (File::from_raw_fd(outer), OwnedFd::from_raw_fd(inner)) };
        for side in [outer.as_raw_fd(), inner.as_raw_fd()] {
            // Not inherited by other tests' programs, which would keep it alive.
            // SAFETY: the descriptor is open.
            assert_eq!(unsafe { libc::fcntl(side, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
        }
        let (drawn, gone) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (kept, stopped) = (Arc::clone(&drawn), Arc::clone(&gone));
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !stopped.load(Ordering::Acquire) {
                let mut polled = libc::pollfd { fd: outer.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: the one descriptor outlives the call.
                if unsafe { libc::poll(&raw mut polled, 1, LOOK_MS) } <= 0 {
                    continue;
                }
                // fails when the last holder of the inner side has closed it
                let Ok(read @ 1..) = outer.read(&mut bytes) else { return };
                kept.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Terminal { inner, drawn, gone, reading: Some(reading) }
    }

    /// The terminal as a program's standard error.
    pub fn stdio(&self) -> Stdio {
        self.inner.try_clone().expect("a terminal can be held twice").into()
    }

    /// All that was drawn so far, control sequences included.
    pub fn drawn(&self) -> String {
        String::from_utf8_lossy(&self.drawn.lock().unwrap()).into_owned()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}
