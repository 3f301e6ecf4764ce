// Codec strings: "none", "fixed:bits=6", "predict:pairs=0/gauss:bits=4". The same everywhere: run
// files, CLI, tools.
#ifndef LONGHAUL_CODEC_REGISTRY_H_
#define LONGHAUL_CODEC_REGISTRY_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec {

// kInvalidArgument for an unknown codec (naming the nearest and all known ones) or a parameter that
// is unknown or out of range (naming the codec's parameters with their ranges and defaults).
StatusOr<std::unique_ptr<const Codec>> ParseCodec(std::string_view text);

// OK if ParseCodec accepts `text`. A CodecCheck (run/file/run_spec.h).
Status CheckCodec(std::string_view text);

// The codec named by the header of `blob`, for `longhaul-codec decode`.
StatusOr<std::unique_ptr<const Codec>> CodecOfBlob(std::span<const std::byte> blob);
// The same for a header that was parsed; not of predict, whose headers do not name all.
StatusOr<std::unique_ptr<const Codec>> CodecOfHeader(const BlobHeader& header);

// "none", "bf16", ...: what codec strings begin with.
std::vector<std::string_view> CodecNames();

// "tah: p=0..1 (0.8), tile=32|64|128 (64), ...", a line per codec; for --help and messages.
std::string DescribeCodecs();

}  // namespace longhaul::codec

#endif  // LONGHAUL_CODEC_REGISTRY_H_
