//! Disks as they are on bad days, beneath the real code: [`MemDisk`] keeps written apart from durable bytes and can lose power,
//! [`FaultDisk`] makes chosen operations of another disk fail.

mod fault;
mod mem_disk;
mod random;

pub use fault::{Fault, FaultDisk, Times};
pub use mem_disk::MemDisk;
