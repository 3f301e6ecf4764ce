// The run file's options `gradients` and `parameters`: the form in which the data-parallel replicas
// of a stage send each other gradients and parameters.
//
// gradients:
//   none       fp32
//   bf16       rounded to bf16
//   sdp4bit    4 bits after a Hadamard transform (codec/sdp4bit). feedback=on: what rounding lost
//              is added to the next step's gradients. SDP4Bit's 8-bit level among the ranks of a
//              node is left out, because the ranks of a group sum inside the stage.
//   tagc       sends the largest elements, a share `keep`, of each matrix that may be sparse, by a
//              count sketch (codec/tagc). The other elements wait for later steps. Matrices of
//              fewer than `least` elements and all other parameters are sent in bf16.
//              owner=dense: a shard's owner adds all of its own gradients, which are not sent.
//              owner=sparse: the owner keeps the same share as the others (TAGC, Algorithm 1).
//              Both send the same bytes.
//   local-sgd  replicas train alone for `steps` steps. Each replica's change of the parameters in
//              these steps is its gradient of an outer step (transport/replicas/outer_step.h) with
//              learning rate `rate` and Nesterov momentum `momentum`. These gradients are sent as
//              sdp4bit, by default with feedback=on. The replicas merge the result of the outer
//              step `delay` x `steps` steps later.
// parameters:
//   fp32, bf16
//   difference4  4-bit differences from the parameters that all replicas hold already
//
// Pure. Errors: kInvalidArgument names the allowed values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul::replicas {

inline constexpr uint32_t kMostReplicas = 64;

enum class GradientForm : uint8_t { kFp32, kBf16, kSdp4bit, kTagc, kLocalSgd };
struct LocalSgdOptions {
  uint32_t steps = 20;
  double delay = 0;  // share of `steps`, below 1
  double rate = 0.7, momentum = 0.9;
  friend bool operator==(const LocalSgdOptions&, const LocalSgdOptions&) = default;
};
struct GradientOptions {
  GradientForm form = GradientForm::kFp32;
  bool feedback = false;         // sdp4bit, local-sgd
  double keep = 0.0125;          // tagc
  uint32_t least = 65536;        // tagc
  bool owner_is_sparse = false;  // tagc
  LocalSgdOptions local;
  friend bool operator==(const GradientOptions&, const GradientOptions&) = default;
};
enum class ParameterForm : uint8_t { kFp32, kBf16, kDifference4 };

StatusOr<GradientOptions> ParseGradients(std::string_view text);
StatusOr<ParameterForm> ParseParameters(std::string_view text);
// Includes every key, but owner=dense: "tagc:keep=0.0125,least=65536".
std::string ToString(const GradientOptions& options);
std::string_view ToString(ParameterForm form);

}  // namespace longhaul::replicas
