//! Network access by name. A sandbox with its own network namespace reaches the outside only through this crate.
//!
//! A [`Destination`] is an allowed name. The resolver answers questions about allowed names with loopback addresses of
//! the sandbox. The forwarder accepts connections to these addresses, resolves the name outside of the sandbox,
//! connects to an address that it checked, and copies the bytes. Both get their sockets from the [`Namespace`] of the
//! sandbox.

mod destination;
mod dns;
mod forward;
mod names;
mod network;
mod pump;
mod record;
mod serve;

pub use self::destination::{Destination, PORTS};
pub use self::network::Network;
pub use self::record::{Connection, Decision};
pub use self::serve::{Egress, Namespace, RESOLVER};
