//! The program `sheaf`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sheaf::main()
}
