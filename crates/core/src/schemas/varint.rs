//! Integers of variable length, as Avro, Protobuf and Confluent's and AWS Glue's serializers write them: seven bits in
//! each byte, the lowest first; the highest bit of a byte says that another one follows.

/// Why bytes begin with no such integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoVarint {
    /// They end inside it.
    CutOff,
    /// It has more bits than allowed.
    TooLong,
}

/// The integer of at most `bits` bits (64 or fewer) at the beginning of `bytes`, and the number of its bytes. Leading
/// zeros are allowed within as many bytes as `bits` need.
#[inline]
pub(crate) fn read(bytes: &[u8], bits: usize) -> Result<(u64, usize), NoVarint> {
    let bytes_max = bits.div_ceil(7);
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(bytes_max).enumerate() {
        let part = u64::from(byte & 0x7f);
        if at + 1 == bytes_max && part >> (bits - 7 * at) != 0 {
            return Err(NoVarint::TooLong);
        }
        value |= part << (7 * at);
        if byte < 0x80 {
            return Ok((value, at + 1));
        }
    }
    Err(if bytes.len() < bytes_max { NoVarint::CutOff } else { NoVarint::TooLong })
}

#[cfg(test)]
mod tests {
    //! Goal: each integer is read to its last byte, and nothing longer than allowed is.

    use super::*;

    #[test]
    fn integers_are_read_up_to_their_bits() {
        let all = [0xff; 10];
        for (bytes, bits, expected) in [
            (&[0x00][..], 64, Ok((0, 1))),
            (&[0x7f, 9], 64, Ok((127, 1))),
            (&[0xac, 0x02], 64, Ok((300, 2))),
            (&[0x80, 0x80, 0x00], 64, Ok((0, 3))),
            (&[&all[..9], &[0x01]].concat(), 64, Ok((u64::MAX, 10))),
            (&[&all[..9], &[0x02]].concat(), 64, Err(NoVarint::TooLong)),
            (&[&all[..9], &[0x81, 0x00]].concat(), 64, Err(NoVarint::TooLong)),
            (&[&all[..4], &[0x0f]].concat(), 32, Ok((u32::MAX.into(), 5))),
            (&[&all[..4], &[0x1f]].concat(), 32, Err(NoVarint::TooLong)),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], 32, Err(NoVarint::TooLong)),
            (&[], 64, Err(NoVarint::CutOff)),
            (&all[..9], 64, Err(NoVarint::CutOff)),
            (&all[..4], 32, Err(NoVarint::CutOff)),
        ] {
            assert_eq!(read(bytes, bits), expected, "{bytes:x?}");
        }
    }
}
