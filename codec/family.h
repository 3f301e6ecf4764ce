// A row that describes a family of codecs to the rest of the program. registry.cc lists the
// families; no other file names all of them.
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

// A key of a codec string, as messages and --help show it.
struct Parameter {
  std::string_view key;
  std::string_view range;
  std::string_view preset;  // the default
};

// A part of a payload. It ends at the offset of the next one.
struct Section {
  std::string_view name;
  uint64_t offset = 0;  // from the start of the payload
};

// A codec that a plan may choose, and its loss: the relative error |x' - x| / |x| of normal values.
struct Choice {
  std::string_view codec;  // canonical
  double error = 0;
};

struct Family {
  CodecId id{};
  std::string_view name;  // the beginning of codec strings
  std::string_view what;  // a line for --help
  std::vector<Parameter> parameters;
  // Makes a codec from a codec string whose keys are `parameters`. OutOfRange for a wrong value.
  StatusOr<CodecPtr> (*parse)(const CodecText& text) = nullptr;
  // Makes the codec that wrote a blob with this header, which may be hostile.
  StatusOr<CodecPtr> (*from_header)(const BlobHeader& header) = nullptr;
  // Returns the sections of a payload whose size is valid for the codec.
  std::vector<Section> (*sections)(const BlobHeader& header,
                                   std::span<const std::byte> payload) = nullptr;
  // Makes the GPU part of a codec of this family. Null: the family has none.
  StatusOr<std::unique_ptr<const cuda::DeviceCodec>> (*device)(const Codec& codec) = nullptr;
  // Codecs that a plan may choose for activations and for gradients, if a run file leaves the
  // choice to the plan.
  std::vector<Choice> for_activations = {}, for_gradients = {};

  // For a family that uses another codec, which codec strings name behind a '/': the default of
  // that codec. "": the family uses none.
  std::string_view other = {};
  // Replaces from_header if the header alone does not identify the codec.
  StatusOr<CodecPtr> (*from_payload)(const BlobHeader& header,
                                     std::span<const std::byte> payload) = nullptr;
};

// The from_header of a family whose parameters identify the codec: `kRead` reads them from a
// header, `kCreate` makes the codec.
template <auto kRead, auto kCreate>
StatusOr<CodecPtr> FromParameters(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const auto parameters, kRead(header.parameters));
  return kCreate(parameters);
}

// Returns kInvalidArgument for the value of `key`, with the family's parameters and their ranges.
Status OutOfRange(const CodecText& text, std::string_view key);

}  // namespace longhaul::codec
