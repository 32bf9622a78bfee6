//! The `ratchet` program; all its code is in the library.

/// Serves librdkafka's and RocksDB's allocations too: records are allocated on one thread and freed on
/// another, for which glibc's allocator is slow.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    if cfg!(feature = "sabotage") {
        eprintln!("this ratchet was built for sabotage, by `make sim-mistakes`: build it with `make build`");
        std::process::exit(1);
    }
    ratchet::cli::main()
}
