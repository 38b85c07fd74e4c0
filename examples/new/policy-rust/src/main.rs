//! The whole of `sheaf`, with the policy.

use my_policy::{MyPolicy, NAME};
use sheaf_placement::policy;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The one registration: from here on the name stands for the policy.
    let registered = policy::register(NAME, |seed| Box::new(MyPolicy::new(seed)));
    registered.expect("a name that no other policy has");
    sheaf::main()
}
