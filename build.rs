//! Makes the linker redirect librdkafka's calls to unpack a batch to `crates/cluster/src/cluster/kafka/unpack`, which
//! bounds them.
//!
//! These linker arguments only apply to the program. Where ratchet is used as a library, as in most of its tests and
//! benches or in another program, librdkafka unpacks batches itself.

/// The unpacking functions that librdkafka calls across its object files, which is where the linker can wrap them.
const WRAPPED: [&str; 7] = [
    "rd_gz_decompress",
    "rd_kafka_buf_new_shadow",
    "rd_kafka_lz4_decompress",
    "rd_kafka_snappy_java_uncompress",
    "rd_kafka_snappy_uncompress",
    "rd_kafka_snappy_uncompressed_length",
    "rd_kafka_zstd_decompress",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" && target("POINTER_WIDTH") == "64" {
        WRAPPED.iter().for_each(|symbol| println!("cargo:rustc-link-arg-bins=-Wl,--wrap={symbol}"));
    }
}
