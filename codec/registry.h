// Finds families of codecs (family.h), and makes codecs from codec strings and blobs. Codec strings
// are "none", "fixed:bits=6", "predict:pairs=0/gauss:bits=4", ... Run files, the CLI and tools take
// the same strings.
//
// Threads: pure functions. Errors: kInvalidArgument; kUnimplemented for a blob of another version.
// Families, names and descriptions stay valid until the program ends.
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

// Returns all families, in the order of --help.
std::span<const Family> Families();
// The next two return the family with this number or name, or null.
const Family* FindFamily(CodecId id);
const Family* FindFamily(std::string_view name);
// Returns the family's name, or "unknown codec".
std::string_view ToString(CodecId id);

// Makes a codec from a codec string. If the codec is unknown, the error names all known codecs, and
// suggests a similar one if there is any. If a parameter is unknown or out of range, the error
// names the codec's parameters with their ranges and defaults.
StatusOr<std::unique_ptr<const Codec>> ParseCodec(std::string_view text);

// Makes the codec that wrote `blob`. The blob may be hostile.
StatusOr<std::unique_ptr<const Codec>> CodecOfBlob(std::span<const std::byte> blob);
// Makes the codec that wrote a blob with this header. kInvalidArgument for predict, whose headers
// do not identify the codec (Family::from_payload). kInternal if no family has header.codec.
StatusOr<std::unique_ptr<const Codec>> CodecOfHeader(const BlobHeader& header);

// Returns the names of all families, with which codec strings begin: "none", "bf16", ...
std::vector<std::string_view> CodecNames();

// Returns a line for each family, for --help: the name, a description, and the parameters with
// range and default, as in "bits=2..6 (4)".
std::string DescribeCodecs();

}  // namespace longhaul::codec
