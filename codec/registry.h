// The families of codecs, and codec strings: "none", "fixed:bits=6",
// "predict:pairs=0/gauss:bits=4". Run files, the CLI and tools take the same strings.
//
// Threads: pure functions. Errors: kInvalidArgument.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"
#include "codec/family.h"

namespace longhaul::codec {

// All families, in the order of --help.
std::span<const Family> Families();
// Null if no family has this number or name.
const Family* FindFamily(CodecId id);
const Family* FindFamily(std::string_view name);
// The family's name, or "unknown codec".
std::string_view ToString(CodecId id);

// Refuses an unknown codec, naming the nearest and all known ones, and a parameter that is unknown
// or out of range, naming the codec's parameters with their ranges and defaults.
StatusOr<std::unique_ptr<const Codec>> ParseCodec(std::string_view text);

// Makes the codec that wrote `blob`, which may be hostile.
StatusOr<std::unique_ptr<const Codec>> CodecOfBlob(std::span<const std::byte> blob);
// Makes the codec that wrote a blob with this header. Refuses families with from_payload, whose
// headers do not identify the codec.
StatusOr<std::unique_ptr<const Codec>> CodecOfHeader(const BlobHeader& header);

// "none", "bf16", ...: the beginnings of codec strings.
std::vector<std::string_view> CodecNames();

// "tah: p=0..1 (0.8), tile=32|64|128 (64), ...", a line per codec, for --help and messages.
std::string DescribeCodecs();

}  // namespace longhaul::codec
