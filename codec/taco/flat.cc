#include "codec/taco/flat.h"

#include "codec/taco/checks.h"
#include "codec/taco/cpu/kernels.h"

namespace longhaul::codec {

uint64_t TacoPayloadBytes(uint64_t elements, const taco::Params& params) {
  return taco::MakeLayout(elements, params).end;
}

Status TacoEncodeFlat(const void* in, Dtype dtype, uint64_t elements, const taco::Params& params,
                      std::span<std::byte> payload, Parallel* parallel,
                      uint64_t* nonfinite_blocks) {
  LH_RETURN_IF_ERROR(
      taco::CheckFlat("an input", in, dtype, elements, params, payload.data(), payload.size()));
  const uint64_t nonfinite =
      taco::cpu::Encode(in, dtype, elements, params, parallel, payload.data());
  if (nonfinite_blocks != nullptr) *nonfinite_blocks = nonfinite;
  return absl::OkStatus();
}

Status TacoDecodeFlat(std::span<const std::byte> payload, const taco::Params& params, void* out,
                      Dtype dtype, uint64_t elements, Parallel* parallel) {
  LH_RETURN_IF_ERROR(
      taco::CheckFlat("an output", out, dtype, elements, params, payload.data(), payload.size()));
  taco::cpu::Decode(payload.data(), params, parallel, out, dtype, elements);
  return absl::OkStatus();
}

Status TacoReduce(const TacoReduceArgs& args, Parallel* parallel) {
  LH_RETURN_IF_ERROR(taco::CheckReduce(args));
  taco::cpu::Reduce(args, parallel);
  return absl::OkStatus();
}

}  // namespace longhaul::codec
