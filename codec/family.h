// A family of codecs: what its folder tells the rest of the program. registry.cc lists the
// families; nothing else names them one by one.
//
//   Family gauss::Row();  // codec/gauss/factory.h
//
// Threads: rows are constants.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "codec/blob.h"
#include "codec/codec.h"
#include "codec/codec_string.h"

namespace longhaul::codec {

namespace cuda {
class DeviceCodec;  // cuda/device_codec.h
}

using CodecPtr = std::unique_ptr<const Codec>;

// A key of a codec string, for messages and --help.
struct Parameter {
  std::string_view key;
  std::string_view range;
  std::string_view preset;  // the default
};

// A part of a payload. It ends where the next one begins.
struct Section {
  std::string_view name;
  uint64_t offset = 0;  // from the start of the payload
};

// A codec that a plan may choose, and what it loses: its relative error |x' - x| / |x| of normal
// values.
struct Choice {
  std::string_view codec;  // canonical
  double error = 0;
};

struct Family {
  CodecId id{};
  std::string_view name;  // what codec strings begin with
  std::string_view what;  // a line for --help
  std::vector<Parameter> parameters;
  // Makes a codec of a codec string whose keys are `parameters`. OutOfRange for a wrong value.
  StatusOr<CodecPtr> (*parse)(const CodecText& text) = nullptr;
  // Makes the codec that wrote a blob with this header, which may be hostile.
  StatusOr<CodecPtr> (*from_header)(const BlobHeader& header) = nullptr;
  // The sections of a payload that has a size that the codec writes.
  std::vector<Section> (*sections)(const BlobHeader& header,
                                   std::span<const std::byte> payload) = nullptr;
  // Makes the GPU part of a codec of this family. Null: there is none.
  StatusOr<std::unique_ptr<const cuda::DeviceCodec>> (*device)(const Codec& codec) = nullptr;
  // What a plan may choose for activations and for gradients, if a run file leaves it to the plan.
  std::vector<Choice> for_activations = {}, for_gradients = {};

  // The default of the codec that codec strings name behind a '/', for a family that leaves part of
  // the work to another codec. "": it does not.
  std::string_view other = {};
  // Replaces from_header where the header alone does not name the whole codec.
  StatusOr<CodecPtr> (*from_payload)(const BlobHeader& header,
                                     std::span<const std::byte> payload) = nullptr;
};

// The from_header of a family whose codecs are what their parameters say: `kRead` takes those out
// of a header, `kCreate` makes the codec.
template <auto kRead, auto kCreate>
StatusOr<CodecPtr> FromParameters(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const auto parameters, kRead(header.parameters));
  return kCreate(parameters);
}

// kInvalidArgument for the value of `key`, with the family's parameters and their ranges.
Status OutOfRange(const CodecText& text, std::string_view key);

}  // namespace longhaul::codec
