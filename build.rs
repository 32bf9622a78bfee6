//! Has the linker send librdkafka's calls of what unpacks a batch to `src/cluster/kafka/native/unpack`, which bounds it.
//!
//! These arguments of the linker hold for the program. Where ratchet is a library, as in most of its tests and benches or
//! in another program, the linker knows nothing of them: librdkafka then unpacks as it ever does.

/// What librdkafka calls from one of its object files in another.
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
