//! An allocator that knows how much is alive, whatever the system's own keeps of what was freed.

#![allow(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

static OBJECTS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

fn count(objects: i64, bytes: i64) {
    OBJECTS.fetch_add(objects, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// How many objects of this process are alive, and their bytes. What libraries in C allocate is not
/// counted.
pub(super) fn alive() -> (i64, i64) {
    (
        OBJECTS.load(Ordering::Relaxed),
        BYTES.load(Ordering::Relaxed),
    )
}

/// The system's allocator, counted.
pub(super) struct Counted;

// SAFETY: every block is the system's allocator's, asked for and given back as this one is asked;
// counting allocates nothing and does not panic.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator wants.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            count(1, layout.size() as i64);
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises what the system's allocator wants.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            count(1, layout.size() as i64);
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller promises that the block is of this allocator with this layout, so it
        // is the system's.
        unsafe { System.dealloc(block, layout) };
        count(-1, -(layout.size() as i64));
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the block is of this allocator with this layout, so it
        // is the system's.
        let new = unsafe { System.realloc(block, layout, size) };
        if !new.is_null() {
            count(0, size as i64 - layout.size() as i64);
        }
        new
    }
}
