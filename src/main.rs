//! The `ratchet` program; everything it does stands in the library.

/// Takes librdkafka's and RocksDB's allocations over too: records are allocated on one thread and freed on
/// another, which is what glibc's allocator is slow at.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    if cfg!(feature = "sabotage") {
        eprintln!("this ratchet was built to be sabotaged, for `make sim-mistakes`: build it with `make build`");
        std::process::exit(1);
    }
    ratchet::cli::main()
}
