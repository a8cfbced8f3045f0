//! The libc surface for unmodified programs: `liboutboard_preload.so`, put before the C library by
//! `outboard run`.
//!
//! It translates an ABI and holds no protocol: a socket that binds or connects to an address of the stack's becomes
//! one of `outboard::raw`, and the functions of this library do to it what Linux would have done. Every such socket
//! keeps the kernel socket that it was made as: its descriptor, its flags and its options are real. Everything else
//! goes to the C library untouched, at the price of one load and one branch.
//!
//! What never passes here, and so stays with the kernel: programs linked statically, system calls that are not made by
//! the C library's functions or its `syscall` (Go, io_uring), and the C library's own calls on a descriptor (a `FILE` made by `fdopen`).
//!
//! Reading order: [`table`] and [`description`] (what is known about a descriptor), [`runtime`] (whether and where
//! there is a stack, `fork`), [`connection`], [`calls`] and [`transfer`] (sockets), [`wait`], [`poll`], [`epoll`]
//! (readiness), [`descriptor`], [`options`], [`sendfile`]; [`system_call`]; [`real`] is the C library itself.
#![warn(missing_docs)]

mod ancillary;
mod buffers;
mod calls;
mod connection;
mod description;
mod descriptor;
mod epoll;
mod errno;
mod fast_open;
mod file;
mod gather;
mod info;
mod limits;
mod memory;
mod message;
mod options;
mod poll;
mod real;
mod runtime;
mod select;
mod sendfile;
mod sockaddr;
mod splice;
mod system_call;
mod table;
mod timestamping;
mod transfer;
mod wait;

/// Run by the C library when the process ends by `exit` or by returning from `main`.
extern "C" fn at_exit() {
    runtime::flush_at_exit();
}

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
