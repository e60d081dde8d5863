//! Where the allocator of the system keeps memory that is free.

/// Has a process keep free memory in no more places than there are cores, for programs to call before they start threads.
///
/// The allocator of glibc gives threads places of their own, up to eight a core, and memory that one has freed waits in its place for
/// the next who asks there. After ten minutes of writes, half of what the process held was such memory, beyond the memory budget.
/// Other systems have other allocators, and nothing is done there; nor where the environment says how many places there shall be.
pub fn limit() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"]
            .iter()
            .any(|name| std::env::var_os(name).is_some())
        {
            return;
        }
        let places = libc::c_int::try_from(crate::parallel::cores()).unwrap_or(libc::c_int::MAX);
        // SAFETY: `mallopt` takes two numbers, and sets one of them under a lock of its own.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, places.max(2)) };
    }
}
