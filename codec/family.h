// A family is all codecs of one kind, such as `gauss:...`. The struct Family describes a family to
// the rest of the program. registry.cc lists the families; no other file names all of them.
//
//   Family gauss::Row();  // makes the Family of gauss; declared in codec/gauss/factory.h
//
// Each string_view in these structs points to a string literal.
// Threads: a Family is constant.
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

// A key of a codec string, as error messages and --help show it.
struct Parameter {
  std::string_view key;
  std::string_view range;   // the possible values: "2..6"
  std::string_view preset;  // the default
};

// A part of a payload. It ends at the offset of the next part.
struct Section {
  std::string_view name;
  uint64_t offset = 0;  // from the start of the payload
};

// A codec that the planner (planner/codec_choice.h) may choose, and the codec's relative error:
// |x' - x| / |x| (Euclidean norms) of a decoded tensor x', for a tensor x of normally distributed
// values.
struct Choice {
  std::string_view codec;  // canonical codec string
  double error = 0;
};

struct Family {
  CodecId id{};
  std::string_view name;  // the beginning of codec strings
  std::string_view what;  // a line for --help
  std::vector<Parameter> parameters;
  // Makes a codec from a codec string whose keys are all among `parameters`. Returns the error
  // OutOfRange() for a wrong value. Never null.
  StatusOr<CodecPtr> (*parse)(const CodecText& text) = nullptr;
  // Makes the codec that wrote a blob with this header. The header may be hostile: kInvalidArgument
  // for parameters that no encoder writes. Null only if `from_payload` is set.
  StatusOr<CodecPtr> (*from_header)(const BlobHeader& header) = nullptr;
  // Returns the sections of a payload whose size is valid for the codec. Null: tools show the
  // payload as one section.
  std::vector<Section> (*sections)(const BlobHeader& header,
                                   std::span<const std::byte> payload) = nullptr;
  // Makes the GPU part of a codec of this family. Null: the family does not run on GPUs.
  StatusOr<std::unique_ptr<const cuda::DeviceCodec>> (*device)(const Codec& codec) = nullptr;
  // The codecs of this family that the planner may choose for activations and for gradients, if the
  // run file leaves the choice to the planner. Empty: the planner never chooses this family.
  std::vector<Choice> for_activations = {}, for_gradients = {};

  // If codecs of this family use another codec, which a codec string names behind a '/': the codec
  // string of the default, for strings without a '/'. "": the family uses no other codec.
  std::string_view other = {};
  // True: codecs of this family are classes of a user's own, as in "python:MODULE:CLASS,key=value".
  // CodecText.parameters has the class behind the key "class". Keys that are not among `parameters`
  // are the class's own. The family's name alone is no codec string.
  bool names_class = false;
  // Makes the codec that wrote a blob, from the whole blob. Only a family whose headers do not
  // identify the codec has this function; its from_header is null. The blob may be hostile.
  StatusOr<CodecPtr> (*from_payload)(const BlobHeader& header,
                                     std::span<const std::byte> payload) = nullptr;
};

// The from_header of a family whose headers identify the codec. `kRead` reads the parameters from
// the header, and `kCreate` makes the codec from the parameters.
template <auto kRead, auto kCreate>
StatusOr<CodecPtr> FromParameters(const BlobHeader& header) {
  LH_ASSIGN_OR_RETURN(const auto parameters, kRead(header.parameters));
  return kCreate(parameters);
}

// Returns the error kInvalidArgument that says that the value of `key` is out of range. The message
// lists the family's parameters with their ranges. text.name must be the name of a family.
Status OutOfRange(const CodecText& text, std::string_view key);

}  // namespace longhaul::codec
