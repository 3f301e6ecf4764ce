// A codec as a run file or a message names it: a text, with the codec that the text describes. The
// text is parsed once, where it enters the program; later code gets the codec from the CodecSpec.
//
//   const CodecSpec spec("gauss:bits=4");
//   LH_ASSIGN_OR_RETURN(const std::shared_ptr<const Codec> codec, spec.Get());
//
// Threads: immutable; copies share the codec.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "codec/codec.h"

namespace longhaul::codec {

class CodecSpec {
 public:
  CodecSpec() = default;  // the text is ""; Get() returns an error
  // Takes any text, because a run file may have another word instead of a codec string: `auto`
  // (run/file/run_spec.h), or a way to send gradients between data-parallel replicas
  // (run/replicas/options.h). Get() then returns an error.
  explicit CodecSpec(std::string_view text);
  CodecSpec(const char* literal) : CodecSpec(std::string_view(literal)) {}
  // `codec` must not be null. The text is the canonical codec string.
  explicit CodecSpec(std::shared_ptr<const Codec> codec)
      : text_(codec->name()), codec_(std::move(codec)) {}

  // Returns the codec, or the error of ParseCodec (registry.h) if the text is not a codec string.
  const StatusOr<std::shared_ptr<const Codec>>& Get() const { return codec_; }
  // Returns the name of the codec's family: "tah" for "tah:p=0.8", "predict" for
  // "predict:pairs=0/gauss". If there is no codec, returns the text, valid as long as this object.
  std::string_view family() const;
  // As the methods of Codec; false if there is no codec.
  bool remembers_samples() const { return codec_.ok() && (*codec_)->remembers_samples(); }
  bool predicts_by_tokens() const { return codec_.ok() && (*codec_)->predicts_by_tokens(); }

  // Returns the text as it was written.
  friend const std::string& ToString(const CodecSpec& spec) { return spec.text_; }
  // Compares the texts: "tah" is not equal to "tah:p=0.8", although the codec is the same.
  friend bool operator==(const CodecSpec& a, const CodecSpec& b) { return a.text_ == b.text_; }

 private:
  std::string text_;
  StatusOr<std::shared_ptr<const Codec>> codec_;
};

}  // namespace longhaul::codec

namespace longhaul {
using codec::CodecSpec;
}  // namespace longhaul
