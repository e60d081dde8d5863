//! Disks and stores as they are on bad days, beneath the real code: [`MemDisk`] keeps written apart from durable bytes and can
//! lose power, [`FaultDisk`] makes chosen operations of another disk fail, [`RemoteIo`] has objects whose reads take long.

mod fault;
mod mem_disk;
mod random;
mod remote;

pub use fault::{Fault, FaultDisk, Times};
pub use mem_disk::MemDisk;
pub use remote::{Leaves, Reads, RemoteIo};
