//! Takes of each resource that FreeBSD counts for a user id or an instance as much as the kernel
//! gives, and keeps it.

use std::ffi::c_int;
use std::io;
use std::ptr;

fn made(fd: c_int) -> bool {
    fd >= 0
}

/// Pairs of connected Unix sockets, each written to from both ends until nothing more goes in.
/// Returns pairs and bytes.
pub(crate) fn sockets(kind: c_int, piece: usize) -> (usize, usize) {
    let (mut pairs, mut bytes) = (0, 0);
    let data = vec![1u8; piece];
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, and a live buffer with its length.
    unsafe {
        while libc::socketpair(
            libc::AF_UNIX,
            kind | libc::SOCK_NONBLOCK,
            0,
            ends.as_mut_ptr(),
        ) == 0
        {
            pairs += 1;
            for end in ends {
                while let 1.. = libc::send(end, data.as_ptr().cast(), data.len(), 0) {
                    bytes += data.len();
                }
            }
        }
    }
    (pairs, bytes)
}

/// Pseudo-terminals (posix_openpt(2)).
pub(crate) fn terminals() -> usize {
    // SAFETY: takes numbers.
    (0..5000)
        .take_while(|_| made(unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY) }))
        .count()
}

/// Event queues (kqueue(2)).
pub(crate) fn kqueues() -> usize {
    // SAFETY: takes nothing.
    (0..5000)
        .take_while(|_| made(unsafe { libc::kqueue() }))
        .count()
}

/// Pipes (pipe(2)).
pub(crate) fn pipes() -> usize {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    (0..5000)
        .take_while(|_| made(unsafe { libc::pipe(ends.as_mut_ptr()) }))
        .count()
}

/// Mutexes that processes share (pthread_mutexattr_setpshared(3)), each of which is a page of the
/// kernel's.
pub(crate) fn shared_locks() -> usize {
    // SAFETY: the attributes are initialised before they are used; the mutexes live as long as the
    // process.
    unsafe {
        let mut shared = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut shared);
        libc::pthread_mutexattr_setpshared(&mut shared, libc::PTHREAD_PROCESS_SHARED);
        (0..5000)
            .take_while(|_| {
                let mutex: *mut libc::pthread_mutex_t =
                    Box::leak(Box::new(libc::PTHREAD_MUTEX_INITIALIZER));
                libc::pthread_mutex_init(mutex, &shared) == 0
            })
            .count()
    }
}

/// Threads that do nothing.
pub(crate) fn threads() -> usize {
    (0..5000)
        .take_while(|_| {
            let idle = || loop {
                std::thread::park();
            };
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(idle)
                .is_ok()
        })
        .count()
}

/// Shared memory that nobody has mapped (shm_open(2), `SHM_ANON`), in MiB that were written to.
pub(crate) fn shared_memory() -> usize {
    /// sys/mman.h
    const SHM_ANON: *const libc::c_char = ptr::without_provenance(1);
    const PIECE: usize = 1 << 20;
    let data = vec![1u8; PIECE];
    // SAFETY: `SHM_ANON` is no pointer to the kernel; a live buffer with its length.
    unsafe {
        let fd = libc::shm_open(SHM_ANON, libc::O_RDWR, 0o600);
        if !made(fd) {
            return 0;
        }
        (0..4096usize)
            .take_while(|n| {
                libc::ftruncate(fd, ((n + 1) * PIECE) as libc::off_t) == 0
                    && libc::pwrite(fd, data.as_ptr().cast(), PIECE, (n * PIECE) as libc::off_t)
                        == PIECE as isize
            })
            .count()
    }
}

/// Shared memory in pages of 2 MiB, which are wired (shm_create_largepage(3)), in MiB.
pub(crate) fn large_pages() -> Result<usize, io::Error> {
    unsafe extern "C" {
        fn shm_create_largepage(
            path: *const libc::c_char,
            flags: c_int,
            size_index: c_int,
            policy: c_int,
            mode: libc::mode_t,
        ) -> c_int;
    }
    /// sys/mman.h
    const SHM_ANON: *const libc::c_char = ptr::without_provenance(1);
    const SHM_LARGEPAGE_ALLOC_NOWAIT: c_int = 1;
    // SAFETY: `SHM_ANON` is no pointer to the kernel.
    unsafe {
        let fd = shm_create_largepage(SHM_ANON, libc::O_RDWR, 1, SHM_LARGEPAGE_ALLOC_NOWAIT, 0o600);
        if !made(fd) {
            return Err(io::Error::last_os_error());
        }
        Ok(2 * (0..512)
            .take_while(|n| libc::ftruncate(fd, (n + 1) << 21) == 0)
            .count())
    }
}
