//! Memory for large results.

/// Below so many bytes the system's own pages will do.
const HUGE_MIN_BYTES: usize = 4 << 20;
/// The size of a huge page on x86-64, and what they are aligned to.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Asks for huge pages, where the system has them: in fresh memory a fault for every 4 KiB takes
/// longer than decoding what goes there.
#[cfg(target_os = "linux")]
pub(super) fn prefer_huge_pages<T>(values: &mut [T]) {
    let bytes = size_of_val(values);
    if bytes < HUGE_MIN_BYTES {
        return;
    }
    let start = values.as_mut_ptr().cast::<u8>();
    let offset = start.align_offset(HUGE_PAGE_BYTES).min(bytes);
    let whole = (bytes - offset) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    // SAFETY: `offset..offset + whole` lies within `values`, which is borrowed for the call. The
    // advice changes how these addresses are backed, not what they hold.
    unsafe {
        // It is advice: where the system does not take it, nothing is lost.
        libc::madvise(start.add(offset).cast(), whole, libc::MADV_HUGEPAGE);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn prefer_huge_pages<T>(_values: &mut [T]) {}
