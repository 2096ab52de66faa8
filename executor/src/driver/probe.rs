//! Whether the driver of this machine can take a program off its GPUs, as far as one can see before it is tried.

use super::library::Cuda;
use muster_model::node::DriverSuspend;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// A driver that is loaded for the first time since the machine started takes seconds.
const LOOKS: u32 = 300;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Asks the driver in this process.
#[must_use]
pub fn ability() -> DriverSuspend {
    match Cuda::load() {
        Ok(cuda) => DriverSuspend::Able {
            cuda: cuda.version(),
        },
        Err(error) => DriverSuspend::Unable {
            why: error.in_words(),
        },
    }
}

/// Asks the driver in a process that ends with the answer: whoever loads the driver has it for good, and some of the GPUs' memory too.
#[must_use]
pub fn probe() -> DriverSuspend {
    ask().unwrap_or_else(|error| DriverSuspend::Unable {
        why: format!("the driver cannot be asked: {error}"),
    })
}

fn ask() -> std::io::Result<DriverSuspend> {
    let own = std::env::current_exe()?;
    let mut asked = Command::new(own)
        .args(["driver", "--order", "probe"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    for _ in 0..LOOKS {
        if asked.try_wait()?.is_some() {
            let mut text = String::new();
            if let Some(mut output) = asked.stdout.take() {
                output.read_to_string(&mut text)?;
            }
            return Ok(serde_json::from_str(&text)?);
        }
        thread::sleep(LOOK_EVERY);
    }
    asked.kill()?;
    Ok(DriverSuspend::Unable {
        why: "the driver has not answered in time".to_owned(),
    })
}

/// What the asked process says.
pub(super) fn tell() -> i32 {
    match serde_json::to_string(&ability()) {
        Ok(text) => {
            println!("{text}");
            0
        }
        Err(error) => {
            eprintln!("cannot say what the driver can do: {error}");
            1
        }
    }
}
