//! `/proc/PID/stat`.

use crate::TICK_NS;
use crate::error::ParseError;
use crate::line::lines;

/// Contents of `/proc/PID/stat`, as far as they are of use here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process<'a> {
    /// Id of the process.
    pub pid: u32,
    /// Name of the program, cut to 15 bytes by the kernel.
    pub name: &'a str,
    /// State: `R`, `S`, `D`, `Z` and others.
    pub state: char,
    /// Processor time of all its threads, also of those that have ended, in ns.
    pub cpu_ns: u64,
    /// Threads.
    pub threads: u64,
    /// Ticks between the start of the machine and that of the process.
    pub start_ticks: u64,
    /// Size of its address space, in bytes.
    pub virtual_bytes: u64,
    /// Resident memory, in pages.
    pub resident_pages: u64,
}

impl Process<'_> {
    /// Returns whether it has not ended: a zombie only waits for its parent.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads `/proc/PID/stat`. The name may hold anything, blanks, brackets and line feeds included.
///
/// # Errors
///
/// [`ParseError`] if it is cut or something else.
pub fn process(text: &str) -> Result<Process<'_>, ParseError> {
    read(text)
        .ok_or_else(|| ParseError::new("/proc/PID/stat", text, "\"1 (name) S\" and 49 numbers"))
}

fn read(text: &str) -> Option<Process<'_>> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let words: Vec<&str> = lines(rest).next()?.split(' ').collect();
    // Words count from `state`, field 3 of proc_pid_stat(5).
    let number = |field: usize| words.get(field - 3)?.parse::<u64>().ok();
    Some(Process {
        pid: pid.parse().ok()?,
        name,
        state: words[0].chars().next()?,
        cpu_ns: number(14)?
            .saturating_add(number(15)?)
            .saturating_mul(TICK_NS),
        threads: number(20)?,
        start_ticks: number(22)?,
        virtual_bytes: number(23)?,
        resident_pages: number(24)?,
    })
}
