//! A terminal for programs under test: what they draw can be read as they draw it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

/// A terminal of 120 columns and 40 lines, in which everything that is written can be read.
pub struct Terminal {
    inner: OwnedFd,
    drawn: Arc<Mutex<Vec<u8>>>,
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
        let drawn = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&drawn);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // fails when the last holder of the inner side has closed it
            while let Ok(read @ 1..) = outer.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Terminal { inner, drawn }
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
